#!/bin/sh
# The rules between folders, checked: what each may include, and what library code must not call or keep.
# Reads the sources, and the objects under $B where they have been built (without a sanitizer).
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build}
bad=0

# rule FOLDER-NAME ALLOWED-REGEX FILE...: every #include "..." of the files, seen from the top of the tree, must match.
rule() {
    name=$1; allowed=$2; shift 2
    for file in "$@"; do
        [ -e "$file" ] || continue
        folder=$(dirname "$file")
        sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$file" | while read -r header; do
            case "$header" in
                ../*) path=${header#../} ;;
                fcp.tab.h | fcp.lex.h) path=generated/$header ;;
                *) path=$folder/$header ;;
            esac
            echo "$path" | grep -Eq "^($allowed)\$" || echo "$file: may not include \"$header\" ($name)"
        done
    done
}

violations=$(
    # shellcheck disable=SC2046
    {
        rule grammar 'grammar/ast\.h|compiler/ast\.h|generated/.*' grammar/*.l grammar/*.y
        rule codegen 'codegen/.*' $(find codegen -name '*.[ch]')
        rule runtime 'codegen/.*|runtime/.*' $(find runtime -name '*.[ch]' -o -name '*.def')
        rule compiler 'compiler/.*|generated/.*|codegen/maskcode\.h|runtime/(fcp|plan|npy)\.h' \
            $(find compiler -name '*.[ch]' ! -name 'cmd*' ! -name main.c)
        rule commands 'compiler/.*|codegen/.*|runtime/.*' compiler/main.c compiler/cmd*
    }
)
if [ -n "$violations" ]; then
    echo "$violations"
    bad=1
fi

# Library code returns its errors: it never ends the process, never prints, and keeps no state of its own.
if [ -z "${SAN:-}" ] && command -v objdump > /dev/null 2>&1; then
    for object in $(find "$B/codegen" "$B/runtime" "$B/compiler" "$B/gen" -name '*.o' ! -name 'cmd_*' ! -name main.o 2> /dev/null); do
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
            [ "$source:$name" = runtime/blas.o:guard ] && continue # guards a setting of OpenBLAS that is the process's
            echo "${source%.o}.c: global mutable state: $name"
            bad=1
        done
    done
fi
[ $bad = 0 ] && echo "rules: what folders include and what libraries call is as designed"
exit $bad
