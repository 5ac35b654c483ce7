#!/bin/sh
# Is everything there that belongs to a mask or a score of the prelude? One run names every place that is missing:
#
#   README.md               its name, in the list of the prelude
#   grammar/LANGUAGE.md     its row; of a mask also a link to its picture
#   grammar/pictures/       of a mask: a call of it in draw.sh, and what `make pictures` has drawn of that call
#   tests/support/          of a mask: its definition in C, in known_masks.h or known_fields.h
#
# It builds nothing. Whether the definition in C has cases, and whether it is what the prelude says, test_prelude tells.
# Closing line: "described: N passed, M failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
passed=0 failed=0
there() { # there WORDS COMMAND...: does the command find something?
    words=$1
    shift
    if "$@" > /dev/null 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $words"; fi
}
listed() { sed -n '/\*prelude\* of masks/,/^$/p' README.md | grep -qw "$1"; }
drawn() { # is the picture that of the call in draw.sh?
    call=$(grammar/pictures/draw.sh --list | grep -E "^$1(\(|\$)" | head -n 1)
    grep -qF "<title>$call over 4096 tokens" "grammar/pictures/$1.svg"
}
for item in $(sed -n 's/^\(mask\|score\) \([a-z0-9_]*\).*/\1:\2/p' grammar/prelude.fcp); do
    name=${item#*:}
    there "README.md: the list of the prelude lacks '$name'" listed "$name"
    there "grammar/LANGUAGE.md: there is no row that begins with | \`$name" grep "^| \`$name[(\`]" grammar/LANGUAGE.md
    [ "${item%:*}" = mask ] || continue
    [ "$name" = neighbourhood ] && continue # it takes places, which no plan can give; natten1d calls it with q and k
    there "grammar/LANGUAGE.md: it does not show pictures/$name.svg" grep -F "pictures/$name.svg" grammar/LANGUAGE.md
    there "grammar/pictures/draw.sh: it has no call of '$name'" sh -c "grammar/pictures/draw.sh --list | grep -E '^$name(\(|\$)'"
    there "grammar/pictures/$name.svg is not of the call in draw.sh: make pictures draws it" drawn "$name"
    there "tests/support/known_masks.h, known_fields.h: '$name' has no definition in C" \
        grep -E "\"$name[(\"]" tests/support/known_masks.h tests/support/known_fields.h
done
echo "described: $passed passed, $failed failed"
[ $failed = 0 ]
