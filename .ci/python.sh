#!/bin/sh
# Makes build/python, an environment of Python with what the tests of the package need: PyTorch, numpy and transformers
# from PyPI, in the versions of tests/python/requirements.txt. It does nothing if that environment is there. Where it
# cannot make one (no Python, no way to PyPI), it says so and ends well: these tests are then skipped, and everything
# else is tested.
#
# uv does in seconds what pip would do in minutes: it keeps what it has unpacked, and links it into each environment. So
# a second clone takes no disk for its 5 GB.
set -u
cd "$(dirname "$0")/.." || exit 1
wanted=tests/python/requirements.txt
cmp -s $wanted build/python/made-of && exit 0
echo "installing: PyTorch into build/python"
mkdir -p build

as_root=
[ "$(id -u)" = 0 ] || as_root="sudo -n"
make_environment() {
    rm -rf build/python
    python3 -m venv build/python
}
{
    make_environment || { $as_root apt-get install -y -qq python3-venv && make_environment; }
} > build/python.log 2>&1 &&
    build/python/bin/pip install -q --disable-pip-version-check uv==0.13.9 >> build/python.log 2>&1 &&
    build/python/bin/uv pip install -q --python build/python/bin/python -r $wanted >> build/python.log 2>&1 &&
    cp $wanted build/python/made-of && exit 0
tail -n 3 build/python.log
echo "no PyTorch from PyPI, or no environment for it (build/python.log): the tests of the Python package are skipped"
rm -rf build/python
exit 0
