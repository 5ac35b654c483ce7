#!/bin/sh
# Runs gpu-check end to end on the stand-in driver, into a temporary folder. Cases: all steps; a run that was killed and
# goes on; a step that fails; a step that ends its process; time that is up; no driver. Nothing that it writes may look
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
unset FCP_CACHE GPU_KERNELS GPU_KERNELS_WRITE GPU_NVRTC STANDIN_PLAN STANDIN_DEVICES STANDIN_SM90 STANDIN_NCCL_VERSION \
    NCCL_MULTI_RANK_GPU_ENABLE
TMPDIR=$folder # ranks that are ended leave their mailbox there
export TMPDIR
FCP_CUDA_DRIVER=$B/standin/libcuda.so FCP_NVRTC=$B/standin/libnvrtc.so FCP_NCCL=$B/standin/libnccl.so
FCP_NVML=$B/standin/libnvml.so FCP_CHECKER=/nowhere/checker FCP_PROFILER=/nowhere/profiler
FCP_DEBUGGER=/nowhere/cuda-gdb
export FCP_CUDA_DRIVER FCP_NVRTC FCP_NCCL FCP_NVML FCP_CHECKER FCP_PROFILER FCP_DEBUGGER
everything=${CHECK_LONG:-} # make check tries fewer ways to go wrong
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

# nothing begun, runs that are killed amid the examples and behind them, and the rest of it
run 4 "a run without time" --seconds 0
says "it says what is left" "run it again for conformance ladder smoke examples edges speed waits design ceilings" "$folder/out"
says "GPU.md says that steps were not run" "not run yet" "$folder/gpu/GPU.md"
"$check" --folder "$folder/gpu" --seconds $ENOUGH --inject kill:examples/documents.fcp > "$folder/out" 2>&1
last=$(tail -n 1 "$folder/gpu/state" | cut -f 1,2)
holds "what began is written first" [ "$last" = "$(printf 'begin\texamples/documents.fcp')" ]
"$check" --folder "$folder/gpu" --seconds $ENOUGH --inject kill:short > "$folder/out" 2>&1
holds "the plan that ran when the machine went away is the last" \
    sh -c 'grep "^begin	examples" "$1" | tail -n 1 | grep -q documents' sh "$folder/gpu/state"
holds "and what was right does not run again" [ "$(grep -c "^begin	examples/lambda" "$folder/gpu/state")" = 1 ]
holds "a killed run leaves what it had" grep -q "^row	ceiling: copies" "$folder/gpu/state"
holds "and nothing after it" sh -c '! grep -q "^end	short" "$1"' sh "$folder/gpu/state"
printf 'row\tcut off' >> "$folder/gpu/state" # as a machine that went away leaves it
run 0 "a run that goes on"
says "it does not measure again" "ceilings .*: ok, from before" "$folder/out"
says "it does the rest" "^gpu-check: .* 0 failed, .* 0 left" "$folder/out"
holds "a line that was cut off is gone" sh -c '! grep -q "cut off" "$1"' sh "$folder/gpu/state"
says "two devices are asked about" "copies between devices, and inside one: as it must be" "$folder/gpu/GPU.md"
says "a compiler without definitions measures no builds" "7 measured, 12 skipped" "$folder/gpu/GPU.md"
holds "all plans of the examples are right" [ "$(grep -c "^plan	examples/.*	right" "$folder/gpu/state")" = 5 ]
says "margins are in the page" \
    "examples/lambda.fcp: right, 0.[0-9]* of what is allowed, in d*[oqkv]" "$folder/gpu/GPU.md"
says "NCCL is among it" "| nccl | .* | ok |" "$folder/gpu/GPU.md"
says "its answers are there" "NCCL: a group becomes part of a graph, launched again and again: as it must be" \
    "$folder/gpu/GPU.md"
says "fused passes are right" "| fused | .* | ok | .* 3 plans right, gradients with the bits by stages" \
    "$folder/gpu/GPU.md"
says "and timed" "one launch | .* | by stages | " "$folder/gpu/GPU.md"
says "what a mark costs is measured" "fill of host memory, in a graph" "$folder/gpu/GPU.md"
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

