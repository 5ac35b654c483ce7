#!/bin/sh
# Tests the command line: what each command prints and writes, exit statuses, and errors as text and as JSON; that an
# error leaves no file behind, and that no input is overwritten. Needs jq. $B is the build folder. make check leaves out
# what NVRTC compiles and most lists of real lengths, unless CHECK_LONG is set. The closing line is "cli: N passed,
# M failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
top=$PWD
B=${B:-build}
case "$B" in /*) ;; *) B=$top/$B ;; esac
fcpc=$B/fcpc
[ -x "$fcpc" ] || { echo "cli: 0 passed, 1 failed: $fcpc is not there"; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-cli.XXXXXX") || exit 1
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work" || exit 1
mkdir out
passed=0 failed=0
quick=yes
[ -n "${CHECK_LONG:-}" ] && quick=

good() { passed=$((passed + 1)); }
fail() { # fail NAME WHAT
    failed=$((failed + 1))
    echo "FAILED: $1: $2"
    sed 's/^/    stdout: /' "$work/stdout" | head -n 5
    sed 's/^/    stderr: /' "$work/stderr" | head -n 12
}
runs=0
run() { runs=$((runs + 1)); "$@" > "$work/stdout" 2> "$work/stderr"; }
# ok NAME COMMAND...: the command ends with 0; what it prints is in the files stdout and stderr
ok() {
    name=$1; shift
    run "$@"
    status=$?
    if [ $status = 0 ]; then good; else fail "$name" "status $status, expected 0"; fi
}
# holds NAME COMMAND...: the command is a condition that must hold; its output is not kept.
# holds NAME json CONDITION: what stdout has now is one JSON text of which the condition, in jq's language, is true.
holds() {
    name=$1; shift
    if [ "$1" = json ]; then put_off "$2"; return; fi
    if "$@"; then good; else fail "$name" "does not hold: $*"; fi
}
# Keeps a condition on stdout until the end. Then one jq judges all of them, because each start of jq takes 20 ms.
mkdir held
held=0 held_of=0 # how many there are; the run that the last one is about
put_off() {
    held=$((held + 1))
    if [ $held_of != $runs ] || [ "$work/stdout" -nt "$work/held/$runs" ]; then # else it is kept already
        held_of=$((runs += 1))
        cp "$work/stdout" "$work/held/$runs"
        echo "$runs" >> "$work/held/runs"
    fi
    echo "$runs $name" > "$work/held/$held.name"
    printf 'judge(%d; $a%d | fromjson | (%s)),\n' $held $runs "$1" >> "$work/held/conditions"
}
judge_all() {
    cd "$work/held" || exit 1
    {
        echo 'def judge(number; answer): if try ([answer] | last) catch false then empty else number end;'
        cat conditions
        echo empty
    } > program
    # shellcheck disable=SC2046
    jq -n -f program $(sed 's/.*/--rawfile a& &/' runs) > wrong 2> "$work/stderr" || echo 1 >> wrong
    passed=$((passed + held - $(wc -l < wrong)))
    while read -r number; do
        read -r of name < "$number.name"
        cp "$of" "$work/stdout"
        fail "$name" "does not hold: $(sed -n "/^judge($number;/,/)),\$/p" conditions)"
    done < wrong
}
# bad NAME STATUS CODE ARGUMENTS...: fcpc ends with the status and names the code, once as text and once with --json,
# where stdout must be one JSON object; answers/ keeps it until all are read at once, at the end. Nothing may be left in
# out/.
mkdir answers
asked=0
bad() {
    name=$1 want=$2 code=$3; shift 3
    run "$fcpc" "$@"
    status=$?
    if [ $status != "$want" ]; then fail "$name" "status $status, expected $want"; return; fi
    if ! names "$code"; then fail "$name" "no error[$code] on stderr"; return; fi
    run "$fcpc" --json "$@"
    status=$?
    if [ $status != "$want" ]; then fail "$name" "with --json: status $status, expected $want"; return; fi
    asked=$((asked + 1))
    cp "$work/stdout" "$work/answers/$asked"
    echo "$asked $code of: $name" >> "$work/answers/wanted"
    for left in out/* out/.[!.]*; do
        if [ -e "$left" ]; then fail "$name" "left behind: $left"; rm -rf out/*; return; fi
    done
    good
}
# Does stderr have the error? The shell reads it, because starting grep takes longer.
names() {
    while IFS= read -r line; do
        case "$line" in *"error[$1]"*) return 0 ;; esac
    done < "$work/stderr"
    return 1
}

# --- the programs ---------------------------------------------------------------------------------------------------
cat > a.fcp << 'EOF'
model   { heads = 4; kv_heads = 2; head_dim = 32; dtype = fp32 }
cluster { nodes = 2; gpus = 2 }
batch   { lengths = [700, 300 x 2, 50 x 6, 1] }
plan    { mask = lambda(sink = 8, window = 100); block = 128; layout = zigzag }
EOF
program() { printf '%s\n' "$2" > "$1"; }
plan() { "$fcpc" -q "$1" -o "$2" ${3:+$3} ${4:+$4} || echo "cannot compile $1"; }
variant() { sed "$1" a.fcp > "$2"; } # a.fcp with one thing changed
plan a.fcp a.plan

# --- compile --------------------------------------------------------------------------------------------------------
ok "compile" "$fcpc" a.fcp -o b.plan
holds "the summary has five lines on stderr" [ "$(wc -l < stderr)" = 5 ]
holds "nothing on stdout" [ ! -s stdout ]
holds "the same bytes twice" cmp -s a.plan b.plan
ok "options first, joined values" "$fcpc" -q -ob.plan -Dplan.block=256 --lengths=/dev/null --version
# Every option that takes a value is given once, but for -D. An option is known by what stands behind it in the help.
"$fcpc" help man | sed -n 's/^\.B .*\\-\\-\([a-z0-9\\-]*\) \\fI.*/--\1/p' | sed 's/\\//g' | sort -u > valued
holds "many options take values" [ "$(wc -l < valued)" -ge 45 ]
while read -r option; do
    case $option in --define | --field | --sweep | --dtable) value=a=1 ;; --check) value=all ;; *) value=1 ;; esac
    "$fcpc" $option $value $option $value > stdout 2> stderr
    status=$?
    twice=no
    grep -q -- "$option is given twice" stderr && twice=yes
    holds "$option twice" [ "$status $twice" = "2 $([ $option = --define ] && echo no || echo yes)" ]
done < valued
bad "two outputs" 2 E001 a.fcp -o out/a.plan -o out/b.plan
bad "two outputs in other spellings" 2 E001 a.fcp -oout/a.plan --output=out/b.plan
bad "a switch with two values" 2 E001 run a.fcp --check --check all
bad "two files for a field" 2 E001 a.fcp --field doc=a.npy --field doc=b.npy
# What other programs call it, or what is a setting of the program, leads on.
leads() { # leads WORDS ARGUMENTS...
    words=$1; shift
    bad "$*" 2 E001 "$@"
    holds "$* says $words" grep -qF -e "$words" stderr
}
leads "it is a setting of the program: -D cluster.gpus=..." a.fcp --gpus 8
leads "it is a setting of the program: -D model.head_dim=..." run a.fcp --head-dim 8
leads "in the program write batch { lengths = [64, 32] }" a.fcp --seqlens=8
leads "--version prints it" a.fcp -V
leads "--backend cuda" run a.fcp --device cuda
leads "fcpc --help lists them" a.fcp -l
leads "did you mean --strategy?" sim a.fcp --strategies ring
leads "-D plan.block has no value: write -D plan.block=VALUE" a.fcp -D plan.block 128
leads "-D 'batch.lengths=[1000, 2000]'" a.fcp --lengths 1000,2000
leads "which writes the files of --svg, --html, --png" show a.fcp -o x.svg
leads "fcpc FILE.fcp -o PLAN compiles" plan a.fcp
leads "fcpc show draws" viz a.fcp
leads "fcpc --version prints it" version
bad "a setting swept twice" 2 E001 sim a.fcp --sweep plan.block=128 --sweep plan.block=256
bad "strategies twice" 2 E001 sim a.fcp --strategy fcp --sweep plan.strategy=ring
ok "what adds up" "$fcpc" -q -q a.fcp -D plan.block=128 -D plan.block=256 --json
holds "the later one counts" json '.block == 256'
ok "compile quietly" "$fcpc" -q a.fcp -o b.plan
holds "quiet" [ ! -s stderr ]
ok "compile with JSON" "$fcpc" --json -q a.fcp -o b.plan
for key in ranks nodes tokens sequences blocks tiles pairs density flops_forward flops_backward compute_max_over_mean \
    compute_floor send_max_over_mean recv_max_over_mean tokens_max_over_mean bytes_total bytes_inter_node rounds \
    rounds_lower_bound rounds_dependent stages slots_max state_bytes memory_peak_bytes plan_bytes; do
    holds "summary has $key" json ".$key | type == \"number\""
done
for key in parse classify place colour schedule verify total; do
    holds "summary has seconds.$key" json ".seconds.$key | type == \"number\""
done
holds "ranks and tokens" json '.ranks == 4 and .nodes == 2 and .tokens == 1601 and .sequences == 10
    and .rounds == .rounds_lower_bound'
holds "plan_bytes is the file's size" json ".plan_bytes == $(wc -c < b.plan)"
ok "compile without -o writes nothing" "$fcpc" -q a.fcp
ok "overrides" "$fcpc" --json -q a.fcp -D cluster.nodes=1 -D plan.block=256 -D window=64 -D coalesce=4
holds "overrides took effect" json '.ranks == 2 and .block == 256'
printf '%s\n' '# lengths' 100 200 300 > l.lengths
ok "lengths from a file" "$fcpc" --json -q a.fcp --lengths l.lengths -D cluster.nodes=1
holds "lengths took effect" json '.tokens == 600 and .sequences == 3'
for named in "--lengths -" "--lengths /dev/stdin" "-D batch.lengths=file(\"/dev/stdin\")"; do
    # shellcheck disable=SC2086
    ok "lengths from a pipe: $named" sh -c 'sleep 0.1 | cat - l.lengths | "$0" --json -q a.fcp -D nodes=1 "$@"' \
        "$fcpc" $named
    holds "take effect, too" json '.tokens == 600 and .sequences == 3'
done
ok "replaces an existing plan" "$fcpc" -q a.fcp -D plan.block=256 -o b.plan
holds "replaced" sh -c '! cmp -s a.plan b.plan'
cp b.plan c.plan
ok "a scale may be negative" "$fcpc" -q a.fcp -D scale=-0.5 -o negative.plan
holds "it is in the plan" sh -c "\"$fcpc\" dump --json negative.plan | jq -e '[.. | .scale? // empty] == [-0.5]'"
ok "attention with a negative scale is right, forward and backward" "$fcpc" --json run negative.plan
holds "each tensor was checked" json '[.tensors[].ok] | length == 6 and all'
rm -f negative.plan
bad "a failed compile leaves the old plan" 1 E401 a.fcp -D plan.block=200 -o b.plan
holds "the old plan is as it was" cmp -s b.plan c.plan
program w.fcp 'cluster { gpus = 8 }; batch { lengths = [64K, 4K x 8] }; plan { mask = causal; block = 8K }'
ok "a warning" "$fcpc" --json -q w.fcp
holds "the warning is in the JSON, with its place" json '.warnings | length == 1 and .[0].file == "w.fcp"
    and .[0].line == 1'
holds "and on stderr" grep -q "w.fcp:1:.*warning:" stderr
ok "what passes made" "$fcpc" -q a.fcp --dump traffic,slots
holds "is on stdout" sh -c 'grep -q "^fetch 0 " stdout && grep -q "^peak 0 " stdout && ! grep -q "^round" stdout'
bad "a pass that is not there" 2 E001 a.fcp --dump traffic,cut
run "$fcpc" a.fcp --dump traffic,cut; holds "the passes are listed" grep -q "problem, placement, .* and rounds" stderr
bad "passes as JSON" 2 E001 a.fcp --json --dump slots
bad "an option of another command" 2 E001 a.fcp --svg a.svg
holds "which one takes it" grep -q "show takes it" stderr
bad "a strategy as an option of compile" 2 E001 a.fcp --strategy ring
holds "how a strategy is set" grep -q -e "-D plan.strategy=NAME" stderr
variant 's/gpus = 2/gpus = 2; memory = 0.0001 GB/' e.fcp; run "$fcpc" e.fcp --dump traffic,slots
holds "passes that ran before an error are printed" sh -c 'grep -q "^fetch" stdout && grep -q "^slot" stdout'
# strategy = auto: --explain lists what was tried. The plan is an ordinary one, and the same each time.
ok "auto" "$fcpc" a.fcp -D plan.strategy=auto --explain -o auto.plan
holds "a line for each candidate" sh -c '[ "$(grep -c "  chosen; rank [0-9]* ends last and " stdout)" = 1 ] &&
    grep -q "^fcp " stdout && grep -q "^cad(tolerance = 0.02) " stdout && grep -q "^zigzag(send = direct, " stdout'
holds "the time it took is in the summary" grep -q "(choose " stderr
ok "auto once more" "$fcpc" -q a.fcp -D plan.strategy=auto -o b.plan
holds "the same bytes" cmp -s auto.plan b.plan
ok "its plan is verified" "$fcpc" verify auto.plan
ok "and says which strategy it is" "$fcpc" --json sim auto.plan
holds "which no program calls auto" json '.strategy != "auto"'
printf '%s\n' 'model { heads = 32; kv_heads = 8 }' 'cluster { nodes = 4; gpus = 4; gpu = h200; inter = 25 GB/s }' \
    'batch { lengths = [1000 x 400, 50000 x 4] }' \
    'plan { mask = causal; layout = contiguous; passes = forward; strategy = auto(among = [cad]) }' > moved.fcp
ok "auto gives a rank more than its tolerance" "$fcpc" --json -q moved.fcp
holds "because that saves time, so it is no warning" json '.auto.moves.kept > 0 and .compute_max_over_mean > 1.26 and
    ([.diagnostics[].message | select(test("is not met"))] | length == 0)'
ok "auto as JSON" "$fcpc" --json -q a.fcp -D plan.strategy='auto(effort = 2)' --profile a100
holds "with all candidates" json '.auto.profile == "a100" and
    ([.auto.tried[] | select(.end == "chosen")] | length == 1) and ([.auto.tried[].end] | index("far") == null)'
holds "of which none is faster" json '[.auto.tried[] | select(.end == "chosen")][0].makespan_s ==
    ([.auto.tried[].makespan_s | numbers] | min)'
ok "auto with a budget" "$fcpc" --json -q a.fcp -D plan.strategy=auto -D plan.strategy.budget='1 us'
holds "tries one, and says what it takes" json '([.auto.tried[] | select(.makespan_s)] | length) == 1 and
    ([.auto.tried[].end] | index("over budget")) and .auto.budget_spent and .auto.budget_s == 1e-6 and
    ([.diagnostics[].message | select(test("the budget is 1e-06 s, and one candidate takes"))] | length == 1)'
ok "auto with a budget, explained" "$fcpc" -q a.fcp -D plan.strategy='auto(budget = 1 us)' --explain
holds "what was left out, and why" sh -c 'grep -q "not tried: over the budget" stdout && grep -q "^budget: 1e-06 s" stdout'
ok "auto among one" "$fcpc" --json -q a.fcp -D plan.strategy='auto(among = zigzag)'
holds "is that one" json '.strategy == "zigzag"'
ok "sim of auto predicts as it did" sh -c "\"$fcpc\" --json -q a.fcp -D plan.strategy=auto > chose.json &&
    \"$fcpc\" --json -q sim a.fcp -D plan.strategy=auto > simulated.json"
