#!/bin/sh
# `fcpc sim` from the command line: tables, JSON and CSV, several candidates, and what it refuses. What the times are is
# tests/unit/simulate's question. $B is the build folder; closing line: "sim: N passed, M failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
fcpc=$B/fcpc
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-sim.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
. tests/support/check.sh
refused() { # refused NAME STATUS WORDS COMMAND...: ends with that status, and says WORDS
    what=$1 status=$2 words=$3; shift 3
    "$@" > "$work/log" 2>&1
    got=$?
    if [ $got = "$status" ] && grep -q -- "$words" "$work/log"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $what (status $got)"
        sed 's/^/    /' "$work/log" | head -n 20
    fi
}
program=examples/lambda.fcp
"$fcpc" -q $program -o "$work/plan" || exit 1

# one plan
"$fcpc" sim "$work/plan" > "$work/table"
check "a table of two passes" sh -c "[ \$(grep -c -E '^ +(forward|backward) ' '$work/table') = 2 ]"
"$fcpc" sim $program --json > "$work/json"
check "the makespan is above every bound" jq -e '. as $a | ([.bounds[]] | max) <= .makespan_s
    and .makespan_lower_bound_s == ([.bounds[]] | max)
    and ([.backward.bounds[]] | max) <= .backward.makespan_s and .mfu > 0 and .mfu < 1' "$work/json"
check "every rank is listed, and ends by the makespan" jq -e '(.per_rank | length) == .ranks
    and ([.per_rank[].end_s] | max) == .makespan_s' "$work/json"
check "a plan and its program take the same time" sh \
    -c "'$fcpc' sim '$work/plan' | cmp - '$work/table' && '$fcpc' sim -q $program | cmp - '$work/table'"
check "standard input is a program too" sh -c "'$fcpc' sim -q - < $program | cmp - '$work/table'"
check "the program's profile is its gpu's" sh -c "'$fcpc' sim -q $program --profile h200 | cmp - '$work/table'"
check "another profile gives other times" sh -c "! '$fcpc' sim -q $program --profile a100 | cmp -s - '$work/table'"
check "a profile may be a file" \
    sh -c "'$fcpc' sim -q $program --profile compiler/simulate/profiles/h200.profile | cmp - '$work/table'"
"$fcpc" sim "$work/plan" --noise 20 --seeds 4 > "$work/noisy"
check "noise prints a range, the same each time" sh \
    -c "grep -q '20 % of noise, 4 seeds' '$work/noisy' && '$fcpc' sim '$work/plan' --noise 20 --seeds 4 |
        cmp - '$work/noisy'"
"$fcpc" sim "$work/plan" --noise 20 --seeds 4 --json > "$work/json"
check "so do JSON and CSV" jq -e '[., .backward] | all(.[]; .draws.seeds == 4 and .draws.noise_percent == 20
    and .draws.makespan_least_s > .makespan_s and .draws.makespan_most_s > .draws.makespan_least_s)' "$work/json"
"$fcpc" sim "$work/plan" --noise 20 --seeds 4 --csv "$work/csv" > "$work/log"
check "with two columns more" sh -c "head -n 1 '$work/csv' | grep -q ',makespan_least_s,makespan_most_s$' &&
    [ \$(awk -F, '{ print NF }' '$work/csv' | uniq | wc -l) = 1 ]"
check "without draws there is nothing of the kind" sh -c "'$fcpc' sim '$work/plan' --json | jq -e '.draws == null'"

# several candidates
"$fcpc" sim -q $program --strategy all --sweep plan.block=256,512 \
    --sweep coalesce=1,2,4 --csv "$work/csv" --json > "$work/json" 2> "$work/err"
strategies=$(grep -o 'X(FCP_STRATEGY_' runtime/plan/enums.h | wc -l)
check "as many candidates as combinations" jq -e --argjson n "$strategies" '(.candidates | length) == 6 * $n and $n > 4
    and .candidates[0].settings["plan.strategy"] == "fcp" and .candidates[1].settings.coalesce == "2"' "$work/json"
