#!/bin/sh
# Checks the rules of the source tree: which room may use which, and what library code must not call or keep.
#
# A room is a folder; .ci/rooms lists each with the rooms it may use. The sources' includes are checked, and the
# symbols of the objects under $B, if those have been built without a sanitizer. Whether objects are of today's sources
# is for make to know.
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build}
bad=0

# The objects of sources that there still are, and their symbols: "FILE has NAME" or "FILE uses NAME" on each line.
objects=
if [ -z "${SAN:-}" ] && [ -d "$B/compiler" ]; then
    for object in $(find "$B/codegen" "$B/runtime" "$B/compiler" "$B/gen" -name '*.o'); do
        source=${object#"$B"/}
        case "$source" in gen/*) ;; *) [ -e "${source%.o}.c" ] || continue ;; esac
        objects="$objects $object"
    done
fi
symbols() {
    # shellcheck disable=SC2086
    nm -A $objects | awk -v folder="$B/" '
        {colon = index($0, ".o:"); file = substr($0, length(folder) + 1, colon - length(folder) - 1) ".c"
         n = split(substr($0, colon + 3), f, " ")}
        n == 3 && f[2] ~ /[TDBRVW]/ {print file, "has", f[3]}
        n == 2 && f[1] ~ /^[Uw]$/ {print file, "uses", f[2]}'
}

# The arrows between rooms, against the table .ci/rooms: what each file includes, and what each object uses of another.
rooms=$(sed 's/#.*//; s/:/ /' .ci/rooms | awk 'NF')
loop=$(echo "$rooms" | awk '{for (i = 2; i <= NF; i++) print $i, $1}' | tsort 2>&1 > /dev/null)
if [ -n "$loop" ]; then
    echo ".ci/rooms: a circle: $loop"
    bad=1
fi
# "FILE USED-FILE WHAT" on each line in; each line that the table forbids out. A file is in the room of its own name, if
# the table has that, else in the room of its folder. What the build generates is in the room it is generated for.
forbidden() {
    awk -v table="$rooms" '
        function room(file) {
            if (file in known) return file
            if (file ~ /^gen\/kernels/) return "codegen/kernels"
            if (file ~ /^gen\/prelude/) return "grammar"
            if (file ~ /^gen\/profiles/) return "compiler/simulate"
            if (file ~ /^gen\/page/) return "compiler/page"
            # the scanner and parser are part of that room
            if (file ~ /^(gen\/)?fcp\.(tab|lex|y|l)/) return "compiler/syntax"
            sub(/\/[^\/]*$/, "", file)
            return file
        }
        BEGIN {
            lines = split(table, line, "\n")
            for (i = 1; i <= lines; i++) {
                words = split(line[i], word, " ")
                known[word[1]] = 1
                for (j = 2; j <= words; j++) may[word[1], word[j]] = 1
            }
        }
        {
            from = room($1)
            to = room($2)
            if (!(from in known)) print $1 ": its room, " from ", is not in .ci/rooms"
            else if (from != to && !((from, to) in may)) print $1 ": room " from " may not use room " to " (" $3 ")"
        }' | sort -u
}
violations=$(
    {
        for file in $(find grammar compiler codegen runtime -name '*.[chly]' -o -name '*.inc' -o -name '*.def'); do
            case "$file" in
                grammar/editors/*) as=$file ;;
                grammar/*) as=gen/${file##*/} ;;
                runtime/errors.def) as=runtime/fcp.h ;;
                *) as=$file ;;
            esac
            sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$file" |
                sed "s|^runtime/errors.def\$|runtime/fcp.h|; s|.*|$as & includes|"
        done
        if [ -n "$objects" ]; then
            symbols | awk '$2 == "has" {home[$3] = $1; next} {use[++n] = $1 " " $3}
                END {for (i = 1; i <= n; i++) {split(use[i], u, " "); if (u[2] in home) print u[1], home[u[2]], u[2]}}'
        fi
    } | forbidden
)
if [ -n "$violations" ]; then
    echo "$violations"
    bad=1
fi

# Library code returns its errors: it never ends the process, never prints, and keeps no state of its own.
if [ -n "$objects" ]; then
    faults=$(
        symbols | awk -v never="exit _exit quick_exit abort printf vprintf puts putchar perror stdout stderr \
            __assert_fail longjmp system __printf_chk" '
            BEGIN {n = split(never, word, " "); for (i = 1; i <= n; i++) forbidden[word[i]] = 1}
            $1 ~ /^compiler\/cli\// || $2 != "uses" || !($3 in forbidden) {next}
            $1 == "gen/fcp.lex.c" && $3 ~ /^std/ {next} # of the default of yyout, to which the scanner never writes
            {print $1 ": library code uses " $3}'
        # shellcheck disable=SC2086
        objdump -t $objects | awk -v folder="$B/" '
            / file format / {file = $1; sub(/:$/, "", file); sub(folder, "", file); sub(/\.o$/, ".c", file); next}
            file ~ /^compiler\/cli\// {next}
            {section = $2 == "O" ? $3 : $3 == "O" ? $4 : ""}
            section !~ /^\.(data|bss)/ && section != "*COM*" || section ~ /^\.data\.rel\.ro/ {next}
            # guards a setting of OpenBLAS that is the process'"'"'s
            file == "runtime/host/blas.c" && $NF == "guard" {next}
            # MPI begins and ends once in a process
            file == "runtime/libraries/mpi.c" && $NF == "mpi" {next}
            {print file ": global mutable state: " $NF}'
    )
    if [ -n "$faults" ]; then
        echo "$faults"
        bad=1
    fi
fi
files=$(find grammar compiler codegen runtime -name '*.[chly]' | wc -l)
[ $bad = 0 ] && echo "rules: the includes of $files files and the symbols of $(echo $objects | wc -w) objects: 2 passed"
exit $bad