holds "the same time" jq -e -s '(.[0].auto.makespan_s -
    .[1].makespan_s - (.[1].backward.makespan_s // 0)) | fabs < 1e-9' chose.json simulated.json
bad "what was tried, of a program that tries nothing" 2 E001 a.fcp --explain
program stated.fcp 'model { heads = 8; kv_heads = 8 }; cluster { nodes = 4; gpus = 8; inter = 5 GB/s; gpu = h200 }
batch { lengths = [96K, 70K, 48K, 30K, 12K x 6, 4K x 20, 1K x 60] }
plan { mask = causal; block = 4K; margin = 16; strategy = groups(tokens = 64K) }'
sed 's/^\(.*ward.*launch  *\)\([0-9.]*\) us/\1\2 ms/' "$top/compiler/simulate/profiles/h200.profile" > slow.profile
homes() { "$fcpc" --json -q stated.fcp "$@" | jq -r .homes; }
holds "groups of another profile's degrees" [ "$(homes)" != "$(homes --profile cpu)" ]
holds "of one in a file, whose launches take longer" [ "$(homes)" != "$(homes --profile ./slow.profile)" ]
holds "the profile of the program's GPU changes nothing" [ "$(homes)" = "$(homes --profile h200)" ]
sed 's/margin = 16; strategy.* }/}/' stated.fcp > margin.fcp
ok "a margin by a profile" "$fcpc" -q margin.fcp --profile a100
bad "a profile by which nothing is chosen" 2 E001 stated.fcp -D plan.strategy=fcp --profile a100
bad "by which nothing is proved, either" 2 E001 verify stated.fcp -D plan.strategy=fcp --profile a100
ok "but all is predicted" "$fcpc" sim -q stated.fcp -D plan.strategy=fcp --profile a100
ok "the plan" "$fcpc" -q stated.fcp -o stated.plan
bad "nothing is left to choose in a plan" 2 E001 show stated.plan --profile a100
ok "but a page predicts" "$fcpc" show stated.plan --html stated.html --profile a100
holds "by that profile" grep -q '"profile": "a100"' stated.html
bad "a page of a profile that is not there" 1 E340 show stated.plan --html stated.html --profile a10
bad "a profile that is not there" 1 E340 a.fcp -D plan.strategy=auto --profile a10

# Layers: a plan for each mask. All are written or none, and homes are the same in all.
program layers.fcp 'model { heads = 2; kv_heads = 1; head_dim = 16 }; cluster { gpus = 4 }
batch { lengths = [700, 300 x 2, 50 x 6] }
plan { layers = [window(w = 60) x 3, causal]; block = 128 }'
ok "layers" "$fcpc" layers.fcp -o m.plan
holds "the homes are printed" grep -Eq "^  homes   [0-9a-f]{64}, of all masks" stderr
holds "and how often each mask is there" sh -c 'grep -qF "  layers  mask 1 of 2, 3 layers: window(w = 60)" stderr &&
    grep -qF "  layers  mask 2 of 2, 1 layer: causal" stderr'
holds "and what each took" sh -c '[ "$(grep -c "^  plan .* verified; 0.00 ms" stderr)" = 0 ]'
ok "the first is a plan" "$fcpc" verify m.plan
ok "the second, too" "$fcpc" verify m.2.plan
ok "which is run right" "$fcpc" run --json -q m.2.plan
holds "checked" json '.ok and .checked'
ok "the first one's mask" sh -c "\"$fcpc\" explain m.plan 200 100 > first.txt"
ok "the second one's" sh -c "\"$fcpc\" explain m.2.plan 200 100 > second.txt"
holds "differ" sh -c 'grep -q "window" first.txt && grep -q "causal" second.txt'
ok "layers as JSON" "$fcpc" --json -q layers.fcp -o n.plan
holds "with the files and equal homes" json '. as $o | [.layers[].plan] == ["n.plan", "n.2.plan"] and
    ([.layers[].homes] | unique | length == 1) and .homes == .layers[0].homes and [.layers[].layers] == [3, 1] and
    ([.layers[].seconds.total] | min > 0 and add <= 1.01 * $o.seconds.total)'
holds "the same bytes twice" sh -c 'cmp -s m.plan n.plan && cmp -s m.2.plan n.2.plan'
holds "beside the list it is the first mask" json 'del(.layers, .diagnostics, .warnings, .seconds,
    .compute_max_over_mean_any, .compute_max_over_mean_layers) == (.layers[0] | del(.layers, .mask, .seconds))'
ok "layers of work that moves" "$fcpc" --json -q -D plan.strategy=cad -D plan.layout=contiguous layers.fcp -o n.plan
holds "and its bound is that of the same mask" json '.bytes_lower_bound == .layers[0].bytes_lower_bound and
    ([., .layers[] | .bytes_lower_bound <= .bytes_total] | all) and ([.layers[].bytes_lower_bound] | add > 0)'
holds "with the balance of what ranks compute, not of what they hold" json '
    ([.layers[].compute_max_over_mean] | max) - .compute_max_over_mean_any | fabs < 1e-5'
# Layers that recur, beside one mask: one plan has them all.
program recurs.fcp 'model { heads = 2; kv_heads = 1; head_dim = 16 }; cluster { gpus = 4 }
batch { lengths = [700, 300] }
plan { layers = [causal, scan(decay = vector) x 3, halo(before = 3)]; strategy = zigzag; block = 128 }'
ok "layers that recur" "$fcpc" recurs.fcp -o r.plan
holds "have a line for each kind" sh -c 'grep -q "^  scan    3 layers of 2 heads of 16 x 16, decay vector, shape " stderr &&
    grep -q "^  halo    1 layer of 3 rows before, 32 channels; " stderr && grep -qF "  layers  mask 1 of 1, 1 layer: causal" stderr'
holds "and are in one plan" sh -c '[ -e r.plan ] && [ ! -e r.2.plan ]'
ok "which is proven" "$fcpc" verify r.plan
ok "and run" "$fcpc" run r.plan
holds "without them, which is said" grep -q "attention alone: .run. has no tensors for the plan's halos and scans" stdout
ok "layers that recur are predicted" "$fcpc" sim recurs.fcp
holds "in rows of their own, and in the sum of layers" sh -c 'grep -qE "^scan x 3 +forward +[0-9.]+ " stdout &&
    grep -qE "^halo x 1 +backward +[0-9.]+ " stdout && grep -qE "^all 5 layers forward " stdout'
ok "and in JSON" "$fcpc" sim recurs.fcp --json
holds "with all of them in the makespan" json '.recurrent_s > 0 and .backward.recurrent_s > 0 and
    ((.makespan_s - .recurrent_s - .layers[0].makespan_s) | fabs) < 1e-12'
ok "layers that recur as JSON" "$fcpc" --json -q recurs.fcp
holds "with what they are and cost" json '[.recurrent[].kind] == ["scan", "halo"] and .recurrent == .layers[0].recurrent and
    (.recurrent[0] | .times == 3 and .heads == 2 and .head_dim == 16 and .value_dim == 16 and .decay == "vector") and
    ([.recurrent[].passes[] | .messages > 0 and .bytes > 0 and .rounds >= .rounds_bound and .send_max <= .bytes] | all) and
    ([.recurrent[].passes[].pass] == ["forward", "backward", "forward", "backward"])'
ok "a picture of them" "$fcpc" show r.plan
holds "has them among the costs" sh -c 'grep -q "^  scan  *3 layers of 2 heads" stdout && grep -q "^  halo  *1 layer of 3" stdout'
ok "what a query needs of others" "$fcpc" explain r.plan 200 100
holds "is said by stretches" grep -q "^for layers that recur: token 200 is in stretch [0-9]* of [0-9]*, tokens " stdout
ok "a trace of one mask among them" "$fcpc" sim recurs.fcp --trace r.json
holds "has the ranks" sh -c "jq -e \".traceEvents | length > 8\" r.json"
ok "a run of one mask among them" "$fcpc" run --json -q recurs.fcp
holds "is right" json '.layers | length == 1 and (.[0] | .ok and .checked)'
bad "layers that recur, of queries that have other keys" 1 E300 recurs.fcp -D 'batch.lengths=[100:300]' -D plan.strategy=fcp
cp layers.fcp o.2.plan; cp o.2.plan kept.fcp
program many.fcp "batch { lengths = [700] }; plan { layers = [$(printf 'causal, %.0s' $(seq 200))full] }"
bad "more masks than a program has" 1 E211 many.fcp
bad "layers onto their own program" 1 E011 o.2.plan -o o.plan
holds "nothing is half written" sh -c 'cmp -s o.2.plan kept.fcp && [ ! -e o.plan ]'
mkdir p.2.plan
bad "a folder where the second plan goes" 1 E011 layers.fcp -o p.plan
holds "the first one is not there either" [ ! -e p.plan ]
rmdir p.2.plan
bad "layers into what is no file" 1 E011 layers.fcp -o /dev/null
ok "a prediction of several masks" "$fcpc" sim layers.fcp
holds "has a row for each and pass, and their sum" sh -c 'grep -c "^window(w = 60) x 3 " stdout | grep -qx 2 &&
    grep -c "^causal  *[fb]" stdout | grep -qx 2 && grep -c "^all 4 layers  *[fb]" stdout | grep -qx 2'
ok "as JSON" "$fcpc" sim --json -q layers.fcp
holds "the sum counts how often each mask is there" json '. as $o |
    ([.layers[] | .layers * .makespan_s] | add - $o.makespan_s | fabs < 1e-12) and
    ([.layers[] | .layers * .backward.makespan_s] | add - $o.backward.makespan_s | fabs < 1e-12) and
    [.layers[].mask] == ["window(w = 60)", "causal"]'
holds "with bounds that add up" json '. as $o |
    ([.layers[] | .layers * .makespan_lower_bound_s] | add - $o.makespan_lower_bound_s | fabs < 1e-12) and
    ([., .layers[], .backward, .layers[].backward | .makespan_lower_bound_s <= .makespan_s] | all)'
cp stdout sum.json
ok "strategies side by side" "$fcpc" sim --json -q layers.fcp --strategy fcp,ring
holds "are compared by the sum" sh -c 'jq -e -n --slurpfile s sum.json --slurpfile a stdout \
    "\$a[0].candidates[0].makespan_s == \$s[0].makespan_s and \$a[0].candidates[1].makespan_s > 0" > jq.out'
ok "a page of several masks" "$fcpc" sim -q layers.fcp --html layers.html
holds "names them" sh -c 'grep -qF "window(w = 60)" layers.html && grep -qF "causal" layers.html'
bad "a trace of several masks" 2 E001 sim layers.fcp --trace layers.json
ok "of one of them" "$fcpc" sim -q layers.fcp --trace layers.json --layer 2
ok "a run of several masks" "$fcpc" run layers.fcp
holds "judges each" sh -c 'grep -c "^    dv .*: right" stdout | grep -qx 2 &&
    grep -qF "  mask 2 of 2, 1 layer: causal" stdout'
ok "as JSON" "$fcpc" run --json -q layers.fcp
holds "judges each" json '.ok and ([.layers[] | .ok and .checked] == [true, true]) and [.layers[].layers] == [3, 1]'
ok "another mask has another result" "$fcpc" run -q layers.fcp -D model.dtype=fp32 --layer 1 --out first.npy
ok "than the first" "$fcpc" run -q layers.fcp -D model.dtype=fp32 --layer 2 --out second.npy
holds "they differ" sh -c '! cmp -s first.npy second.npy'
bad "one file for two results" 2 E001 run layers.fcp -D model.dtype=fp32 --out both.npy
holds "is not there" [ ! -e both.npy ]
ok "a drawing of several masks" "$fcpc" show layers.fcp --svg layers.svg --json -q
holds "has a file for each" sh -c '[ -s layers.svg ] && [ -s layers.2.svg ] &&
    jq -e "[.layers[].svg] == [\"layers.svg\", \"layers.2.svg\"]" stdout > jq.out'
ok "in the terminal" "$fcpc" show layers.fcp
holds "one below the other" sh -c '[ "$(grep -c "^PROBLEM" stdout)" = 2 ] &&
    grep -q "^mask 2 of 2, 1 layer: causal" stdout'
cp layers.fcp q.2.svg
bad "a drawing onto its own program" 1 E011 show q.2.svg --svg q.svg
holds "nothing is half drawn" sh -c 'cmp -s q.2.svg layers.fcp && [ ! -e q.svg ]'
ok "a dump of one of them" "$fcpc" dump layers.fcp --layer 2
holds "is that of its plan" sh -c "\"$fcpc\" dump m.2.plan | cmp -s - stdout"
bad "a dump of which?" 2 E001 dump layers.fcp
bad "a mask that is not there" 2 E001 sim layers.fcp --layer 3
bad "a mask of a program that has one" 2 E001 sim a.fcp --layer 2
bad "a mask of a plan" 2 E001 show m.plan --layer 1
ok "of one layer all commands take the program" "$fcpc" -q sim layers.fcp -D 'plan.layers=[causal]' --json
ok "auto chooses for all layers" "$fcpc" layers.fcp -D plan.strategy=auto --explain

# A last, small batch: some ranks have nothing to do, and everything works all the same.
program small.fcp 'model { heads = 2; kv_heads = 1; head_dim = 16 }; cluster { gpus = 4 }; batch { lengths = [80] }
plan { mask = causal }'
for changes in strategy=fcp strategy=ring strategy=zigzag strategy=auto layout=contiguous layout=zigzag block=20 \
    block=1 "batch.lengths=[1]" "batch.lengths=[2:3]"; do
    ok "a small batch, $changes" "$fcpc" small.fcp -D "$changes" -o b.plan
    ok "verified, $changes" "$fcpc" verify b.plan
    ok "run, $changes" "$fcpc" run --json -q b.plan
    holds "run right, $changes" json '.ok and .checked and (.tensors | length == 6) and ([.tensors[].ok] | all)'
    ok "shown, $changes" "$fcpc" show b.plan
    ok "drawn, $changes" "$fcpc" show b.plan --html b.html
    ok "dumped, $changes" "$fcpc" dump b.plan
    ok "the summary, $changes" "$fcpc" --json -q small.fcp -D "$changes"
    holds "finite figures, $changes" json '[.. | numbers] | all(. < 1e18)'
done
ok "ranks without tokens" "$fcpc" --json -q small.fcp
holds "are a warning" json '.warnings | length == 1 and (.[0].message | test("3 of 4 ranks get no tokens"))'
ok "a program from a pipe" sh -c "\"$fcpc\" -q /dev/stdin --json < a.fcp"

for example in "$top"/examples/*.fcp "$top"/examples/masks/*.fcp "$top"/examples/scores/*.fcp; do \
    ok "the example $example" "$fcpc" -q "$example"; done
for mask in $(sed -n 's/^mask \([a-z0-9_]*\).*/\1/p' "$top/grammar/prelude.fcp"); do
    holds "a row of the reference for $mask" grep -q "^| .$mask[(\`]" "$top/grammar/LANGUAGE.md"
    [ "$mask" = neighbourhood ] && continue # of one side of an image: natten1d to natten3d have the pictures
    holds "a picture of $mask" grep -q "pictures/$mask.svg" "$top/grammar/LANGUAGE.md"
    holds "that picture" [ -s "$top/grammar/pictures/$mask.svg" ]
done
"$top/grammar/pictures/draw.sh" --list > calls
program pictures.fcp "batch { lengths = [4096]
$("$top/grammar/pictures/draw.sh" --fields .)
}; plan { mask = causal; block = 128 }"
while read -r call; do
    ok "the mask of a picture: $call" "$fcpc" -q pictures.fcp -D "plan.mask=$call"
done < calls

# --- fields --------------------------------------------------------------------------------------------------------
mkdir -p data
awk 'BEGIN { for (i = 0; i < 700; i++) print int(i / 90) }' > data/doc.txt
program data/f.fcp 'model { heads = 2; head_dim = 16; dtype = fp32 }
batch { lengths = [300, 400]; field doc = file("doc.txt", range = 0..8); field mark = given(range = 0..2) }
mask m = doc[q] == doc[k] and (k <= q or mark[k] == 1)
plan { mask = m; block = 128 }'
awk 'BEGIN { for (i = 0; i < 700; i++) print i % 7 == 0 }' > mark.txt
bad "a field without values" 1 E320 data/f.fcp
holds "which says how to give them" grep -q -e "--field mark=FILE" stderr
ok "a field's file on the command line" "$fcpc" -q data/f.fcp --field mark=mark.txt -o data/f.plan
ok "show lists what is read" "$fcpc" show data/f.fcp --field mark=mark.txt --ascii
holds "by name, file and range" grep -q "field doc from doc.txt, 0 to 7; field mark" stdout
ok "run finds the files unchanged" "$fcpc" run data/f.plan
holds "and the result right" grep -q "dv .*right" stdout
ok "run with --field" "$fcpc" run -q data/f.plan --field doc=data/doc.txt --field mark=mark.txt
mkfifo given
for command in "-q data/f.fcp --field mark=mark.txt" "run -q data/f.plan"; do
    cat data/doc.txt > given &
    # shellcheck disable=SC2086
    ok "--field of a pipe, $command" "$fcpc" $command --field doc=given
    wait $!
done
rm given
ok "explain reads fields" "$fcpc" explain data/f.fcp 5 100 --field mark=mark.txt --seq 0
holds "with their values" grep -q "doc\[5\]" stdout
ok "explain of a plan" "$fcpc" explain data/f.plan 250 14 --json
holds "knows its sequence and fields" json '.sequence == 1 and .n == 400
    and (.steps | any(.with == "doc[250]" and .value == 6))'
sed '/^plan/d' data/f.fcp > data/h.fcp
cat >> data/h.fcp << 'EOF'
mask other = mark[q] == mark[k]
mask alone(off = true) = causal and (off or doc[q] == doc[k])
plan { mask = alone; block = 128 }
EOF
ok "a plan that reads none of its program's fields" "$fcpc" -q data/h.fcp -o data/h.plan
ok "is explained without them" "$fcpc" explain data/h.plan 250 14
bad "explain outside the batch's sequences" 1 E206 explain data/f.fcp 5 100 --field mark=mark.txt -n 500
bad "a range by -D" 1 E320 data/f.fcp --field mark=mark.txt -D 'batch.doc=file("data/doc.txt", range = 0..5)'
bad "an unknown field" 1 E200 data/f.fcp --field marks=mark.txt
bad "a field of another length" 1 E320 data/f.fcp --field mark=mark.txt -D 'batch.lengths=[300, 401]'
bad "--field for a plan that is not run" 2 E001 show data/f.plan --field mark=mark.txt
ok "--field of a field that the plan does not read" "$fcpc" run data/f.plan --field other=mark.txt
holds "a warning says so" grep -q "warning: the plan reads no field 'other'" stderr
bad "--field of a file that is not there" 1 E010 run data/f.plan --field mark=absent.txt
bad "also of a field that the plan does not read" 1 E010 run data/f.plan --field other=absent.txt
sed 's/^7/6/' data/doc.txt > data/new.txt
bad "another file in its place" 1 E322 run data/f.plan --field doc=data/new.txt
mv data/new.txt data/doc.txt
bad "a file that changed since" 1 E322 run data/f.plan
holds "which is named" grep -q "data/doc.txt: error.E322.: field 'doc'" stderr
# What a field is over stays as it is declared, whatever brings its values.
program data/o.fcp 'model { heads = 2; kv_heads = 1; head_dim = 16; dtype = fp32 }
batch {
    lengths    = [300, 100]
    field keep = [1 x 20] over heads, queries / 128, keys / 128
    field near = given(over = sequences)
    field bias = given(real)
}
mask m = keep[h, q / 128, k / 128] == 1 and q - k < near
score t = s + bias[k]
plan { mask = m; score = t; block = 128 }'
echo '300 7' > near.txt
awk 'BEGIN { for (i = 0; i < 20; i++) printf "%d%s", (i % 3 > 0), i % 4 ? " " : "\n" }' > keep.txt
awk 'BEGIN { for (i = 0; i < 400; i++) printf "%.3f\n", i / 100 - 2 }' > bias.txt
set -- --field keep=keep.txt --field bias=bias.txt
bad "two numbers on a line, of a field of one dimension" 1 E321 data/o.fcp "$@" --field near=near.txt
tr ' ' '\n' < near.txt > column.txt
set -- "$@" --field near=column.txt
ok "fields over heads and cells, over sequences, of reals" "$fcpc" -q data/o.fcp "$@" -o data/o.plan
ok "show says what they are over" "$fcpc" show data/o.plan --ascii --width 200
holds "all of them" grep -q "field keep from .*keep.txt, over heads, queries / 128, keys / 128, 0 to 1" stdout
holds "and of what they are" grep -q "field near from .*column.txt, over sequences, 7 to 300" stdout
holds "reals, too" grep -q "bias.txt, reals" stdout
ok "such a plan runs" "$fcpc" run data/o.plan
holds "and is right" grep -q "dv .*right" stdout
ok "explain reads a cell, and the number of a sequence" "$fcpc" explain data/o.plan 60 55 --seq 1 --head 1 --json
holds "with their values" json '(.steps | any(.with == "keep[1, 0, 0]")) and (.steps | any(.with == "5 < 7"))'
bad "a field for other sequences" 1 E320 data/o.fcp "$@" -D 'batch.lengths=[300, 101]'
bad "a whole field by -D" 1 E320 data/o.fcp --field keep=keep.txt --field bias=bias.txt \
    -D 'batch.near=[1, 2, 3] over sequences'