# The ladder. Its kernels do nothing on a stand-in: this shows that all rungs are launched, and what becomes of one that
# is wrong, or ends its process.
rungs() { # rungs RESULT: how many have it
    grep -c "^rung	.*	$1: " "$folder/gpu/state"
}
run 0 "the ladder of sm_80" --again --only ladder
holds "has the rungs of any device" [ "$(rungs right)" = 9 ]
STANDIN_SM90=1
export STANDIN_SM90
run 0 "the ladder of sm_90a" --again --only ladder
all=$(rungs right)
says "all rungs are right" "| ladder | .* | ok | .* $all rungs right |" "$folder/gpu/GPU.md"
holds "there are many" [ "$all" -ge 38 ]
run 1 "a rung that is wrong" --again --only ladder --inject spoil:ladder/tma
says "says where, and what it is" "^- tma: WRONG: .*row 0, column 1 is that of slot 1, .* not that of slot 1, row 16, head 2, column 65" \
    "$folder/gpu/GPU.md"
holds "and the others are right" [ "$(rungs right)" = $((all - 1)) ]
run 1 "a rung that ends its process" --again --only ladder --inject die:ladder/roles-40
says "says so" "^- roles-40: WRONG: .* ended by signal 9" "$folder/gpu/GPU.md"
holds "and the others are right" [ "$(rungs right)" = $((all - 1)) ]
run 0 "rates of products" --again --only design
says "have rows" "^| design: m64n64k16, both operands from shared memory | .* clocks | " "$folder/gpu/GPU.md"
unset STANDIN_SM90

# gpu_run_apart runs each plan in a process of its own, so that a plan that hangs or dies ends only its own process, and
# the others are still judged. That is tested with the two small plans of step `smoke`, because examples take a second
# each. For a small plan whose result is wrong the step also prints a map that shows where.
run 1 "a tile that is wrong" --again --only smoke --inject spoil:smoke/unordered
says "is named with its place" "unordered: dq differs .* (token [0-9]*, head 0" "$folder/gpu/GPU.md"
map=$(sed -n '/^unordered, dq/,/^$/p' "$folder/gpu/smoke.txt" | sed 1d | tr -d '\n')
holds "and its map shows the corner, and nothing else: $map" [ "$(echo "$map" | tr '1-9*n' 'xxxxxxxxxxx')" = \
    "x..............................................................." ]
says "the other tile is right" "^plan	smoke/head_dim-128	right" "$folder/gpu/state"
tile() { # tile INJECTION WHAT-THE-STEP-SAYS
    run 1 "a tile: $1" --again --only smoke --inject "$1:smoke/head_dim-128"
    says "a tile: $1: $2" "WRONG head_dim-128: $2" "$folder/out"
    says "a tile: $1: does not stop the next" "^plan	smoke/unordered	right" "$folder/gpu/state"
}
tile stuck ".* did not end within 1 s"
says "where there is no debugger, that is said" "there is no /nowhere/cuda-gdb" "$folder/gpu/hung.txt"
# what does not end is looked into: by its own process, if a run's time is up, and before its process is ended
cat > "$folder/debugger" << 'EOF'
#!/bin/sh
echo "debugger: $*"
EOF
chmod +x "$folder/debugger"
rm -f "$folder/gpu/corepipe"* # of runs that ended with their machine
FCP_DEBUGGER=$folder/debugger
tile stuck ".* did not end within 1 s"
says "the debugger looks into it" "^debugger: -nx -batch -p [0-9]* .*-ex info cuda kernels .*-ex info cuda warps" \
    "$folder/gpu/hung.txt"
says "under its name" "^== head_dim-128 does not end: process" "$folder/gpu/hung.txt"
says "and the driver is asked for a core dump" "^== head_dim-128: gpu.core" "$folder/gpu/hung.txt"
tile hang "did not end within .* s, and was ended"
says "the debugger looks into what is ended" "^== smoke/head_dim-128 does not end: process" "$folder/gpu/hung.txt"
tile fail ".*CUDA_ERROR_LAUNCH_FAILED"
holds "no pipe is left" sh -c '! ls "$1"/corepipe* 2> /dev/null | grep -q .' sh "$folder/gpu"
says "an exception leaves a core dump, which is looked into" \
    "^debugger: .*-ex target cudacore $folder/gpu/gpu.core .*-ex info cuda warps" "$folder/gpu/hung.txt"
