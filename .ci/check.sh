#!/bin/sh
# Runs test programs side by side, prints the closing line of each as it ends, and a total.
#
# Usage: check.sh [--only] PROGRAM...
# Without --only it also runs the rules (.ci/rules.sh), the shell runners tests/*/run.sh, the replay of every fuzz
# corpus, and the C examples.
#
# Programs: $JOBS + 2 run at a time, since many wait for something most of the time; Criterion's run with -j1, one test
#           at a time. What takes longest comes first, so that it does not run alone at the end.
# Logs:     $B/log/NAME.log. The log of a program that fails is printed.
# $TMPDIR:  each program has its own, which is removed when it ends. A program that leaves something there fails.
# Skipped:  a program that cannot test something on this machine prints "skipped: WHAT"; its closing line repeats that.
# Limit:    $RUNNER_TIMEOUT seconds, for programs that hang.
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build} JOBS=${JOBS:-2} SAN=${SAN:-}
export B SAN
# Memory that a program frees stays with it, since sessions on the stand-ins free and fill megabytes thousands of times,
# and the kernel would clear each page anew. Sanitizers bring their own malloc.
GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=1073741824}
export GLIBC_TUNABLES
[ -n "$SAN" ] && export LSAN_OPTIONS="suppressions=$PWD/tests/lsan.supp:print_suppressions=0"

if [ "${1:-}" = --one ]; then # one runner: program [argument...]
    name=$(basename "$2")
    case "$2" in
        */rules.sh) name=rules ;;
        */run.sh) name=$(basename "$(dirname "$2")") ;;
    esac
    log=$B/log/$name.log
    shift
    case "$SAN:$1" in thread:*) ;; *:"$B"/tests/*) set -- "$1" -j1 ;; esac # under it, tests/support/plain.h stands in
    start=$(date +%s)
    TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-check.XXXXXX") || exit 1
    export TMPDIR
    trap 'chmod -R u+w "$TMPDIR"; rm -rf "$TMPDIR"' EXIT
    timeout -k 5 "${RUNNER_TIMEOUT:-3600}" "$@" > "$log" 2>&1 &
    runner=$! # a group of processes of its own: an interruption is passed on
    trap 'kill $runner; wait $runner; exit 1' HUP INT TERM
    wait $runner
    status=$?
    seconds=$(($(date +%s) - start))
    times > "$log.times" # not in a pipe, whose process would have its own
    used=$(awk 'NR == 2 {gsub(/[ms]/, " "); printf "%.1f", 60 * $1 + $2 + 60 * $3 + $4}' "$log.times")
    rm -f "$log.times"
    left=$(ls -A "$TMPDIR")
    if [ $status = 0 ] && [ -n "$left" ]; then
        echo "left behind in its temporary folder:" $left >> "$log"
        status=1
    fi
    skipped=$(grep -a '^skipped: ' "$log" | sort -u | sed 's/^skipped: /; skipped: /' | tr -d '\n')
    closing=$(grep -a -E 'Synthesis|passed|replayed' "$log" | tail -n 1 | sed 's/\x1b\[[0-9;]*m//g; s/.*Synthesis: //')
    [ $status = 124 ] && closing="timed out"
    if [ $status = 0 ] && [ -n "$closing" ]; then
        printf '%-22s %s  (%d s, %s s of a processor)%s\n' "$name" "$closing" $seconds "$used" "$skipped"
    else
        printf '%-22s FAILED (status %d): %s\n' "$name" $status "$closing"
        sed 's/^/    /' "$log" | tail -n 60
        echo "$name" >> "$B/log/failed"
    fi
    echo "$closing$skipped" >> "$B/log/closing"
    exit 0
fi

only=
if [ "${1:-}" = --only ]; then only=1; shift; fi
mkdir -p "$B/log"
rm -f "$B/log/failed" "$B/log/closing"
{
    if [ -z "$only" ]; then
        for runner in tests/*/run.sh; do [ -x "$runner" ] && echo "$runner"; done
        [ -n "$SAN" ] || echo .ci/rules.sh
    fi
    for program in "$@"; do echo "$program"; done
    if [ -z "$only" ]; then
        for replay in "$B"/fuzz/*-replay; do
            target=$(basename "$replay" -replay)
            [ -e "$replay" ] && [ -e "fuzz/$target.c" ] && echo "$replay" fuzz/corpus/"${target#fuzz_}"*
        done
        for example in examples/*.c; do
            example=$B/examples/$(basename "$example" .c)
            [ -x "$example" ] && echo "$example"
        done
    fi
} | xargs -P $((JOBS + 2)) -L 1 "$0" --one

count() { sed -n "s/.*$1: \([0-9]*\).*/\1/p" "$B/log/closing" | awk '{s += $1} END {print s + 0}'; }
plain=$(sed -n 's/.*[^0-9]\([0-9][0-9]*\) \(passed\|replayed\).*/\1/p; s/^\([0-9][0-9]*\) \(passed\|replayed\).*/\1/p' \
    "$B/log/closing" | awk '{s += $1} END {print s + 0}')
runners=$(grep -c '' "$B/log/closing" 2> /dev/null)
passing=$(($(count Passing) + plain))
if [ -e "$B/log/failed" ]; then
    echo "total: $runners runners, $passing passing; FAILED: $(tr '\n' ' ' < "$B/log/failed")"
    exit 1
fi
skips=$(grep -o '; skipped: ' "$B/log/closing" | grep -c '')
but=
[ "$skips" = 0 ] || but=", $skips parts skipped, each named above"
echo "total: $runners runners, $passing passing, none failing$but"
