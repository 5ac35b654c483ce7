#!/bin/sh
# Compiles the programs that the documents show.
#
#   ```fcp            a fence that begins so holds a whole program. It must compile without a warning.
#   ### Coming from   the table below such a heading has a line for each thing of another project: what it is there,
#                     what it is here. What stands between backquotes in the last column is put into a program, each
#                     piece where it belongs: `lengths = ...` into `batch`, `score = ...` into `plan`, and so on. A
#                     piece that no section has is a condition, and becomes a mask. That program must compile, once for
#                     each condition of the line. Fields that are `given` get zeros, so there may be warnings.
#
# Documents: every .md file of the tree.
# Closing line: "programs: N passed, M failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-programs.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# compiles WHERE FILE WARNINGS [OPTION...]; WARNINGS: may there be any? yes or no
compiles() {
    where=$1 file=$2 warnings=$3
    shift 3
    "$B/fcpc" "$file" -q "$@" > "$work/log" 2>&1
    status=$?
    if [ $status = 0 ] && { [ "$warnings" = yes ] || [ ! -s "$work/log" ]; }; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $where: status $status"
        sed 's/^/    /' "$work/log" | head -n 12
        sed 's/^/    | /' "$file"
    fi
}

# Writes each fence to FOLDER/LINE.fcp.
fences() {
    awk -v folder="$2" '
        /^ *```/ {
            if (fence) fence = 0
            else {
                fence = 1
                file = $0 ~ /^ *```fcp$/ ? folder "/" NR ".fcp" : ""
            }
            next
        }
        fence && file != "" {print > file}' "$1"
}

# Writes a program for each line of a table, or for each condition of it, to FOLDER/LINE.N.fcp; and for each field that
# is given a line "NAME COUNT" to FOLDER/LINE.N.given.
lines() {
    awk -v folder="$2" '
        # how many values a given field has for one sequence of 8 tokens, 4 heads and 2 KV heads
        function given(piece, to,    name, n) {
            name = piece
            sub(/^field /, "", name)
            sub(/ .*/, "", name)
            n = piece ~ /sequences|heads/ && piece !~ /queries|keys/ ? 1 : 8
            if (piece ~ /(queries|keys) \//) n = 1 # a cell is larger than the sequence
            n *= piece ~ /kv_heads/ ? 2 : piece ~ /heads/ ? 4 : 1
            printf "%s %d\n", name, n > to
        }
        function add(where, text) {
            section[where] = section[where] text "\n"
        }
        function write(condition,    i, file) {
            file = folder "/" FNR "." ++programs
            section["model"] = section["batch"] = section["top"] = section["plan"] = ""
            for (i = 1; i <= count; i++) {
                if (kind[i] != "condition" && kind[i] != "name") add(kind[i], piece[i])
                if (piece[i] ~ /^field [a-z_]+ = given/) given(piece[i], file ".given")
            }
            if (condition != "") {
                add("top", "mask m = " condition)
                add("plan", "mask = m")
            } else if (section["plan"] !~ /(mask|layers) =/ && section["top"] !~ /mask /) add("plan", "mask = causal")
            if (section["plan"] !~ /score =/ && match(section["top"], /score [a-z_]+/))
                add("plan", "score = " substr(section["top"], RSTART + 6, RLENGTH - 6))
            if (section["batch"] !~ /lengths =/) add("batch", "lengths = [8]")
            if (section["model"] !~ /heads =/) add("model", "heads = 4; kv_heads = 2")
            printf "model {\n%s}\nbatch {\n%s}\n%splan {\n%s}\n", section["model"], section["batch"], section["top"],
                section["plan"] > (file ".fcp")
        }
        function kind_of(text) {
            if (text ~ /^(lengths|align|documents) =/ || text ~ /^field /) return "batch"
            if (text ~ /^(heads|kv_heads|head_dim|value_dim|values|scale) =/ || text ~ /^table /) return "model"
            if (text ~ /^(mask|layers|score|sink|passes|block|deterministic|lse_gradient|layout) =/) return "plan"
            if (text ~ /^(mask|score) /) return "top"
            if (text ~ /^fcpc/) return "name" # of Python
            return "condition"
        }
        /^#/ {table = $0 ~ /^### Coming from /}
        table && /^\|/ && !/^\|-/ && !/^\| there/ {
            count = conditions = programs = 0
            text = $0
            gsub(/\\\|/, "", text)
            sub(/ *\| *$/, "", text)
            sub(/.*\|/, "", text)
            while (match(text, /`[^`]+`/)) {
                piece[++count] = substr(text, RSTART + 1, RLENGTH - 2)
                text = substr(text, RSTART + RLENGTH)
                kind[count] = kind_of(piece[count])
                conditions += kind[count] == "condition"
            }
            if (!conditions && count) write("")
            for (j = 1; j <= count; j++)
                if (kind[j] == "condition") write(piece[j])
        }' "$1"
}

documents=$(find . -name '*.md' ! -path './build*' ! -path './.git/*' | sed 's|^\./||' | sort)
for document in $documents; do
    mkdir "$work/of"
    fences "$document" "$work/of"
    lines "$document" "$work/of"
    for file in $(find "$work/of" -name '*.fcp' | sort -V); do
        line=${file##*/}
        set --
        case "$line" in *.*.fcp) warnings=yes ;; *) warnings=no ;; esac
        if [ -e "${file%.fcp}.given" ]; then
            while read -r name count; do
                yes 0 | head -n "$count" > "$work/$name.txt"
                set -- "$@" --field "$name=$work/$name.txt"
            done < "${file%.fcp}.given"
        fi
        compiles "$document:${line%%.*}" "$file" $warnings "$@"
    done
    rm -r "$work/of"
done
[ $passed -gt 20 ] || { echo "FAILED: only $passed programs were found"; failed=$((failed + 1)); }
echo "programs: $passed passed, $failed failed"
[ $failed = 0 ]