# A plan comes from anywhere, and names files: what has such a name is a regular file that is not too long, or is not
# read.
rm data/doc.txt
truncate -s 9G data/doc.txt
bad "a file of 9 GB in its place" 1 E322 run data/f.plan
bad "which --field names" 1 E322 run data/f.plan --field doc=data/doc.txt
for other in /dev/zero /dev/tty; do
    ln -sf $other data/doc.txt
    bad "$other in its place" 1 E010 run data/f.plan
    holds "says what is wrong" grep -q "data/doc.txt: error.E010.: .*not a regular file, and the plan says" stderr
done
rm data/doc.txt
mkfifo data/doc.txt
bad "a pipe in its place" 1 E010 run data/f.plan
rm data/doc.txt
ok "a file that is gone: the plan has its values" "$fcpc" run -q data/f.plan
program data/g.fcp 'batch { lengths = [200]; field d = [0 x 200] }; mask m = d[q + 1] == 0; plan { mask = m }'
bad "an index out of range" 1 E313 data/g.fcp
holds "with q, k and n" \
    grep -q "position 200 of field 'd', which has 0 to 199, for q = 199, k = .* in a sequence of 200 tokens" stderr

# --- the other commands ----------------------------------------------------------------------------------------------
ok "verify" "$fcpc" verify a.plan
holds "verify says what was proven" grep -q "each computed once" stdout
holds "and what was not" grep -q "not proven: that tiles have the pairs of the mask; --pairs evaluates it" stdout
ok "verify with the mask" "$fcpc" verify a.plan --pairs
holds "verify says that it was evaluated" grep -q "pairs: tiles have those that the mask's code allows" stdout
holds "and what was not proven" grep -q "not proven: that the mask's code is what the source says" stdout
ok "verify with JSON" "$fcpc" verify a.plan --json
holds "verify's JSON" json '.ok and .ranks == 4 and .tiles > 0 and .forward.rounds >= 0'
holds "what was proven" json '(.proven | index("tiles")) and (.not_proven | index("pairs")) and .pairs == null'
ok "verify with the mask, with JSON" "$fcpc" verify a.plan --json --pairs
holds "its JSON" json '(.proven | index("pairs")) and .not_proven == ["source"] and .pairs.pairs > 0 and .pairs.boxes > 0'
ok "a limit for that" "$fcpc" verify a.plan --pairs --max-seconds 60
bad "a limit where nothing is evaluated" 2 E001 verify a.plan --max-seconds 60
ok "verify all masks of a model" "$fcpc" verify layers.fcp --pairs
holds "a line for each" [ "$(grep -c '^layers.fcp, mask [12] of 2, .*: proven for' stdout)" = 2 ]
ok "with JSON" "$fcpc" verify layers.fcp --pairs --json
holds "an element for each" json '.layers | length == 2 and all(.proven | index("pairs"))'
ok "verify one of them" "$fcpc" verify layers.fcp --layer 2
holds "and no other" [ "$(grep -c 'proven for' stdout)" = 1 ]
if command -v python3 > /dev/null; then
    program band.fcp 'batch { lengths = [1000, 300] }; cluster { gpus = 2 }; plan { mask = window(w = 400); block = 128 }'
    ok "a window" "$fcpc" band.fcp -q -o band.plan
    python3 "$top/tests/cli/other_mask.py" band.plan other.plan 400 200
    ok "the mask is another, and tiles are as they were" "$fcpc" verify other.plan
    bad "unless the mask is evaluated" 1 E615 verify other.plan --pairs
    holds "with sequence, query and key" grep -q "sequence 0: the mask does not let query [0-9]* see key [0-9]*" stderr
    holds "and cell and tile" grep -q "cell ([0-9]*, [0-9]*) of part [0-9]* of tile [0-9]*" stderr
    python3 "$top/tests/cli/other_mask.py" band.plan other.plan 400 700
    bad "a mask that allows more" 1 E615 verify other.plan --pairs
    holds "by counts" grep -q "queries [0-9]* to [0-9]* and keys [0-9]* to [0-9]* the mask allows [0-9]* pairs" stderr
else
    echo "skipped: a plan of another mask: python3 is not there"
fi
ok "verify a program" "$fcpc" verify a.fcp

# --- extracts of a plan ----------------------------------------------------------------------------------------------
ok "a plan and its extracts" "$fcpc" a.fcp -o cut.plan --slices
root=$(sed -n 's/.*cut.plan.slices, root //p' stderr)
holds "with their root" [ ${#root} = 64 ]
ok "with JSON" "$fcpc" a.fcp -q -o cut.plan --slices --json
holds "the same root" json ".slices == \"cut.plan.slices\" and .root == \"$root\""
ok "they are of the plan" "$fcpc" verify cut.plan --slices
holds "which says so" grep -q "the extracts of all ranks are of this plan, root $root" stdout
ok "with JSON" "$fcpc" verify cut.plan --slices --json
holds "in JSON" json ".root == \"$root\" and (.proven | index(\"slices\"))"
cp cut.plan.slices other.plan.slices
ok "another plan" "$fcpc" a.fcp -D plan.mask=full -q -o other.plan
bad "whose they are not" 1 E505 verify other.plan --slices
head -c 1000 cut.plan.slices > other.plan.slices
bad "nor a piece of them" 1 E502 verify other.plan --slices
bad "extracts that are not there" 1 E010 verify a.plan --slices
bad "of a program" 2 E001 verify a.fcp --slices
bad "beside no file" 2 E001 a.fcp --slices
cp a.fcp cut2.plan.slices
bad "not in place of another file" 1 E011 a.fcp -o cut2.plan --slices
holds "which is as it was" cmp -s a.fcp cut2.plan.slices
holds "and no plan is written" [ ! -e cut2.plan ]
ok "of all masks of a model" "$fcpc" layers.fcp -q -o cut.plan --slices
holds "a file each" [ -s cut.2.plan.slices ]
ok "which is of that plan" "$fcpc" verify cut.2.plan --slices
ok "dump" "$fcpc" dump a.plan
holds "dump has lines" [ "$(wc -l < stdout)" -gt 100 ]
cp stdout first
ok "dump again" "$fcpc" dump a.fcp
holds "a program dumps as its plan does" cmp -s stdout first
ok "dump with JSON" "$fcpc" dump --json a.plan
holds "dump's JSON" json 'type == "object"'
program alone.fcp "$(sed '/^plan/d' a.fcp; echo 'mask mine(w = 9) = q - k < w;')"
ok "show a program that names no mask in its plan" "$fcpc" show alone.fcp
holds "its only mask is named" grep -q "mask  *mine$" stdout
ok "show a program" "$fcpc" show a.fcp
holds "show prints a picture" [ "$(wc -l < stdout)" -gt 20 ]
ok "show a plan" "$fcpc" show a.plan --ascii --width 80
holds "ASCII only" sh -c '! LC_ALL=C grep -q "[^ -~]" stdout'
holds "80 columns" sh -c '[ "$(wc -L < stdout)" -le 80 ]'
ok "show as SVG and HTML" "$fcpc" show a.plan --svg a.svg --html a.html
holds "an SVG file" grep -q '</svg>' a.svg
holds "an HTML file" grep -q '</html>' a.html
ok "show with JSON" "$fcpc" show a.plan --json
holds "show's JSON" json '.ranks == 4 and .tiles > 0 and (.seconds.total | type == "number")'
variant 's/head_dim = 32/head_dim = 48; value_dim = 32; values = keys/; s/block = 128/block = 128; lse_gradient = true/' \
    widths.fcp
ok "values in keys" "$fcpc" show widths.fcp --width 80
holds "says how wide they are" grep -q 'head_dim 48, value_dim 32, values in keys' stdout
holds "and that LSE has a gradient" grep -q 'takes a gradient of LSE' stdout
ok "values in keys, with JSON" "$fcpc" -q widths.fcp --json
holds "says so, too" json '.head_dim == 48 and .value_dim == 32 and .values_in_keys and .lse_gradient'
ok "show moved work with JSON" "$fcpc" show "$top/examples/in_place.fcp" --json
holds "what moves" json '.tiles_moved > 0 and .pairs_moved < .pairs and .bytes_moved > 0 and .bytes_lower_bound > 0 and
    .bytes_lower_bound < .bytes_total and .rounds_bound <= .rounds + .rounds_dependent and .peers_max > 0'
holds "no sequence has fewer queries than keys" json '.short_queries == null'
ok "short queries" "$fcpc" show "$top/examples/decode.fcp" --json
holds "are packed" json '.short_queries | startswith("572 of 572 sequences")'
ok "and where nothing moves" "$fcpc" show a.fcp --json
holds "nothing moves" json '.tiles_moved == 0 and .bytes_moved == 0 and .bytes_lower_bound == 0'
ok "show a part" "$fcpc" show a.plan --rows 0..40 --cols 100..140 --width 80
holds "of the mask, in 80 columns" sh -c 'grep -q "rows 0..40, cols 100..140" stdout && [ "$(wc -L < stdout)" -le 80 ]'
holds "without colour" sh -c '! grep -q "$(printf "\\033")" stdout'
ok "show pairs" "$fcpc" show a.plan --rows 299.. --seq 1 --json
holds "the pairs of a row" json '.view | .sequence == 1 and .rows == [299, 300] and .pairs_drawn == 108
    and .runs == [2] and .tokens == 300'
ok "show a sequence" "$fcpc" show a.fcp --seq 0 --json
holds "its pairs are those drawn" json '.view | .pairs == .pairs_drawn and (.grid | flatten | add) == .pairs
    and .density > 0'
ok "a part as SVG" "$fcpc" show a.plan --rows 0..100 --svg part.svg
holds "an SVG file of a part" grep -q '</svg>' part.svg
if "$fcpc" show a.plan --png a.png > stdout 2> stderr; then
    holds "a PNG file" sh -c 'head -c 8 a.png | od -An -tx1 | grep -q "89 50 4e 47 0d 0a 1a 0a"'
    ok "a part as PNG" "$fcpc" show a.plan --cols 0..64 --png part.png --json
    holds "told in JSON" json '.png == "part.png"'
else
    holds "a machine without librsvg says so" grep -q "E210.*librsvg" stderr
    echo "skipped: show --png: librsvg is not there"
fi
FCPC_RSVG=/none/librsvg.so; export FCPC_RSVG
bad "a machine without librsvg" 1 E210 show a.plan --png out/x.png
holds "names what cannot be loaded" grep -q "/none/librsvg.so.*install librsvg2-2, or use --svg" stderr
ok "which nothing else needs" "$fcpc" show a.plan --svg a.svg
unset FCPC_RSVG
if command -v ldd > /dev/null; then holds "librsvg is not linked" sh -c "! ldd '$fcpc' | grep -q -e rsvg -e cairo"; fi
bad "a range that is none" 2 E001 show a.plan --rows 5
bad "a range that is empty" 2 E001 show a.plan --cols 5..5
bad "a range outside" 1 E206 show a.plan --rows 700..800
bad "a sequence that is not there" 1 E206 show a.plan --seq 10
bad "a part as HTML" 2 E001 show a.plan --seq 0 --html out/x.html
bad "a PNG that cannot be written" 1 E011 show a.plan --png out/none/x.png
ok "run" "$fcpc" run a.plan
holds "run says right" grep -q right stdout
ok "run with JSON" "$fcpc" run a.plan --json
holds "run's JSON" json '.ok and .backend == "host" and .transport == "threads" and .ranks == 4 and .max_abs_error > 0
    and .reference_error > 0 and .seconds > 0'
holds "both passes were checked" json '.tensors | has("o", "lse", "dq", "dk", "dv")'
ok "run forward only" "$fcpc" run a.plan --json --pass forward
holds "forward only" json '(.tensors | has("o") and (has("dq") | not))'
ok "run a program" "$fcpc" run a.fcp --json --no-check
holds "not checked" json '.checked == false and .max_abs_error == null'
plan a.fcp bf16.plan -D model.dtype=bf16
plan a.fcp fp16.plan -D model.dtype=fp16
ok "run bf16" "$fcpc" run bf16.plan
ok "run fp16" "$fcpc" run fp16.plan
program scored.fcp 'mask late = k <= q and q >= 10
model { heads = 4; kv_heads = 2; head_dim = 16; dtype = bf16 }
cluster { gpus = 2; gpu = cpu }
batch { lengths = [300, 60] }
plan { mask = late; score = softcap(c = 2.0); sink = [0.5, -1.0, 0, 3]; block = 128 }'
plan scored.fcp scored.plan
ok "run with a score and sinks" "$fcpc" run scored.plan --json
holds "scores and sinks are right" json '.ok and (.tensors | has("dq"))'
program first.fcp 'mask m = k == 0
model { heads = 4; head_dim = 64; dtype = fp32 }
cluster { gpus = 2 }
batch { lengths = [1104] }
plan { mask = m; block = 128 }'
ok "sums in another order are not wrong" "$fcpc" run first.fcp
program far.fcp 'score far = s * 1000000000000000000.0 * s * 10000000000000000000000.0
model { heads = 2; head_dim = 32; dtype = fp32 }
cluster { gpus = 2 }
batch { lengths = [300] }
plan { mask = causal; score = far; block = 128 }'
bad "scores that overflow are not right" 1 E704 run far.fcp
holds "says that nothing is finite" grep -q "o has no finite number" stderr

# The outputs of a run have the right shapes to be the inputs of another.
ok "write the outputs" "$fcpc" run a.plan --out o.npy --lse lse.npy --dq dq.npy --dk dk.npy --dv dv.npy
ok "run on tensors" "$fcpc" run a.plan --q o.npy --k dk.npy --v dv.npy --out o2.npy --lse lse2.npy --check --json
holds "checked" json '.ok and .checked and (.tensors | has("dq") | not)'
ok "check all rows" "$fcpc" run a.plan --check all --json
holds "how many rows were checked" json '.rows == 1601 * 4 and .rows_checked == .rows and .key_rows == 1601 * 2
    and .key_rows_checked == .key_rows and (has("sample") | not)'
# A sample of rows. To check all of this batch takes 103 M multiplications.
ok "check a sample of rows" "$fcpc" run a.plan --check-work 10000000 --json
holds "a sample of both sides" json '.ok and .rows_checked > 0 and .rows_checked < .rows / 4 and .key_rows_checked > 0
    and .key_rows_checked < .key_rows / 4'
holds "its rows are listed" json '([.sample[] | select(.of == "queries").count] | add) == .rows_checked
    and ([.sample[] | select(.of == "keys").count] | add) == .key_rows_checked'
holds "and are rows of the batch" json '[700, 300, 300, 50, 50, 50, 50, 50, 50, 1] as $n | .sample | all(.count >= 1
    and .first + .count <= $n[.sequence] and .head < (if .of == "keys" then 2 else 4 end))'
jq -c .sample stdout > sample.json
ok "the same plan on other inputs" "$fcpc" run a.plan --check-work 10000000 --seed 5 --json
holds "the same sample" sh -c 'jq -c .sample stdout | cmp -s - sample.json'
ok "a larger sample" "$fcpc" run a.plan --check-work 30000000 --json
holds "has more rows" json ".rows_checked > $(jq '[.[] | select(.of == "queries").count] | add' sample.json)"
ok "work enough for all rows" "$fcpc" run a.plan --check-work 110000000 --json
holds "all rows" json '.rows_checked == .rows and .key_rows_checked == .key_rows and (has("sample") | not)'
ok "a sample as text" "$fcpc" run a.plan --check-work 10000000
holds "says that it is one, and where" sh -c 'grep -q "a sample of rows.*--check all checks all" stdout &&
    grep -q " of 6404 rows of queries: sequence 0, head 0, " stdout &&
    grep -q " of 3202 rows of keys: sequence " stdout'
ok "a sample of the forward pass" "$fcpc" run a.plan --check-work 10000000 --pass forward --json
holds "is of queries alone" json '.rows_checked > 0 and .key_rows_checked == 0 and all(.sample[]; .of == "queries")'
bad "wrong rows in a sample" 1 E704 run far.fcp --check-work 1000
ok "backward on tensors" "$fcpc" run a.plan --q o.npy --k dk.npy --v dv.npy --do dq.npy --dq dq1.npy --dk dk1.npy \
    --dv dv1.npy
ok "the same again" "$fcpc" run a.plan --q o.npy --k dk.npy --v dv.npy --do dq.npy --dq dq2.npy --dk dk2.npy \
    --dv dv2.npy
holds "the same bits" sh -c 'cmp -s dq1.npy dq2.npy && cmp -s dk1.npy dk2.npy && cmp -s dv1.npy dv2.npy'
ok "bf16 tensors" "$fcpc" run bf16.plan --no-check --bf16 --out ob.npy
# Values narrower than keys, or inside them; a gradient of LSE; the largest logits.
program narrow.fcp 'model { heads = 4; kv_heads = 2; head_dim = 24; value_dim = 16; dtype = fp32 }
cluster { gpus = 4; gpu = cpu }
batch { lengths = [300, 50] }
plan { mask = causal; block = 128; strategy = dcp(divisions = 4); layout = contiguous; lse_gradient = true }'
plan narrow.fcp narrow.plan
plan narrow.fcp inside.plan -D model.values=keys
plan narrow.fcp silent.plan -D plan.lse_gradient=false
shapes() { for i; do head -c 128 "${i%%=*}" | grep -aq "(${i#*=})" || return 1; done; }
ok "values narrower than keys" "$fcpc" run narrow.plan --json --out no.npy --lse nl.npy --dq nq.npy --dk nk.npy \
    --dv nv.npy --max-logit nm.npy
holds "which are right" json '.ok and .tensors.dv.ok and .tensors.lse_low.ok and all(.tensors[]; .proven)'
holds "have shapes of their own" shapes "no.npy=350, 4, 16" "nl.npy=350, 4" "nq.npy=350, 4, 24" "nk.npy=350, 2, 24" \
    "nv.npy=350, 2, 16" "nm.npy=4,"
ok "values inside keys" "$fcpc" run inside.plan --json --out io.npy --dq iq.npy --dk ik.npy
holds "which have no gradient of their own" json '.ok and .tensors.dk.ok and (.tensors | has("dv") | not)'
holds "and no shape" shapes "io.npy=350, 4, 16" "iq.npy=350, 4, 24" "ik.npy=350, 2, 24"
ok "on tensors" "$fcpc" run inside.plan --q nq.npy --k nk.npy --do no.npy --dlse nl.npy --dq d1.npy --check --json
holds "with a gradient of LSE" json '.ok and .tensors.dq.ok'
ok "and without" "$fcpc" run inside.plan --q nq.npy --k nk.npy --do no.npy --dq d2.npy --check --json
holds "which is another one" sh -c '! cmp -s d1.npy d2.npy'
bad "values that are in the keys" 1 E701 run inside.plan --q nq.npy --k nk.npy --v nv.npy
holds "says where they are" grep -q -- "--v: the plan's values are in its keys: --k has both" stderr
bad "their gradient" 1 E701 run inside.plan --dv out/x.npy
bad "no values" 2 E001 run narrow.plan --q nq.npy --k nk.npy
bad "values as wide as keys" 1 E701 run narrow.plan --q nq.npy --k nk.npy --v nk.npy
bad "a gradient of LSE of another shape" 1 E701 run narrow.plan --q nq.npy --k nk.npy --v nv.npy --do no.npy --dlse no.npy
holds "says which file, and both shapes" \
    grep -qF "no.npy: expected float32 [350, 4], found float32 [350, 4, 16]" stderr
bad "one that the plan does not take" 1 E701 run silent.plan --q nq.npy --k nk.npy --v nv.npy --do no.npy --dlse nl.npy
holds "says what would" grep -q -- "-D plan.lse_gradient=true" stderr
bad "one without --do" 2 E001 run narrow.plan --q nq.npy --k nk.npy --v nv.npy --dlse nl.npy
bad "one for the forward pass" 2 E001 run narrow.plan --q nq.npy --k nk.npy --v nv.npy --do no.npy --dlse nl.npy \
    --pass forward
# The gradients of sinks and tables, which all ranks add to.
program learnt.fcp 'model { heads = 4; kv_heads = 2; head_dim = 16; dtype = fp32
    table slopes = [0.5, 0.25, 0.125, 0.0625]; table bias = [[0.5, 0.25, 1.0], [1.5, 0.0, 2.0]]; table left = [3, 1] }