[ -z "$everything" ] || tile die "its process was ended by signal 9"
FCP_DEBUGGER=/nowhere/cuda-gdb

# clock and power; results that are copied out after each step
run 0 "a row with NVML" --again --only ceilings --out "$folder/copied"
says "has its clock" "7 MHz, 3 W, 2 C, held back by 0x4" "$folder/gpu/GPU.md"
holds "the state is copied" cmp "$folder/gpu/state" "$folder/copied/state"
holds "and few files" [ "$(ls "$folder/copied" | wc -l)" -le 8 ]
FCP_NVML=/nowhere/libnvml.so
run 0 "a row without NVML" --again --only ceilings --out "$folder/nowhere/copied"
says "says so" "clock and power not known" "$folder/gpu/GPU.md"
says "a folder that cannot be made is told" "cannot make .*/nowhere/copied" "$folder/err"
run 0 "a machine without tools" --again --only checker
says "skips them" "| checker | .* | skipped | .* there is no /nowhere/checker" "$folder/gpu/GPU.md"

# tools: what they print is kept, and what they find fails the step
cat > "$folder/tool" << 'EOF'
#!/bin/sh
echo "tool: $*"
case "$*" in *--import*) exit 0 ;; *"$FOUND"*) exit 9 ;; esac
while [ "${1##*/}" != gpu-check ]; do shift; done
exec "$@"
EOF
chmod +x "$folder/tool"
if [ -n "$everything" ]; then
    FCP_CHECKER=$folder/tool FCP_PROFILER=$folder/tool FOUND=nothing-at-all
    export FOUND
    run 0 "a memory checker" --again --only checker --out "$folder/copied"
    holds "checks two tiles four times" [ "$(grep -c "^tool	.*	found nothing" "$folder/gpu/state")" = 8 ]
    holds "and what it printed is copied" cmp "$folder/gpu/tools.txt" "$folder/copied/tools.txt"
    FOUND=initcheck
    run 1 "a checker that finds a read of what nobody wrote" --again --only checker
    says "names it" "initcheck of head_dim-128 found something: tools.txt" "$folder/out"
    FOUND=racecheck
    run 0 "a checker that finds a race" --again --only checker
    says "says so, as advice" "racecheck of head_dim-128 found something: tools.txt, which may be no fault" \
        "$folder/out"
    run 0 "a profiler" --again --only profile
    says "is told to leave the clocks alone" "clock-control none" "$folder/gpu/tools.txt"
    says "and to keep the source" "import-source yes --source-folders codegen/kernels" "$folder/gpu/tools.txt"
    FCP_CHECKER=/nowhere/checker FCP_PROFILER=/nowhere/profiler
fi

# NCCL: by one rank or by several, as it lets them; any of them that fails, dies, stops or differs fails the step
NCCL="--again --only nccl"
run 0 "NCCL with one device" $NCCL
says "is one rank" "NCCL 2.28.9: one rank that sends to itself" "$folder/gpu/GPU.md"
if [ -n "$everything" ]; then
    STANDIN_NCCL_VERSION=23004
    export STANDIN_NCCL_VERSION
    run 0 "NCCL that lets ranks share a device" $NCCL
    says "is several" "NCCL 2.30.4: 2 ranks on one device, by NCCL_MULTI_RANK_GPU_ENABLE=1: all right" \
        "$folder/gpu/GPU.md"
    unset STANDIN_NCCL_VERSION
fi
STANDIN_DEVICES=2
export STANDIN_DEVICES
run 0 "NCCL with two devices" $NCCL
says "is a rank on each" "NCCL 2.28.9: 2 ranks, a device each: all right" "$folder/gpu/GPU.md"
holds "which leave nothing" [ ! -e "$folder/gpu/nccl" ]
run 1 "a rank that fails" $NCCL --inject fail:rank-1
says "says why" "| nccl | .* | FAILED | .*rank 1: .*CUDA_ERROR_LAUNCH_FAILED" "$folder/gpu/GPU.md"
if [ -n "$everything" ]; then
    run 1 "a rank that dies" $NCCL --inject die:rank-1
    says "is named" "| nccl | .* | FAILED | .*rank 1 was ended by signal 9, having said: begins" "$folder/gpu/GPU.md"
    run 1 "a rank that gives other bits" $NCCL --inject differ:rank-1
    says "says which" "| nccl | .* | FAILED | .*rank 1: dq differs from what transport local gives" "$folder/gpu/GPU.md"
    run 1 "a rank that stops" $NCCL --inject stop:rank-1
    says "is ended" "| nccl | .* | FAILED | .*rank 1 did not end within .* s, having said: begins" "$folder/gpu/GPU.md"
