#!/bin/sh
# Tests `fcpc lsp` with a scripted client (needs python3) and with a real editor: Neovim, set up by the lines that
# grammar/editors/README.md gives. Says what it skips where one is missing. Closing line: "lsp: N passed, M failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
top=$PWD
B=${B:-build}
case "$B" in /*) ;; *) B=$top/$B ;; esac
fcpc=$B/fcpc
[ -x "$fcpc" ] || { echo "lsp: 0 passed, 1 failed: $fcpc is not there"; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-lsp.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
passed=0 failed=0
# count FILE NAME STATUS: its lines "ok ..." and "FAILED ..."; a script that ends early has failed, too
count() {
    passed=$((passed + $(grep -c '^ok ' "$1")))
    failed=$((failed + $(grep -c '^FAILED' "$1")))
    grep '^FAILED' "$1"
    [ "$3" -eq 0 ] && return
    failed=$((failed + 1))
    echo "FAILED: $2 ended with status $3"
    tail -n 5 "$1" | sed 's/^/    /'
}

if command -v python3 > /dev/null; then
    timeout 300 python3 "$top/tests/lsp/protocol.py" "$fcpc" > said 2>&1
    count said "the scripted client" $?
else
    echo "skipped: the scripted client: python3 is not there"
fi

# The lines of a language between the fences of the page.
lines() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$top/grammar/editors/README.md" | grep -v '^```'; }
mkdir bin home
ln -s "$fcpc" bin/fcpc
if command -v nvim > /dev/null; then
    lines lua > set_up.lua
    printf '%s\n' 'model   { heads = 4; kv_heads = 2 }' 'batch   { lengths = [4096] }' \
        'plan { block = 128; mask = cuasal }' 'cluster { gpus = 4 }' 'mask own(w = 8) = q - k < w # own' > a.fcp
    HOME=$work/home XDG_CONFIG_HOME=$work/home XDG_DATA_HOME=$work/home XDG_CACHE_HOME=$work/home XDG_STATE_HOME=$work/home \
        PATH="$work/bin:$PATH" timeout 300 nvim --headless --clean -n -c 'luafile set_up.lua' \
        -c "luafile $top/tests/lsp/editor.lua" -c 'qa!' > said 2>&1
    count said "Neovim" $?
    grep -q '^ok formatting again' said || { failed=$((failed + 1)); echo "FAILED: Neovim did not come to the end"; cat said; }
else
    echo "skipped: a real editor: nvim is not there"
fi
echo "lsp: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