score learnt = s - slopes[h] * (q - k) + bias[q % 2, k % 3]
mask m = k <= q + left[q % 2]
cluster { gpus = 3; gpu = cpu }
batch { lengths = [300, 50] }
plan { mask = m; score = learnt; block = 64; sink = 1.0 }'
plan learnt.fcp learnt.plan
sed 's/score = learnt;//; s/sink = 1.0//' learnt.fcp > fixed.fcp
plan fixed.fcp plain.plan
plan learnt.fcp ahead.plan -D plan.passes=forward
ok "gradients of sinks and tables" "$fcpc" run learnt.plan --dsink ds.npy --dtable slopes=sl.npy --dtable bias=bi.npy \
    --json
holds "which are right" json '.ok and .tensors.dsink.ok and .tensors.dtable.ok and all(.tensors[]; .proven)'
holds "have the shapes of sinks and tables" shapes "ds.npy=4," "sl.npy=4," "bi.npy=2, 3"
ok "as text" "$fcpc" run learnt.plan --dsink ds2.npy --dtable=bias=bi2.npy
holds "judged, too" [ "$(grep -c '^    dsink .*: right$\|^    dtable .*: right$' stdout)" = 2 ]
holds "the same bits" sh -c 'cmp -s ds.npy ds2.npy && cmp -s bi.npy bi2.npy'
ok "nobody asks for them" "$fcpc" run learnt.plan --json
holds "and they are not computed" json '.ok and (.tensors | has("dsink") or has("dtable") | not)'
ok "in a sample" "$fcpc" run learnt.plan --check-work 1000000 --dsink ds2.npy --dtable slopes=sl2.npy
holds "sinks are checked, and tables are said not to be" sh -c 'grep -q "^    dsink .*: right" stdout &&
    grep -q "^    dtable .*not checked: it is a sum over all pairs" stdout'
holds "with the same bits" sh -c 'cmp -s ds.npy ds2.npy && cmp -s sl.npy sl2.npy'
bad "no sinks" 1 E701 run plain.plan --dsink out/x.npy
holds "says how to have them" grep -qF -- "-D plan.sink=0.0" stderr
bad "a score without tables" 1 E701 run plain.plan --dtable bias=out/x.npy
bad "no such table" 1 E701 run learnt.plan --dsink out/y.npy --dtable biass=out/x.npy
holds "says which there are" grep -q "dtable biass: the plan's score reads other tables of reals: " stderr
bad "a table of whole numbers" 1 E701 run learnt.plan --dtable left=out/x.npy
holds "says what it is" grep -q "it is a table of whole numbers, and only tables of reals have a gradient" stderr
bad "a plan without a backward pass" 1 E705 run ahead.plan --dsink out/x.npy
bad "the forward pass alone" 2 E001 run learnt.plan --pass forward --dtable bias=out/x.npy
bad "inputs without do" 2 E001 run learnt.plan --q o.npy --k dk.npy --v dv.npy --dsink out/x.npy
for what in bias bias= =out/x.npy; do bad "--dtable $what" 2 E001 run learnt.plan --dtable "$what"; done
bad "a table twice" 2 E001 run learnt.plan --dtable bias=out/x.npy --dtable bias=out/y.npy
bad "two tables, one path" 1 E011 run learnt.plan --dtable bias=out/x.npy --dtable slopes=out/../out/x.npy
bad "a table and another output, one path" 1 E011 run learnt.plan --dsink out/x.npy --dtable slopes=out/x.npy
bad "a table's file that cannot be written" 1 E011 run learnt.plan --dsink out/x.npy --dtable slopes=out/none/x.npy
bad "onto the plan" 1 E011 run learnt.plan --dtable slopes=learnt.plan
# Where float32 cannot tell the scores apart, nothing says that a result is right, and it is not called so.
program vague.fcp 'model { heads = 1; head_dim = 8; dtype = fp32 }
batch { lengths = [4] }
score vague = s - 1.0e8
plan { mask = full; score = vague; block = 4 }'
bad "a result that nothing proves" 1 E704 run vague.fcp
holds "says so" grep -q "so nothing says that it is right" stderr
"$fcpc" run vague.fcp > stdout 2> stderr
holds "and does not call it wrong" grep -q "^    o *not proven: " stdout
ok "fp16 tensors" "$fcpc" run fp16.plan --no-check --out oh.npy

# --- fmt --------------------------------------------------------------------------------------------------------------
cat > loose.fcp << 'EOF'
# what it is for
plan { mask=lambda( window = 8K ) ; block = 128 } # small
EOF
cp loose.fcp kept.fcp
ok "fmt prints" "$fcpc" fmt loose.fcp
holds "numbers and comments are kept" grep -q "lambda(window = 8K)" stdout
holds "so is the file" cmp -s loose.fcp kept.fcp
cp stdout tidy.fcp
bad "fmt --check of another layout" 1 E120 fmt --check loose.fcp
holds "the first line that differs" json '.error.line == 2'
ok "fmt --check of this layout" "$fcpc" fmt --check tidy.fcp
holds "says nothing" [ ! -s stdout ]
ok "fmt with JSON" "$fcpc" fmt --json loose.fcp
holds "fmt's JSON" json '.file == "loose.fcp" and .canonical == false and (.text | startswith("# what"))'
ok "fmt in place" "$fcpc" fmt -w loose.fcp
holds "laid out in place" cmp -s loose.fcp tidy.fcp
program e.fcp 'plan { mask = causal'
bad "fmt of a program that does not parse" 1 E110 fmt e.fcp
bad "fmt of nothing" 1 E010 fmt none.fcp
bad "fmt of a plan" 2 E001 fmt a.plan
bad "fmt with a setting" 2 E001 fmt loose.fcp -D block=128

# --- explain ----------------------------------------------------------------------------------------------------------
# golden NAME COMMAND...: the command prints what tests/golden/NAME holds; GOLDEN_UPDATE=1 rewrites that file
golden() {
    file=$top/tests/golden/$1; shift
    ok "$*" "$@"
    [ -n "${GOLDEN_UPDATE:-}" ] && cp stdout "$file"
    holds "$* prints what $file has" cmp -s stdout "$file"
}
golden explain/lambda.txt "$fcpc" explain "$top/examples/lambda.fcp" 4K 1000 -D lambda.window=2K --width 80
golden explain/shared_question.txt "$fcpc" explain 'shared_question(p = 25, answers = 3)' 20000 9000 -n 32K --width 80
golden explain/fault.txt "$fcpc" explain 'dilated(d = 0, w = 10)' 20 15 --width 60
golden explain/score.txt "$fcpc" explain "$top/examples/scores/relative.fcp" 1000 940 --head 2 --s 1.5 --width 80
ok "explain a score with JSON" "$fcpc" explain "$top/examples/scores/softcap.fcp" 300 100 --s -12.5 --json
holds "its value" json '.score.s == -12.5 and .score.name == "softcap(c = 20.0, approximate = false)"
    and (.score.value + 11.092 | fabs) < 0.001'
ok "explain the second mask of a program with layers" sh -c \
    "\"$fcpc\" explain \"$top/examples/layers.fcp\" 20000 100 --layer 2 > layer.txt"
holds "that is a window" grep -q "^window(w = 4096): q = 20000 does not see k = 100" layer.txt
ok "explain takes the first mask" sh -c "\"$fcpc\" explain \"$top/examples/layers.fcp\" 20000 100 > layer.txt"
holds "that sees all before" grep -q "^causal: q = 20000 sees k = 100" layer.txt
bad "explain with a mask that there is not" 2 E001 explain "$top/examples/layers.fcp" 20000 100 --layer 3
bad "explain a plan with --layer" 2 E001 explain a.plan 300 299 --layer 1
bad "explain with --layer outside the sequence" 1 E206 explain "$top/examples/layers.fcp" 90000 100 --layer 2
bad "explain with a logit that is none" 2 E001 explain "$top/examples/scores/softcap.fcp" 300 100 --s 1,5
ok "a score from the command line" "$fcpc" "$top/examples/scores/softcap.fcp" -q -D plan.score=alibi -D plan.sink=0.25 \
    -o score.plan
holds "is in the plan" sh -c "\"$fcpc\" dump score.plan | grep -c '^sink [0-3] logit=0.25' | grep -qx 4"
program late.fcp 'model { heads = 4; kv_heads = 1; head_dim = 16; dtype = fp32 }; batch { lengths = [800] }
plan { mask = full; score = alibi; block = 128 }'
ok "logits of hundreds are judged by what fp32 can do" "$fcpc" run -q late.fcp
bad "a score that divides by zero" 1 E330 -q "$top/examples/scores/softcap.fcp" -D 'plan.score.c=0.0'
run "$fcpc" "$top/examples/scores/softcap.fcp" -D 'plan.score.c=0.0'
holds "names the plan's score" grep -q "of this score" stderr
ok "explain with JSON" "$fcpc" explain a.fcp 300 100 --json
holds "explain's JSON" json '.allowed == false and .n == 700 and .q == 300 and (.because | length == 2)
    and (.steps | length > 5)'
holds "its steps" json '.steps[0] | .value == false and .depth == 0 and .state == "value" and .file == "<prelude>"
    and .line > 0'
ok "explain a plan" "$fcpc" explain a.plan 300 299
holds "which allows the pair" grep -q "q = 300 sees k = 299 (n = 700)" stdout
printf '%s\n' 'batch { lengths = [3000, 1700, 130 x 9] }' 'cluster { nodes = 2; gpus = 2 }' 'model { heads = 2 }' 'plan {
    mask = causal; layout = contiguous; block = 128; strategy = cad(pingpong = true, coalesce = 4, buffers = 2) }' > pp.fcp
ok "a plan in two halves" "$fcpc" pp.fcp -o pp.plan
holds "the summary says where the second begins" grep -q "stages, the second half from [0-9]* on, running" stderr
ok "its dump" "$fcpc" dump pp.plan
holds "rounds are of either half" sh -c "grep -q '^round .*dependent.*flags=-' stdout && grep -q '^round .*flags=second' stdout"
ok "its proof" "$fcpc" verify pp.plan
holds "it is of the halves, too" grep -q "work moves in two halves" stdout
ok "its picture" "$fcpc" show pp.plan
holds "the pipeline says so" grep -q "^PIPELINE .* stages.*; from stage [0-9]* on the second half moves" stdout
ok "explain a pair of it" "$fcpc" explain pp.plan 2900 10
holds "it names the half" grep -q "keys and values of block .*, in the \(first\|second\) half$" stdout
ok "a plan without halves" "$fcpc" pp.fcp -D plan.strategy.pingpong=false --json
holds "has no second stage" json '.second_stage == 0'
printf '%s\n' 'model { heads = 8; table w = [1, 2] }; batch { lengths = [100:1] }; mask m = causal and q - k < w[h]' \
    'plan { mask = m }' > first.fcp
bad "a table with fewer values than heads" 1 E313 first.fcp -D 'batch.lengths=[100]'
holds "what it must have" grep -q "hint: a table that is read by head has a value for each of the 8 heads" stderr
ok "queries before the first key" "$fcpc" first.fcp -D plan.mask=causal
holds "where they are" grep -q "before the first key, where align = bottom_right puts them" stderr
holds "one of a thing" grep -q "(100 queries, 1 key)" stderr
ok "a token" "$fcpc" first.fcp -D plan.mask=causal -D 'batch.lengths=[1]'
holds "one token" grep -q " 1 token in 1 sequence," stderr
bad "explain without positions" 2 E001 explain a.fcp
bad "explain with one position" 2 E001 explain a.fcp 3
bad "explain a position that is none" 2 E001 explain a.fcp 3 x
bad "explain a position outside" 1 E206 explain a.fcp 3 700
bad "explain a head that is not there" 1 E206 explain a.fcp 3 2 --head 4
bad "explain an unknown mask" 1 E200 explain cuasal 3 2
holds "the nearest mask of them" grep -q "'causal'" stderr
bad "explain a file that is not there" 1 E010 explain none.fcp 3 2

# --- queries and keys of different lengths ----------------------------------------------------------------------------
program cross.fcp 'model { heads = 2; kv_heads = 1; head_dim = 16; dtype = fp32 }
cluster { nodes = 2; gpus = 2 }
batch { lengths = [100:700, 1:300 x 4, 150:40, 64] }
plan { mask = causal; block = 128; layout = contiguous; strategy = fcp(coalesce = 2) }'
ok "compile unequal lengths" "$fcpc" cross.fcp -o cross.plan
holds "the summary counts both sides" grep -q "318 queries and 2004 keys in 7 sequences" stderr
holds "rows above the keys see nothing" grep -q "q = -110 to -1 of sequence 5 (150 queries, 40 keys)" stderr
ok "the summary as JSON" "$fcpc" cross.fcp -o cross.plan --json
holds "tokens are queries" json '.tokens == 318 and .key_tokens == 2004'
ok "run it" "$fcpc" run cross.plan --out co.npy --lse cl.npy --dq cdq.npy --dk cdk.npy --dv cdv.npy
holds "shapes of both sides" \
    sh -c 'head -c 128 co.npy | grep -aq "(318, 2, 16)" && head -c 128 cdk.npy | grep -aq "(2004, 1, 16)"'