fi
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

# torch: what a script finds of the Python package; one whose process has lost its device, dies or hangs is started again
cat > "$folder/torch" << 'EOF'
#!/bin/sh
[ -z "$FCP_NVRTC$FCP_NCCL" ] && echo "$FCPC_LIBRARIES $PYTHONPATH" > "$0.environment"
echo "$*" >> "$0.arguments"
for name in masks streams graphs nccl; do
    case " $* " in *" $name "*) continue ;; esac
    [ "$TORCH" = early ] && exit 1
    echo "begin $name -"
    case "$name$TORCH" in
        streamslost) echo "wrong $name an illegal address" && exit ;;
        streamsdies) kill -9 $$ ;;
        nccl*) echo "skip $name there is none" ;;
        *) echo "right $name 0.250" ;;
    esac
done
echo "fact torch.fcpc.causal.16384.both 4"
echo "fact torch.sdpa.causal.16384.both 3"
echo "fact torch.fcpc.host 0.5"
echo "fact torch.sdpa.host 0.25"
echo "note end all"
EOF
chmod +x "$folder/torch"
run 0 "a stand-in" --again --only torch
says "has no PyTorch" "| torch | .* | skipped | .* PyTorch sees no stand-in" "$folder/gpu/GPU.md"
PYTHONPATH=/some/where
export PYTHONPATH
run 0 "PyTorch" --python "$folder/torch" --again --only torch
unset PYTHONPATH
says "cases are counted" "| torch | .* | ok | .* 3 right, 0 wrong, 1 skipped" "$folder/gpu/GPU.md"
says "and named" "^- masks: right, 0.250 of what is allowed" "$folder/gpu/GPU.md"
says "its time has a ratio" "| from Python, causal.16384 | 4.* | scaled_dot_product_attention | 0.750 | >= 0.8 | stand-in" \
    "$folder/gpu/GPU.md"
says "the package is the tree's, and finds CUDA's libraries itself" "^$B runtime/python:/some/where$" \
    "$folder/torch.environment"
for way in lost dies; do
    rm -f "$folder/torch.arguments"
    export TORCH=$way
    run 1 "a process that $way" --python "$folder/torch" --again --only torch
    says "is said" "| torch | .* | FAILED | .* 2 right, 1 wrong, 1 skipped; streams: " "$folder/gpu/GPU.md"
    says "and others follow" "^tests/gpu/torch_cuda.py .*masks.*streams" "$folder/torch.arguments"
done
TORCH=early
run 1 "a script that ends at once" --python "$folder/torch" --again --only torch
says "is no success" "| torch | .* | FAILED | .* the script ends before a case" "$folder/gpu/GPU.md"
unset TORCH
run 0 "no PyTorch" --python /nowhere/python --again --only torch
says "is said" "| torch | .* | skipped | .* no PyTorch: there is no python3" "$folder/gpu/GPU.md"

# kernels made beforehand: all that is run is among them, so that a machine without NVRTC has what it needs
mkdir "$folder/gpu3"
cp "$B/gpu/libnvrtc-carried.so" "$folder/gpu3"
holds "kernels are made beforehand" env FCP_NVRTC="$folder/gpu3/libnvrtc-carried.so" GPU_NVRTC="$FCP_NVRTC" \
    GPU_KERNELS="$folder/gpu3/kernels" \
    GPU_KERNELS_WRITE=1 FCP_CACHE=/dev/null "$check" --folder "$folder/gpu3" --prepare 8.0 --small
