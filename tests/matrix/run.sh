#!/bin/sh
# Holds tests/SUPPORT.md, the page of what is supported, to the tree. In its tables a row is about what its first cell
# names between backquotes, and each other cell is one of three:
#   `NAME`...       tests. Each must exist, and must name what the row is about, itself or in a header of tests/
#                   that it includes
#   no, not yet run, words   nothing is tested; or words without backquotes, which nothing checks
#   VERSION         of a Python package, as tests/python/requirements.txt has it
# Every mask and score of the prelude, every strategy, type and head size of the kernels must have a row.
# It builds nothing. Closing line: "matrix: N passed, M failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-matrix.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
. tests/support/check.sh
page=tests/SUPPORT.md

# The files of every test, its own and the headers that it includes: $work/of/NAME
mkdir "$work/of"
with_headers() { # with_headers FILE LIST
    grep -qxF "$1" "$2" && return
    echo "$1" >> "$2"
    for header in $(sed -n 's/^#include "\(tests\/[^"]*\)"/\1/p; s/^ *#include "\(tests\/[^"]*\.def\)"/\1/p' "$1"); do
        with_headers "$header" "$2"
    done
}
names_it() { # names_it TEST WORD: a test of this name, which names the word
    if [ ! -e "$work/of/$1" ]; then
        : > "$work/of/$1"
        for file in tests/unit/*/"$1.c" tests/oracle/"$1.c" tests/machines/*/"$1.c" tests/python/"$1.py" \
            tests/"$1"/run.sh; do
            [ ! -e "$file" ] || with_headers "$file" "$work/of/$1"
        done
    fi
    if [ ! -s "$work/of/$1" ]; then echo "there is no test $1"; return 1; fi
    # shellcheck disable=SC2046
    grep -qwiE -e "$2|FCP_$2|FCP_STRATEGY_$2" $(cat "$work/of/$1") || { echo "$1 does not name $2"; return 1; }
}

# "LINE ROW test NAME", "LINE ROW version N" and "LINE ROW odd TEXT" for each cell behind the first
awk -F ' *[|] *' '
    /^\|/ && !/^\|-/ && match($2, /`[^`]+`/) {
        row = substr($2, RSTART + 1, RLENGTH - 2)
        for (i = 3; i < NF; i++) {
            cell = $i
            found = 0
            while (match(cell, /`[^`]+`/)) {
                print FNR, row, "test", substr(cell, RSTART + 1, RLENGTH - 2)
                cell = substr(cell, RSTART + RLENGTH)
                found = 1
            }
            if (cell ~ /^[0-9.]+$/) print FNR, row, "version", cell
            else if (!found && cell == "") print FNR, row, "odd", "an empty cell"
        }
        print FNR, row, "row", "-"
    }' $page > "$work/cells"
while read -r line row kind value; do
    case "$kind" in
        test) check "$page:$line: \`$row\`, tested by $value" names_it "$value" "$row" ;;
        version) check "$page:$line: $row $value" grep -qx "$row==$value" tests/python/requirements.txt ;;
        odd) check "$page:$line: \`$row\`: $value" false ;;
    esac
done < "$work/cells"

has_row() { grep -q "^[0-9]* $1 row " "$work/cells"; }
{
    sed -n 's/^\(mask\|score\) \([a-z0-9_]*\).*/\2/p' grammar/prelude.fcp
    grep -oE 'FCP_STRATEGY_[A-Z]+, "[a-z]+"' runtime/plan/enums.h | sed 's/.*"\(.*\)"/\1/'
    sed -n 's/^typedef enum fcp_dtype {\(.*\)}.*/\1/p' runtime/fcp.h | grep -oE '[BF][FP][0-9]+' | tr A-Z a-z
    sed -n 's/^X(\([0-9]*\),.*/\1/p' tests/machines/fibers/builds.def
} | sort -u > "$work/wanted"
for row in $(cat "$work/wanted"); do check "$page: a row of $row" has_row "$row"; done
check "rows that must be there" [ "$(wc -l < "$work/wanted")" -gt 40 ]
echo "matrix: $passed passed, $failed failed"
[ $failed = 0 ]
