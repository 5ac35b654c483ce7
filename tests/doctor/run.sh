#!/bin/sh
# Tests `fcpc doctor`: on libraries that stand in for those of GPUs and MPI; where each of them is missing; as text
# and as JSON; its exit status; and `python -m fcpc doctor`, which must look at its own Python. Needs jq. The closing line is
# "doctor: N passed, M failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
case "$B" in /*) ;; *) B=$PWD/$B ;; esac
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-doctor.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
. tests/support/check.sh
if [ ! -e "$B/standin/libnccl.so" ]; then
    echo "skipped: fcpc doctor: no libraries that stand in are built (make gpu-binaries)"
    echo "doctor: 0 passed, 0 failed"
    exit 0
fi
doctor="$B/fcpc doctor"
mkdir -m 700 "$work/cache"
export FCP_CUDA_DRIVER="$B/standin/libcuda.so" FCP_NVRTC="$B/standin/libnvrtc.so" FCP_NCCL="$B/standin/libnccl.so" \
    FCP_MPI="$B/standin/libmpi-mpich.so" FCP_CACHE="$work/cache" FCP_NVDISASM=/bin/true FCPC_RSVG=/nowhere/librsvg.so \
    STANDIN_DEVICES=2 FCPC_PYTHON="$work/python"
printf '#!/bin/sh\nprintf "Python\\t3.12.1\\t/there/python\\nfcpc\\t0.1\\t\\ntorch\\t2.9\\t\\nnumpy\\t\\t\\n"\n' > "$work/python"
chmod +x "$work/python"

# answers NAME STATUS CONDITION [VARIABLE=VALUE]...: doctor ends so, and its JSON meets the condition, in jq's language
answers() {
    name=$1 want=$2 condition=$3
    shift 3
    # shellcheck disable=SC2086
    env "$@" $doctor --json > "$work/json" 2> "$work/err"
    check "$name: the status" [ $? = "$want" ]
    check "$name: $condition" jq -es "length == 1 and (.[0] | def works(u): .uses[] | select(.use == u).works;
        def part(u; n): first(.uses[] | select(.use == u).parts[] | select(.name == n)); $condition)" "$work/json"
}
same="FCP_CACHE=$work/cache"
answers "all is there" 0 '.version and .plan_version > 0 and ([.uses[].use] | length == 7) and works("host")
    and works("cuda") and works("nccl") and works("mpi") and works("python") and (works("png") | not) and works("cost")' \
    "$same"
answers "what libraries say" 0 '(part("host"; "OpenBLAS").version | test("^[0-9]+\\.[0-9]+\\.[0-9]+"))
    and part("cuda"; "CUDA driver").version == "for CUDA 12.4, 2 GPUs"
    and ([.uses[] | select(.use == "cuda").parts[] | select(.name == "GPU").version]
         | length == 2 and (.[1] | startswith("1: stand-in 1, sm_80")))
    and part("nccl"; "NCCL").version == "2.28.9" and (part("nccl"; "NCCL").file | endswith("standin/libnccl.so"))
    and part("mpi"; "MPI").version == "MPICH or one like it"
    and part("cuda"; "kernel cache").file == env.FCP_CACHE
    and part("python"; "Python").version == "3.12.1" and part("python"; "Python").file == "/there/python"
    and part("python"; "torch").version == "2.9" and (part("python"; "numpy").message | test("pip install numpy"))
    and (.uses[] | select(.use == "png").parts[0] | .code == "E210" and (.message | test("librsvg2-2")))' "$same"
answers "Open MPI" 0 'works("mpi") and part("mpi"; "MPI").version == "Open MPI"' FCP_MPI="$B/standin/libmpi-open.so"
answers "kernels are compiled for the GPU" 0 'part("cuda"; "kernels").version == "compile for sm_90a"' \
    STANDIN_SM90=1
answers "no OpenBLAS" 1 '(works("host") | not) and works("cuda") and .error.code == "E702"
    and (.error.message | test("/nowhere/blas.*libopenblas0"))' FCP_OPENBLAS=/nowhere/blas
answers "no driver" 0 '(works("cuda") | not) and (works("nccl") | not) and part("nccl"; "NCCL").there
    and (part("cuda"; "CUDA driver").message | test("/nowhere/cuda.*driver 525"))
    and part("cuda"; "kernels").version == "compile for sm_90a"' FCP_CUDA_DRIVER=/nowhere/cuda
answers "no NVRTC" 0 '(works("cuda") | not) and (part("cuda"; "NVRTC").message | test("/nowhere/nvrtc.*toolkit"))
    and ([.uses[].parts[].name] | index("kernels") == null)' FCP_NVRTC=/nowhere/nvrtc
answers "no NCCL" 0 'works("cuda") and (works("nccl") | not) and part("nccl"; "NCCL").code == "E702"' FCP_NCCL=/nowhere/n
answers "an NCCL that is too old" 0 '(works("nccl") | not) and (part("nccl"; "NCCL").message | test("2.18.*2.19"))' \
    STANDIN_NCCL_VERSION=21800
answers "no MPI" 0 '(works("mpi") | not) and part("mpi"; "MPI").code == "E706"' FCP_MPI=/nowhere/mpi
answers "no nvdisasm" 0 '(works("cost") | not) and works("cuda")' FCP_NVDISASM=/nowhere/nvdisasm
answers "no Python" 0 '(works("python") | not) and (part("python"; "Python").message | test("python.*does not start"))' \
    FCPC_PYTHON=/nowhere/python
answers "a Python that says nothing" 0 '(works("python") | not) and (part("python"; "Python").message | test("3.9"))' \
    FCPC_PYTHON=/bin/true
chmod 755 "$work/cache"
answers "a cache that others may read" 0 'works("cuda") and (part("cuda"; "kernel cache") | .there == false
    and .needed == false and (.message | test("0700.*FCP_CACHE")))' "$same"
chmod 700 "$work/cache"

check "as text" sh -c "$doctor > '$work/text'"
# every part of the JSON stands in the text, in the same order
# shellcheck disable=SC2086
$doctor --json | jq -r '.uses[].parts[] | "\(if .there then "ok" elif .needed then "NO" else "-" end) \(.name)"' > "$work/parts"
sed -n 's/^  \(ok\|NO\|-\)  *\([^ ]*\( [^ ]*\)*\)  *.*/\1 \2/p' "$work/text" | sed 's/   *.*//' > "$work/shown"
check "the text has what the JSON has" sh -c "awk 'NR == FNR {want[NR] = \$0; n = NR; next}
    index(\$0, want[FNR]) != 1 {print want[FNR] \": \" \$0; bad = 1} END {exit bad || FNR != n || n < 12}' \
    '$work/parts' '$work/shown'"
check "and names this version" grep -qx "fcpc $(cat VERSION), plan files of version [0-9]*" "$work/text"
check "no file is taken" sh -c "$doctor a.fcp; [ \$? = 2 ]"
check "help says what it is" sh -c "'$B/fcpc' help doctor | grep -q 'for bug reports'"

if command -v python3 > /dev/null && [ -e "$B/libfcpc.so" ] && [ -z "${SAN:-}" ]; then
    unset FCPC_PYTHON
    check "python -m fcpc doctor" sh -c "PYTHONPATH=runtime/python FCPC_LIBRARIES='$B' python3 -m fcpc doctor --json \
        > '$work/json'"
    own=$(python3 -c 'import sys; print(sys.executable)')
    check "which looks at this Python" jq -e --arg own "$own" '.uses[] | select(.use == "python") | .works
        and .parts[0].file == $own and (.parts[1].version | test("runtime/python"))' "$work/json"
    check "and keeps the libraries that variables name" jq -e '.uses[] | select(.use == "nccl").parts[0].file
        | endswith("standin/libnccl.so")' "$work/json"
else
    echo "skipped: python -m fcpc doctor: no python3, or no shared library"
fi
echo "doctor: $passed passed, $failed failed"
[ $failed = 0 ]