mkdir -p "$folder/packed/gpu" "$folder/unpacked"
ln -s "$check" "$folder/packed/gpu-check"
cp "$B/gpu/libnvrtc-carried.so" "$folder/packed/gpu"
holds "nothing is packed without kernels" sh -c '! tests/gpu/pack.sh "$1" "$1/a.tar.gz"' sh "$folder/packed"
cp -R "$folder/gpu3/kernels" "$folder/packed/gpu"
shared=no # with sanitizers there is none
[ -e "$B/libfcp.so" ] && [ -e "$B/libfcpc.so" ] && cp "$B/libfcp.so" "$B/libfcpc.so" "$folder/packed" && shared=yes
holds "what must be carried is one archive" sh -c 'tests/gpu/pack.sh "$1" "$2" > "$3"' sh "$folder/packed" \
    "$folder/a.tar.gz" "$folder/out"
[ $shared = no ] || holds "with what the Python package needs" sh -c \
    'tar -tzf "$1" | grep -c "libraries/lib\(fcpc\?\|isal\|nettle\)\.so" | grep -qx 4' sh "$folder/a.tar.gz"
says "and the driver that it needs is said" "need a driver for CUDA 12 or later (525)" "$folder/out"
size=$(wc -c < "$folder/a.tar.gz")
holds "of less than 32 MiB ($size bytes)" [ "$size" -lt 33554432 ]
ln -sf "$B/gpu/libnvrtc-carried.so" "$folder/packed/gpu-check"
head -c 1200000 /dev/urandom > "$folder/packed/gpu/kernels/large"
holds "a larger one is refused" \
    sh -c '! tests/gpu/pack.sh "$1" "$1/b.tar.gz" 1 && [ ! -e "$1/b.tar.gz" ]' sh "$folder/packed"
tar -xzf "$folder/a.tar.gz" -C "$folder/unpacked"
holds "and runs where it is unpacked" env -u FCP_NVRTC GPU_NVRTC=/nowhere/libnvrtc.so "$folder/unpacked/gpu-check" \
    --folder "$folder/unpacked/gpu" --seconds $ENOUGH --only smoke
echo 13.0 > "$folder/unpacked/gpu/kernels/version"
holds "kernels that the driver would refuse are not begun with" sh -c 'env -u FCP_NVRTC "$1/gpu-check" \
    --folder "$1/gpu" > "$2" 2>&1; [ $? = 3 ]' sh "$folder/unpacked" "$folder/out"
says "and what would do is said" "NVRTC 13.0 made .* for CUDA 12.4, .* Pack with NVRTC 12" "$folder/out"
# The commands of the page, word by word but for the time, where nothing but the sources and the archive was carried
mkdir -p "$folder/lease/build" "$folder/came back"
cp "$folder/a.tar.gz" "$folder/lease/build/gpu-pack.tar.gz"
ln -s "$PWD/examples" "$folder/lease/examples"
sed -n 's/^\(tar .*\) --seconds [0-9]*$/\1 --seconds 100000 --only smoke || exit 1/p' tests/gpu/LEASE.md \
    > "$folder/lease/commands"
holds "the page has three commands" [ "$(wc -l < "$folder/lease/commands")" = 3 ]
holds "they run as they stand" env -u FCP_NVRTC GPU_NVRTC=/nowhere/libnvrtc.so OUT="$folder/came back" \
    sh -c 'cd "$1" && . ./commands' sh "$folder/lease"
holds "and results come back" [ -s "$folder/came back/state" ]
sed -n '/^for s in/,/^done/p' tests/gpu/LEASE.md | sed 's/560 560 400/0 0 0/' > "$folder/lease/all"
env -u FCP_NVRTC GPU_NVRTC=/nowhere/libnvrtc.so OUT="$folder/came back" sh -c 'cd "$1" && . ./all' sh "$folder/lease" \
    > "$folder/out" 2>&1
