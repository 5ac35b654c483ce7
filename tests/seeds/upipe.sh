# upipe.sh: UPipe, untied Ulysses. Part of run.sh.

row ulysses_heads -D 'batch.lengths=[1K, 250 x 4]' -D model.heads=16 -D model.kv_heads=8
plans "bytes: 7 of 8 parts of Q, K, V, O and its log-sum-exp, once" '.[0] | .bytes_total ==
    .tokens * 7 / 8 * (64 * 128 * 2 + 2 * 8 * 128 * 2 + 64 * 128 * 2 + 64 * 8)'
plans "equal work, whatever the mask" '[.[].compute_max_over_mean] | max < 1.0001' \
    '' '-D plan.mask=full' '-D plan.mask=window(w=4096)'
says "heads that do not divide: an error that says what would" 'hint: 6 or 10 ranks would do' \
    "$fcpc" -q "$program" -D model.heads=60 -D model.kv_heads=60

row upipe_phases -D 'batch.lengths=[2K]' -D model.heads=16 -D model.kv_heads=16 -D plan.strategy.heads=8
predicts "8 phases, each holding an eighth: 87.5 % less than all heads at once; the paper counts the same" '.[0].phases
    | (.slot_bytes | length) == 8 and .part_of_all_heads == 0.125 and .part_of_all_heads_paper == 0.125'
predicts "64:8 heads: 77.8 % less by what a plan holds, 4 of 18 heads; 87.5 % as the paper counts" '.[0].phases
    | .part_of_all_heads == 4 / 18 and .part_of_all_heads_paper == 0.125' '-D model.kv_heads=8'
predicts "backward, too, phases take each other's place: all hold what one does" '.[0].backward.phases
    | .peak_bytes == .slot_bytes[0] and (.slot_bytes | unique | length) == 1'
plans "slots fall as U does" '[.[].memory_peak_bytes] | .[0] < .[1] and .[1] < .[2] and .[2] < .[3]' '' \
    '-D plan.strategy.heads=16' '-D plan.strategy.heads=32' '-D plan.strategy=ulysses'

row upipe_kv_once -D 'batch.lengths=[4K]' -D model.heads=8 -D model.kv_heads=4
while read -r heads kv_heads ranks; do
    counts "$heads heads, $kv_heads of K and V, $ranks ranks: a rank gets each of its KV heads once" traffic '
        $1 == "fetch" && of("class") != "q" { kv++; if (seen[of("block") " " of("dst")]++) wrong("again: " $0) }
        END { if (kv != '"$kv_heads * ($ranks - 1)"') wrong(kv " fetches") }' \
        -D model.heads="$heads" -D model.kv_heads="$kv_heads" -D cluster.gpus="$ranks" -D plan.strategy.heads="$ranks"
done << 'END'
32 8 2
64 8 4
64 16 8
END

row upipe_ring -D 'batch.lengths=[2K, 256 x 8]' -D model.heads=16 -D model.kv_heads=8
counts "heads are divided inside nodes: Q never leaves its node, K and V come to each once" traffic '
    $1 == "fetch" && of("fabric") == "net" { net++; if (of("class") == "q") wrong("Q: " $0)
        if (seen[of("block") " " int(of("dst") / 8)]++) wrong("again: " $0) }
    END { if (!net) wrong("nothing between nodes") }'
plans "equal work; in phases too, with less memory" '([.[].compute_max_over_mean] | max < 1.01)
    and .[1].memory_peak_bytes < .[0].memory_peak_bytes' '' '-D plan.strategy=upipe(heads=8)+ring'

row upipe_memory -D 'batch.lengths=[1K]' -D model.heads=16 -D model.kv_heads=8
says "bytes of each phase, by what they hold" \
    '^slots +forward .*phases 0 to 3.*: [0-9.]+ MB each \(KV .*, Q .*, O .*\)$' "$fcpc" sim -q "$program"
# The paper counts the heads of a phase over all heads. A plan holds whole heads of K and V.
while read -r heads kv_heads at_once; do
    predicts "$heads:$kv_heads heads, $at_once at a time: the part of all heads as table 2 has it" \
        ".[0].phases.part_of_all_heads_paper == $at_once / $heads" \
        "-D model.heads=$heads -D model.kv_heads=$kv_heads -D plan.strategy.heads=$at_once"
done << 'END'
32 8 8
32 8 16
64 8 8
64 64 16
END

row upipe_projected -D 'batch.lengths=[1K]' -D model.heads=16 -D model.kv_heads=8
one='-D model.heads=8 -D model.kv_heads=8 -D plan.strategy.heads=8'
plans "the session of one phase has no other heads at home: two fifths of the memory" \
    '.[1].memory_peak_bytes < .[0].memory_peak_bytes * 0.4' '' "$one"
plans "64:64 heads: a session of one phase takes an eighth of Ulysses'" \
    '.[1].memory_peak_bytes * 8 <= .[0].memory_peak_bytes * 1.001' \
    '-D model.kv_heads=64 -D plan.strategy=ulysses' "$one"
