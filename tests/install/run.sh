#!/bin/sh
# Tests `make install`: the files that it installs, and that a C and a C++ program build against them with what
# pkg-config says and nothing else, shared and static, and run. The closing line is "install: N passed, M failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
if [ -n "${SAN:-}" ]; then
    echo "skipped: make install: not with sanitizers"
    echo "install: 0 passed, 0 failed"
    exit 0
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-install.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
. tests/support/check.sh
unset MAKEFLAGS MAKELEVEL MFLAGS
check "install" make B="$B" PREFIX="$work/usr" install
[ -x "$work/usr/bin/fcpc" ] || { echo "install: $passed passed, $failed failed"; exit 1; }
for file in bin/fcpc include/fcpc/fcp.h include/fcpc/fcpc.h include/fcpc/errors.def lib/libfcp.a lib/libfcpc.a \
    lib/libfcp.so lib/libfcpc.so lib/libfcp.so.0 lib/libfcpc.so.0 lib/pkgconfig/fcp.pc lib/pkgconfig/fcpc.pc \
    share/man/man1/fcpc.1 share/bash-completion/completions/fcpc share/zsh/site-functions/_fcpc \
    share/vim/vimfiles/syntax/fcp.vim share/vim/vimfiles/ftdetect/fcp.vim share/fcpc/fcp.tmLanguage.json; do
    check "$file" test -s "$work/usr/$file"
done
check "the program runs" "$work/usr/bin/fcpc" --version
check "soname" sh -c "readelf -d '$work/usr/lib/libfcpc.so' | grep -q 'SONAME.*libfcpc.so.0'"
# only LIBRARY PREFIXES NM-OPTION: the library has symbols, and all of them begin with one of the prefixes
only() {
    symbols=$(nm --defined-only "$3" "$work/usr/lib/$1" \
        | awk 'NF == 3 {print $3}' | grep -Ev '^_(init|fini|edata|end)$|^__bss_start$')
    check "$1 shows something" test -n "$symbols"
    check "$1 shows nothing else" test -z "$(echo "$symbols" | grep -Ev "^($2)")"
}
only libfcp.so 'fcp_|mc_' -D
only libfcpc.so fcpc_ -D
only libfcp.a 'fcp_|mc_' -g
only libfcpc.a fcpc_ -g

export PKG_CONFIG_PATH="$work/usr/lib/pkgconfig"
cp examples/train_loop.c "$work/loop.c"
printf '#include <fcp.h>\nint main(void) { return fcp_code_exit(FCP_OK); }\n' > "$work/only.c"
cat > "$work/plus.cc" << 'EOF'
#include <fcpc.h>
#include <cstdlib>
#include <cstring>
int main() {
    fcpc_options options = FCPC_OPTIONS_INIT;
    fcpc_batch batch = FCPC_BATCH_INIT;
    fcpc_show_options show = FCPC_SHOW_OPTIONS_INIT;
    fcpc_question question = FCPC_QUESTION_INIT;
    fcpc_program *program = nullptr;
    fcp_plan *plan = nullptr;
    const char text[] = "batch { lengths = [300] }; plan { mask = causal; block = 128 }";
    char *drawn = nullptr, *summary = nullptr, *why = nullptr;
    const bool good = !std::strcmp(fcpc_version(), FCPC_VERSION) &&
        fcpc_parse_text("a", text, sizeof text - 1, &options, nullptr, &program) == FCP_OK &&
        fcpc_plan_batch(program, &batch, nullptr, nullptr, nullptr, &plan) == FCP_OK &&
        fcpc_show_svg(plan, &show, &drawn, nullptr) == FCP_OK && std::strstr(drawn, "</svg>") &&
        fcpc_summary_json(plan, nullptr, &summary, nullptr) == FCP_OK && std::strstr(summary, "\"tokens\": 300") &&
        fcpc_explain_text("a", text, sizeof text - 1, &options, &question, nullptr, &why) == FCP_OK;
    std::free(drawn), std::free(summary), std::free(why);
    fcp_plan_free(plan);
    fcpc_program_free(program);
    return good ? 0 : 1;
}
EOF
cd "$work" || exit 1
# shellcheck disable=SC2046
{
    check "compile, shared" cc -Wall -Werror -o loop loop.c $(pkg-config --cflags --libs fcpc) -lm -pthread
    check "run, shared" env LD_LIBRARY_PATH="$work/usr/lib" ./loop
    check "compile, static" cc -o loop-static loop.c $(pkg-config --cflags fcpc) -Wl,-Bstatic -L"$work/usr/lib" -lfcpc \
        -lfcp \
        -Wl,-Bdynamic $(pkg-config --static --libs-only-l fcpc | sed 's/-lfcpc//g; s/-lfcp//g') -pthread
    check "run, static" ./loop-static
    check "the runtime alone" cc -Wall -Werror -o only only.c $(pkg-config --cflags --libs fcp)
    if command -v c++ > /dev/null; then
        check "headers in C++" c++ -Wall -Wextra -Wno-missing-field-initializers -Werror -o plus plus.cc $(pkg-config \
            --cflags --libs fcpc)
        check "and the functions, called from there" env LD_LIBRARY_PATH="$work/usr/lib" ./plus
    else
        echo "skipped: headers in C++: there is no c++"
    fi
}
echo "install: $passed passed, $failed failed"
[ $failed = 0 ]
