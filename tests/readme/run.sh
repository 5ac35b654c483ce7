#!/bin/sh
# Runs the commands that the documents show, so that a reader who types them gets what the document promises.
#
# Documents: every .md file of the tree but results of measurements (tests/bench).
# Commands:  the lines of fences that begin with ```sh, and the lines after "$ " of fences that begin with ```console.
#            They run in order, in a copy of the tree, with `fcpc` and `build/fcpc` as built; files that one command
#            makes are there for the next, up to the end of the document.
#   FILE # exit 1          must end with this status; without such a comment, with 0
#   FILE # 41.9 MB         a comment that is a number and a unit must stand in the output
#   ```output              a fence behind commands: what the last of them prints. Lines are compared after every number
#                          that is a time, or stands after one in the same line, has been replaced
#   make TARGET            is not run: the target must exist
#   ```sh gpu              needs GPUs, MPI or several machines: not run; its commands and options must exist
# Commands between backquotes in the text are not run: their targets, commands and options must exist.
# Links lead to a file, and to a heading of it. Sources that the text names between backquotes exist: the name is the
# end of some path (`lpt.c`, `place/lpt.c`), or a path from the page's folder.
# The Python of README.md runs, where build/python is there (make setup).
# TIMES=1 also prints how long each command took, in seconds.
# Closing line: "readme: N passed, M failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
B=${B:-build}
case "$B" in /*) ;; *) B=$root/$B ;; esac
[ -x "$B/fcpc" ] || { echo "readme: 0 passed, 1 failed: $B/fcpc is not there"; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-readme.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
good() { passed=$((passed + 1)); }
bad() { # bad WHERE WHY: shows $work/log too
    failed=$((failed + 1))
    echo "FAILED: $1: $2"
    [ ! -s "$work/log" ] || sed 's/^/    /' "$work/log" | head -n 20
    : > "$work/log"
}

mkdir "$work/tree"
cp -r examples grammar compiler runtime codegen tests "$work/tree"
ln -s "$B" "$work/tree/build"
PATH=$B:$PATH
export PATH
make -pn help 2> /dev/null | sed -n 's/^\([a-z][a-z-]*\):.*/\1/p' | sort -u > "$work/targets"
fcpc --help > "$work/help"
sed -n 's/^  fcpc \([a-z]*\) .*/\1/p' "$work/help" | sort -u > "$work/commands"
for command in compile $(cat "$work/commands"); do [ "$command" = help ] || fcpc "$command" --help; done >> "$work/help"
grep -oE '(^|[ ,])--?[A-Za-z][a-z0-9-]*' "$work/help" | tr -d ' ,' | sort -u > "$work/options"

# exists WHERE COMMAND: its target, or its command and its options
exists() {
    where=$1 text=$2
    : > "$work/log"
    # shellcheck disable=SC2046
    set -f -- $(echo "$2" | sed "s/[[:space:]]#.*//; s/[][]//g; s/='[^']*'/=/g")
    set +f
    case "$*" in "python -m fcpc audit "*)
        for word in "$@"; do
            case "$word" in --*) grep -q "add_argument(\"$word\"" runtime/python/fcpc/audit/command.py ||
                { bad "$where" "fcpc audit has no option '$word'"; return; } ;; esac
        done
        good
        return
        ;;
    esac
    while [ $# -gt 0 ]; do # what starts ranks is not ours to check
        case "$1" in make | fcpc | build/fcpc) break ;; *) shift ;; esac
    done
    [ $# -gt 0 ] || { good; return; }
    program=$1
    shift
    if [ "$program" = make ]; then
        for test in $(echo "$text" | sed -n "s/.*T='\([^']*\)'.*/\1/p"); do
            find tests -name "$test.c" -o -path "tests/$test/run.sh" | grep -q . ||
                { bad "$where" "there is no test '$test'"; return; }
        done
        for word in "$@"; do
            case "$word" in
                *=* | -*) ;;
                *) grep -qx -e "$word" "$work/targets" || { bad "$where" "there is no target '$word'"; return; } ;;
            esac
        done
        good
        return
    fi
    case "${1:-}" in # a word that is no file names a command
        '' | -* | *.* | */* | *[A-Z]*) ;;
        *) grep -qx -e "$1" "$work/commands" || { bad "$where" "fcpc has no command '$1'"; return; } ;;
    esac
    for word in "$@"; do
        case "$word" in
            -[0-9]*) ;;
            -?*) grep -qx -e "${word%%=*}" "$work/options" || { bad "$where" "fcpc has no option '$word'"; return; } ;;
        esac
    done
    good
}

# Makes times of two outputs alike: they differ from run to run.
without_times() { sed -E '/[0-9] (ms|us|s)\b/ s/[0-9.]+ (ms|us|s)\b.*//' "$1"; }

