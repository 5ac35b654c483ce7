# fcp.sh: FCP, block-wise context parallelism. Part of run.sh.

row fcp_blocks -D 'batch.lengths=[5000, 2000 x 2, 300 x 4, 100 x 16]' -D plan.block=512
counts "only what is shorter than a block shares one; 28 blocks hold 112,000 tokens, as few as can" problem '
    $1 == "piece" { pieces[of("block")]++; if (of("length") < 4096) short[of("sequence")]++
        else whole[of("block")] = 1; tokens[of("block")] += of("length") }
    END { for (b in pieces) { blocks++; if (whole[b] && pieces[b] > 1) wrong("block " b " is shared")
            if (tokens[b] > 4096) wrong("block " b " is too large") }
        for (s in short) if (short[s] > 1) wrong("sequence " s " is cut in small pieces")
        if (blocks != 28) wrong(blocks " blocks") }'

row fcp_balance -D 'batch.lengths=[4K, 500 x 8]' -D plan.block=128 -D cluster.nodes=2 -D cluster.gpus=4
plans "work within half a percent of what blocks allow, tokens within a block of the mean" '.[0]
    | .compute_max_over_mean <= 1.005 * .compute_floor
    and .tokens_max_over_mean * .tokens / .ranks <= .tokens / .ranks + .block'
counts "one sequence of 16 blocks on 8 ranks: early and late blocks in pairs, as in a zigzag" placement '
    $1 == "home" { sum[of("rank")] += $2; n[of("rank")]++ }
    END { for (r = 0; r < 8; r++) if (n[r] != 2 || sum[r] != 15) wrong("rank " r ": " n[r] " blocks, sum " sum[r]) }' \
    -D 'batch.lengths=[32K]' -D cluster.nodes=1
says "a block too heavy to balance is a warning that names the size that would do" 'hint: plan.block = 2048 would do' \
    "$fcpc" -q "$program" -D plan.block=16K -D plan.strategy.split=off

row fcp_baselines -D 'batch.lengths=[16K, 4K x 2, 500 x 16]' -D plan.block=256 -D cluster.nodes=2 -D cluster.gpus=4
counts "LPT: the rank with least work that has room gets the next heaviest block" problem,placement '
    $1 == "block" { work[$2] = of("pairs"); tokens[$2] = of("tokens"); all += of("tokens"); blocks++ }
    $1 == "home" { home[$2] = of("rank") }
    END { cap = int(all / 32) + 2048
        for (n = 0; n < blocks; n++) { b = -1
            for (i = 0; i < blocks; i++) if (!(i in done) && (b < 0 || work[i] > work[b])) b = i
            done[b] = 1; r = home[b]
            for (i = 0; i < 32; i++) if (load[i] < load[r] && held[i] + tokens[b] <= cap) wrong("block " b)
            load[r] += work[b]; held[r] += tokens[b]; if (held[r] > cap) wrong("rank " r " is full") } }'
plans "near moves less than LPT" '.[0].bytes_total < .[1].bytes_total' '-D plan.strategy.place=near' ''
for strategy in ring zigzag; do
    counts "$strategy: every block goes from rank to rank, and no further than it must" traffic,placement '
        $1 == "exec" { reads[of("k_block") " " of("rank")] = 1 }
        $1 == "fetch" { if (of("dst") != (of("src") + 1) % 32) wrong($0); last[of("block")] = of("dst"); hops++ }
        END { for (b in last) if (!((b " " last[b]) in reads)) wrong("block " b); if (!hops) wrong("nothing moves") }' \
        -D "plan.strategy=$strategy"
    counts "$strategy: its gradient follows one step behind, and then goes home" rounds,placement '
        $1 == "home" { home[$2] = of("rank") }
        $1 == "move" && of("class") == "dkv" { moves++
            if (of("dst") != (of("src") + 1) % 32 && of("dst") != home[of("block")]) wrong($0) }
        END { if (!moves) wrong("no gradient moves") }' -D "plan.strategy=$strategy"
    check "runs as $strategy" run_small "$program" -D 'batch.lengths=[2K, 250 x 8]' -D "plan.strategy=$strategy"