holds "the three in one command go on, one after the other" [ "$(grep -c "^time is up: run it again" "$folder/out")" = 3 ]
# builds that watch their waits, which only the carried library makes
carried() { # carried WANTED-STATUS WHAT ARGUMENT...
    wanted=$1
    what=$2
    shift 2
    env -u FCP_NVRTC GPU_NVRTC=/nowhere/libnvrtc.so "$check" --folder "$folder/gpu3" --seconds $ENOUGH --again "$@" \
        > "$folder/out" 2>&1
    status=$?
    holds "$what ends with $wanted, not $status" [ $status = "$wanted" ]
}
carried 1 "a wait that gives up" --only smoke --inject gives-up:smoke/head_dim-128
says "has a name, and so has what others wait for" "with bounded waits: 1 waits gave up, the first for mbarrier \"K full, \
stage 1\" at 0x8, phase 0, in CTA 0, thread 128 (consumer 0); its CTA then waited: warps 0 to 0 (producer) for mbarrier \
\"K free, stage 0\", 1" "$folder/gpu3/GPU.md"
says "the other tile is right, in both builds" "^plan	smoke/unordered	right" "$folder/gpu3/state"
carried 0 "counting waits" --only waits
says "what roles wait for is on the page" \
    "forward, consumer 1: mbarrier \"K full, stage 0\": 10.0 % of its time, .*(not real)" "$folder/gpu3/GPU.md"
# All steps once more, with those kernels alone: the first run has shown what they do to a sanitizer
if [ -n "${CHECK_LONG:-}" ]; then
    holds "and carried along" env -u FCP_NVRTC GPU_NVRTC=/nowhere/libnvrtc.so "$check" --folder "$folder/gpu3" \
        --seconds $ENOUGH
    says "without NVRTC there is nothing to time" "| jit | .* | skipped | .*no NVRTC" "$folder/gpu3/GPU.md"
    says "and all the rest is as it was" "| examples | .* | ok |" "$folder/gpu3/GPU.md"
    says "also heads of other sizes, and far logits" "| edges | .* | ok | .* 12 plans right" "$folder/gpu3/GPU.md"
    says "kernels of other definitions are among it" "variant: forward, causal, turns alone" "$folder/gpu3/GPU.md"
    says "also those without a part" "variant: backward, full, without adding dQ" "$folder/gpu3/GPU.md"
    says "and those whose blocks are delayed" "| shaken | .* | ok | .* 3 plans, 3 runs each" "$folder/gpu3/GPU.md"
    says "and fused ones" "| fused | .* | ok | .* 3 plans right, gradients" "$folder/gpu3/GPU.md"
    holds "each with its own cache" [ -d "$folder/gpu3/cache-FK_OVERLAP=0-FK_TURNS=1" ]
    # fused passes: where a round does not end, what waits for it is ended, and the other plans are judged
    run 1 "a fused pass that is held" --again --only fused --inject "held:fused/one launch"
    says "is ended, and said" "FAILED.*fused/one launch: fused, forward: .* did not end within 1 s" "$folder/out"
    says "and the others are right" "^plan	fused/rows moved	right" "$folder/gpu/state"
    holds "and nothing is timed" sh -c '! grep -q "^row" "$1"' sh "$folder/gpu/state"
fi
rm -rf "$folder/gpu3/kernels" "$folder/gpu3/cache"
env -u FCP_NVRTC GPU_NVRTC=/nowhere/libnvrtc.so "$check" --folder "$folder/gpu3" --seconds $ENOUGH --again \
    --only short > "$folder/out" 2>&1
says "where they were not, it is said" "NVRTC" "$folder/out"

# libraries that only Python's packages have
mkdir -p "$folder/packages/nvidia/nccl/lib"
ln -s "$B/standin/libnccl.so" "$folder/packages/nvidia/nccl/lib/libnccl.so.2"
ln -s "$B/standin/libcuda.so" "$folder/packages/nvidia/nccl/lib/libcuda.so"
env -u FCP_NCCL GPU_PACKAGES=1 PYTHONPATH="$folder/packages" \
    "$check" --folder "$folder/gpu" --seconds $ENOUGH --again --only nccl > "$folder/out" 2>&1
says "NCCL is found in Python's packages" "libnccl.so.2 is among Python's packages: $folder/packages/" "$folder/out"
says "and used" "| nccl | .* | ok |" "$folder/gpu/GPU.md"

# where nothing can be checked
FCP_CUDA_DRIVER=/nowhere/libcuda.so
run 3 "a machine without a driver"
says "says what was looked for" "nothing was checked.*/nowhere/libcuda.so" "$folder/err"
run 2 "a step that there is not" --only nothing

echo "gpu: $passed passed, $failed failed"
[ $failed = 0 ]
