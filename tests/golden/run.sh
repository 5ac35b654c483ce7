#!/bin/sh
# Golden files. tests/golden/dump/NAME.fcp is compiled. The dump of its plan, as text and with --json, is compared with
# NAME.txt and NAME.json; the plan and the program give the same dump. What the passes make of
# tests/golden/passes/NAME.fcp is compared with NAME.txt, and so is what strategy = auto tries for
# tests/golden/auto/NAME.fcp. error_codes.txt has every error code that there ever was: none may go or be given another
# symbol, and new ones must be added. GOLDEN_UPDATE=1 rewrites the files (make golden-update; read the diff). $B is the build
# folder; closing line: "golden: N passed, M failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
fcpc=$B/fcpc
[ -x "$fcpc" ] || { echo "golden: 0 passed, 1 failed: $fcpc is not there"; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-golden.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
. tests/support/check.sh
# golden NAME FILE MADE: MADE is FILE, or becomes it
golden() {
    [ -n "${GOLDEN_UPDATE:-}" ] && cp "$3" "$2"
    check "$1" diff -u "$2" "$3"
}

for program in tests/golden/dump/*.fcp; do
    name=$(basename "$program" .fcp)
    stem=${program%.fcp}
    check "$name compiles" "$fcpc" -q "$program" -o "$work/plan"
    "$fcpc" dump "$work/plan" > "$work/txt"
    "$fcpc" dump --json "$work/plan" > "$work/json"
    golden "$name as text" "$stem.txt" "$work/txt"
    golden "$name as JSON" "$stem.json" "$work/json"
    check "$name: one JSON object" jq -e -s 'length == 1 and (.[0] | type == "object")' "$work/json"
    # Each record of a table is one line of text, so there are as many lines as records.
    jq -r '[.tiles, .visits, .rounds, .instrs, .transfers, .mask | length] | @tsv' "$work/json" > "$work/records"
    for kind in tile visit round instr transfer mask; do grep -c "^$kind [0-9]" "$work/txt"; done |
        paste -s - > "$work/lines"
    check "$name: the same records in both forms" cmp "$work/records" "$work/lines"
    "$fcpc" dump -q "$program" > "$work/again" 2> "$work/log"
    check "$name: the program's dump is the plan's" cmp "$work/txt" "$work/again"
done
# All passes that can be dumped, as the error names them where it knows none of the name.
passes=$("$fcpc" -q examples/my_mask.fcp --dump none 2>&1 | sed 's/.*there are //; s/,//g; s/ and / /')
check "the passes that are dumped" [ "$(echo "$passes" | wc -w)" -ge 7 ]
for program in tests/golden/passes/*.fcp; do
    name=$(basename "$program" .fcp)
    check "the passes of $name" sh -c "\"$fcpc\" -q \"$program\" --dump $(echo $passes | tr ' ' ,) > \"$work/txt\""
    golden "the passes of $name as text" "${program%.fcp}.txt" "$work/txt"
    : > "$work/again"
    for pass in $passes; do "$fcpc" -q "$program" --dump "$pass" >> "$work/again" 2> "$work/log"; done
    check "$name: the passes one by one" cmp "$work/txt" "$work/again"
done
# What strategy = auto tries, and why each candidate loses.
for program in tests/golden/auto/*.fcp; do
    name=$(basename "$program" .fcp)
    check "what is tried for $name" sh -c "\"$fcpc\" -q \"$program\" --explain > \"$work/txt\""
    golden "what is tried for $name as text" "${program%.fcp}.txt" "$work/txt"
done
# compiler/README.md quotes what passes make of two_nodes.fcp, and compiler/schedule/README.md what they make of the plan
# of test_scatter_plans. Each record that they show must be in one of the golden files.
sed -n 's/^    \([a-z_]* [0-9].*=.*\)/\1/p' compiler/README.md compiler/schedule/README.md | sort > "$work/quoted"
sort tests/golden/passes/two_nodes.txt tests/golden/passes/scatter.txt > "$work/made"
check "the pages quote records" [ "$(wc -l < "$work/quoted")" -gt 30 ]
check "the pages quote what is made" [ -z "$(comm -23 "$work/quoted" "$work/made")" ]
sed -n 's/^FCP_ERROR(\([A-Z_0-9]*\), "\(E[0-9]*\)".*/\2 \1/p' runtime/errors.def | sort > "$work/codes"
[ -n "${GOLDEN_UPDATE:-}" ] && sort -u -o tests/golden/error_codes.txt tests/golden/error_codes.txt "$work/codes"
check "each error code has been kept, and is listed once" diff -u tests/golden/error_codes.txt "$work/codes"
check "no error code has two meanings" [ -z "$(cut -d' ' -f1 "$work/codes" | uniq -d)" ]
echo "golden: $passed passed, $failed failed"
[ $failed = 0 ]
