#!/bin/sh
# Tests `fcpc lsp` with a scripted client (needs python3) and with real editors, set up by the lines that
# grammar/editors/README.md gives; and the package of VS Code. Says what it skips where one is missing. Closing line: "lsp: N passed, M failed".
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
if command -v emacs > /dev/null && emacs --batch --eval "(progn (package-initialize) (require 'eglot))" > /dev/null 2>&1; then
    lines elisp > set_up.el
    HOME=$work/home PATH="$work/bin:$PATH" timeout 300 emacs --batch --load set_up.el --load "$top/tests/lsp/editor.el" \
        > said 2>&1
    count said "Emacs" $?
else
    echo "skipped: Emacs: emacs with eglot is not there"
fi

# The package of VS Code: the same bytes twice, whole, and with a client that starts the server.
holds() { # holds NAME COMMAND...
    name=$1; shift
    if "$@" > log 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $name"; sed 's/^/    /' log; fi
}
if command -v python3 > /dev/null; then
    for i in 1 2; do python3 "$top/grammar/editors/vscode/pack.py" 1.2.3 "$work/$i.vsix" --without-client > /dev/null; done
    holds "two packages of the same files are the same" cmp 1.vsix 2.vsix
    holds "a package is a zip archive" python3 -m zipfile -t 1.vsix
    python3 -m zipfile -e 1.vsix vsix
    holds "with its version" test "$(jq -r .version vsix/extension/package.json)" = 1.2.3
    for key in .main .contributes.languages[0].configuration .contributes.grammars[0].path; do
        holds "with its file $key" test -s "vsix/extension/$(jq -r "$key" vsix/extension/package.json)"
    done
    holds "with JSON for each .json" jq -e . vsix/extension/*.json
    holds "with the generated grammar" cmp vsix/extension/fcp.tmLanguage.json "$top/grammar/editors/fcp.tmLanguage.json"
    holds "with XML" python3 -c 'import sys, xml.dom.minidom as x; [x.parse(p) for p in sys.argv[1:]]' \
        vsix/extension.vsixmanifest 'vsix/[Content_Types].xml'
fi
if command -v node > /dev/null && [ -d vsix ]; then
    # Stand-ins for the modules of VS Code and of its client say what the extension does with them.
    mkdir -p vsix/extension/node_modules/vscode
    echo 'exports.window = {showWarningMessage: (m) => console.log("warned: " + m)};
exports.workspace = {getConfiguration: () => ({get: () => "/there/fcpc"})};' > vsix/extension/node_modules/vscode/index.js
    echo 'const e = require(process.argv[2]); e.activate(); e.deactivate();' > try.js
    node try.js "$work/vsix/extension/extension.js" > said
    holds "without its library it says so" grep -q '^warned: .*colours only' said
    mkdir -p vsix/extension/node_modules/vscode-languageclient
    echo 'exports.LanguageClient = class { constructor(id, name, run, what) {
    console.log(JSON.stringify([run, what])); } start() { console.log("start"); } stop() { console.log("stop"); } };' \
        > vsix/extension/node_modules/vscode-languageclient/node.js
    node try.js "$work/vsix/extension/extension.js" > said
    printf '%s\n' '[{"command":"/there/fcpc","args":["lsp"]},{"documentSelector":[{"language":"fcp"}]}]' start stop > right
    holds "with it it starts the server" cmp said right
else
    echo "skipped: the extension of VS Code in node: node is not there"
fi
echo "lsp: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