done
plans "direct: fewer bytes between nodes in zigzag, and more slots" '.[0].bytes_inter_node < .[1].bytes_inter_node
    and .[0].memory_peak_bytes > .[1].memory_peak_bytes' '-D plan.strategy=zigzag(send=direct)' '-D plan.strategy=zigzag'

row fcp_rounds -D 'batch.lengths=[4K, 350 x 10]' -D plan.block=128
plans "as many rounds as the bound; what depends on others is counted apart" '.[0] | .rounds == .rounds_lower_bound
    and .rounds > 0 and .rounds_dependent > 0
    and .backward_rounds == .rounds and .backward_rounds_dependent > .rounds_dependent'
counts "the bound is what the busiest port sends or receives; the two fabrics work side by side" traffic,rounds '
    $1 == "fetch" && of("parent") == "-" { f = of("fabric"); units = of("units")
        ports[f " out " of("src")] += units; ports[f " in " of("dst")] += units }
    $1 == "round" && of("pass") == "forward" && of("kind") == "independent" { rounds++ }
    END { for (p in ports) if (ports[p] > most) most = ports[p]
        if (rounds != most) wrong(rounds " rounds, " most " units") }'
counts "in no round a rank sends twice or receives twice on a fabric" rounds '
    $1 == "move" { p = of("pass") of("round") of("fabric")
        if (s[p of("src")]++ || d[p of("dst")]++) wrong("round " of("round") ", " $0); moves++ }
    END { if (!moves) wrong("nothing moves") }'

row fcp_pipeline -D 'batch.lengths=[2K, 512 x 4]' -D plan.block=128
predicts "with one buffer nothing overlaps; more than two are never slower; bytes stay the same" '
    ([.[].bytes_total] | unique | length) == 1
    and ([.[].makespan_s] | .[0] > 1.3 * .[1] and .[1] >= .[2] and .[2] >= .[3])' \
    '-D plan.strategy.buffers=1' '-D plan.strategy.buffers=2' '' '-D plan.strategy.buffers=8'
predicts "a faster network is no slower, because the margin follows the traffic" '[.[].makespan_s] as $t
    | [range(1; 6) | $t[.] <= $t[. - 1]] | all' '-D cluster.inter=12.5GB/s' '-D cluster.inter=25GB/s' \
    '-D cluster.inter=50GB/s' '-D cluster.inter=100GB/s' '-D cluster.inter=200GB/s' '-D cluster.inter=400GB/s'
predicts "stages overlap: all takes less than computing and moving one after the other" \
    '.[0].makespan_s < .[1].makespan_s' '' '--without overlap'
says "9 buffers are refused" 'error.*buffers must be from 1 to 8' "$fcpc" -q "$program" -D plan.strategy.buffers=9
for buffers in 1 8; do
    check "runs with $buffers buffers" run_small "$program" -D 'batch.lengths=[2K, 512 x 4]' -D plan.block=128 \
        -D plan.strategy.buffers=$buffers
done

row fcp_coalescer -D 'batch.lengths=[4K, 1K x 4]' -D plan.block=256
plans "bytes and rounds are the same from 1 to 64 rounds a stage; stages become fewer" '([.[] | [.bytes_total, .rounds,
    .rounds_lower_bound, .backward_bytes_total, .backward_rounds]] | unique | length) == 1
    and ([.[].stages] == ([.[].stages] | sort | reverse)) and .[0].stages > .[3].stages' \
    '-D plan.strategy.coalesce=1' '-D plan.strategy.coalesce=4' '' '-D plan.strategy.coalesce=64'
says "65 are refused" 'error.*coalesce must be from 1 to 64' "$fcpc" -q "$program" -D plan.strategy.coalesce=65

