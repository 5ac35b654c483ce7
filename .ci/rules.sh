#!/bin/sh
# Checks the rules of the source tree: which room may use which, what library code must not call or keep, and that all
# places that name the version name the one in VERSION.
#
# A room is a folder; .ci/rooms lists each with the rooms it may use. Checked are the sources' includes; the functions that
# headers name; and the symbols of the objects under $B, if those have been built without a sanitizer. Whether objects
# are of today's sources is for make to know.
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
            if (file ~ /^gen\/(prelude|meanings)/) return "grammar"
            if (file ~ /^gen\/profiles/) return "compiler/simulate"
            if (file ~ /^gen\/page/) return "compiler/page"
            if (file ~ /^gen\/errors/) return "compiler/cli"
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
# The text of a C file without comments, strings and includes.
code_of() {
    sed 's/^[[:space:]]*#[[:space:]]*include.*//; s/"\([^"\\]\|\\.\)*"/""/g; s|//.*||' "$1" | tr '\n' '\001' |
        sed 's|/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/| |g' | tr '\001' '\n'
}
# What headers name of other files: a function that they declare or call, or anything in the body of a macro or in an
# initialiser. Without this, a macro of a low room can name functions of a high one: the compiler sees them only where the
# macro is used.
named_by_headers() {
    for file in $(find grammar compiler codegen runtime -name '*.h'); do
        case "$file" in runtime/fcp.h | compiler/fcpc.h) continue ;; esac # they declare what the whole library has
        code_of "$file" | awk -v file="$file" '
            {
                macro = more || $0 ~ /^[[:space:]]*#[[:space:]]*define/
                more = macro && $0 ~ /\\$/
                while (match($0, /[A-Za-z_][A-Za-z_0-9]*/)) {
                    word = substr($0, RSTART, RLENGTH)
                    before = substr($0, 1, RSTART - 1)
                    $0 = substr($0, RSTART + RLENGTH)
                    called = $0 ~ /^[[:space:]]*\(/
                    listed = before ~ /(^|[{,=])[[:space:]]*&?$/ && $0 ~ /^[[:space:]]*[,}]/
                    if ((macro || called || listed) && before !~ /(\.|->)[[:space:]]*$/) print file, "names", word
                }
            }'
    done
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
            { symbols; named_by_headers; } | awk '$2 == "has" {home[$3] = $1; next} {use[++n] = $1 " " $3}
                END {for (i = 1; i <= n; i++) {split(use[i], u, " "); if (u[2] in home) print u[1], home[u[2]], u[2]}}'
        fi
    } | forbidden
)
if [ -n "$violations" ]; then
    echo "$violations"
    bad=1
fi

# A strategy is named only in tables. Whoever needs to know something of it asks a fact (compiler/sema/strategies.h).
tables='compiler/sema/strategies.[ch] compiler/passes/strategy_table.c compiler/auto/candidates.c'
named=$(
    # shellcheck disable=SC2086
    grep -rnE 'FCP_STRATEGY_[A-Z]+' --include='*.[ch]' compiler | grep -vE 'FCP_STRATEGY_(COUNT|LIST)' |
        grep -vF "$(ls $tables)" | sed 's/:[[:space:]]*/: names a strategy outside the tables of them: /2'
)
if [ -n "$named" ]; then
    echo "$named"
    bad=1
fi

# No two files of the product have one name: it says what is in a file, also without its folder.
twice=$(find grammar compiler codegen runtime -name '*.[chly]' | sed 's|.*/||' | sort | uniq -d)
for name in $twice; do
    echo "$name: there is more than one file of this name: $(find grammar compiler codegen runtime -name "$name" | tr '\n' ' ')"
    bad=1
done

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

# VERSION says which version this is. make and pyproject.toml read it there; a header that is installed cannot.
# CHANGELOG.md begins with the same version.
version=$(cat VERSION)
number=$(echo "$version" | awk -F. '/^[0-9]+\.[0-9][0-9]?\.[0-9][0-9]?$/ {print 10000 * $1 + 100 * $2 + $3}')
same() { # same FILE WHAT-IT-SAYS EXPECTED
    [ "$2" = "$3" ] && return
    echo "$1: it says '$2', and by VERSION it must be '$3'"
    bad=1
}
[ -n "$number" ] || { echo "VERSION: '$version' is not MAJOR.MINOR.PATCH, the last two below 100"; bad=1; }
same "runtime/fcp.h, FCP_VERSION" "$(sed -n 's/^#define FCP_VERSION "\(.*\)"/\1/p' runtime/fcp.h)" "$version"
same "runtime/fcp.h, FCP_VERSION_NUMBER" "$(sed -n 's/^#define FCP_VERSION_NUMBER //p' runtime/fcp.h)" "$number"
same "CHANGELOG.md, its first version" "$(sed -n 's/^## \([^ ]*\).*/\1/p' CHANGELOG.md | head -n 1)" "$version"
same "runtime/plan/plan.h, FCP_PLAN_VERSION" "$(sed -n 's/.*FCP_PLAN_VERSION = \([0-9]*\).*/\1/p' runtime/plan/plan.h)" \
    "$(sed -n '/^## /,$s/^Plan files: version \([0-9]*\).*/\1/p' CHANGELOG.md | head -n 1)"

files=$(find grammar compiler codegen runtime -name '*.[chly]' | wc -l)
[ $bad = 0 ] && echo "rules: the includes of $files files and the symbols of $(echo $objects | wc -w) objects, and the version: 3 passed"
exit $bad