rows=$(jq '[.candidates[] | if .makespan_s then 2 else 1 end] | add' "$work/json") # a candidate that is refused has one
check "a row for each pass of each, under names" sh \
    -c "[ \$(wc -l < '$work/csv') = $((rows + 1)) ] && head -n 1 '$work/csv' |
        grep -q '^plan.strategy,plan.block,coalesce,pass,error,makespan_s,'"
"$fcpc" sim -q $program --strategy all --json > "$work/json" 2> "$work/err"
check "all strategies, also those that do not fit" jq -e --argjson n "$strategies" '(.candidates | length) == $n
    and ([.candidates[] | select(.makespan_s)] | length) >= 4' "$work/json"
"$fcpc" sim examples/upipe.fcp > "$work/phases"
check "phases and what they hold" grep -q \
    '^slots     forward  phases 0 to 7, stages 1 to 8: 237 MB each (KV 117 MB, Q 58.7 MB, O 60.6 MB)$' "$work/phases"
check "87.5 % less of 64:64 heads" grep -q '87.5 % less (as the paper counts 0.125, 87.5 %)' "$work/phases"
"$fcpc" sim examples/upipe.fcp -D model.kv_heads=8 > "$work/phases"
check "77.8 % less of 64:8 heads" grep -q '77.8 % less (as the paper counts 0.125, 87.5 %)' "$work/phases"
"$fcpc" sim examples/upipe.fcp -D model.value_dim=64 > "$work/phases"
check "half as many numbers of V and O" grep -q ': 178 MB each (KV 88.1 MB, Q 58.7 MB, O 31.2 MB)' "$work/phases"
"$fcpc" sim -q --json examples/upipe.fcp > "$work/json"
check "phases in JSON" jq -e '(.phases.slot_bytes | length) == 8 and .phases.part_of_all_heads == 0.125
    and .backward.phases.peak_bytes > 0' "$work/json"
"$fcpc" sim -q examples/packed_documents.fcp --strategy fcp,zigzag --json > "$work/json"
check "fcp is faster than zigzag on packed documents" jq -e '.candidates[0].makespan_s < .candidates[1].makespan_s' \
    "$work/json"
"$fcpc" sim -q $program --strategy 'fcp(coalesce = 1, buffers = 1),fcp' --json > "$work/json"
check "a comma in brackets separates nothing" jq -e '(.candidates | length) == 2
    and .candidates[0].makespan_s > .candidates[1].makespan_s' "$work/json"
"$fcpc" sim -q $program --sweep 'cluster.inter=25 GB/s,50 GB/s' --json > "$work/json"
check "a wider network is not slower" jq -e '.candidates[0].makespan_s >= .candidates[1].makespan_s' "$work/json"
"$fcpc" sim -q $program --sweep plan.block=500,512 > "$work/table" 2>&1
check "a candidate that cannot be planned is named, the others are predicted" sh \
    -c "grep -q 'plan.block=500.*E401' '$work/table' && grep -q 'plan.block=512.*forward' '$work/table'"

# what the plan's order is worth
check "sharing changes nothing where rounds are matched" sh \
    -c "'$fcpc' sim '$work/plan' > '$work/table' && '$fcpc' sim '$work/plan' --network shared | cmp - '$work/table'"
"$fcpc" sim -q examples/ring.fcp --json > "$work/json"
"$fcpc" sim -q examples/ring.fcp --without overlap --json > "$work/without"
check "without overlap it takes longer" jq -e --slurpfile b "$work/without" '.makespan_s < $b[0].makespan_s
    and .backward.makespan_s < $b[0].backward.makespan_s' "$work/json"
"$fcpc" sim -q examples/packed_documents.fcp --without overlap --json > "$work/without"
"$fcpc" sim -q examples/packed_documents.fcp --without overlap,fusion,hiding --network pulls --json > "$work/json"
check "without fusion too, it takes longer still" jq -e --slurpfile b "$work/without" '.makespan_s > $b[0].makespan_s
    and .bounds.path == 0' "$work/json"