ok "run on tensors of different lengths" "$fcpc" run cross.plan --q co.npy --k cdk.npy --v cdv.npy --do cdq.npy \
    --dk cdk2.npy --dq cdq2.npy --check --json
holds "which is right" json '.ok and .tensors.dk.ok'
bad "keys where queries belong" 1 E701 run cross.plan --q cdk.npy --k cdk.npy --v cdv.npy --out out/x.npy
golden show/cross.txt "$fcpc" show cross.plan --width 80
golden show/cross-zoom.txt "$fcpc" show cross.plan --seq 5 --rows 90..150 --width 80
bad "rows beyond the queries" 1 E206 show cross.plan --seq 0 --rows 600..700
holds "which are counted from 0" json '.error.message
    | endswith("has 100 queries, counted from 0; the first is at q = 600")'
ok "a picture of it" "$fcpc" show cross.plan --svg cross.svg
holds "with positions of queries" grep -q "queries 600..700" cross.svg
printf '100:700 # a chunk\n1 300\n64\n' > cross.lengths
ok "a file of them" "$fcpc" cross.fcp --lengths cross.lengths -o cross2.plan --json
holds "its sides" json '.tokens == 165 and .key_tokens == 1064 and .sequences == 3'
ok "aligned at the top left" "$fcpc" cross.fcp -D batch.align=top_left -q -o cross3.plan
holds "which is in the plan" sh -c "$fcpc dump cross3.plan | grep -q '^sequence 0 queries=100 keys=700 q_first=0\$'"
ok "explain a query before the keys" "$fcpc" explain cross.fcp -n 40 -- -5 3
holds "sees nothing" grep -q "q = -5 does not see k = 3 (n = 40)" stdout
ok "the same of a plan" "$fcpc" explain cross.plan -n 40 -- -110 3
ok "a negative position is no option" "$fcpc" explain cross.plan -110 3 --json
holds "and finds the sequence that has it" json '.q == -110 and .n == 40'
bad "a digit is no option elsewhere" 2 E001 show cross.plan -1
bad "a query before the first" 1 E206 explain cross.plan -n 40 -- -111 3
bad "a position that no query has" 1 E206 explain cross.fcp 2000 3
bad "fewer than no queries" 1 E300 cross.fcp -D 'batch.lengths=[-1:5]' -o out/x.plan

# --- sequences without tokens -----------------------------------------------------------------------------------------
for lengths in '[0, 5, 0:7, 7:0]' '[0]' '[0:7]' '[7:0, 0]'; do
    ok "lengths $lengths" "$fcpc" -q cross.fcp -D "batch.lengths=$lengths" -o zeros.plan
    ok "and its pairs" "$fcpc" verify --pairs zeros.plan
    ok "and its results" "$fcpc" run zeros.plan
    ok "and its picture" "$fcpc" show zeros.plan
    ok "and what it takes" "$fcpc" sim zeros.plan --json
    holds "which may be nothing" json '.makespan_s >= 0'
    ok "and what auto tries" "$fcpc" -q cross.fcp -D "batch.lengths=$lengths" -D plan.strategy=auto --explain
    holds "and that no number is missing" sh -c '! grep -qi nan stdout'
done
printf 'model { heads = 2; head_dim = 8; dtype = fp32 }\nbatch { lengths = [0, 0] }\nplan { mask = causal }\n' > zeros.fcp
ok "tensors of no tokens are written" "$fcpc" run zeros.fcp --no-check --out zeros.npy
ok "and read" "$fcpc" run zeros.fcp --q zeros.npy --k zeros.npy --v zeros.npy --out zeros-too.npy
holds "and are the same" cmp zeros.npy zeros-too.npy
bad "and are not for other batches" 1 E701 run zeros.fcp -D 'batch.lengths=[1]' --q zeros.npy --k zeros.npy --v zeros.npy
bad "a pair where there are no keys" 1 E206 explain zeros.plan --seq 0 -- -7 0
holds "says that there are none" grep -q "this sequence has no" stderr
bad "a picture where there are no keys" 1 E206 show zeros.plan --seq 0 --rows 0..1

# --- emit -------------------------------------------------------------------------------------------------------------
export FCP_CACHE="$work/kernels"
variant 's/fp32/bf16/' k.fcp
plan k.fcp k.plan
ok "emit prints source" "$fcpc" emit k.plan
holds "both passes" sh -c 'grep -q "FK_KERNEL(fk_forward," stdout && grep -q "FK_KERNEL(fk_backward_ordered," stdout'
holds "and no includes" sh -c '! grep -q "^#include" stdout'
cp stdout k.cu
ok "emit writes the same" "$fcpc" emit k.fcp -q -o k2.cu
holds "into its file" cmp -s k.cu k2.cu
ok "one pass" "$fcpc" emit k.plan --pass backward
holds "alone" sh -c '! grep -q "FK_KERNEL(fk_forward," stdout && grep -q "FK_KERNEL(fk_backward_ordered," stdout'
ok "emit with JSON" "$fcpc" emit k.plan --pass forward --json
holds "emit's JSON" json '.passes == ["forward"] and .arch == null and
    (.source | startswith("#define FK_HEAD_DIM 32")) and
    .source_bytes == (.source | length) and .short_queries == null and
    (.kernels | length == 10 and .[0].name == "fk_forward" and .[0].threads == 128)'
variant 's|fp32|bf16|; s|head_dim = 32|head_dim = 128|' k128.fcp
ok "the source for an architecture" "$fcpc" emit k128.fcp --arch sm_90a --source -o k90.cu
holds "sm_90a has skeletons of its own" grep -q 'FK_KERNEL(fk_forward_sm90,' k90.cu
ok "mma.sync on sm_90a" "$fcpc" emit k128.fcp --arch sm_90a --source --mma-sync -o k90m.cu
holds "mma.sync is another" grep -q 'FK_KERNEL(fk_forward,' k90m.cu
bad "--source with run" 2 E001 run k.plan --source
bad "costs of no machine" 2 E001 emit k.plan --cost
bad "costs of a source" 2 E001 emit k.plan --arch sm_80 --source --cost
bad "emit of fp32" 1 E701 emit a.plan -o out/x
program k1.fcp 'model { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16 }
cluster { nodes = 1; gpus = 3 }; batch { lengths = [600, 100] }
plan { mask = causal; block = 128; strategy = fcp(coalesce = 1, buffers = 8) }'
plan k1.fcp k1.plan
ok "emit one launch" "$fcpc" emit k1.plan --fuse pass
holds "whose blocks wait" grep -q '^#define FK_FUSED 1$' stdout
ok "launches of the backward pass" "$fcpc" emit k1.plan --fuse pass --pass backward
holds "they wait, too" grep -q '^#define FK_FUSED 1$' stdout
bad "two kernels of the backward pass" 2 E001 emit k1.plan --fuse pass --pass backward --backward split
ok "two kernels beside a forward pass" "$fcpc" emit k1.plan --fuse pass --backward split
ok "emit where slots are used again" "$fcpc" emit k1.fcp -D 'plan.strategy=fcp(coalesce=1, buffers=1)' --fuse pass
ok "emit where rows are moved" "$fcpc" emit k1.fcp -D 'plan.strategy=cad(buffers=8)' --fuse pass
variant 's/fp32/bf16/; s/head_dim = 32/head_dim = 72/' k72.fcp
bad "a head_dim without kernels" 1 E400 emit k72.fcp -o out/x
ok "values with fewer numbers than keys" "$fcpc" emit k72.fcp -D head_dim=192 -D value_dim=128
bad "values in keys" 1 E400 emit k72.fcp -D head_dim=128 -D values=keys -o out/x
bad "an architecture that is too old" 1 E710 emit k.plan --arch sm_75 -o out/x
bad "an architecture that is none" 1 E710 emit k.plan --arch hopper -o out/x
bad "a pass that is none" 2 E001 emit k.plan --pass sideways
for kernels in ordered unordered split; do
    ok "emit $kernels" "$fcpc" emit k.fcp -D model.head_dim=64 --pass backward --backward "$kernels" --json
    holds "they are $kernels" \
        json ".backward == \"$kernels\" and (.kernels | length) == $([ $kernels = split ] && echo 11 || echo 10)"
done
for kernels in ordered unordered; do
    ok "emit $kernels for sm_90a" "$fcpc" emit k128.fcp --arch sm_90a --source --pass backward --backward "$kernels" \
        --json
    holds "they are for sm_90a" json ".kernels | map(.name) | map(select(startswith(\"fk_backward\"))) == [\"fk_backward_${kernels}_sm90\"]"
done
for arch in sm_86 sm_89 sm_120; do # which have 99 KB of shared memory for a CTA
    ok "emit for $arch" "$fcpc" emit k128.fcp --arch $arch --source --json
    holds "one kernel with one buffer of dO, as the runtime takes" \
        json '.backward == "ordered" and (.source | contains("#define FK_DO_BUFFERS 1\n"))'
    holds "it fits" json '.kernels | map(select(.name == "fk_backward_ordered"))[0].shared_bytes <= 99 * 1024'
    ok "two kernels for $arch" "$fcpc" emit k128.fcp --arch $arch --source --json --backward split
    holds "they are two" json '.backward == "split"'
done
ok "the plan's own" "$fcpc" emit k.plan --json
holds "they are in order" json '.backward == "ordered"'
ok "a plan that need not be" "$fcpc" emit k.fcp -D plan.deterministic=false --json
holds "they are not" json '.backward == "unordered" and (.kernels | map(.name) | index("fk_backward_unordered"))'
bad "kernels that are none" 2 E001 emit k.plan --backward sorted
bad "kernels of a pass left out" 2 E001 emit k.plan --pass forward --backward split
bad "kernels that have not the head_dim" 1 E400 emit k.fcp -D model.head_dim=256 --backward unordered -o out/x
sed 's/zigzag }/zigzag; passes = forward }/' k.fcp > kf.fcp
bad "a pass that the plan has not" 1 E705 emit kf.fcp --pass backward -o out/x
bad "kernels of a pass that the plan has not" 1 E705 emit kf.fcp --backward split -o out/x
export FCP_NVRTC=/none/libnvrtc.so
bad "no NVRTC" 1 E702 emit k.plan --arch sm_80 -o out/x
holds "and where it was looked for" grep -q 'looked for /none/libnvrtc.so; install the CUDA toolkit' stderr
unset FCP_NVRTC
# NVRTC compiles for seconds: make check leaves it to make check-long and to the sanitizers.
if [ -n "$quick" ]; then :
elif "$fcpc" -q emit k.plan --arch sm_80 -o k.cubin 2> stderr; then
    holds "a cubin" sh -c 'head -c 4 k.cubin | grep -q ELF'
    ok "from the cache" "$fcpc" emit k.plan --arch sm_80 --json
    holds "as it says" json '.cached and .cubin_bytes > 1000 and .serialisation_notes == 0 and
        .cache_warning == null and
        (.kernels | length == 11 and (map(.name) | index("fk_merge")) and
            all(.registers <= .registers_budget and .spill_bytes == 0))'
    # a disassembler of three lines, one that is cut off, one that fails, and none
    printf '#!/bin/sh\n%s\n' \
        'printf "\t.section\t.text.fk_forward,\n /*0000*/ FADD R1, R2 ;\n /*0010*/ EXIT ;\n"' > disassemble
    printf '#!/bin/sh\nprintf "\\t.section\\t.text.fk_forward,\\n /*0000*/ FADD R1, R2 ;\\n"\n' > cut-off
    printf '#!/bin/sh\necho "not a cubin of mine" >&2\nexit 1\n' > refuse
    chmod +x disassemble cut-off refuse
    FCP_NVDISASM=$PWD/disassemble ok "what it costs" "$fcpc" emit k.plan --arch sm_80 --cost
    holds "by its machine code" grep -q '^fk_forward: 2 instructions, .*; no loop over steps' stdout
    FCP_NVDISASM=$PWD/disassemble ok "what it costs, with JSON" "$fcpc" emit k.plan --arch sm_80 --cost --json
    holds "the same" json '.kernels[0].instructions == 2 and .kernels[0].steps == [] and
        .kernels[0].unknown_instruction == null'
    FCP_NVDISASM=$PWD/disassemble ok "one launch beside stages" "$fcpc" emit k1.plan --arch sm_80 --cost --fuse pass
    holds "both are there" sh -c 'test "$(grep -c "^fk_forward: 2 instructions" stdout)" = 2 &&
        grep -Eq "^  forward: [2-9] launches on the rank that has most, and as a pass 1; at most [1-9][0-9]+ bytes.* 0$" \
            stdout && grep -Eq "^  backward: [2-9] launches on the rank that has most, and as a pass 1$" stdout'
    FCP_NVDISASM=$PWD/disassemble ok "with JSON" "$fcpc" emit k1.plan --arch sm_80 --cost --fuse pass --json
    holds "the same" json '.by_stages.launches > 1 and .by_stages.launches_as_a_pass == 1 and
        .by_stages.state_bytes > 0 and .by_stages.state_bytes_as_a_pass == 0 and
        .by_stages.backward_launches > 1 and .by_stages.backward_launches_as_a_pass == 1 and
        .by_stages.kernels[0].instructions == 2'
    FCP_NVDISASM=$PWD/disassemble ok "where rows are moved" "$fcpc" emit k1.fcp --arch sm_80 --cost --fuse pass --json \
        -D 'plan.strategy=cad(buffers=2)'
    holds "fewer launches, less state" json '.by_stages.launches > .by_stages.launches_as_a_pass and
        .by_stages.launches_as_a_pass > 1 and .by_stages.state_bytes > .by_stages.state_bytes_as_a_pass and
        .by_stages.state_bytes_as_a_pass > 0'
    FCP_NVDISASM=$PWD/disassemble ok "stages alone" "$fcpc" emit k1.plan --arch sm_80 --cost --json
    holds "compare with nothing" json 'has("by_stages") | not'
    FCP_NVDISASM=$PWD/disassemble ok "into a file" "$fcpc" emit k.plan --arch sm_80 --cost -o costs
    holds "and there alone" sh -c 'grep -q "^fk_forward: 2" costs && ! grep -q . stdout'
    FCP_NVDISASM=$PWD/cut-off bad "a listing that ends early" 1 E712 emit k.plan --arch sm_80 --cost
    holds "and where" grep -q 'ends early: in the middle of fk_forward' stderr
    FCP_NVDISASM=$PWD/refuse bad "a disassembler that fails" 1 E712 emit k.plan --arch sm_80 --cost
    holds "and what it said" grep -q 'not a cubin of mine' stderr
    FCP_NVDISASM=/none/nvdisasm bad "no disassembler" 1 E702 emit k.plan --arch sm_80 --cost
    holds "and where it was looked for too" grep -q 'looked for /none/nvdisasm; install it from the CUDA toolkit' stderr
    ok "the cubin on standard output" "$fcpc" -q emit k.plan --arch sm_80
    holds "is the same" cmp -s stdout k.cubin
    chmod 755 kernels
    ok "without a cache" "$fcpc" emit k.plan --arch sm_80 -o k2.cubin
    holds "with a warning" grep -q "warning: no kernel cache: .*its mode is not 0700" stderr
else
    holds "no NVRTC, as it says" grep -q 'error.E702.: NVRTC is not there' stderr
    echo "skipped: emit --arch: $(sed -n 's/.*error.E702.: //p' stderr)"
fi

# --- help -------------------------------------------------------------------------------------------------------------
ok "--help" "$fcpc" --help
holds "help lists commands" grep -q "fcpc verify FILE.fcp|PLAN" stdout
holds "help prints whole lines" grep -q -- "fcpc sim .*\[--trace F\]$" stdout
ok "help COMMAND" "$fcpc" help run
holds "help lists options" grep -q -- "--lse" stdout
holds "in 80 columns" sh -c '[ "$(sed /^Tensors/,\$d stdout | wc -L)" -le 80 ]'
ok "help CODE" "$fcpc" help E203
holds "help says what to do" grep -q "^What to do: .*window(w = 1024)" stdout
ok "COMMAND --help" "$fcpc" show --help
ok "--version" "$fcpc" --version
ok "--version as JSON" "$fcpc" --version --json
holds "version's JSON" json '.version | type == "string"'

# Completion and the man page are made from the table of options, so every option of every command must be in them.
"$fcpc" help bash-completion > completion.bash
ok "the completion is bash" bash -n completion.bash
# completes WANTED WORD...: for the last word, bash offers WANTED, perhaps among others
completes() {
    want=$1; shift
    bash -c '. ./completion.bash; COMP_WORDS=(fcpc "$@"); COMP_CWORD=$#; _fcpc
        printf "%s\n" "${COMPREPLY[@]}"' _ "$@" \
        > stdout 2> stderr
    holds "completing 'fcpc $*' offers '$want'" grep -qx -e "$want" stdout
    holds "and says nothing else" [ ! -s stderr ]
}
completes show sh
completes verify ver
completes a.fcp a.
completes --backend run a.plan --ba
completes cuda run a.plan --backend cu
completes host run --backend = ''
completes split emit a.plan --backward = sp
completes a.plan run --backend = host a.p
completes o.npy run a.plan --q o.
completes forward,backward run a.plan --pass forward,
completes --output a.fcp --out
completes --png show --width 80 --pn
completes zsh-completion help z
bash -c '. ./completion.bash; COMP_WORDS=(fcpc verify --sv); COMP_CWORD=2; _fcpc
    printf "%s\n" "${COMPREPLY[@]}"' > stdout
holds "an option of another command is not offered" sh -c '! grep -q svg stdout'
for command in compile show verify run emit dump fmt explain; do
    "$fcpc" help "$command" | sed -n 's/^  \(-., \|    \)--\([a-z0-9-]*\).*/--\2/p' > options
    holds "$command has options" [ "$(wc -l < options)" -ge 4 ]
    bash -c '. ./completion.bash; COMP_WORDS=(fcpc '"$command"' --); COMP_CWORD=2; _fcpc
        printf "%s\n" "${COMPREPLY[@]}"' > stdout
    sort options > a.options
    sort stdout > b.options
    holds "completion of $command offers its options and no others" cmp -s a.options b.options
