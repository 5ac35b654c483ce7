# dcp.sh: DCP, dynamic context parallelism. Part of run.sh.

row dcp_tiles -D 'batch.lengths=[8K]' -D plan.block=256 -D 'plan.mask=lambda(sink = 64, window = 512)'
plans "tiles: those of the window, and of the sink; causal has thirteen times as many" '
    # the sink is divided from its block: that are 2 tiles more there, and 1 in each of 4 blocks that see both
    ([range(0; 128) | ([., 4] | min) + 1 + (if . > 4 then 1 else 0 end)] | add) as $window
    | .[0].tiles == $window + 6 and .[1].tiles == 128 * 129 / 2' '' '-D plan.mask=causal'
plans "what is sent falls with the mask" '[.[].bytes_total] | .[0] < .[1] and .[1] < .[2] / 2' \
    '-D plan.mask.window=1024' '' '-D plan.mask=causal'

plans "the sink sends 128 tokens of 4 KB to each of 7 ranks; all else is the window's" \
    '.[0].bytes_total - .[1].bytes_total == 7 * 128 * 4096' '' '-D plan.mask=window(w=4096)'
counts "these tokens are a block, and the rest of their block goes to one rank at most" rounds '
    $1 == "move" && of("class") == "kv" && of("pass") == "forward" {
        if (of("block") == 0) { sink++; if (of("tokens") != 128) wrong($0) }
        if (of("block") == 1) rest++ }
    END { if (sink != 7 || rest > 1) wrong(sink " and " rest + 0) }'

row dcp_masks -D 'batch.lengths=[2K, 250 x 8]' -D plan.block=128
pairs_of() { # pairs_of CONDITION: pairs of a sequence of n = 700 tokens for which it is true, one by one
    awk "BEGIN { n = 700; for (q = 0; q < n; q++) for (k = 0; k < n; k++) if ($1) s++; print s }"
}
while IFS='|' read -r mask condition; do
    pairs=$(pairs_of "$condition")
    plans "$mask is its definition, pair by pair" ".[0].pairs == $pairs" \
        "-D plan.mask=$mask -D batch.lengths=[700] -D plan.block=128"
done << 'END'
causal|k <= q
lambda(sink=64,window=300)|k <= q && (k < 64 || q - k < 300)
causal_blockwise(b=100,w=2)|k <= q && (int(q/100) == 0 || int(q/100) == int((n-1)/100) || k < 100 || k >= q - 200)
shared_question(p=20,answers=4)|k <= q && (k < 140 || (k >= 140 && q >= 140 && int((q-140)/140) == int((k-140)/140)))
END

row dcp_fewest_bytes -D 'batch.lengths=[8K, 4K, 500 x 16]' -D plan.block=256 \
    -D 'plan.mask=lambda(sink = 64, window = 512)'
plans "within both tolerances, with less than a third of the bytes of fcp" '.[0].compute_max_over_mean <= 1.1
    and .[0].tokens_max_over_mean <= 1.1 and .[0].bytes_total < 
    .[1].bytes_total / 3 and .[0].bytes_inter_node <= .[1].bytes_inter_node' \
    '' '-D plan.strategy=fcp'
plans "tighter tolerances are kept, too" '.[0] | .compute_max_over_mean <= 1.02 and .tokens_max_over_mean <= 1.03' \
    '-D plan.strategy=dcp(epsilon_compute=0.02,epsilon_memory=0.03)'

row dcp_two_tolerances -D 'batch.lengths=[4K, 2K, 250 x 8]' -D plan.block=128
# The work of each node over the mean of nodes, and of each rank over the mean of its node.
within='$1 == "tile" { pairs[$2] = of("pairs") }
    $1 == "exec" { r = of("rank"); load[r] += pairs[$2]; node[int(r / 8)] += pairs[$2]; all += pairs[$2] }
    END { for (v = 0; v < 4; v++) if (node[v] * 4 > all * (1 + nodes)) wrong("node " v ": " node[v] * 4 / all)
        for (v = 0; v < 4; v++) if (node[v] * 4 > all * 1.1) wide++
        if ((nodes > 0.1) != (wide > 0)) wrong(wide + 0 " nodes over 1.1 of the mean")
        for (r = 0; r < 32; r++) if (load[r] * 8 > node[int(r / 8)] * (1 + ranks)) wrong("rank " r ": " load[r]) }'
counts "nodes are within 0.4, and one of them uses it; ranks are within 0.1 of their node" problem,placement \
    "BEGIN { nodes = 0.4; ranks = 0.1 } $within"
counts "tighter ones are kept, too" problem,placement "BEGIN { nodes = 0.03; ranks = 0.05 } $within" \
    -D plan.strategy.epsilon_nodes=0.03 -D plan.strategy.epsilon_compute=0.05
plans "the wider one saves bytes between nodes; off is the default" '
    [.[].bytes_inter_node] | .[0] < .[1] and .[0] < .[2]' '' '-D plan.strategy.epsilon_nodes=0.03' \
    '-D plan.strategy.epsilon_nodes=off'

row dcp_divisions -D 'batch.lengths=[2K, 250 x 8]' -D plan.block=128
counts "the first waits for nothing; the others share the rounds, none has more than a third" rounds '
    $1 == "round" { rounds++; n[of("stage")]++ }
    END { for (s = 1; s <= 3; s++) if (n[s] < 1 || n[s] > int((rounds + 2) / 3)) wrong("stage " s ": " n[s])
        if (n[0] || n[4]) wrong("stage 0: " n[0] ", 4: " n[4]) }'