row fcp_reshuffle -D 'batch.lengths=[2K, 250 x 8]' -D plan.block=128
plans "what attention moves does not depend on the layout; planned moves nothing before and after" '
    ([.[].bytes_total] | unique | length) == 1 and ([.[].bytes_reshuffle > 0] == [true, true, false])' \
    '' '-D plan.layout=zigzag' '-D plan.layout=planned'
predicts "hiding it behind local tiles saves time" '.[0].makespan_s < .[1].makespan_s' '' '--without hiding'
for layout in zigzag planned; do
    check "runs with tokens held $layout" run_small "$program" -D 'batch.lengths=[2K, 250 x 8]' -D plan.block=128 \
        -D plan.layout=$layout
done

row fcp_margin -D 'batch.lengths=[2K, 250 x 8]' -D plan.block=128
predicts "16 of 132 multiprocessors for communication: attention takes a tenth longer than with 4, the network less" '
    .[1].bounds.compute / .[0].bounds.compute | . > 1.09 and . < 1.11' '-D plan.margin=4' '-D plan.margin=16'
predicts "with none the network is too slow" '.[0].exposed.kv > 2 * .[1].exposed.kv' '-D plan.margin=0' ''

row fcp_rails -D 'batch.lengths=[4K, 250 x 16]' -D plan.block=128
rails='
    $1 == "home" { home[$2] = of("rank") } $1 == "exec" { reads[of("k_block") " " of("rank")] = 1 }
    $1 == "fetch" { net[$2] = of("fabric") == "net"; if (net[$2] && net[of("parent")]) hops++
        if (net[$2] && of("class") != "q") { arrivals++; idle += !((of("block") " " of("dst")) in reads) } }
    $1 == "move" && of("fabric") == "net" && of("class") != "in" && of("class") != "out" { moves++
        off += of("src") % 4 != of("dst") % 4 }'
for strategy in fcp ring zigzag cad dcp groups ulysses 'ulysses(inside=2)+ring' 'upipe(heads=8,inside=8)+ring' \
    'ulysses(inside=4)+fcp' 'ulysses(inside=2)+cad' 'upipe(inside=8)+dcp'; do
    for layout in planned contiguous; do
        counts "$strategy, $layout: what goes between nodes stays on its rail" placement,traffic,rounds "$rails"'
            END { if (off || !moves) wrong(off " of " moves " leave it") }' \
            -D "plan.strategy=$strategy" -D "plan.layout=$layout" -D model.kv_heads=32
    done
done
plans "what the caller holds may leave its rail, and the summary says how much; else nothing does" '
    ([.[].bytes_off_rail > 0] == [true, true, false, false]) and (.[0] | .bytes_off_rail < .bytes_reshuffle)' \
    '-D plan.layout=contiguous' '-D plan.layout=zigzag' '-D plan.layout=planned' \
    '-D plan.layout=contiguous -D cluster.fabric=fat_tree'
predicts "that takes longer than on a fat tree; where nothing leaves its rail, rails cost less than a tenth" '
    .[0].makespan_s > 1.02 * .[1].makespan_s and .[2].makespan_s < 1.1 * .[3].makespan_s' \
    '-D plan.layout=contiguous' '-D plan.layout=contiguous -D cluster.fabric=fat_tree' \
    '-D plan.layout=planned' '-D plan.layout=planned -D cluster.fabric=fat_tree'
counts "in one hop from its home's node; three of four are read where they arrive" placement,traffic,rounds "$rails"'
    END { if (hops) wrong(hops " hops follow another one"); if (4 * idle > arrivals) wrong(idle " of " arrivals) }'
counts "without rails most of it leaves them" placement,traffic,rounds "$rails"'
    END { if (2 * off < moves) wrong(off " of " moves " leave them") }' -D cluster.fabric=fat_tree