# fences FILE: "LINE KIND TEXT" for every command and every line of output; KIND: sh, gpu, output, end (of an output);
# and "LINE inline TEXT" for commands in the text
fences() {
    awk '
        /^ *```/ {
            if (fence) {
                if (kind == "output") print NR, "end", ""
                fence = 0
            } else {
                fence = 1
                kind = $0
                sub(/^ *```/, "", kind)
                if (kind == "sh gpu" || kind == "console gpu") kind = "gpu"
            }
            command = ""
            next
        }
        fence && kind == "output" {print NR, "output", $0}
        fence && kind == "console" {if (!/^ *\$ /) next; sub(/^ *\$ /, "")}
        fence && (kind == "sh" || kind == "console" || kind == "gpu") {
            command = command (command == "" ? "" : " ") $0
            if (sub(/\\$/, "", command)) next
            sub(/^ */, "", command)
            if (command !~ /^#/ && command != "") print NR, kind == "gpu" ? "gpu" : "sh", command
            command = ""
        }
        !fence {
            text = $0
            while (match(text, /`(make|fcpc|build\/fcpc) [^`]*`/)) {
                print NR, "inline", substr(text, RSTART + 1, RLENGTH - 2)
                text = substr(text, RSTART + RLENGTH)
            }
        }' "$1"
}

# run WHERE COMMAND
run() {
    wanted=$(echo "$2" | sed -n 's/.*# exit \([0-9][0-9]*\)$/\1/p')
    shown=$(echo "$2" | sed -nE 's/.*# ([0-9.]+ [kMGT]?[A-Za-z]+)$/\1/p')
    began=$(date +%s%N)
    (cd "$work/tree" && sh -c "$2") > "$work/out" 2>&1 < /dev/null
    status=$?
    [ -z "${TIMES:-}" ] || echo "$(($(date +%s%N) - began)) $1 $2" | awk '{$1 = sprintf("%8.3f s  ", $1 / 1e9); print}'
    cp "$work/out" "$work/log"
    if [ $status != "${wanted:-0}" ]; then
        bad "$1" "'$2' ends with status $status"
    elif [ -n "$shown" ] && ! grep -qF -e "$shown" "$work/out"; then
        bad "$1" "'$2' does not print '$shown'"
    else
        good
    fi
}

# Every file, and "FILE#ANCHOR" of every heading, as GitHub names it
find . -type f ! -path './build*' ! -path './.git/*' | sed 's|^\./||' | sort > "$work/files"
grep '\.md$' "$work/files" | xargs awk '
    FNR == 1 {fence = 0}
    /^ *```/ {fence = !fence}
    !fence && /^#+ / {
        text = tolower($0)
        sub(/^#+ /, "", text)
        gsub(/[^a-z0-9_ -]/, "", text)
        gsub(/ /, "-", text)
        print FILENAME "#" text
    }' > "$work/anchors"

# names FILE: "WHERE: WHAT" for every link that leads nowhere, and for every source that is named and is not there
names() {
    awk -v page="$1" '
        function resolve(path,    parts, out, n, m, i) { # without . and ..
            n = split(path, parts, "/")
            m = 0
            for (i = 1; i <= n; i++)
                if (parts[i] == ".." && m) m--
                else if (parts[i] != "" && parts[i] != ".") out[++m] = parts[i]
            path = ""
            for (i = 1; i <= m; i++) path = path (i > 1 ? "/" : "") out[i]
            return path
        }
        BEGIN {
            folder = page
            sub(/[^\/]*$/, "", folder)
        }
        FILENAME ~ /files$/ {
            there[$0]
            for (path = $0; sub(/\/[^\/]*$/, "", path); ) there[path]
            for (path = $0; sub(/^[^\/]*\//, "", path); ) ends[path]
            next
        }
        FILENAME ~ /anchors$/ {there[$0]; next}
        /^ *```/ {fence = !fence}
        fence {next}
        {
            text = $0
            while (match(text, /\]\([^) ]+\)/)) {
                link = substr(text, RSTART + 2, RLENGTH - 3)
                text = substr(text, RSTART + RLENGTH)
                if (link ~ /^https?:/) continue
                target = link ~ /^#/ ? page link : resolve(folder link)
                if (!(target in there)) print page ":" FNR ": the link " link " leads nowhere"
            }
            text = $0
            while (match(text, /`[a-z0-9_.\/]+\.[chly]`/)) {
                name = substr(text, RSTART + 1, RLENGTH - 2)
                text = substr(text, RSTART + RLENGTH)
                if (name in ends || name in there || resolve(folder name) in there) continue
                print page ":" FNR ": there is no " name
            }
        }' "$work/files" "$work/anchors" "$1"
}

for document in $(find . -name '*.md' ! -path './build*' ! -path './tests/bench/*' ! -path './.git/*' | sed 's|^\./||' \
    | sort); do
    names "$document" > "$work/log"
    if [ -s "$work/log" ]; then bad "$document" "it names what is not there"; else good; fi
    fences "$document" > "$work/fences"
    : > "$work/expected"
    while read -r line kind text; do
        where=$document:$line
        case "$kind" in
            sh)
                case "$text" in
                    make\ *) exists "$where" "$text" ;;
                    *) run "$where" "$text" ;;
                esac
                ;;
            gpu | inline) exists "$where" "$text" ;;
            output) echo "$text" >> "$work/expected" ;;
            end)
                without_times "$work/out" > "$work/got"
                without_times "$work/expected" | sed 's/^ *//' > "$work/wanted"
                sed -i 's/^ *//' "$work/got"
                if diff "$work/wanted" "$work/got" > "$work/log"; then good; \
                    else bad "$where" "the output is another"; fi
                : > "$work/expected"
                ;;
        esac
    done < "$work/fences"
done
if [ -e "$root/build/python/made-of" ] && [ -z "${SAN:-}" ] && [ -e "$B/libfcpc.so" ]; then
    sed -n '/^```python$/,/^```$/p' README.md | grep -v '^```' > "$work/front.py"
    run README.md "env OMP_NUM_THREADS=1 FCPC_LIBRARIES='$B' PYTHONPATH='$work/tree/runtime/python' \
        '$root/build/python/bin/python' '$work/front.py'"
else
    echo "skipped: the Python of README.md: there is no build/python, or no shared library"
fi

[ $passed -gt 20 ] || { echo "FAILED: only $passed commands were found"; failed=$((failed + 1)); }
echo "readme: $passed passed, $failed failed"
[ $failed = 0 ]
