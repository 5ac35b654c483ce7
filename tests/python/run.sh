#!/bin/sh
# Tests the Python package (runtime/python), where make setup could make build/python: with PyTorch, on the CPU. All of
# it runs in one process, because loading PyTorch takes longer than most tests. The closing line is "python: N passed,
# M failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
environment=$(readlink -f build/python)
python=$environment/bin/python
if [ -n "${SAN:-}" ] || [ ! -e build/python/made-of ]; then
    [ -n "${SAN:-}" ] && why="not with sanitizers" || why="there is no build/python (make setup)"
    echo "skipped: the Python package: $why"
    echo "python: 0 passed, 0 failed"
    exit 0
fi
unset MAKEFLAGS MAKELEVEL MFLAGS
make B="$B" -s shared standins "$B/ptx-file" || exit 1
[ -x "$B/fcpc" ] || { echo "python: 0 passed, 1 failed: $B/fcpc is not there"; exit 1; }
case "$B" in /*) FCPC_LIBRARIES=$B ;; *) FCPC_LIBRARIES=$PWD/$B ;; esac
export FCPC_LIBRARIES FCPC_BUILD="$B" PYTHONPATH="$PWD/runtime/python:$PWD/examples/python" OMP_NUM_THREADS=1
# uv installs PyTorch without bytecode. It is compiled here once, and kept for other processes and clones.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$environment/bytecode"
export TORCHINDUCTOR_CACHE_DIR="${TMPDIR:-/tmp}/inductor" MPLCONFIGDIR="${TMPDIR:-/tmp}"
"$python" tests/python/all.py "$@"
status=$?
rm -rf "$PYTHONPYCACHEPREFIX$PWD" # of this clone's own files
exit $status
