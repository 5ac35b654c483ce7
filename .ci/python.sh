#!/bin/sh
# Makes build/python, an environment of Python with what the tests of the package need: PyTorch, numpy and the
# frameworks from PyPI, in the versions of tests/python/requirements.txt. It does nothing if that environment is there.
# Where it cannot make one (no Python, no way to PyPI), it says so and ends well: these tests are then skipped, and
# everything else is tested.
#
# `python.sh LIST LINK WHAT` makes another environment, LINK, of another list: what builds the site (make site).
#
# The environment is in the user's cache, one for each list of versions, and build/python is a link to it. So a second
# clone takes neither time nor disk for its 5 GB. The kernel cache is in the same folder (runtime/jit/jit.h) and wants
# that others cannot write there. PyTorch's bytecode is kept there, too (tests/python/run.sh): compiling
# it takes longer than the tests. uv installs in seconds what pip would install in minutes.
set -u
cd "$(dirname "$0")/.." || exit 1
wanted=${1:-tests/python/requirements.txt}
link=${2:-build/python}
what=${3:-PyTorch}
without="the tests of the Python package are skipped"
[ $# = 0 ] || without="there is no $link"
cmp -s "$wanted" "$link/made-of" && exit 0
mkdir -p build
number=$(cksum < "$wanted")
made=${XDG_CACHE_HOME:-${HOME:-$PWD/build}/.cache}/fcpc/python-${number%% *}

as_root=
[ "$(id -u)" = 0 ] || as_root="sudo -n"
make_environment() {
    rm -rf "$made"
    python3 -m venv "$made"
}
fill_environment() {
    { make_environment || { $as_root apt-get install -y -qq python3-venv && make_environment; }; } &&
        "$made/bin/pip" install -q --disable-pip-version-check uv==0.13.9 &&
        "$made/bin/uv" pip install -q --python "$made/bin/python" -r "$wanted" &&
        cp "$wanted" "$made/made-of"
}
# of two clones one makes it, and the other waits
if ! { mkdir -p "${made%/*}" && chmod 700 "${made%/*}" && touch "$made.lock" && exec 9> "$made.lock" && flock 9; } 2> build/python.log; then
    echo "no environment in ${made%/*} (build/python.log): $without"
    exit 0
fi
if ! cmp -s "$wanted" "$made/made-of"; then
    echo "installing: $what into $made"
    if ! fill_environment > build/python.log 2>&1; then
        tail -n 3 build/python.log
        echo "no $what from PyPI, or no environment for it (build/python.log): $without"
        rm -rf "$made"
        exit 0
    fi
fi
rm -rf "$link"
ln -s "$made" "$link"
