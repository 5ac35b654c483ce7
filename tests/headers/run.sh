#!/bin/sh
# Compares our own declarations of the CUDA driver, NVRTC, NCCL and MPI with their vendors' headers, where those are
# installed. They are looked for under CUDA_HOME, in the usual folders, and in those that HEADERS names (with ":"
# between). Compared are:
#   types, numbers, structures, functions   by cuda.c, nccl.c, nvrtc.c and mpi.c, which do not compile if they differ
#   symbols                                 the names that the headers give them, and since which CUDA each exists
#   libraries                               if there are some beside the headers, whether they have these symbols
# Then mistakes are put into copies of our declarations, and each must be found. Closing line: "headers: N passed, M
# failed; skipped: ...".
set -u
cd "$(dirname "$0")/../.." || exit 1
if [ -n "${SAN:-}" ]; then
    echo "skipped: vendors' headers: compilers read them, and no sanitizer is there"
    echo "headers: 0 passed, 0 failed"
    exit 0
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-headers.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=
fail() { failed=$((failed + 1)); echo "FAILED: $1"; sed 's/^/    /' "$work/log" | head -n 20; }
check() { # check NAME COMMAND...
    name=$1; shift
    if "$@" > "$work/log" 2>&1; then passed=$((passed + 1)); else fail "$name"; fi
}
skip() { skipped="$skipped${skipped:+, }$1"; }

# folders FILE PLACE...: those that have the file
folders() {
    file=$1; shift
    for folder in $(echo "${HEADERS:-}" | tr : ' ') "$@"; do [ -e "$folder/$file" ] && echo "$folder"; done
}
cuda_places="${CUDA_HOME:-/usr/local/cuda}/include /usr/local/cuda/include /usr/include"
# shellcheck disable=SC2086
{
    cuda=$(folders cuda.h $cuda_places | head -n 1)
    nvrtc=$(folders nvrtc.h $cuda_places | head -n 1)
    nccl=$(folders nccl.h $cuda_places /usr/local/include | head -n 1)
    mpi=$(folders mpi.h /usr/lib/*/openmpi/include /usr/include/openmpi* \
        /usr/include/*/mpich /usr/include/mpich* /usr/local/include)
}

# build TREE NAME FOLDER COMPILER: the check of our declarations, of which those in TREE come before those of this tree;
# its standard output goes to $work/NAME
build() {
    include="-iquote $1 -iquote . -isystem $3"
    [ "$2" = nccl ] && include="$include -isystem $cuda"
    # shellcheck disable=SC2086
    "$4" -std=gnu11 -Wall -Wextra -Werror -Wno-missing-field-initializers $include \
        -o "$work/program" "tests/headers/$2.c" &&
        "$work/program" > "$work/$2"
}
compilers=
for c in gcc clang; do command -v $c > /dev/null 2>&1 && compilers="$compilers $c"; done
[ -n "$compilers" ] || compilers=cc
for c in $compilers; do
    [ -n "$cuda" ] && check "the driver's header, by $c" build . cuda "$cuda" "$c"
    [ -n "$nvrtc" ] && check "NVRTC's header, by $c" build . nvrtc "$nvrtc" "$c"
    [ -n "$nccl$cuda" ] && [ -n "$nccl" ] && check "NCCL's header, by $c" build . nccl "$nccl" "$c"
    for folder in $mpi; do check "MPI's header in $folder, by $c" build . mpi "$folder" "$c"; done
done
[ -n "$cuda" ] || skip cuda.h
[ -n "$nvrtc" ] || skip nvrtc.h
[ -n "$nccl" ] || skip nccl.h
[ -n "$mpi" ] || skip mpi.h