check "pulls are drawn as often as is asked" sh \
    -c "'$fcpc' sim -q examples/ring.fcp --network pulls --seeds 3 | grep -q ', 3 seeds'"

# advice
cat > "$work/nine.fcp" << 'END'
model { heads = 64; kv_heads = 8; head_dim = 128 }
cluster { nodes = 9; gpus = 1 }
batch { lengths = [65536] }
plan { mask = causal; block = 8K; layout = planned; passes = forward, backward }
END
advises() { # advises NAME WORDS OPTIONS...: it warns with those words, as text and as JSON
    what=$1 words=$2; shift 2
    "$fcpc" sim "$work/nine.fcp" "$@" --json > "$work/json" 2> "$work/err"
    check "$what" grep -q -E "warning: .*$words" "$work/err"
    check "$what, as JSON" jq -e --arg words "$words" '[.warnings[].message | select(test($words))] | length == 1' \
        "$work/json"
}
advises "blocks that leave ranks idle" \
    'leave ranks idle.*with block = 2048 all takes [0-9.]+ ms instead of [0-9.]+, [0-9.]+ % less'
advises "a margin too small for the network" 'margin = 1 is too small.*with margin = 12 all takes' \
    -D plan.block=2K -D plan.margin=1
advises "a margin too large for attention" 'margin = 60 leaves attention fewer.*with margin = (4|12) all takes' \
    -D plan.block=2K -D plan.margin=60
advises "memory near the cap" 'needs 2.05[0-9]* of 2.2 GB, 9[0-9] %; with coalesce = 8 it is 1' \
    -D plan.block=2K -D 'cluster.memory=2.2 GB'
advises "a reshuffle that is not hidden" \
    'a rank waits .*contiguous, .*with layout = planned all takes' -D plan.block=2K -D plan.layout=contiguous
"$fcpc" sim - < "$work/nine.fcp" > "$work/table" 2> "$work/err"
check "a program on standard input gets advice too" grep -q 'with block = 2048' "$work/err"
"$fcpc" sim "$work/nine.fcp" -D plan.block=2K > "$work/table" 2> "$work/err"
check "a good plan gets none" sh -c "! grep -q warning '$work/err'"

# calibrate: the profile that it writes is one that sim takes
rows=tests/bench/cudnn_h200.csv
"$fcpc" calibrate $rows --hold-out 5 -o "$work/made.profile" > "$work/table"
check "every row has its residual" \
    sh -c "[ \$(grep -c '%' '$work/table') = 22 ] && [ \$(grep -c 'held out\$' '$work/table') = 12 ]"
check "a profile that sim takes" sh -c "'$fcpc' sim -q $program --profile '$work/made.profile' > '$work/log'"
"$fcpc" calibrate $rows --hold-out 5 --json > "$work/json"
check "held-out errors as JSON" jq -e '[.fits[].max_error_held_out] | length == 2 and .[0] < 0.02
    and .[1] < 0.07' "$work/json"
check "the JSON lists all rows" jq -e '[.fits[].rows[]] | length == 20
    and ([.[] | select(.held_out)] | length) == 10' "$work/json"
check "standard input has rows too" sh -c "'$fcpc' calibrate - --hold-out 5 --json < $rows | cmp - '$work/json'"
refused "too many held out" 1 'at least 5' "$fcpc" calibrate $rows --hold-out 6 -o "$work/none.profile"
sed '5s/forward/forwards/' $rows > "$work/bad.csv"
refused "a bad row, by its place" 1 'bad.csv:5:.*E341.*forwards' "$fcpc" calibrate "$work/bad.csv" \
    -o "$work/none.profile"
refused "rows that are not there" 1 E010 "$fcpc" calibrate "$work/none.csv" -o "$work/none.profile"
refused "a profile that would replace its rows" 1 E011 "$fcpc" calibrate "$work/bad.csv" -o "$work/bad.csv"
refused "a profile that cannot be written" 1 E011 "$fcpc" calibrate $rows -o "$work/nowhere/a.profile"
check "nothing is written where there is an error" [ ! -e "$work/none.profile" ]

