#!/bin/sh
# The rules of the house, checked: which room may use which, and what library code must not call or keep.
# Reads the sources, and the objects under $B where they have been built (without a sanitizer).
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build}
bad=0

# The arrows between rooms, against the table .ci/rooms: what each file includes, and what each object uses of another.
rooms=$(sed 's/#.*//; s/:/ /' .ci/rooms | awk 'NF')
loop=$(echo "$rooms" | awk '{for (i = 2; i <= NF; i++) print $i, $1}' | tsort 2>&1 > /dev/null)
if [ -n "$loop" ]; then
    echo ".ci/rooms: a circle: $loop"
    bad=1
fi
# "FILE USED-FILE WHAT" on each line in; each line that the table forbids out. A file is in the room of its own name, if the
# table has that, else in the room of its folder. What the build generates is in the room it is generated for.
forbidden() {
    awk -v table="$rooms" '
        function room(file) {
            if (file in known) return file
            if (file ~ /^gen\/kernels/) return "codegen/kernels"
            if (file ~ /^gen\/prelude/) return "grammar"
            if (file ~ /^gen\/profiles/) return "compiler/simulate"
            if (file ~ /^(gen\/)?fcp\.(tab|lex|y|l)/) return "compiler/syntax" # the scanner and parser are part of that room
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
            case "$file" in grammar/*) as=gen/${file##*/} ;; runtime/errors.def) as=runtime/fcp.h ;; *) as=$file ;; esac
            sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$file" |
                sed "s|^runtime/errors.def\$|runtime/fcp.h|; s|.*|$as & includes|"
        done
        if [ -z "${SAN:-}" ] && [ -d "$B/compiler" ]; then
            for object in $(find "$B/codegen" "$B/runtime" "$B/compiler" "$B/gen" -name '*.o'); do
                source=${object#"$B"/}
                source=${source%.o}.c
                case "$source" in gen/*) ;; *) [ -e "$source" ] || continue ;; esac # an object whose source is gone
                nm "$object" | awk -v source="$source" 'NF == 3 && $2 ~ /[TDBRVW]/ {print source, "has", $3}
                                                        NF == 2 && $1 == "U" {print source, "uses", $2}'
            done | awk '$2 == "has" {home[$3] = $1; next} {use[++n] = $1 " " $3}
                        END {for (i = 1; i <= n; i++) {split(use[i], u, " "); if (u[2] in home) print u[1], home[u[2]], u[2]}}'
        fi
    } | forbidden
)
if [ -n "$violations" ]; then
    echo "$violations"
    bad=1
fi

# Library code returns its errors: it never ends the process, never prints, and keeps no state of its own.
if [ -z "${SAN:-}" ] && command -v objdump > /dev/null 2>&1; then
    for object in $(find "$B/codegen" "$B/runtime" "$B/compiler" "$B/gen" -name '*.o' ! -path "$B/compiler/cli/*" 2> /dev/null); do
        source=${object#"$B"/}
        case "$source" in gen/*) ;; *) [ -e "${source%.o}.c" ] || continue ;; esac # an object whose source is gone
        calls='exit _exit quick_exit abort printf vprintf puts putchar perror stdout stderr __assert_fail longjmp system __printf_chk'
        [ "$source" = gen/fcp.lex.o ] && calls='exit _exit abort printf puts longjmp system' # yyout's default is never written
        for name in $(nm -u "$object" | awk '{print $2}'); do
            case " $calls " in *" $name "*) echo "${source%.o}.c: library code uses $name"; bad=1 ;; esac
        done
        state=$(objdump -t "$object" | awk '$3 == "O" && ($4 ~ /^\.(data|bss)/ || $4 == "*COM*") && $4 !~ /^\.data\.rel\.ro/ {print $NF}
                                            $2 == "O" && ($3 ~ /^\.(data|bss)/) && $3 !~ /^\.data\.rel\.ro/ {print $NF}')
        for name in $state; do
            [ "$source:$name" = runtime/host/blas.o:guard ] && continue # guards a setting of OpenBLAS that is the process's
            echo "${source%.o}.c: global mutable state: $name"
            bad=1
        done
    done
fi
[ $bad = 0 ] && echo "rules: what rooms use and what libraries call is as designed"
exit $bad