# Every number that our headers give a name is one of those compared.
for name in $(grep -ohE '\b(CU|NCCL|NVRTC|MPI|MPICH)_[A-Z0-9_]+ = ' runtime/libraries/cuda_driver.h \
    runtime/libraries/nccl.h runtime/libraries/nvrtc_symbols.h \
    runtime/libraries/mpi_symbols.h | cut -d' ' -f1); do
    check "$name is compared with its vendor's" grep -qE "SAME_(NUMBER|HANDLE)\(.*\b$name\b" tests/headers/*.c
done

# since TYPEDEFS LIST: "KIND SYMBOL VERSION" of a list. The header of pointer types has one for each version of a
# function's form, NAME_vVERSION; symbols are NAME for the first, NAME_v2, NAME_v3.
since() {
    sed -n 's/.*(CUDAAPI *\* *PFN_\([A-Za-z0-9]*\)_v\([0-9]*\)).*/\1 \2/p' "$1" | sort -u -k1,1 -k2,2n |
        awk 'NR == FNR {n[$1]++; v[$1, n[$1]] = $2; next}
             {base = $2; form = 1; if (match(base, /_v[0-9]+$/)) {form = substr(base, RSTART + 2) + 0;
                     base = substr(base, 1, RSTART - 1)}
              print $1, $2, (base, form) in v ? v[base, form] : "unknown"}' - "$2"
}
# not_later LIST KIND VERSION: all symbols of the kind are there from that version on
not_later() {
    awk -v kind="$2" -v most="$3" '$1 == kind {n++
        if ($3 == "unknown" || $3 + 0 > most) {print $2, "is of", $3 ", after", most; bad = 1}}
                                   END {exit bad || !n}' "$1"
}
oldest=$(sed -n 's/.*OLDEST = \([0-9]*\).*/\1/p' runtime/libraries/cuda_driver.c)
green=$(sed -n 's/.*FCP_CUDA_OPTIONAL_SINCE = \([0-9]*\).*/\1/p' runtime/libraries/cuda_driver.h)
if [ -n "$cuda" ] && [ -e "$cuda/cudaTypedefs.h" ]; then
    since "$cuda/cudaTypedefs.h" "$work/cuda" > "$work/since"
    check "what is required is in drivers for $oldest" not_later "$work/since" required "$oldest"
    check "what is optional is in drivers for $green" not_later "$work/since" optional "$green"
else
    skip cudaTypedefs.h
fi

# has LIST LIBRARY: every symbol of the list
has() {
    nm -D --defined-only "$2" | awk '{sub(/@.*/, "", $NF); print $NF}' | sort -u > "$work/there"
    awk '{print $2}' "$1" | sort -u | comm -23 - "$work/there" > "$work/missing"
    sed 's/$/ is not in the library/' "$work/missing"
    [ -s "$work/there" ] && [ ! -s "$work/missing" ]
}
# library NAME FOLDER FILE...: the first of those files in the header's neighbourhood
library() {
    list=$1; root=${2%/include}; shift 2
    for file in "$@"; do
        for folder in lib64 lib lib64/stubs lib/stubs lib/x86_64-linux-gnu; do
            [ -e "$root/$folder/$file" ] || continue
            check "the symbols of $file" has "$work/$list" "$root/$folder/$file"
            return
        done
    done
    skip "$1"
}
if command -v nm > /dev/null 2>&1; then
    [ -n "$cuda" ] && library cuda "$cuda" libcuda.so.1 libcuda.so
    [ -n "$nvrtc" ] && library nvrtc "$nvrtc" libnvrtc.so libnvrtc.so.13 libnvrtc.so.12
    [ -n "$nccl" ] && library nccl "$nccl" libnccl.so libnccl.so.2
    for file in /usr/lib/*/libmpi.so.40 /usr/lib/*/libmpich.so.12; do
        [ -e "$file" ] || continue
        tr ' ,(' '\n\n\n' < runtime/libraries/mpi_symbols.h | grep -E '^MPI_[A-Z][a-z]' | sort -u \
            | sed 's/^/required /' > "$work/mpi"
        check "the symbols of $file" has "$work/mpi" "$file"
    done
else
    skip nm
fi

# mistake NAME FOLDER FILE SED WORD: with the mistake in a copy, the check of NAME fails and says WORD
mistake() {
    [ -n "$2" ] || return
    rm -rf "$work/tree"
    mkdir -p "$work/tree/$(dirname "$3")"
    sed "$4" "$3" > "$work/tree/$3"
    found=no
    build "$work/tree" "$1" "$2" "${compilers##* }" > "$work/log" 2>&1 || found=$(grep -c "$5" "$work/log")
    if cmp -s "$3" "$work/tree/$3"; then echo "nothing was changed" > "$work/log"; found=no; fi
    case "$found" in no | 0) fail "a mistake is not found: $4" ;; *) passed=$((passed + 1)) ;; esac
}
driver=runtime/libraries/cuda_driver.h
mistake cuda "$cuda" $driver 's/X(cuMemAlloc_v2,/X(cuMemAlloc,/' 'cuMemAlloc is what the header calls cuMemAlloc_v2'
mistake cuda "$cuda" $driver 's/X(cuMemFree_v2,/X(cuMemFree_v3,/' cuMemFree_v3
mistake cuda "$cuda" $driver \
    's/(cu_graph_exec \*, cu_graph, unsigned long long)/(cu_graph_exec *, cu_graph, unsigned)/' \
    cuGraphInstantiateWithFlags