row fcp_ulysses_inside -D 'batch.lengths=[4K, 256 x 16]' -D plan.block=256 -D model.heads=8 -D model.kv_heads=8
counts "Q never leaves its node; keys cross to a node once for each head, and to the rank that computes it" \
    placement,traffic '
    $1 == "exec" { reads[of("k_block") " " of("rank")] = 1 }
    $1 == "fetch" && of("fabric") == "net" { net++; if (of("class") == "q") wrong("Q: " $0)
        if (!((of("block") " " of("dst")) in reads)) wrong("nobody reads it: " $0)
        if (seen[of("block") " " int(of("dst") / 8)]++) wrong("again: " $0) }
    END { if (!net) wrong("nothing between nodes") }' -D plan.strategy.split=off
counts "so on rails, too, and all of it stays on its rail" placement,traffic '
    $1 == "exec" { reads[of("k_block") " " of("rank")] = 1 }
    $1 == "fetch" && of("fabric") == "net" { net++; if (of("src") % 8 != of("dst") % 8) wrong("off its rail: " $0)
        if (!((of("block") " " of("dst")) in reads)) wrong("nobody reads it: " $0) }
    END { if (!net) wrong("nothing between nodes") }' -D plan.strategy.split=off -D cluster.fabric=rail
plans "less than half of what fcp by itself sends between nodes, and less than with a ring" '
    [.[].bytes_inter_node] | .[0] < .[1] / 2 and .[0] < .[2] / 2' '' '-D plan.strategy=fcp -D plan.block=4K' \
    '-D plan.strategy=ulysses(inside=node)+ring'
predicts "faster than either" '[.[] | .makespan_s + .backward.makespan_s] | .[0] < .[1] and .[0] < .[2]' '' \
    '-D plan.strategy=fcp -D plan.block=4K' '-D plan.strategy=ulysses(inside=node)+ring'

row fcp_both_passes -D 'batch.lengths=[2K, 250 x 8]' -D plan.block=128
plans "backward: K and V in bf16 as forward, and their gradients in fp32, twice that" '.[0] | .backward_bytes_total ==
    3 * .bytes_total and .bytes_total > 0 and .backward_rounds == .rounds and .backward_rounds_dependent >= .rounds'

row fcp_auto_block -D 'batch.lengths=[4K, 250 x 8]'
for strategy in fcp cad dcp 'groups(tokens=64K)'; do
    predicts "$strategy: no other size is predicted to be a percent faster" '
        ([.[] | .makespan_s + .backward.makespan_s] | .[0] <= 1.01 * min) and (.[0].block | IN(512, 1024, 2048, 4096, 8192))' \
        "-D plan.strategy=$strategy" "-D plan.strategy=$strategy -D plan.block=512" \
        "-D plan.strategy=$strategy -D plan.block=1K" "-D plan.strategy=$strategy -D plan.block=2K" \
        "-D plan.strategy=$strategy -D plan.block=4K" "-D plan.strategy=$strategy -D plan.block=8K"
done
plans "it is the default" '.[0].block == .[1].block' '' '-D plan.block=auto'

row fcp_ablation -D 'batch.lengths=[2K, 250 x 8]' -D plan.block=128 -D cluster.nodes=8
# Their GPU computes 5920 operations in the time of a byte: the times of h200's profile, longer by 989 / 296.
awk '/^(forward|backward)\..*\.(full|partial|row) / { $2 *= 989 / 296 } { print }' \
    compiler/simulate/profiles/h200.profile > "$work/slow.profile"
for profile in "$work/slow.profile" h200; do
    predicts "each part of it gains, in their order, in both passes" '
        ([.[].makespan_s] | . == sort and .[0] < .[2] and .[1] < .[2] and .[2] < .[3] and .[3] < .[4])
        and ([.[].backward.makespan_s] | . == sort and .[1] < .[2] and .[2] < .[3] and .[3] < .[4])' \
        "--profile $profile" "--profile $profile --without hiding" "--profile $profile --without hiding,fusion" \
        "--profile $profile --without hiding,fusion --network pulls --incast 68" \
        "--profile $profile --without hiding,fusion,overlap --network pulls --incast 68"
done