done
"$fcpc" help zsh-completion > _fcpc
holds "the completion of zsh is for fcpc" grep -qx '#compdef fcpc' _fcpc
if command -v zsh > /dev/null; then
    ok "the completion is zsh" zsh -n _fcpc
    run zsh -fc '_arguments() { print -rl -- "$@" }; words=(fcpc run ""); CURRENT=3; . ./_fcpc'
    holds "which completes options" grep -q '^--backend=\[compute on the processor.*\]:backend:(host cuda)$' stdout
    holds "and files" grep -q '^--q=\[read the queries from this file\\: .*:_files$' stdout
    run zsh -fc '_describe() { print -rl -- $commands }; _files() { }; words=(fcpc ""); CURRENT=2; . ./_fcpc'
    holds "and commands" grep -q '^verify:prove a plan right' stdout
else
    echo "skipped: running the completion of zsh: zsh is not there"
fi
"$fcpc" help man > fcpc.1
holds "the man page has its sections" [ "$(grep -c '^\.SH' fcpc.1)" -ge 6 ]
"$fcpc" help run | sed -n 's/^  \(-., \|    \)--\([a-z0-9-]*\).*/\2/p' | sed 's/-/\\-/g' > options
while read -r option; do
    holds "--$option is in it" grep -q -F -e "\\-\\-$option" fcpc.1
done < options
if command -v groff > /dev/null; then
    run groff -man -ww -Tascii -z fcpc.1
    holds "groff has nothing to say about it" [ ! -s stderr ]
else
    echo "skipped: formatting the man page: groff is not there"
fi

# --- serve: plans for other programs over a socket --------------------------------------------------------------------
if command -v python3 > /dev/null; then
    mkdir serve
    (cd serve && timeout 300 python3 "$top/tests/cli/serve.py" "$fcpc") > served 2> stderr ||
        echo "FAILED: serve" >> served
    cp served stdout
    passed=$((passed + $(grep -c '^ok ' served)))
    failed=$((failed + $(grep -c '^FAILED' served)))
    grep -q '^FAILED' served && { grep '^FAILED' served; cat stderr; }
else
    echo "skipped: fcpc serve: python3 is not there"
fi
bad "serve at no path" 2 E001 serve
bad "-D of serve, which is each request's" 2 E001 serve a.sock -D plan.block=64

# --- usage: exit status 2 ---------------------------------------------------------------------------------------------
bad "nothing to do" 2 E001
bad "a command without a file" 2 E001 verify
bad "unknown option" 2 E001 a.fcp --outptu out/x
holds "the nearest option" grep -q -- "--output" stderr
bad "unknown letter" 2 E001 a.fcp -x
bad "unknown command" 2 E001 verfy a.plan
holds "the nearest command" grep -q "'verify'" stderr
bad "an option without its value" 2 E001 a.fcp -o
bad "a flag with a value" 2 E001 a.fcp --quiet=3
bad "an option of another command" 2 E001 verify a.plan --svg out/x
bad "two files" 2 E001 a.fcp a.plan
bad "help on nothing" 2 E001 help me
bad "compile a plan" 2 E001 a.plan -o out/x
bad "-D on a plan" 2 E001 verify a.plan -D plan.block=256
bad "a number that is none" 2 E001 show a.plan --width wide
bad "a seed that is none" 2 E001 run a.plan --seed=-1
bad "q without k and v" 2 E001 run a.plan --q o.npy --out out/x
bad "gradients without do" 2 E001 run a.plan --q o.npy --k dk.npy --v dv.npy --dq out/x
bad "an unknown pass" 2 E001 run a.plan --pass sideways
bad "--check with a word it does not know" 2 E001 run a.plan --check=some
bad "check and no-check" 2 E001 run a.plan --check --no-check
bad "a sample of no work" 2 E001 run a.plan --check-work 0
bad "a sample of all rows" 2 E001 run a.plan --check all --check-work 1000
bad "a sample without a check" 2 E001 run a.plan --no-check --check-work 1000
bad "a sample of what is not checked" 2 E001 run a.plan --q o.npy --k dk.npy --v dv.npy --check-work 1000

# --- files ------------------------------------------------------------------------------------------------------------
bad "no such program" 1 E010 none.fcp -o out/x
bad "no such plan" 1 E010 verify none.plan
bad "a folder as a program" 1 E010 . -o out/x
bad "no such lengths" 1 E010 a.fcp --lengths none.lengths -o out/x
bad "a folder that is not there" 1 E011 a.fcp -o out/none/x.plan
bad "a folder as output" 1 E011 a.fcp -o out
ln -s linked.plan link.plan
ok "a symbolic link as output" "$fcpc" -q a.fcp -o link.plan
holds "the file that it points to is written" cmp -s linked.plan a.plan
holds "and the link stays" [ -h link.plan ]
ok "/dev/null as output" "$fcpc" -q a.fcp -o /dev/null
ok "/dev/null as several outputs" "$fcpc" run -q --no-check a.plan --out /dev/null --lse /dev/null
bad "a path that ends in a slash" 1 E011 a.fcp -o out/x/
if "$fcpc" -q a.fcp -o /dev/stdout | cmp -s - a.plan; then good; else fail "a pipe as output" "not the plan"; fi
bad "the input as output" 1 E011 a.fcp -o a.fcp
bad "an SVG that cannot be written" 1 E011 show a.plan --svg out/none/x.svg
bad "tensors that cannot be written" 1 E011 run a.plan --out out/x.npy --dq out/none/x.npy
bad "two outputs, one path" 1 E011 run a.plan --out out/x.npy --dq out/x.npy
# kept NAME FILE ARGUMENTS...: fcpc refuses to write (E011), and FILE is as it was
kept() {
    name=$1 file=$2; shift 2
    cp "$file" before
    bad "$name" 1 E011 "$@"
    holds "$name: it is as it was" cmp -s "$file" before
}
mkdir -p in
printf '700\n300\n' > in/a.lengths
awk 'BEGIN { for (i = 0; i < 1000; i++) print i % 3 }' > in/doc.txt
printf '0 200 0 200 causal\n' > in/a.slices
seq 0 9 > in/t.txt
cat > in/named.fcp << 'EOF'
model   { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16; table t = file("t.txt") }
cluster { gpus = 2 }
batch   { lengths = file("a.lengths"); field doc = file("doc.txt"); field idle = file("idle.txt") }
mask m = doc[q] == doc[k] and t[q % 10] >= 0 and (causal or slices(file("a.slices")))
plan    { mask = m; block = 128 }
EOF
cp in/doc.txt in/idle.txt
cp in/doc.txt in/other.txt
ok "a program that names files" "$fcpc" -q in/named.fcp -o in/named.plan
for file in a.lengths doc.txt idle.txt a.slices t.txt named.fcp; do
    kept "-o onto $file, which the program names" "in/$file" in/named.fcp -o "in/$file"
done
ln -s ../in/doc.txt in/link
ln in/a.lengths in/twin
kept "-o onto a symbolic link to a field" in/doc.txt in/named.fcp -o in/link
kept "-o onto a hard link to the lengths" in/a.lengths in/named.fcp -o in/twin
kept "-o onto the source in another spelling" in/named.fcp in/named.fcp -o in/../in/./named.fcp
kept "-o onto the file of --lengths" in/other.txt a.fcp --lengths in/other.txt -o in/other.txt
kept "-o onto the lengths that --lengths replaces" in/a.lengths in/named.fcp --lengths in/a.lengths -o in/a.lengths
kept "-o onto the file of --field" in/other.txt in/named.fcp --field doc=in/other.txt -o in/other.txt
kept "-o onto the file that --field replaces" in/doc.txt in/named.fcp --field doc=in/other.txt -o in/doc.txt
# The files are not read before that: none of these could be.
echo 'no numbers' > in/junk.txt
for value in 'lengths = file("junk.txt")' 'lengths = [300]; field f = file("junk.txt")' \
    'lengths = [300] }; model { table t = file("junk.txt")'; do
    echo "batch { $value }; plan { mask = causal; block = 128 }" > in/junk.fcp
    kept "-o onto a file that is no $value" in/junk.txt in/junk.fcp -o in/junk.txt
    holds "and the place that names it" grep -q "in/junk.fcp:1:.*'in/junk.txt' cannot be written" stderr
done
echo 'batch { lengths = [300] }; plan { mask = slices(file("junk.txt")); block = 128 }' > in/junk.fcp
kept "-o onto what are no slices" in/junk.txt in/junk.fcp -o in/junk.txt
kept "an image onto the program" in/named.fcp show in/named.fcp --svg in/named.fcp
kept "an image onto a file of the program" in/doc.txt show in/named.fcp --html in/doc.txt
kept "an image onto a file that the plan was made from" in/doc.txt show in/named.plan --svg in/doc.txt
kept "a source onto the plan" in/named.plan emit in/named.plan -o in/named.plan
kept "a source onto a file of the program" in/t.txt emit in/named.fcp -o in/t.txt
for output in out lse dq dk dv; do
    kept "--$output onto --q" o.npy run a.plan --q o.npy --k dk.npy --v dv.npy --do dq.npy --$output o.npy
done
ln o.npy o-twin.npy
kept "--out onto a hard link to --q" o.npy run a.plan --q o.npy --k dk.npy --v dv.npy --out o-twin.npy
kept "--out onto the plan" a.plan run a.plan --out a.plan
kept "--out onto a field's file" in/doc.txt run in/named.plan --bf16 --out in/doc.txt
ln -s x.npy out-link
bad "two outputs, one path in two spellings" 1 E011 run a.plan --out out/x.npy --dq out/../out/x.npy
bad "two outputs, one a link to the other, which is not there" 1 E011 run a.plan --out x.npy --dq out-link
holds "nothing is made" [ ! -e x.npy ]
bad "images onto one path" 1 E011 show a.plan --svg out/x --html out/x

# "-" is standard input.
ok "a program from standard input" sh -c "\"$fcpc\" -q - -o b.plan < a.fcp"
holds "its plan" cmp -s a.plan b.plan
ok "the same from a pipe" sh -c "cat a.fcp | \"$fcpc\" -q -o b.plan -"
holds "its plan" cmp -s a.plan b.plan
ok "a plan from standard input" sh -c "\"$fcpc\" verify - < a.plan"
ok "the same from a pipe" sh -c "cat a.plan | \"$fcpc\" dump -"
"$fcpc" dump a.plan > first
holds "is the plan" cmp -s stdout first
ok "run it" sh -c "cat a.plan | \"$fcpc\" run -q --no-check -"
ok "lengths from standard input" sh -c "printf '600\n' | \"$fcpc\" -q a.fcp --lengths - --json"
holds "are the batch" json '.tokens == 600'
ok "fmt of standard input" sh -c "\"$fcpc\" fmt - < loose.fcp"
holds "is laid out" cmp -s stdout tidy.fcp
ok "explain of standard input" sh -c "\"$fcpc\" explain - 5 3 < a.fcp"
bad "fmt -w of standard input" 2 E001 fmt -w -
bad "standard input twice" 2 E001 - --lengths -
echo 'plan { mask = cuasal }' > e.fcp
run sh -c "\"$fcpc\" - < e.fcp"
holds "an error in it has a place" grep -q '^<stdin>:1:15: error\[E200\]' stderr
cp a.fcp in/src.fcp
run sh -c "\"$fcpc\" - -o in/src.fcp < in/src.fcp"
holds "-o onto what standard input is" [ $? = 1 ]
holds "leaves it" cmp -s a.fcp in/src.fcp
for endless in /dev/zero /dev/urandom; do
    [ -c $endless ] || continue
    run timeout 20 "$fcpc" $endless
    holds "$endless as a program ends with 1" [ $? = 1 ]
    run timeout 20 "$fcpc" verify $endless
    holds "$endless as a plan ends with 1" [ $? = 1 ]
done
run sh -c "{ cat a.plan; yes; } | timeout 20 \"$fcpc\" verify -"
holds "a plan that does not end is read as far as its header says" grep -q 'E502.*too long' stderr
: > empty
bad "verify of an empty file" 1 E502 verify empty
holds "says so" grep -q 'empty: error.E502.: the plan is cut short: the file is empty' stderr
bad "a picture of an empty file" 1 E500 show empty
holds "says so" grep -q 'empty: error.E500.: is empty: it is neither a plan nor a program' stderr
printf 'plan { mask = \0causal }' > nul.fcp
run "$fcpc" nul.fcp
holds "a program with a NUL byte is not taken for a plan" sh -c '! grep -q "is a plan" stderr'

# --json lists all errors and warnings.
printf 'batch { lengths = [300] }\nmask m = k <= q and q > r\nplan { mask = cuasal }\n' > e.fcp
run "$fcpc" --json e.fcp
holds "all errors are listed, the first is the error" json '(.diagnostics | length) == 2 and
    (.diagnostics[0] == .error) and
    all(.diagnostics[]; .severity == "error" and has("code", "message", "file", "line", "column")) and
    (.diagnostics | map(.line)) == [2, 3]'
ok "warnings are listed too" "$fcpc" --json -q w.fcp
holds "without a code" json '(has("error") | not) and (.diagnostics | length) == 1 and
    .diagnostics[0].severity == "warning" and
    .diagnostics[0].code == null and .diagnostics == .warnings'
run "$fcpc" --json w.fcp -D cluster.memory='1 kB' -q
holds "warnings and errors together" json '.error.code == "E403"
    and (.diagnostics | map(.severity) | index("error")) != null'
run "$fcpc" --json verify none.plan
holds "an error that no program has is listed" json '.diagnostics == [.error] and .error.code == "E010"'
for command in "show a.fcp" "verify a.fcp" "run a.fcp" "emit k.fcp" "fmt a.fcp" "explain a.fcp 3 2"; do
    # shellcheck disable=SC2086
    ok "$command with JSON" "$fcpc" $command --json
    holds "$command has a list" json '.diagnostics | type == "array"'
done

# A last, small batch leaves some ranks without work.
program two.fcp 'model { heads = 2; head_dim = 16; dtype = fp32 }; cluster { nodes = 2; gpus = 2 };
batch { lengths = [200] }
plan { mask = causal; block = 128 }'
ok "a batch of fewer blocks than ranks" "$fcpc" two.fcp -o two.plan --json
holds "means are over all ranks" json '.ranks == 4 and .blocks == 2
    and (.tokens_max_over_mean * 50 - 128 | fabs) < 0.001'
golden show/empty.txt "$fcpc" show two.plan --ascii --width 80
ok "its picture" "$fcpc" show two.plan --svg two.svg --html two.html
holds "has no number that is none" sh -c '! grep -q -i -e nan -e "\binf\b" two.svg'
ok "it runs" "$fcpc" run -q two.plan
ok "it is explained" "$fcpc" explain two.plan 3 2

# What explain and show say.
bad "a position that overflows" 1 E206 explain causal 9223372036854775807 0
bad "a length that overflows" 1 E206 explain causal 1 0 -n 9223372036854775807
bad "a query far before the keys" 1 E206 explain causal -9223372036854775807 0
program alike.fcp 'model { heads = 2; head_dim = 16; dtype = fp32 };
batch { lengths = [300, 300]; field d = [0 x 300, 1 x 150, 2 x 150] }
mask m = d[q] == d[k]; plan { mask = m; block = 128 }'
ok "sequences of one length" "$fcpc" show alike.fcp --ascii
holds "with other values are not alike" sh -c '! grep -q alike stdout'
ok "with the same values" "$fcpc" show alike.fcp --ascii -D 'batch.d=[0 x 600]'
holds "are alike" grep -q '300 tokens, 2 alike' stdout
ok "a part of one" "$fcpc" show alike.fcp --seq 1 --json
holds "is not alike" json '.view.alike == 1'

if [ -c /dev/full ]; then
    bad "a full disk under a plan" 1 E011 a.fcp -o /dev/full
    "$fcpc" dump a.plan > /dev/full 2> stderr
    holds "a full disk under stdout" [ $? = 1 ]
    for output in "a.fcp -o" "show a.plan --svg" "show a.plan --html" "run a.plan --no-check --out" "emit k.plan -o" \
        "show a.plan --png"; do
        case "$output" in *png) [ -e a.png ] || continue ;; esac
        # shellcheck disable=SC2086
        run "$fcpc" -q $output /dev/full
        holds "a full disk: $output" [ $? = 1 ]
        holds "and why: $output" grep -q '/dev/full: error.E011.*No space left on device' stderr
    done
else
    echo "skipped: a full disk under stdout: there is no /dev/full"
