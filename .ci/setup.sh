#!/bin/sh
# Installs with apt what the build and the tests need and this machine lacks. It asks no questions, and does nothing
# if nothing is missing. Without apt, or without the rights to use it, it says what is missing and fails. Chromium is
# for the tests of pages alone, and bubblewrap for one of the wheel, which do without if they must: no attempt is made
# with --no-browser, and none that fails ends the rest. --playground adds what `make playground` needs.
set -u
cd "$(dirname "$0")/.." || exit 1

missing_tools=
missing_packages=
need() { # need TOOL PACKAGE
    command -v "$1" > /dev/null 2>&1 && return
    missing_tools="$missing_tools $1"
    missing_packages="$missing_packages $2"
}
header() { # header FILE PACKAGE: looked for where the compiler looks
    for folder in /usr/include /usr/local/include /usr/include/"$(uname -m)"-linux-gnu; do
        [ -e "$folder/$1" ] && return
    done
    missing_tools="$missing_tools $1"
    missing_packages="$missing_packages $2"
}

library() { # library FILE PACKAGE: loaded when the program first needs it; ldconfig is not in everybody's PATH
    PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2> /dev/null | grep -q "$1" && return
    missing_tools="$missing_tools $1"
    missing_packages="$missing_packages $2"
}

need gcc gcc
need make make
need flex flex
need bison bison
need ld binutils
need clang clang
need clang-tidy clang-tidy
need git-clang-format clang-format
need pkg-config pkg-config
need git git
need jq jq
need mpirun openmpi-bin
header stdio.h libc6-dev
header criterion/criterion.h libcriterion-dev
header isa-l/crc.h libisal-dev
header openssl/evp.h libssl-dev
header nettle/sha2.h nettle-dev
header openblas_config.h libopenblas-dev
library librsvg-2.so.2 librsvg2-2
if [ "${1:-}" = --playground ]; then
    need emcc emscripten
    need node nodejs
    codemirror=/usr/share/javascript/codemirror/lib/codemirror.js
    [ -e $codemirror ] || {
        missing_tools="$missing_tools $codemirror"
        missing_packages="$missing_packages libjs-codemirror"
    }
fi
if command -v clang > /dev/null 2>&1; then
    runtime=$(clang -print-file-name=libclang_rt.asan-"$(uname -m)".a 2> /dev/null)
    version=$(clang -dumpversion 2> /dev/null | cut -d. -f1)
    case "$runtime" in
        /*) [ -e "$runtime" ] || runtime= ;;
        *) runtime=$(ls /usr/lib/llvm-"$version"/lib/clang/*/lib/linux/libclang_rt.asan-*.a 2> /dev/null | head -n 1) ;;
    esac
    if [ -z "$runtime" ]; then
        missing_tools="$missing_tools libclang_rt.asan"
        missing_packages="$missing_packages libclang-rt-$version-dev"
    fi
else
    missing_packages="$missing_packages libclang-rt-14-dev"
fi

wished=chromium
for name in chromium chromium-browser google-chrome; do command -v $name > /dev/null 2>&1 && wished=; done
command -v bwrap > /dev/null 2>&1 || wished="${wished:+$wished }bubblewrap"
[ "${1:-}" = --no-browser ] && wished=

[ -z "$missing_tools$wished" ] && exit 0
if [ -z "$missing_tools" ] &&
    { ! command -v apt-get > /dev/null 2>&1 || { [ "$(id -u)" != 0 ] && ! sudo -n true 2> /dev/null; }; }; then
    echo "no $wished, and no way to install it: the tests of pages or of the wheel skip what needs it"
    exit 0
fi
if ! command -v apt-get > /dev/null 2>&1; then
    echo "missing:$missing_tools" >&2
    echo "there is no apt here: install them by hand (Debian's packages are:$missing_packages)" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo > /dev/null 2>&1 || ! sudo -n true 2> /dev/null; then
        echo "missing:$missing_tools" >&2
        echo "run as root: apt-get install$missing_packages" >&2
        exit 1
    fi
    as_root="sudo -n"
fi
export DEBIAN_FRONTEND=noninteractive
install() { # install PACKAGE...: its output is the error, if there is one
    $as_root apt-get install -y -qq --no-install-recommends "$@" > /dev/null 2>&1 ||
        { $as_root apt-get update -qq && $as_root apt-get install -y -qq --no-install-recommends "$@" > /dev/null; }
}
if [ -n "$missing_tools" ]; then
    echo "installing:$missing_packages"
    # shellcheck disable=SC2086
    install $missing_packages || { echo "apt could not install:$missing_packages" >&2; exit 1; }
fi
if [ -n "$wished" ]; then
    echo "installing: $wished"
    # shellcheck disable=SC2086
    install $wished || echo "apt could not install $wished: the tests of pages or of the wheel skip what needs it"
fi
exit 0