# linear layers
linear='model.linear=0.33 us'
"$fcpc" sim "$work/plan" --json > "$work/attention"
"$fcpc" sim $program -D "$linear" --json > "$work/layers"
check "a layer takes no longer than its parts, and no less than either" jq -e '
    [., .backward] | all(.layer_s <= .linear_s + .makespan_s and .layer_s > .linear_s and .layer_s > .makespan_s)' \
    "$work/layers"
check "attention takes what it takes without them" sh -c "[ \$(jq .makespan_s '$work/layers') = \
    \$(jq .makespan_s '$work/attention') ] && jq -e 'has(\"layer_s\") | not' '$work/attention'"
"$fcpc" -q $program -D "$linear" -o "$work/layers.plan"
check "a plan says what its program said" sh -c "'$fcpc' sim '$work/layers.plan' --json | jq .layer_s | \
    grep -qx \$(jq .layer_s '$work/layers')"
check "the table has them" sh -c "'$fcpc' sim '$work/layers.plan' | grep -q 'linear *layer ms'"
check "so has a file of several candidates" sh -c "'$fcpc' sim -q $program -D '$linear' --sweep block=1K,2K \
    --csv '$work/layers.csv' && head -n 1 '$work/layers.csv' | grep 'mfu,linear_s,layer_s'"
check "auto compares layers" sh -c "'$fcpc' -q examples/auto.fcp -D '$linear' --explain | grep 'linear layers too'"
refused "memory that layers keep counts" 1 'with linear_memory' "$fcpc" -q $program -D linear_memory='2 GB'

# what it refuses
refused "no candidate can be planned" 1 E401 "$fcpc" sim $program --sweep plan.block=500,501
refused "a plan has no other strategies" 2 'need the program' "$fcpc" sim "$work/plan" --strategy all
refused "too many points" 2 "4160 points, at most 4096" "$fcpc" sim $program --sweep "coalesce=$(seq -s, 1 65)" \
    --sweep "plan.block=$(seq -s, 128 128 8192)"
refused "a sweep without values" 2 'NAME=VALUE' "$fcpc" sim $program --sweep plan.block
refused "a strategy that does not exist" 2 "did you mean 'ring'" "$fcpc" sim $program --strategy fcp,rnig
refused "an empty value" 2 'empty value' "$fcpc" sim $program --sweep plan.block=512,,256
refused "incast in rounds" 2 'goes with --network fluid or pulls' "$fcpc" sim $program --incast 20
refused "incast of all" 2 incast "$fcpc" sim $program --network pulls --incast 100
refused "seeds without noise" 2 noise "$fcpc" sim $program --seeds 3
refused "ranks of which nothing is drawn" 2 'neither' "$fcpc" sim $program --ranks 1
refused "a network that there is not" 2 'expected rounds, shared' "$fcpc" sim $program --network ring
refused "nothing that can be left out" 2 'expected overlap' "$fcpc" sim $program --without overlap,rounds
refused "a sweep that names nothing" 1 "did you mean 'block'" "$fcpc" sim $program --sweep plan.blok=128,256
refused "a profile that there is not" 1 h200 "$fcpc" sim $program --profile h300
printf 'gpu mine\nsms 10 "assumed"\nforward.64.full 1 us\n' > "$work/bad.profile"
refused "a figure without a source, with its line" 1 'bad.profile:3.*source' "$fcpc" sim $program \
    --profile "$work/bad.profile"
refused "a table that would replace its profile" 1 E011 "$fcpc" sim $program --profile "$work/bad.profile" \
    --csv "$work/bad.profile"
refused "a table that cannot be written" 1 E011 "$fcpc" sim $program --csv "$work/nowhere/table.csv"
check "nothing is left beside outputs" sh -c "! ls -a '$work' | grep -q tmp"
echo "sim: $passed passed, $failed failed"
[ $failed = 0 ]
