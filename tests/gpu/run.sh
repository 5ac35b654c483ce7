#!/bin/sh
# Runs gpu-check end to end on the driver that stands in, into a temporary folder: all steps, a run that was killed and
# goes on, a step that fails, one that ends its process, time that is up, no driver. Nothing that it writes may look
# like a GPU's.
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
case "$B" in /*) ;; *) B=$PWD/$B ;; esac
check=$B/gpu-check
passed=0
failed=0
holds() { # holds WHAT COMMAND...
    what=$1
    shift
    if "$@" > /dev/null 2>&1; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "NOT: $what"
    fi
}
if [ ! -x "$check" ] || [ ! -e "$B/standin/libcuda.so" ] || [ ! -e "$B/gpu/libnvrtc-carried.so" ]; then
    echo "gpu-check or a stand-in is not built: make gpu-binaries"
    exit 1
fi
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
unset FCP_CACHE GPU_KERNELS GPU_KERNELS_WRITE GPU_NVRTC STANDIN_PLAN STANDIN_DEVICES STANDIN_NCCL_VERSION \
    NCCL_MULTI_RANK_GPU_ENABLE
TMPDIR=$folder # ranks that are ended leave their mailbox there
export TMPDIR
FCP_CUDA_DRIVER=$B/standin/libcuda.so FCP_NVRTC=$B/standin/libnvrtc.so FCP_NCCL=$B/standin/libnccl.so
export FCP_CUDA_DRIVER FCP_NVRTC FCP_NCCL
ENOUGH=100000 # seconds: that time is up is tested where it is said, and nowhere else
run() { # run WANTED-STATUS WHAT ARGUMENT...
    wanted=$1
    what=$2
    shift 2
    "$check" --folder "$folder/gpu" --seconds $ENOUGH "$@" > "$folder/out" 2> "$folder/err"
    status=$?
    holds "$what ends with $wanted, not $status" [ $status = "$wanted" ]
    [ $status = "$wanted" ] || { cat "$folder/out" "$folder/err" | tail -n 20; }
}
says() { holds "$1" grep -q -- "$2" "$3"; }

# nothing begun, a run that is killed, and the rest of it
run 4 "a run without time" --seconds 0
says "it says what is left" "run it again for ceilings peers" "$folder/out"
says "GPU.md says that steps were not run" "not run yet" "$folder/gpu/GPU.md"
"$check" --folder "$folder/gpu" --seconds $ENOUGH --inject kill:examples > "$folder/out" 2>&1
holds "a killed run leaves what it had" grep -q "^row	ceiling: copies" "$folder/gpu/state"
holds "and nothing after it" sh -c '! grep -q "^end	examples" "$1"' sh "$folder/gpu/state"
printf 'row\tcut off' >> "$folder/gpu/state" # as a machine that went away leaves it
run 0 "a run that goes on"
says "it does not measure again" "ceilings .*: ok, from before" "$folder/out"
says "it does the rest" "^gpu-check: .* 0 failed, .* 0 left" "$folder/out"
holds "a line that was cut off is gone" sh -c '! grep -q "cut off" "$1"' sh "$folder/gpu/state"
says "two devices are asked about" "copies between devices, and inside one: as it must be" "$folder/gpu/GPU.md"
says "NCCL is among it" "| nccl | .* | ok |" "$folder/gpu/GPU.md"
says "its answers are there" "NCCL: a group becomes part of a graph, launched again and again: as it must be" \
    "$folder/gpu/GPU.md"
rows=$(grep -c "^row" "$folder/gpu/state")
holds "there are the rows ($rows)" [ "$rows" -ge 50 ]
holds "each once" sh -c '[ -z "$(grep "^row" "$1" | cut -f 2 | sort | uniq -d)" ]' sh "$folder/gpu/state"
run 0 "a run with nothing to do"
holds "it does nothing" sh -c '! grep -q "^  ok," "$1"' sh "$folder/out"

# a stand-in's figures look like nothing else
says "GPU.md's heading" "^# STAND-IN" "$folder/gpu/GPU.md"
holds "no row of it is met or missed" sh -c '! grep -E "\| (met|MISSED|first step) \|" "$1"' sh "$folder/gpu/GPU.md"
holds "no figure is bare" sh -c '! grep "^row" "$1" | grep -v "not real"' sh "$folder/gpu/state"
mkdir -p "$folder/fake/gpu"
cp "$folder/gpu/GPU.md" "$folder/fake/gpu/GPU.md"
holds "make gpu-report refuses it" sh -c '! make gpu-report B="$1"' sh "$folder/fake"

# rows for fcpc calibrate, of a device that no profile has
says "rows are kept" "^causal.8192,standin,[0-9]*,forward,16," "$folder/gpu/rows.csv"
holds "each pass and case once" sh -c '[ "$(cut -d, -f1,4 "$1" | sort | uniq -d | wc -l)" = 0 ]' \
    sh "$folder/gpu/rows.csv"

# what fails is shown
run 1 "a driver that breaks" --again --only conformance --inject fail:conformance
says "it is shown" "FAILED" "$folder/out"
says "in GPU.md too" "| conformance | .* | FAILED |" "$folder/gpu/GPU.md"
run 1 "it stays so" --only conformance
says "from before" "FAILED, from before" "$folder/out"
run 1 "a session that breaks" --again --only short --inject fail:short
says "the driver's error is there" "CUDA_ERROR_LAUNCH_FAILED" "$folder/gpu/GPU.md"
run 1 "a step that ends its process" --again --only random --inject die:random
says "the signal is said" "ended by signal 9" "$folder/out"
run 0 "beginning anew" --again --only conformance

# NCCL: by one rank or by several, as it lets them; any of them that fails, dies, stops or differs fails the step
NCCL="--again --only nccl"
run 0 "NCCL with one device" $NCCL
says "is one rank" "NCCL 2.28.9: one rank that sends to itself" "$folder/gpu/GPU.md"
STANDIN_NCCL_VERSION=23004
export STANDIN_NCCL_VERSION
run 0 "NCCL that lets ranks share a device" $NCCL
says "is several" "NCCL 2.30.4: 2 ranks on one device, by NCCL_MULTI_RANK_GPU_ENABLE=1: all right" "$folder/gpu/GPU.md"
unset STANDIN_NCCL_VERSION
STANDIN_DEVICES=2
export STANDIN_DEVICES
run 0 "NCCL with two devices" $NCCL
says "is a rank on each" "NCCL 2.28.9: 2 ranks, a device each: all right" "$folder/gpu/GPU.md"
holds "which leave nothing" [ ! -e "$folder/gpu/nccl" ]
run 1 "a rank that fails" $NCCL --inject fail:rank-1
says "says why" "| nccl | .* | FAILED | .*rank 1: .*CUDA_ERROR_LAUNCH_FAILED" "$folder/gpu/GPU.md"
run 1 "a rank that dies" $NCCL --inject die:rank-1
says "is named" "| nccl | .* | FAILED | .*rank 1 was ended by signal 9, having said: begins" "$folder/gpu/GPU.md"
run 1 "a rank that gives other bits" $NCCL --inject differ:rank-1
says "says which" "| nccl | .* | FAILED | .*rank 1: dq differs from what transport local gives" "$folder/gpu/GPU.md"
run 1 "a rank that stops" $NCCL --inject stop:rank-1
says "is ended" "| nccl | .* | FAILED | .*rank 1 did not end within .* s, having said: begins" "$folder/gpu/GPU.md"
unset STANDIN_DEVICES

# peers: what a script prints is kept, and not asked for again; a ratio that was not known is known once its peer is
cat > "$folder/peer" << 'EOF'
#!/bin/sh
echo "$@" > "$0.arguments"
echo "note torch a script"
echo "fact cudnn.causal.8192.forward 2.5"
echo "fact flex.window.16384.backward nonsense"
echo "none flash.full.8192 NoKernel: there is none"
echo "note end all"
EOF
chmod +x "$folder/peer"
run 0 "a run with peers" --python "$folder/peer" --again --only peers
says "a figure is kept" "cudnn.causal.8192.forward: 2.5" "$folder/gpu/GPU.md"
holds "what is no figure is not" sh -c '! grep -q nonsense "$1"' sh "$folder/gpu/peers"
says "what failed is told" "flash.full.8192: NoKernel" "$folder/gpu/GPU.md"
run 0 "rows beside it" --only speed
says "have a ratio" "| forward, causal.8192 | .* | cudnn | 2.500 |" "$folder/gpu/GPU.md"
says "or none" "| backward, causal.8192 | .* | cudnn | - |" "$folder/gpu/GPU.md"
printf 'fact\tcudnn.causal.8192.backward\t4\n' >> "$folder/gpu/peers"
run 0 "nothing to do" --only speed
says "which comes when the peer's figure comes" "| backward, causal.8192 | .* | cudnn | 4.000 |" "$folder/gpu/GPU.md"
sed -i '/^end/d; /^run/d' "$folder/gpu/state"
run 0 "peers again" --python "$folder/peer" --only peers
holds "are told what is known" grep -q "peers.py .*cudnn.causal.8192.backward" "$folder/peer.arguments"
run 0 "without a script" --python /nowhere/python --again --only peers
says "there are none" "| peers | .* | skipped | .* no peers" "$folder/gpu/GPU.md"

# kernels made beforehand: all that is run is among them, so that a machine without NVRTC has what it needs
mkdir "$folder/gpu3"
cp "$B/gpu/libnvrtc-carried.so" "$folder/gpu3"
holds "kernels are made beforehand" env FCP_NVRTC="$folder/gpu3/libnvrtc-carried.so" GPU_NVRTC="$FCP_NVRTC" \
    GPU_KERNELS="$folder/gpu3/kernels" \
    GPU_KERNELS_WRITE=1 FCP_CACHE=/dev/null "$check" --folder "$folder/gpu3" --prepare 8.0 --small
holds "and carried along" env -u FCP_NVRTC GPU_NVRTC=/nowhere/libnvrtc.so "$check" --folder "$folder/gpu3" \
    --seconds $ENOUGH
says "without NVRTC there is nothing to time" "| jit | .* | skipped | .*no NVRTC" "$folder/gpu3/GPU.md"
says "and all the rest is as it was" "| examples | .* | ok |" "$folder/gpu3/GPU.md"
rm -rf "$folder/gpu3/kernels" "$folder/gpu3/cache"
env -u FCP_NVRTC GPU_NVRTC=/nowhere/libnvrtc.so "$check" --folder "$folder/gpu3" --seconds $ENOUGH --again \
    --only short > "$folder/out" 2>&1
says "where they were not, it is said" "NVRTC" "$folder/out"

# where nothing can be checked
FCP_CUDA_DRIVER=/nowhere/libcuda.so
run 3 "a machine without a driver"
says "says what was looked for" "nothing was checked.*/nowhere/libcuda.so" "$folder/err"
run 2 "a step that there is not" --only nothing

echo "gpu: $passed passed, $failed failed"
[ $failed = 0 ]
