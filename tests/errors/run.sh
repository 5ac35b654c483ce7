#!/bin/sh
# Holds runtime/ERRORS.md, the page of all errors, to runtime/errors.def and to what the program does. Every code has
# an entry and no other has one; the entry begins with the code's text. Its example is run and must give this code, with
# the message that the page shows; numbers in it may differ. Where there is no example, the test that the entry names
# must exist and name the code. `fcpc help CODE` prints the entry.
# $B is the build folder; closing line: "errors: N passed, M failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
top=$PWD
B=${B:-build}
case "$B" in /*) ;; *) B=$top/$B ;; esac
[ -x "$B/fcpc" ] || { echo "errors: 0 passed, 1 failed: $B/fcpc is not there"; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-errors.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
. tests/support/check.sh
PATH=$B:$PATH
page=runtime/ERRORS.md

sed -n 's/^FCP_ERROR(\([A-Z_]*\), "\(E[0-9]*\)", "\(.*\)")$/\2 \1 \3/p' runtime/errors.def | sort > "$work/codes"
sed -n 's/^### //p' $page > "$work/entries"
cut -d ' ' -f 1 "$work/codes" > "$work/wanted"
check "a list of codes" [ "$(wc -l < "$work/codes")" -gt 60 ]
check "an entry for each code, in their order" diff "$work/wanted" "$work/entries"

# CODE.words: the text in one line; CODE.fcp or CODE.sh: the example; CODE.text: what it prints
awk -v folder="$work" '
    /^## / {code = ""}
    /^### / {code = $2}
    /^```$/ {fence = ""; next}
    /^```/ {
        if ($2 != code && $0 != "```text") print "a fence of " $2 " in the entry of " code
        fence = folder "/" code "." substr($1, 4)
        next
    }
    code != "" && fence != "" {print > fence}
    code != "" && fence == "" && !/^### / {printf "%s ", $0 > (folder "/" code ".words")}' $page > "$work/astray"
check "fences are of their entry: $(cat "$work/astray")" [ ! -s "$work/astray" ]

without_numbers() { grep -o 'error\[.*' "$1" | sed 's/\(error\[E[0-9]*\]\)\|[0-9][0-9.]*/\1/g' | head -n 1; }
gives() { # gives CODE: the example's first error is this one, with the message shown
    mkdir "$work/of" && cd "$work/of" && ln -s "$top/examples" examples || return
    if [ -e "$work/$1.fcp" ]; then
        cp "$work/$1.fcp" a.fcp
        fcpc a.fcp > /dev/null 2> "$work/stderr"
    else
        timeout 120 sh "$work/$1.sh" > /dev/null 2> "$work/stderr"
    fi
    status=$?
    cd "$top" && rm -rf "$work/of"
    cat "$work/stderr"
    [ $status = "$(case $1 in E001) echo 2 ;; *) echo 1 ;; esac)" ] &&
        [ -n "$(without_numbers "$work/stderr")" ] &&
        [ "$(without_numbers "$work/stderr")" = "$(without_numbers "$work/$1.text")" ] &&
        grep -q "error\[$1\]" "$work/$1.text"
}
named() { # named NAME CODE SYMBOL: there is this test, and it names the code
    if [ "$1" = test_verify ]; then # by the list of damages
        grep -qE "E\(${3#VERIFY_}\)" tests/support/plan_damage.h
    else
        for file in tests/unit/*/"$1.c" tests/*/"$1.c" tests/machines/*/"$1.c" tests/"$1"/run.sh; do
            [ -e "$file" ] && grep -qE "FCP_E_$3\>|$2|\<$3\>" "$file" && return
        done
        return 1
    fi
}
while read -r code symbol text; do
    case "$(cat "$work/$code.words" 2> "$work/log")" in
        " $(echo "$text" | sed 's/^./\U&/'). "*) good=yes ;;
        *) good=no ;;
    esac
    check "$code: the entry begins with '$text'" [ $good = yes ]
    case $code in E60* | E61[0-4]) ;; # their chapter says it once
        *) check "$code: what to do" grep -q 'What to do: ' "$work/$code.words" ;;
    esac
    check "$code: help prints the entry" sh -c "fcpc help $code | grep -q '^$code: '"
    if [ "$code:${SAN:+san}" = E012:san ]; then
        echo "skipped: E012: sanitizers map more than any limit of memory"
    elif [ -e "$work/$code.text" ]; then
        check "$code: the example" gives "$code"
    else
        name=$(sed -n 's/.*Tested by `\([a-z_]*\)`\. *$/\1/p' "$work/$code.words")
        check "$code: an example or a test, and '$name' names it" named "${name:-none}" "$code" "$symbol"
    fi
done < "$work/codes"
check "no entry for what is no code" sh -c 'fcpc help E999 2>&1 | grep -q "E001.*E999"'
echo "errors: $passed passed, $failed failed"
[ $failed = 0 ]
