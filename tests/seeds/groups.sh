# groups.sh: FCP, flexible groups of ranks. Part of run.sh.

# Tokens of each rank, and in ranks[s] how many ranks have tokens of sequence s. Only for blocks of one sequence.
groups_of='$1 == "piece" { of_block[of("block")] = of("sequence"); tokens[of("block")] += of("length") }
    $1 == "home" { r = of("rank"); s = of_block[$2]; held[r] += tokens[$2]; if (!seen[s " " r]++) ranks[s]++ }'

row groups_packing -D 'batch.lengths=[3K, 2K, 250 x 16]' -D plan.block=128 -D plan.strategy.tokens=2K
counts "no rank holds more than its cap, and the longest sequence has two ranks or more" problem,placement "$groups_of"'
    END { for (r in held) if (held[r] > 65536) wrong("rank " r ": " held[r]); if (ranks[0] < 2) wrong("one rank") }'
"$fcpc" -q "$program" -o "$work/again"
check "the same groups each time" cmp "$work/plan" "$work/again"
says "a cap that is too small is an error that says so" 'error' "$fcpc" -q "$program" -D plan.strategy.tokens=8K

row groups_degrees -D 'batch.lengths=[2K, 1536, 1K, 128 x 12]' -D plan.block=64 -D plan.strategy.tokens=1K
counts "7, 5 and 2 ranks for the three longest" problem,placement "$groups_of"'
    END { if (ranks[0] != 7 || ranks[1] != 5 || ranks[2] != 2) wrong(ranks[0] " " ranks[1] " " ranks[2]) }'
counts "the second with 4 ranks, as in 8, 4, 2, 1 and 1, would take longer than any does now" problem,placement \
    "$groups_of"'
    $1 == "tile" { pairs[$2] = of("pairs") }
    $1 == "exec" { load[of("rank")] += pairs[$2]; if (seen[1 " " of("rank")]) second += pairs[$2] }
    END { for (r in load) if (load[r] > second / 4) wrong("rank " r ": " load[r] ", " second / 4) }'
# the best of all divisions, by the published program and by enumeration: tests/unit/place/test_groups.c

row groups_any_ring -D 'batch.lengths=[1260, 1400, 1080, 900]' -D plan.block=64 -D plan.strategy.tokens=400
counts "rings of 6, 7, 5 and 3 ranks" problem,placement "$groups_of"'
    END { if (ranks[0] ranks[1] ranks[2] ranks[3] != "6753") wrong(ranks[0] " " ranks[1] " " ranks[2] " " ranks[3]) }'
counts "what a ring sends stays in it" problem,placement,traffic "$groups_of"'
    $1 == "fetch" && !seen[of_block[of("block")] " " of("dst")] { wrong($0) }'
says "ranks that it has no use for are named, without a block size that would not help" \
    'warning: 7 of 21 ranks get no tokens: groups has no use for more' "$fcpc" -q "$program" \
    -D 'batch.lengths=[1260, 1400, 1080, 900]' -D plan.block=64 -D plan.strategy.tokens=400

row groups_noise -D 'batch.lengths=[4K, 3K, 2K, 500 x 12]' -D plan.block=256 -D plan.strategy.tokens=2K
plans "the same homes with the figures of GPUs that are 1 to 7 times as fast" '[.[].homes] | unique | length == 1' \
    '' '-D cluster.gpu=a100' '-D cluster.gpu=h100' '-D cluster.gpu=b200'
# normal noise of 20 % on each coefficient: tests/unit/place/test_groups.c
small='-D batch.lengths=[4K,3K,2K,500,500,500,500,500] -D plan.block=256 -D plan.strategy.tokens=2K -D inter=0.2GB/s'
plans "a profile of the user's own steers it: another one, other homes" '[.[].homes] | unique | length == 2' \
    "$small" "$small --profile cpu"

row groups_linear -D 'batch.lengths=[4K, 3K, 2K, 500 x 12]' -D plan.block=64 -D plan.strategy.tokens=2K
plans "with linear layers ranks are divided in another way than without" '[.[].homes] | unique | length == 2' \
    '' '-D model.linear=0.001ns'
# the best of all divisions, by enumeration: tests/unit/place/test_groups.c; micro-batches: tests/unit/split