fi
for output in "a.fcp -o out/x.plan" "show a.plan --svg out/x.svg" "run a.plan --no-check --out out/x.npy"; do
    # shellcheck disable=SC2086
    (ulimit -f 4; "$fcpc" -q $output > /dev/null 2> "$work/limited") 2> /dev/null
    holds "a limit on the size of files: $output" [ $? = 1 ]
    holds "and it is an error of writing" grep -q 'error\[E011\]' limited
    holds "and nothing is left" [ -z "$(ls -A out)" ]
    rm -f out/*
done
if [ "$(id -u)" != 0 ]; then
    mkdir sealed && chmod 500 sealed
    bad "a folder that may not be written" 1 E011 a.fcp -o sealed/x.plan
else
    echo "skipped: a folder that may not be written: root may write to all"
fi
: > stdout; : > stderr

# --- programs ---------------------------------------------------------------------------------------------------------
program e.fcp 'plan { mask = causal } ; batch { lengths = [128 } '
bad "a syntax error" 1 E110 e.fcp -o out/x
holds "the place" json '.error.file == "e.fcp" and .error.line == 1 and .error.column > 1'
program e.fcp 'plan { mask = causal; block = 12q4 }'
run "$fcpc" e.fcp; holds "a bad number" [ $? = 1 ]
program e.fcp "$(printf 'batch { lengths = [64] }\nplan { mask = cuasal }')"
bad "an unknown mask" 1 E200 e.fcp -o out/x
holds "the nearest mask" grep -q "causal" stderr
variant 's/heads = 4/haeds = 4/' e.fcp; bad "an unknown key" 1 E205 e.fcp -o out/x
variant 's/block = 128/block = 200/' e.fcp; bad "a large block that is no multiple of 128" 1 E401 e.fcp -o out/x
variant 's/kv_heads = 2/kv_heads = 3/' e.fcp; bad "heads that do not divide" 1 E400 e.fcp -o out/x
variant 's/gpus = 2/gpus = 2; memory = 0.0001 GB/' e.fcp; bad "too little memory" 1 E403 e.fcp -o out/x
variant 's/^batch.*//' e.fcp; bad "no batch" 1 E209 e.fcp -o out/x
variant 's/\[700,/[-7,/' e.fcp; bad "a length below zero" 1 E300 e.fcp -o out/x
variant 's/\[700,/[1099511627776,/' e.fcp; bad "lengths beyond 2^40" 1 E300 e.fcp -o out/x
variant 's/\[700,/[-5,/' e.fcp; run "$fcpc" e.fcp; holds "a negative length" [ $? = 1 ]
variant 's/mask = lambda(.*); block/mask = m; block/' e.fcp; echo 'mask m = q / (k - 200) >= 0' >> e.fcp
bad "a reachable division by zero" 1 E310 e.fcp -o out/x
variant 's/mask = lambda(.*); block/mask = m; block/' e.fcp; echo 'mask m = q * 9223372036854775807 > k' >> e.fcp
bad "a reachable overflow" 1 E311 e.fcp -o out/x
variant 's/mask = lambda(.*); block/mask = natten2d(W = 64, kw = 3, kh = 3); block/' e.fcp
bad "a division that must leave no rest" 1 E312 e.fcp -o out/x
variant 's/mask = lambda(.*); block/mask = dilated(w = 9, d = 0); block/' e.fcp
bad "a division by zero in the prelude" 1 E310 e.fcp -o out/x
run "$fcpc" e.fcp; holds "names the plan's mask" grep -q "e.fcp:4:18: note: of this mask" stderr
variant 's/mask = lambda(.*); block/mask = m; block/' e.fcp; \
    echo 'mask m = k < 200 and (k == 200 or q / (k - 200) <= 0)' >> e.fcp
ok "a division that is never reached by zero" "$fcpc" -q e.fcp -o e.plan
variant 's/mask = lambda(.*); block/mask = m; block/' e.fcp; echo 'mask m = causal and k >= 5' >> e.fcp
ok "rows that see nothing" "$fcpc" e.fcp -q --json
holds "get a warning that names them" json '.warnings | length == 1
    and (.[0].message | contains("46 queries of 10 sequences see no key: for instance q = 0 to 4 of sequence 0"))'
holds "as text too" grep -q 'warning: .*q = 0 to 4 of sequence 0' stderr
printf '12\nx\n' > l.lengths
bad "a malformed file of lengths" 1 E301 a.fcp --lengths l.lengths -o out/x
bad "an override of nothing" 1 E200 a.fcp -D plan.blok=256 -o out/x
program e.fcp 'plan { mask = causal; score = alibi }'
run "$fcpc" e.fcp; holds "what comes later" [ $? = 1 ]
head -c 3000 /dev/zero | tr '\0' '(' > e.fcp
run "$fcpc" e.fcp; holds "deep nesting" [ $? = 1 ]
: > e.fcp; run "$fcpc" e.fcp; holds "an empty program" [ $? = 1 ]

# --- plans ------------------------------------------------------------------------------------------------------------
size=$(wc -c < a.plan)
head -c $((size / 2)) a.plan > e.plan; bad "a plan cut short" 1 E502 verify e.plan
head -c 3 a.plan > e.plan; run "$fcpc" verify e.plan; holds "a plan of three bytes" [ $? = 1 ]
flip() { # flip OFFSET: e.plan is a.plan with one byte changed
    cp a.plan e.plan
    byte=$(od -An -tu1 -j "$1" -N 1 a.plan | tr -d ' ')
    printf "\\$(printf %03o $(((byte + 1) % 256)))" | dd of=e.plan bs=1 seek="$1" conv=notrunc 2> /dev/null
}
flip 0; bad "not a plan's magic" 1 E500 verify e.plan
for at in 9 12 40 70 100 $((size / 3)) $((size / 2)) $((size - 1)); do
    flip "$at"
    run "$fcpc" verify e.plan
    status=$?
    holds "a plan altered at byte $at" [ $status = 1 ]
    run "$fcpc" run e.plan --out out/x.npy
    holds "and not run" [ ! -e out/x.npy ]
done
echo hello > e.txt; run "$fcpc" verify e.txt; holds "a text as a plan" [ $? = 1 ]

# --- slices -----------------------------------------------------------------------------------------------------------
mkdir -p pieces
printf '0 200 0 200 causal\n200 300 0 100\n250 300 50 300 2\n' > pieces/a.slices
cat > pieces/s.fcp << 'EOF'
model   { heads = 2; kv_heads = 1; head_dim = 16; dtype = fp32 }
cluster { nodes = 1; gpus = 2 }
batch   { lengths = [300, 300, 100] }
mask m = slices(file("a.slices")) or rect(0..n, 0..8) or q == k
plan    { mask = m; block = 128 }
EOF
ok "compile slices" "$fcpc" --json -q pieces/s.fcp -o pieces/s.plan
holds "overlapping slices are a warning at their line" json '.warnings | length == 1
    and (.[0].file | endswith("a.slices")) and .[0].line == 3'
mv pieces/a.slices pieces/moved
ok "run a plan of slices, their file gone" "$fcpc" run pieces/s.plan --json
holds "and right" json '.ok'
ok "show it" "$fcpc" show pieces/s.plan --width 80
holds "with its slices" grep -q "slices .*1 union of slices" stdout
ok "a part of it" "$fcpc" show pieces/s.plan --rows 0..300 --cols 0..300
ok "explain it" "$fcpc" explain pieces/s.plan 270 60
holds "by the plan's bands" grep -q "in one of the plan's bands" stdout
ok "dump it" "$fcpc" dump pieces/s.plan
holds "with its bands" grep -q "^band 0" stdout
bad "compile slices, their file gone" 1 E010 -q pieces/s.fcp
mv pieces/moved pieces/a.slices
ok "explain slices" "$fcpc" explain pieces/s.fcp 255 60
holds "by their lines" grep -q "line 2: 200 300 0 100 full, and 1 more" stdout
bad "slices beyond the longest sequence" 1 E323 pieces/s.fcp -D "batch.lengths=[299, 100]"
holds "names the line" grep -q "line 2 of '.*a.slices' reaches to position 300; the longest sequence has 299 tokens" \
    stderr
echo '250 300 50 300 inverted' >> pieces/a.slices
bad "a malformed file of slices" 1 E323 --json pieces/s.fcp
holds "at its place in the file" json '.error.line == 4 and (.error.file | endswith("a.slices"))'

# --- tensors ----------------------------------------------------------------------------------------------------------
bad "tensors of another shape" 1 E701 run a.plan --q dk.npy --k dk.npy --v dv.npy --out out/x.npy
bad "tensors of another type" 1 E701 run a.plan --q oh.npy --k dk.npy --v dv.npy --out out/x.npy
bad "a tensor that is none" 1 E700 run a.plan --q a.fcp --k dk.npy --v dv.npy --out out/x.npy
bad "a tensor that is not there" 1 E010 run a.plan --q none.npy --k dk.npy --v dv.npy --out out/x.npy
bad "bf16 outputs without --bf16" 1 E701 run bf16.plan --out out/x.npy
bad "--bf16 for an fp32 plan" 1 E701 run a.plan --bf16 --out out/x.npy
bad "a backend that is not there" 1 E702 run a.plan --backend quantum --out out/x.npy
FCP_CUDA_DRIVER=/nowhere/libcuda.so; export FCP_CUDA_DRIVER
program gpu.fcp 'model { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16 }
cluster { nodes = 1; gpus = 2 }; batch { lengths = [300, 100] }; plan { mask = causal; block = 128 }'
ok "a plan for GPUs" "$fcpc" -q gpu.fcp -o gpu.plan
bad "cuda without a driver" 1 E702 run gpu.plan --backend cuda
holds "says what was looked for" grep -q "/nowhere/libcuda.so.*--backend host" stderr
if [ -e "$B/standin/libcuda.so" ]; then
    FCP_CUDA_DRIVER=$B/standin/libcuda.so
    ok "cuda, on a driver that stands in" env FCP_NVRTC="$B/standin/libnvrtc.so" FCP_CACHE="$B/kernels" \
        STANDIN_PLAN=gpu.plan \
        "$fcpc" run gpu.plan --backend cuda --json
    holds "its JSON" json '.ok and .backend == "cuda" and .transport == "local" and .ranks == 2 and
        .forward == "by stages" and .backward == "by stages"'
    holds "what leaves multiprocessors to communication" json '.sm_partition == "green"
        and (.sm_partition_why | length > 20)'
    ok "by the grid alone" env FCP_NVRTC="$B/standin/libnvrtc.so" FCP_CACHE="$B/kernels" STANDIN_PLAN=gpu.plan \
        "$fcpc" run gpu.plan --backend cuda --sm-partition grid
    holds "it says so" grep -q "communication by: grid (the session was asked for it)" stdout
    bad "a partition that is none" 2 E001 run gpu.plan --backend cuda --sm-partition half
    ok "a pass in one launch" env FCP_NVRTC="$B/standin/libnvrtc.so" FCP_CACHE="$B/kernels" STANDIN_PLAN=gpu.plan \
        "$fcpc" run gpu.plan --backend cuda --fuse pass
    holds "it says so, too" grep -Eq "the forward pass of a rank is [1-9] launch" stdout
    holds "of both passes" grep -Eq "the backward pass of a rank is [1-9] launch" stdout
    ok "passes in one launch, with JSON" env FCP_NVRTC="$B/standin/libnvrtc.so" FCP_CACHE="$B/kernels" \
        STANDIN_PLAN=gpu.plan "$fcpc" run gpu.plan --backend cuda --fuse pass --json
    holds "how many" json '.ok and .forward == "fused" and .forward_launches > 0 and .backward == "fused" and
        .backward_launches > 0'
    bad "fused by halves" 2 E001 run gpu.plan --backend cuda --fuse half
    bad "one launch on the host" 1 E702 run gpu.plan --fuse pass
else
    echo "skipped: run --backend cuda: no driver that stands in is built (make gpu-binaries)"
fi

# --- what each rank does when -----------------------------------------------------------------------------------------
# fits FILE: the trace is as it should be. In each thread slices follow each other; every arrow has both ends in
# slices; counters never go below 0, and end there.
fits() {
    jq -e '.traceEvents as $e
        | [$e[] | select(.ph == "X")] as $x
        | ($x | group_by([.pid, .tid]) | all(sort_by(.ts) | [.[:-1], .[1:]] | transpose
            | all(.[0].ts + .[0].dur <= .[1].ts + 1e-6)))
        and ([$e[] | select(.ph == "s" or .ph == "f")] | group_by(.id)
            | all(length == 2 and (map(.ph) | sort) == ["f", "s"] and (map(.pid) | unique | length) == 2))
        and ([$e[] | select(.ph == "C") | .args[]] | all(. >= 0))
        and ([$e[] | select(.ph == "C" and .name != "memory")] | group_by([.pid, .name])
            | all(max_by(.ts).args | add == 0))
        and ([$e[] | select(.ph == "M" and .name == "thread_name") | .args.name] | unique)
            == ["compute", "local", "net"]
        and ($x | length) > 10' "$1" > /dev/null
}
says() { jq -e "$2" "$1" > /dev/null; }
ok "a trace of a prediction" "$fcpc" sim a.fcp --trace sim.json
holds "which fits" fits sim.json
holds "and says what it is" says sim.json '.otherData.timeline == "predicted" and (.otherData.profile | length > 0)
    and .otherData.ranks == 4'
ok "a trace of a run" "$fcpc" run a.plan --no-check --trace run.json --out traced.npy
holds "which fits" fits run.json
holds "and says what it is" says run.json '.otherData.timeline == "measured" and .otherData.backend == "host"'
# the slices that move something: names, threads, and what is in them but times
moved() { jq -S '[.traceEvents[] | select(.ph == "X" and .tid > 1) | {pid, tid, name, cat,
    args: (.args | del(.send.waited_us, .receive.waited_us))}] | sort' "$1"; }
moved sim.json > sim.moved
moved run.json > run.moved
holds "prediction and measurement have the same slices, processes and threads" cmp sim.moved run.moved
jq -s '.[0].traceEvents += (.[1].traceEvents | map(select(.ph == "X" or .ph == "M" and .name == "thread_name")
    | .tid += 3 | if .ph == "M" then .args.name += " (measured)" else . end)) | .[0]' \
    sim.json run.json > both.json
holds "one above the other" says both.json '[.traceEvents[] | select(.ph == "X") | .tid] | unique == [1, 2, 3, 4, 5, 6]'
ok "some ranks" "$fcpc" -q sim a.fcp --trace some.json --ranks 1,3..4
holds "those" says some.json '[.traceEvents[].pid] | unique == [1, 3]'
program wide.fcp 'model { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16 }
cluster { nodes = 10; gpus = 8; gpu = h200 }; batch { lengths = [11000] }; plan { mask = causal; block = 128 }'
ok "beyond 64 ranks" "$fcpc" -q sim wide.fcp --trace wide.json
holds "the 8 busiest and the median" says wide.json '[.traceEvents[].pid] | unique | length == 9'
ok "all of them" "$fcpc" -q sim wide.fcp --trace wide.json --ranks all
holds "all" says wide.json '[.traceEvents[].pid] | unique | length == 80'
bad "a rank that is not there" 2 E001 sim a.fcp --trace out/x.json --ranks 0,4
bad "no ranks" 2 E001 run a.plan --trace out/x.json --ranks three
bad "a page of ranks that are not there" 2 E001 show a.plan --html out/x.html --ranks 9
bad "a trace of several plans" 2 E001 sim a.fcp --strategy all --trace out/x.json
bad "a trace of what has no rounds" 2 E001 sim a.fcp --network pulls --trace out/x.json
bad "a trace where nothing may be" 1 E011 sim a.fcp --trace out
bad "a trace in no folder" 1 E011 run a.plan --trace out/none/x.json
bad "a trace onto the page" 1 E011 sim a.fcp --trace out/x --html out/x
kept "a trace onto the program" a.fcp sim a.fcp --trace a.fcp
if [ -c /dev/full ]; then
    bad "a full disk under one of three files" 1 E011 sim a.fcp --trace out/x.json --csv out/x.csv --html /dev/full
    bad "a full disk under a trace" 1 E011 run a.plan --no-check --out out/x.npy --trace /dev/full
fi
if [ -e "$B/standin/libcuda.so" ]; then
    plan learnt.fcp learnt16.plan -D model.dtype=bf16
    ok "gradients of sinks and tables on CUDA" env FCP_CUDA_DRIVER="$B/standin/libcuda.so" \
        FCP_NVRTC="$B/standin/libnvrtc.so" FCP_CACHE="$B/kernels" STANDIN_PLAN=learnt16.plan \
        "$fcpc" run learnt16.plan --backend cuda --json --dsink ds16.npy --dtable bias=bi16.npy --dtable slopes=sl16.npy
    holds "are right" json '.ok and .tensors.dsink.ok and .tensors.dtable.ok'
    holds "have their shapes" shapes "ds16.npy=4," "bi16.npy=2, 3" "sl16.npy=4,"
    ok "a trace of a run on CUDA" env FCP_CUDA_DRIVER="$B/standin/libcuda.so" FCP_NVRTC="$B/standin/libnvrtc.so" \
        FCP_CACHE="$B/kernels" \
        STANDIN_PLAN=gpu.plan "$fcpc" run gpu.plan --backend cuda --trace cuda.json
    holds "which fits" fits cuda.json
    holds "and says what it is" says cuda.json '.otherData.timeline == "measured" and .otherData.backend == "cuda"'
    ok "what is predicted for it" "$fcpc" -q sim gpu.plan --trace gpu.json
    moved gpu.json > gpu.moved
    moved cuda.json > cuda.moved
    holds "has the same slices" cmp gpu.moved cuda.moved
fi