for divisions in 2 4 8; do
    # queries and results move there, and blocks are passed on inside a node
    counts "tokens in place, two nodes: $divisions stages compute, two at least" schedule '
        $1 == "visit" { if (of("stage") > last) last = of("stage") }
        END { if (last + 1 != most && most > 2) wrong(last + 1 " stages compute") }'"BEGIN { most = $divisions }" \
        -D plan.layout=contiguous -D cluster.nodes=2 -D "plan.strategy.divisions=$divisions"
done
plans "as many stages as divisions" '[.[].stages] == [2, 4, 8]' '-D plan.strategy.divisions=2' '' \
    '-D plan.strategy.divisions=8'

row dcp_heads -D 'batch.lengths=[4K]' -D plan.block=256 -D model.heads=8 -D model.kv_heads=8
plans "64:64 heads on one node: the bytes of ulysses, less than half of those by blocks of all heads" '
    [.[].bytes_total] | .[0] == .[1] and .[0] < .[2] / 2' '' '-D plan.strategy=ulysses' '-D plan.strategy=dcp'
plans "on two nodes: fewer bytes between these than either" '
    [.[].bytes_inter_node] | .[0] < .[1] and .[0] < .[2]' '-D cluster.nodes=2' \
    '-D cluster.nodes=2 -D plan.strategy=ulysses' '-D cluster.nodes=2 -D plan.strategy=dcp'

row dcp_instructions -D 'batch.lengths=[2K, 250 x 8]' -D plan.block=128
"$fcpc" -q "$program" -o "$work/plan"
"$fcpc" dump "$work/plan" > "$work/tables"
check "four kinds of instructions: launch, wait, copy, attend" sh -c \
    "sed -n 's/^instr .* op=\([a-z_]*\) .*/\1/p' '$work/tables' | sort -u | tr '\n' ' ' |
        grep -x 'attend copy launch wait '"
check "slots are used again: some rank receives a quarter more blocks than it has slots" awk "$fields"'
    $1 == "summary" { slots = of("slots_max") }
    $1 == "instr" && of("op") == "launch" {
        for (i = 0; i < of("count"); i++) owner[of("first_transfer") + i] = of("rank") }
    $1 == "transfer" && of("dir") == "recv" && of("cls") == "kv" { n = ++got[owner[$2]]; if (n > most) most = n }
    END { if (most < 1.25 * slots) wrong(most " blocks, " slots " slots") }'"$ends" "$work/tables"

row dcp_ahead -D 'batch.lengths=[2K, 250 x 8]' -D plan.block=128
for i in 1 2 3 4; do "$fcpc" -q "$program" -o "$work/plan.$i" & done
wait
check "four that plan at once get the same bytes" \
    sh -c "for i in 2 3 4; do cmp '$work/plan.1' '$work/plan.'\$i || exit 1; done"
plans "ranks need to exchange no more than a digest of homes; another batch has another" '[.[].homes]
    | (.[0] | test("^[0-9a-f]{64}$")) and .[0] == .[1] and .[0] != .[2]' '' '' \
    '-D batch.lengths=lognormal(median=3000,sigma=1.2,tokens=512K,max=128K,seed=6)'
"$fcpc" -q "$program" --slices -o "$work/plan.parts"
says "a rank needs its own part of a plan, and the parts of all ranks are proven to be of this plan" \
    'the extracts of all ranks are of this plan, root [0-9a-f]{64}$' "$fcpc" verify --slices "$work/plan.parts"
# the call from another thread: tests/unit/compile/test_compile.c and examples/train_loop.c

row dcp_once_a_node -D 'batch.lengths=[2K, 250 x 8]' -D plan.block=128
for strategy in dcp fcp ring zigzag groups cad 'ulysses(inside = node) + ring' 'ulysses(inside = node) + dcp'; do
    counts "$strategy: no block comes to a node twice" traffic '
        $1 == "fetch" && of("fabric") == "net" { net++; node = int(of("dst") / 4)
            if (seen[of("block") " " node " " of("class")]++) wrong("again: " $0) }
        END { if (!net) wrong("nothing between nodes") }' -D "plan.strategy=$strategy" -D plan.layout=contiguous
done
# Sixteen nodes read the first 2K tokens, which are at one rank.
sinks="-D cluster.nodes=16 -D cluster.gpus=1 -D batch.lengths=[128K] -D plan.mask=lambda(sink=2K,window=1K)"
for strategy in dcp fcp 'ring(send=direct)'; do
    plans "$strategy: by relays, the busiest sends at most a third, and no more bytes cross" '
        .[0].send_max_over_mean < .[1].send_max_over_mean / 3 and .[0].bytes_inter_node == .[1].bytes_inter_node' \
        "$sinks -D plan.strategy=$strategy -D plan.relay=auto" "$sinks -D plan.strategy=$strategy -D plan.relay=off"
    predicts "$strategy: and both passes take at most two thirds of the time" '
        (.[0].makespan_s + .[0].backward.makespan_s) * 3 < (.[1].makespan_s + .[1].backward.makespan_s) * 2' \
        "$sinks -D plan.strategy=$strategy -D plan.relay=auto" "$sinks -D plan.strategy=$strategy -D plan.relay=off"
done
