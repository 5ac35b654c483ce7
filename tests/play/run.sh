#!/bin/sh
# Tests the playground that `make playground` has built: the compiler as WebAssembly makes the same plans and says the
# same words as the program, and the page works in headless Chromium. Skipped is what needs node or Chromium where there
# is none, and all of it where nothing is built: that takes minutes. Closing line: "play: N passed, M failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
case "$B" in /*) ;; *) B=$PWD/$B ;; esac
skip() { echo "skipped: $1"; echo "play: ${passed:-0} passed, ${failed:-0} failed"; [ "${failed:-0}" = 0 ]; exit; }
[ -n "${SAN:-}" ] && skip "the playground, no sanitizer looks into it"
[ -e "$B/site/play/fcpc.wasm" ] || skip "the playground is not built: make playground"
command -v node > /dev/null 2>&1 || skip "the playground, there is no node"
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-play.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

TMPDIR=$work node tests/play/plans.mjs "$B/site/play" "$B/fcpc" > "$work/log" 2>&1
passed=$(sed -n 's/^\([0-9]*\) same$/\1/p' "$work/log")
passed=${passed:-0}
sed '/^[0-9]* same$/d' "$work/log" | cut -c 1-2000 > "$work/differ"
if [ -s "$work/differ" ] || [ "$passed" -lt 300 ]; then
    failed=1
    echo "FAILED: the program and the playground differ"
    head -n 40 "$work/differ"
fi

chromium=
for name in ${CHROMIUM:-chromium chromium-browser google-chrome}; do
    command -v "$name" > /dev/null 2>&1 && { chromium=$name; break; }
done
[ -n "$chromium" ] || skip "the playground in a browser, there is no Chromium"
TMPDIR=$work timeout 300 node tests/play/page.mjs "$B/site/play" "$B/fcpc" "$chromium" > "$work/log" 2>&1
counts=$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$work/log")
sed '/^[0-9]* passed, /d' "$work/log"
[ -n "$counts" ] || { counts='0 1'; echo 'FAILED: the browser did not come to its end'; }
passed=$((passed + ${counts% *})) failed=$((failed + ${counts#* }))
echo "play: $passed passed, $failed failed"
[ $failed = 0 ]