# --- a process a rank -------------------------------------------------------------------------------------------------
for name in RANK WORLD_SIZE LOCAL_RANK OMPI_COMM_WORLD_RANK PMI_RANK PMIX_RANK SLURM_PROCID; do unset $name; done
bad "a transport that is not there" 1 E702 run gpu.plan --backend cuda --transport carrier
bad "a transport of another backend" 1 E702 run a.plan --transport nccl
bad "an id's file that nobody reads" 2 E001 run gpu.plan --backend cuda --id-file out/id
bad "nobody says which rank this is" 1 E706 run gpu.plan --backend cuda --transport nccl
holds "says what was looked for" grep -q "WORLD_SIZE.*OMPI_COMM_WORLD_RANK.*mpirun" stderr
RANK=0 WORLD_SIZE=3; export RANK WORLD_SIZE
bad "another number of processes than ranks" 1 E706 run gpu.plan --backend cuda --transport nccl
WORLD_SIZE=2
if [ -e "$B/standin/libnccl.so" ]; then
    FCP_NCCL=/nowhere/libnccl.so FCP_NVRTC=$B/standin/libnvrtc.so FCP_CACHE=$B/kernels STANDIN_PLAN=gpu.plan \
    STANDIN_DEVICES=2
    export FCP_NCCL FCP_NVRTC FCP_CACHE STANDIN_PLAN STANDIN_DEVICES
    bad "nccl without NCCL" 1 E702 run gpu.plan --backend cuda --transport nccl
    holds "says what was looked for" grep -q "/nowhere/libnccl.so.*2.19.*--transport local" stderr
    FCP_NCCL=$B/standin/libnccl.so
    bad "no way for the id" 1 E706 run gpu.plan --backend cuda --transport nccl
    # two processes that a file brings together: rank 0 tells, rank 1 says nothing
    set -- run gpu.plan --backend cuda --transport nccl --id-file out/id --timeout 600 --json --bf16
    RANK=1 "$fcpc" "$@" --out one.npy --lse one-lse.npy > one.out 2> one.err &
    other=$!
    ok "nccl, rank 0 of 2" "$fcpc" "$@" --out zero.npy --lse zero-lse.npy
    holds "its JSON" json '.ok and .checked and .backend == "cuda" and .transport == "nccl" and .ranks == 2'
    ok "nccl, rank 1 of 2" wait $other
    ok "all in one process" "$fcpc" run gpu.plan --backend cuda --json --bf16 --out local.npy --lse local-lse.npy
    holds "rank 0 writes what all have" cmp -s local.npy zero.npy
    holds "and the log-sum-exp" cmp -s local-lse.npy zero-lse.npy
    holds "rank 1 writes nothing" [ ! -e one.npy ]
    holds "rank 1 is silent" [ ! -s one.out ]
    holds "and makes no complaint" [ ! -s one.err ]
    bad "rank 1 does not come" 1 E706 run gpu.plan --backend cuda --transport nccl --id-file out/id --timeout 1
    holds "says who" grep -q "rank 1 did not ask for the id within 1 s" stderr
    # plans that differ: both processes say whose
    plan gpu.fcp other.plan -D mask=full
    RANK=1 "$fcpc" run other.plan --backend cuda --transport nccl --id-file out/id --timeout 600 > one.out 2> one.err &
    other=$!
    run "$fcpc" run gpu.plan --backend cuda --transport nccl --id-file out/id --timeout 600
    holds "plans that differ" [ $? = 1 ]
    holds "rank 0 says who differs" grep -q "E706.*rank 1 has another plan than rank 0" stderr
    run wait $other
    holds "rank 1 ends too" [ $? = 1 ]
    holds "and says the same" grep -q "E706.*rank 1 has another plan than rank 0" one.err
    holds "nothing is left" [ -z "$(ls -A out)" ]
    plan gpu.fcp one.plan -D cluster.gpus=1
    WORLD_SIZE=1
    ok "one rank alone" env STANDIN_PLAN=one.plan "$fcpc" run one.plan --backend cuda --transport nccl
    holds "says what was tried" grep -q "sending to itself" stdout
    unset RANK WORLD_SIZE
    if command -v mpirun > /dev/null 2>&1 && [ -z "${SAN:-}" ]; then
        ok "nccl, under mpirun" env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
            mpirun --oversubscribe -n 2 "$fcpc" run gpu.plan --backend cuda --transport nccl --timeout 600 --json
        holds "its JSON" json '.ok and .transport == "nccl" and .ranks == 2'
    else
        [ -z "${SAN:-}" ] && why="mpirun is not there" || why="not with sanitizers"
        echo "skipped: nccl under mpirun: $why"
    fi
    unset FCP_NCCL FCP_NVRTC FCP_CACHE STANDIN_PLAN STANDIN_DEVICES
else
    echo "skipped: run --transport nccl: no NCCL that stands in is built (make gpu-binaries)"
fi
unset RANK WORLD_SIZE
bad "nobody says which rank this is, on the host" 1 E706 run a.plan --transport mpi
bad "an id's file that MPI does not need" 2 E001 run a.plan --transport mpi --id-file out/id
RANK=0 WORLD_SIZE=4 FCP_MPI=/nowhere/libmpi.so
export RANK WORLD_SIZE FCP_MPI
bad "mpi without MPI" 1 E706 run a.plan --transport mpi
holds "says what was looked for" grep -q "/nowhere/libmpi.so" stderr
unset RANK WORLD_SIZE FCP_MPI
# without MPI: connections, and the id of rank 0 in a file
plan gpu.fcp two.plan
ok "both ranks in one process" "$fcpc" run two.plan --bf16 --out threads.npy --dq threads-dq.npy \
    --max-logit threads-max.npy
WORLD_SIZE=2
export RANK WORLD_SIZE
set -- run two.plan --transport tcp --id-file out/id --timeout 600 --json --bf16 --out tcp.npy --dq tcp-dq.npy \
    --max-logit tcp-max.npy
RANK=1 "$fcpc" "$@" > one.out 2> one.err &
other=$!
RANK=0
ok "tcp, rank 0 of 2" "$fcpc" "$@"
holds "its JSON" json '.ok and .checked and .backend == "host" and .transport == "tcp" and .ranks == 2'
ok "tcp, rank 1 of 2" wait $other
holds "rank 1 is silent" [ ! -s one.out ]
holds "and makes no complaint" [ ! -s one.err ]
holds "two processes compute the same bits" cmp -s threads.npy tcp.npy
holds "and the same gradients" cmp -s threads-dq.npy tcp-dq.npy
holds "and the same largest logits" cmp -s threads-max.npy tcp-max.npy
# rank 0 gets all rows, and judges a sample of them; the other rank knows of the same tensors
set -- run two.plan --transport tcp --id-file out/id --timeout 600 --json --check-work 1000000
RANK=1 "$fcpc" "$@" > one.out 2> one.err &
other=$!
ok "a sample of what two processes have" "$fcpc" "$@"
holds "which is right" json '.ok and .rows_checked < .rows and .tensors.lse_low.ok and .tensors.dv.ok'
ok "the other rank" wait $other
# rank 0 adds up the gradients of sinks and tables, and judges them; each judges its own rows
plan learnt.fcp shared.plan -D cluster.gpus=2
ok "sinks and tables in one process" "$fcpc" run shared.plan --dsink ds.npy --dtable slopes=sl.npy --dtable bias=bi.npy
for how in "" "--check-work 1000000" --no-check; do
    set -- run shared.plan --transport tcp --id-file out/id --timeout 600 --json --dsink tds.npy \
        --dtable slopes=tsl.npy --dtable bias=tbi.npy $how
    RANK=1 "$fcpc" "$@" > one.out 2> one.err &
    other=$!
    ok "sinks and tables of two processes $how" "$fcpc" "$@"
    case $how in "") holds "are right" json '.ok and .tensors.dsink.ok and .tensors.dtable.ok' ;; esac
    ok "the other rank $how" wait $other
    holds "are the same bits $how" sh -c 'cmp -s ds.npy tds.npy && cmp -s sl.npy tsl.npy && cmp -s bi.npy tbi.npy'
    rm -f tds.npy tsl.npy tbi.npy
done
# rank 0 judges for longer than the time limit, and rank 1 waits for it
program long.fcp 'model { heads = 4; kv_heads = 4; head_dim = 64; dtype = fp32 }
cluster { gpus = 2 }
batch { lengths = [4000] }
plan { mask = full; block = 1K; passes = forward }'
plan long.fcp long.plan
set -- run long.plan --transport tcp --id-file out/id --timeout 1 --check-work 3000000000
RANK=1 "$fcpc" "$@" > one.out 2> one.err &
other=$!
ok "a check that takes longer than the time limit" "$fcpc" "$@"
ok "the other rank waits for it" wait $other
bad "a rank that does not come" 1 E706 run two.plan --transport tcp --id-file out/id --timeout 1
bad "no way for the id" 1 E706 run two.plan --transport tcp
unset RANK WORLD_SIZE
if command -v mpirun > /dev/null 2>&1 && [ -z "${SAN:-}" ]; then
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
    ranks() { mpirun --oversubscribe -n "$@"; }
    plan gpu.fcp four.plan -D cluster.gpus=4
    ok "all ranks in one process" "$fcpc" run four.plan --bf16 --out threads.npy --dk threads-dk.npy
    ok "four processes, under mpirun" ranks 4 "$fcpc" run four.plan --transport mpi --json --bf16 --timeout 600 \
        --out mpi.npy --dk mpi-dk.npy
    holds "their JSON, once" json '.ok and .checked and .backend == "host" and .transport == "mpi" and .ranks == 4'
    holds "they compute the same bits" cmp -s threads.npy mpi.npy
    holds "and the same gradients" cmp -s threads-dk.npy mpi-dk.npy
    run ranks 2 "$fcpc" run four.plan --transport mpi
    holds "another number of processes than ranks" [ $? != 0 ]
    holds "says so" grep -q "E706.*the plan has 4 ranks, and Open MPI started 2 processes" stderr
else
    [ -z "${SAN:-}" ] && why="mpirun is not there" || why="not with sanitizers"
    echo "skipped: the host under mpirun: $why"
fi
unset FCP_CUDA_DRIVER
plan a.fcp forward.plan -D plan.passes=forward
bad "a pass the plan lacks" 1 E705 run forward.plan --pass backward --dq out/x.npy

# --- interruption -----------------------------------------------------------------------------------------------------
# This mask must be looked at pair by pair, and there are too many pairs for any machine: only the interruption ends it.
cat > big.fcp << 'EOF'
cluster { nodes = 2; gpus = 8 }
batch   { lengths = [64M x 8] }
mask m = q * k % 7 < 5
plan    { mask = m; block = 1K }
EOF
has_had() { [ "$(awk '{print $14}' "/proc/$pid/stat")" -ge "$1" ]; } # hundredths of seconds of a processor
catches() { sed -n 's/^SigCgt:.*\(.\)$/\1/p' "/proc/$pid/status" | grep -q '[2367abef]'; } # SIGINT
runs() { [ -e "/proc/$pid" ]; }
"$fcpc" big.fcp -o out/big.plan --json > stdout 2> stderr &
pid=$!
while runs && ! has_had 6000 && ! { has_had 20 && catches && [ -s stderr ]; }; do sleep 0.02; done
kill -INT $pid
while runs && ! has_had 12000; do sleep 0.02; done
runs && kill -KILL $pid # it goes on regardless
wait $pid
status=$?
cp stderr announced
holds "an interrupted compile ends with 1" [ $status = 1 ]
holds "and says so" json '.error.code == "E013" and .diagnostics == [.error]'
holds "and leaves nothing" [ -z "$(ls -A out)" ]

# One output is written to its temporary file; the next one is a pipe, and opening it waits for a reader that never
# comes.
mkfifo pipe
"$fcpc" -q run a.plan --out out/o.npy --lse pipe > stdout 2> stderr &
pid=$!
while runs && [ -z "$(ls -A out)" ]; do sleep 0.02; done
holds "an output is being written" [ -n "$(ls -A out)" ]
kill -TERM $pid
left=6000 # two minutes and more: no measure of time, but a guard against hanging for ever
while runs && [ $left -gt 0 ]; do sleep 0.02; left=$((left - 1)); done
runs && kill -KILL $pid # it goes on regardless, and ends with another status
wait $pid
status=$?
holds "an interrupted run ends with 1" [ $status = 1 ]
holds "and says so" grep -q "error.E013.: interrupted" stderr
holds "and leaves nothing" [ -z "$(ls -A out)" ]
# Other signals end it as they end any process, and leave nothing either. PIPE: the reader comes, and leaves before it
# has read more than a pipe holds.
for signal in HUP PIPE XCPU ALRM USR1; do
    (ulimit -c 0; exec "$fcpc" -q run a.plan --out out/o.npy --dq pipe > stdout 2> stderr) &
    pid=$!
    while runs && [ -z "$(ls -A out)" ]; do sleep 0.02; done
    holds "an output is being written before $signal" [ -n "$(ls -A out)" ]
    if [ $signal = PIPE ]; then exec 3< pipe; exec 3<&-; else kill -$signal $pid; fi
    left=6000
    while runs && [ $left -gt 0 ]; do sleep 0.02; left=$((left - 1)); done
    runs && kill -KILL $pid
    wait $pid 2> wait.err # the shell says by which signal
    status=$?
    if [ $signal = HUP ]; then want=1; else want=$((128 + $(kill -l $signal 2> kill.err || env kill -l $signal))); fi
    holds "$signal ends it" [ $status = $want ]
    holds "and nothing is left of $signal" [ -z "$(ls -A out)" ]
done
rm pipe

# --- a mask that takes long is announced, or refused ------------------------------------------------------------------
holds "what takes long is told before it begins" grep -q 'takes long to plan, about .* s of one processor' announced
cat > slow_layer.fcp << 'EOF'
mask mix = (q * k) % 1009 < (q + k) % 13
batch { lengths = [1M] }
plan  { layers = [causal x 3, mix] }
EOF
bad "a mask that takes longer than the limit" 1 E405 big.fcp --max-seconds 60 -o out/big.plan
bad "also where auto would choose" 1 E405 big.fcp --max-seconds 60 -D plan.strategy=auto -o out/big.plan
bad "also as a candidate" 1 E405 sim big.fcp --max-seconds 60
bad "also for a picture" 1 E405 show big.fcp --max-seconds 60
bad "also as a mask of some layers" 1 E405 slow_layer.fcp --max-seconds 60 -o out/slow.plan
run "$fcpc" -q a.fcp --max-seconds 1
holds "a limit that is kept" [ $? = 0 ]
bad "a limit of no seconds" 2 E001 a.fcp --max-seconds 0
bad "a limit that is no number" 2 E001 a.fcp --max-seconds soon
bad "a limit for a plan, which is made" 2 E001 run forward.plan --max-seconds 5

# --- a terminal is told how far a long planning is --------------------------------------------------------------------
cat > slow.fcp << 'EOF'
mask mix = (q * k) % 1009 < (q + k) % 13
batch { lengths = [4M] }
plan  { mask = mix }
EOF
if command -v script > /dev/null 2>&1; then
    says_when() { grep -aq 'pairs, about' terminal 2> stderr; }
    script -qfec "echo \$\$ > planner; exec '$fcpc' slow.fcp -o out/slow.plan" terminal > stdout 2>&1 &
    pid=$!
    while runs && ! says_when; do sleep 0.05; done
    kill -INT "$(cat planner)"
    wait $pid
    holds "a long planning tells how many pairs it looks at, and when it will end" \
        grep -q 'planning ... [0-9]* s: 0 % of 17592.2 G pairs, about [0-9]* hours left' terminal
    holds "and ends by an interruption" grep -q 'error.E013.: interrupted' terminal
    counts_on() { grep -aq 'candidate [2-9][0-9]* of 4096: .* ... [0-9]* s' terminal 2> stderr; }
    values=$(seq -s, 64)
    script -qfec "echo \$\$ > planner; exec '$fcpc' sim a.fcp --sweep margin=$values --sweep cluster.nodes=$values" \
        terminal > stdout 2>&1 &
    pid=$!
    while runs && ! counts_on; do sleep 0.05; done
    kill -INT "$(cat planner)"
    wait $pid
    holds "many candidates are counted, and timed together" counts_on
    holds "and leaves nothing" [ -z "$(ls -A out)" ]
else
    echo "skipped: progress on a terminal: there is no script(1)"
fi

# --- real sequence lengths, where they are ----------------------------------------------------------------------------
lists=${FCPC_WORKLOADS:-$top/../shared/workloads}
cat > real.fcp << 'EOF'
model   { heads = 64; kv_heads = 8; head_dim = 128 }
cluster { gpus = 8; gpu = h200 }
plan    { mask = causal; block = 2K }
EOF
for list in "$lists"/*.lengths; do # make check takes those of the smallest clusters
    case "$list" in *-8x32k.lengths | *'*'*) ;; *) [ -z "$quick" ] || continue ;; esac
    [ -e "$list" ] || { echo "skipped: real lengths: none in '$lists'; FCPC_WORKLOADS names another folder"; break; }
    name=$(basename "$list" .lengths)
    ranks=$(echo "$name" | sed -n 's/.*-\([0-9]*\)x32k$/\1/p')
    ok "compile $name" "$fcpc" real.fcp --lengths "$list" -D cluster.nodes=$((${ranks:-512} / 8)) -o real.plan --json
    sums=$(awk '{n++; t += $1} END {printf ".sequences == %d and .tokens == %.0f", n, t}' "$list")
    holds "$name: its sequences and tokens" json "$sums"
    holds "$name: rounds are the bound, tokens within the cap" \
        json ".rounds == .rounds_lower_bound and .tokens_max_over_mean * .tokens <= .tokens + 2048 * .ranks + 1"
done
[ -e real.plan ] && ok "verify the last of them from its file; the compiler has proven each" "$fcpc" verify real.plan

# --- the answers with --json of all errors ----------------------------------------------------------------------------
cd "$work/answers" || exit 1
# shellcheck disable=SC2046
jq -r '"\(input_filename) \(.error | if has("message") and has("file") and has("line") and has("column")
    then .code else "is incomplete" end)"' $(seq $asked) > given 2> "$work/stderr"
sed 's/ of: .*//' wanted | diff - given > "$work/stdout"
holds "each is one JSON object that names its error" [ ! -s "$work/stdout" ]
sed -n 's/^< \([0-9]*\) .*/\1/p' "$work/stdout" | while read -r number; do grep "^$number " wanted; done

judge_all

echo "cli: $passed passed, $failed failed"
[ $failed = 0 ]