mistake cuda "$cuda" $driver \
    's/(cu_ptr, cu_context, cu_ptr, cu_context, size_t, cu_stream)/(cu_ptr, cu_ptr, size_t, cu_stream)/' \
    cuMemcpyPeerAsync
mistake cuda "$cuda" $driver 's/(\*fill)(cu_ptr, unsigned, size_t/(*fill)(cu_ptr, unsigned, unsigned/' cuMemsetD32Async
mistake cuda "$cuda" $driver 's/(\*stream_wait)(cu_stream)/(*stream_wait)(cu_event)/' cuStreamSynchronize
mistake cuda "$cuda" $driver 's/typedef uint64_t cu_ptr/typedef unsigned cu_ptr/' 'cu_ptr is not as long'
mistake cuda "$cuda" $driver 's/CU_SHARED_MEMORY_OPTIN = 97/CU_SHARED_MEMORY_OPTIN = 96/' CU_SHARED_MEMORY_OPTIN
mistake cuda "$cuda" $driver 's/CU_DEFAULT_PER_THREAD = 2/CU_DEFAULT_PER_THREAD = 3/' CU_STREAM_PER_THREAD
mistake cuda "$cuda" $driver 's/unsigned char padding\[92\]/unsigned char padding[96]/' 'cu_resource'
mistake cuda "$cuda" $driver 's/unsigned count, least, alignment/unsigned least, count, alignment/' 'cu_resource.count'
mistake cuda "$cuda" tests/machines/standin/errors.h 's/CAPTURE_UNJOINED, 904/CAPTURE_UNJOINED, 903/' CAPTURE_UNJOINED
mistake cuda "$cuda" $driver 's/(\*event_elapsed)(float \*/(*event_elapsed)(double */' cuEventElapsedTime
mistake cuda "$cuda" $driver 's/X(cuEventElapsedTime_v2,/X(cuEventElapsedTime,/' \
    'the header calls cuEventElapsedTime_v2'
mistake nvrtc "$nvrtc" runtime/libraries/nvrtc_symbols.h 's/(\*destroy)(nvrtc_program \*)/(*destroy)(nvrtc_program)/' \
    nvrtcDestroyProgram
mistake nvrtc "$nvrtc" runtime/libraries/nvrtc_symbols.h 's/NVRTC_INTERNAL_ERROR = 11/NVRTC_INTERNAL_ERROR = 10/' \
    NVRTC_INTERNAL_ERROR
mistake nccl "$nccl" runtime/libraries/nccl.h \
    's/(\*init)(nccl_comm \*, int, nccl_id,/(*init)(nccl_comm *, int, nccl_id *,/' ncclCommInitRankConfig
mistake nccl "$nccl" runtime/libraries/nccl.h \
    's/blocking, cga_cluster_size, min_ctas, max_ctas;/blocking, cga_cluster_size, max_ctas, min_ctas;/' \
    'nccl_config.max_ctas'
mistake nccl "$nccl" runtime/libraries/nccl.h 's/0xcafebeef/0xcafebeee/' NCCL_CONFIG_INITIALIZER
mistake nccl "$nccl" runtime/libraries/nccl.h 's/NCCL_IN_PROGRESS = 7/NCCL_IN_PROGRESS = 8/' NCCL_IN_PROGRESS
mistake nccl "$nccl" runtime/libraries/nccl.h 's/NCCL_ID_BYTES = 128/NCCL_ID_BYTES = 64/' nccl_id
for folder in $mpi; do
    mistake mpi "$folder" runtime/libraries/mpi_symbols.h \
        's/(\*broadcast)(void \*, int, TYPE, int, COMM)/(*broadcast)(void *, TYPE, int, int, COMM, int)/' MPI_Bcast
done
if [ -e "$work/since" ]; then # of two lists and a library: one symbol that is too young, one that is not there
    sed 's/^optional cuGreenCtxCreate/required cuGreenCtxCreate/' "$work/since" > "$work/young"
    if not_later "$work/young" required "$oldest" > "$work/log" || ! grep -q cuGreenCtxCreate "$work/log"; then
        fail "a symbol that is too young is not found"
    else
        passed=$((passed + 1))
    fi
fi
if [ -n "$nvrtc" ] && [ -e "$work/there" ]; then
    echo "required nvrtcNoSuchThing" > "$work/none"
    nm() { printf '0 T nvrtcVersion\n'; }
    if has "$work/none" none > "$work/log" || ! grep -q nvrtcNoSuchThing "$work/log"; then
        fail "a symbol that is not there is not found"
    else
        passed=$((passed + 1))
    fi
fi
echo "headers: $passed passed, $failed failed${skipped:+; skipped: $skipped}"
[ $failed = 0 ]
