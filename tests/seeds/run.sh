#!/bin/sh
# What five papers describe, row by row: examples/seeds holds a program for each row, and here is what must be true of
# it. examples/seeds/README.md has the same rows as a table.
#
# `row NAME SETTINGS` takes examples/seeds/NAME.fcp. It must have a plan that the verifier proves, a predicted time for
# each of its passes, and, with the settings, which make it small, a run whose results are right. make check runs every
# third row, and all if CHECK_LONG is set. Then come claims:
#   plans WORDS CONDITION [OPTIONS]...     CONDITION (jq) of an array: the summary with each of these options
#   predicts WORDS CONDITION [OPTIONS]...  the same of what `fcpc sim` prints
#   counts WORDS PASSES PROGRAM [OPTIONS]  PROGRAM (awk) reads the dump of these passes, and exits with 0
#   says WORDS PATTERN COMMAND...          the command prints a line that matches
# Closing line: "seeds: N passed, M failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
fcpc=$B/fcpc
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-seeds.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
. tests/support/check.sh
# Settings of a run that is quick: fewer tokens, two narrow heads that share their keys, a sample of rows.
run_small() { # run_small PROGRAM OPTIONS...
    "$fcpc" run -q --json --check-work 30000000 -D model.heads=2 -D model.kv_heads=1 -D model.head_dim=16 "$@" |
        jq -e '.ok and .checked'
}
row() { # row NAME OPTIONS-OF-THE-RUN...
    name=$1
    program=examples/seeds/$name.fcp
    rows="$rows $name"
    count=$((count + 1))
    shift
    check "$name: has a plan" "$fcpc" -q "$program" -o "$work/plan"
    check "$name: the plan is proven" "$fcpc" verify "$work/plan"
    passes=$("$fcpc" dump "$work/plan" | sed -n 's/^problem .* passes=\([a-z,]*\) .*/\1/p')
    check "$name: its time is predicted" sh -c "'$fcpc' sim -q '$work/plan' --json | jq -e --arg passes '$passes' '
        .makespan_s >= .makespan_lower_bound_s and .makespan_lower_bound_s > 0
        and (.backward.makespan_s > 0 or \$passes == \"forward\")'"
    [ -n "$quick" ] && [ $((count % 3)) != 0 ] && return
    check "$name: it runs, to the right result" run_small "$program" "$@"
}
summaries() { # summaries COMMAND [OPTIONS]...: a JSON for each of the options
    command=$1; shift
    [ $# -gt 0 ] || set -- ""
    for options in "$@"; do
        # shellcheck disable=SC2086
        set -f -- $options
        "$fcpc" $command -q --json "$program" "$@" || return 1
        set +f
    done
}
judge() { # judge WORDS CONDITION COMMAND [OPTIONS]...
    what=$1 condition=$2; shift 2
    summaries "$@" > "$work/all" 2> "$work/err"
    check "$name: $what" jq -s -e "$condition" "$work/all"
}
plans() { what=$1 condition=$2; shift 2; judge "$what" "$condition" "" "$@"; }
predicts() { what=$1 condition=$2; shift 2; judge "$what" "$condition" sim "$@"; }
counts() { # counts WORDS PASSES PROGRAM [OPTIONS...]
    what=$1 passes=$2 awk_program=$3; shift 3
    "$fcpc" -q "$program" --dump "$passes" "$@" > "$work/dump" 2> "$work/err"
    check "$name: $what" awk "$fields $awk_program $ends" "$work/dump"
}
says() { # says WORDS PATTERN COMMAND...
    what=$1 pattern=$2; shift 2
    "$@" > "$work/said" 2>&1
    check "$name: $what" sh -c "grep -E -e \"\$1\" '$work/said' || { cat '$work/said'; false; }" - "$pattern"
}
# In awk, of("home") is the value of the word home=VALUE in this line.
fields='function of(key,  i, pair) {
        for (i = 1; i <= NF; i++) { split($i, pair, "="); if (pair[1] == key) return pair[2] } }
    function wrong(why) { print why; bad = 1 }
'
ends='END { if (!NR) wrong("no dump"); exit bad }'
rows=
count=0
quick=yes
[ -n "${CHECK_LONG:-}" ] && quick=

. tests/seeds/fcp.sh
. tests/seeds/dcp.sh
. tests/seeds/cad.sh
. tests/seeds/groups.sh
. tests/seeds/upipe.sh

name='all rows'
for program in examples/seeds/*.fcp; do
    example=$(basename "$program" .fcp)
    check "$example has a row here" sh -c "case '$rows ' in *' $example '*) ;; *) false ;; esac"
    check "$example stands in the table of examples/seeds/README.md" \
        grep -qF "($example.fcp)" examples/seeds/README.md
done
echo "seeds: $passed passed, $failed failed"
[ $failed = 0 ]
