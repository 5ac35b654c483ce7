#!/bin/sh
# Tests that every command ends where there is little memory: under `ulimit -v` a command does its work or says
# error[E012], and neither hangs nor is killed. $B is the build folder; closing line: "memory: N passed, M failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
top=$PWD
B=${B:-build}
case "$B" in /*) ;; *) B=$top/$B ;; esac
if [ -n "${SAN:-}" ]; then
    echo "skipped: little memory: sanitizers map more than any limit"
    echo "memory: 0 passed, 0 failed"
    exit 0
fi
fcpc=$B/fcpc
[ -x "$fcpc" ] || { echo "memory: 0 passed, 1 failed: $fcpc is not there"; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-memory.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
passed=0 failed=0
good() { passed=$((passed + 1)); }
fail() {
    failed=$((failed + 1))
    echo "FAILED: $1"
    sed 's/^/    /' err | head -n 5
}
# limited KB COMMAND...: its status, 124 if it does not end
limited() {
    (ulimit -v "$1"; shift; exec timeout 30 "$@") > out 2> err
}
# ends KB ARGUMENTS...: fcpc ends with 0
ends() {
    limited "$1" "$fcpc" $2
    status=$?
    if [ $status = 0 ]; then good; else fail "ulimit -v $1, fcpc $2: status $status"; fi
}
# ends_somehow KB ARGUMENTS...: with 0, or with E012
ends_somehow() {
    limited "$1" "$fcpc" $2
    status=$?
    if [ $status = 0 ] || { [ $status = 1 ] && grep -q 'error\[E012\]' err; }; then good
    else fail "ulimit -v $1, fcpc $2: status $status"; fi
}

cat > a.fcp << 'EOF'
model   { heads = 4; kv_heads = 2; head_dim = 32; dtype = fp16 }
cluster { gpus = 4 }
batch   { lengths = [700, 300 x 2, 50 x 6, 1] }
plan    { mask = causal; block = 128 }
EOF
"$fcpc" -q a.fcp -o a.plan || { echo "memory: 0 passed, 1 failed: no plan"; exit 1; }
for arguments in --version --help "help run" "a.fcp -o b.plan" "show a.fcp" "show a.plan --svg a.svg" \
    "show a.plan --html a.html" \
    "sim a.fcp --strategy all --html a.html" "sim a.plan --trace a.json --html a.html" "verify a.plan" \
    "emit a.plan -o a.cu" "dump a.plan" "fmt a.fcp" "explain a.fcp 5 3"; do
    for kb in 200000 400000; do ends $kb "$arguments"; done
done
# A field that is larger than memory, and than the batch, is refused by its header.
{
    printf '\223NUMPY\001\000v\000'
    printf "%-117s\n" "{'descr': '<i4', 'fortran_order': False, 'shape': (250000000,), }"
} > large.npy
truncate -s 1000000128 large.npy
{
    sed '/^plan/d' a.fcp
    echo 'batch { field doc = file("large.npy") }'
    echo 'plan { mask = causal_document(d = doc); block = 128 }'
} > large.fcp
limited 200000 "$fcpc" large.fcp
status=$?
if [ $status = 1 ] && grep -q "error.E320.: field 'doc' has 250000000 values, the batch has" err; then good; \
    else fail "ulimit -v 200000, a field of 1 GB: status $status"; fi
# Texts of a GiB, in each place where a program may name one, are read as far as the batch can use them.
for text in zeros comments digits numbers; do
    case $text in
    zeros) truncate -s 1G $text ;;
    comments) yes '# nothing' | head -c 40000000 > $text ;;
    digits) yes 1 | tr -d '\n' | head -c 40000000 > $text ;;
    numbers) yes 1 | head -c 40000000 > $text ;;
    esac
    for place in 'batch { lengths = file("@") }; plan { mask = causal }' \
        'batch { lengths = [300]; field x = file("@") }; plan { mask = causal }' \
        'batch { lengths = [300] }; plan { mask = slices(file("@")) }' \
        'batch { lengths = [300] }; plan { mask = causal; sink = file("@") }'; do
        echo "$place" | sed "s/@/$text/" > text.fcp
        limited 300000 "$fcpc" text.fcp
        status=$?
        if [ $status = 1 ] && grep -q 'error.E[23][0-9]*.: ' err; then good; \
            else fail "ulimit -v 300000, $text as $place: status $status"; fi
    done
    rm $text
done
# OpenBLAS takes more: 128 MB for each thread of its own and for each of ours
limited 200000 "$fcpc" run a.plan
status=$?
if [ $status = 1 ] && grep -q 'error\[E012\].*OpenBLAS' err; then good; \
    else fail "ulimit -v 200000, fcpc run: status $status"; fi
for kb in 120000 250000 300000 350000 400000 500000 600000 700000 800000 1000000; do
    ends_somehow $kb "run a.plan --no-check --trace a.json"
done
# GLib, under librsvg, ends the process when it gets no memory for a thread
for kb in 120000 160000 200000 300000; do ends_somehow $kb "show a.plan --png a.png"; done
ends unlimited "run a.plan"
echo "memory: $passed passed, $failed failed"
[ $failed = 0 ]
