#!/bin/sh
# pack.sh BUILD OUT [MEBIBYTES]: packs what a GPU machine needs to run gpu-check into one archive: the program and the
# library of kernels, both stripped, the commit, and the kernels; for the Python package its two libraries, with those of
# Debian that they need. It is unpacked beside a tree of the sources, which has the examples and the package. An archive
# of more than MEBIBYTES (32 unless given) is an error, since it could not be carried.
set -eu
B=$1
out=$2
most=${3:-32}
if [ -z "$(ls "$B/gpu/kernels" 2> /dev/null)" ]; then
    echo "pack: no kernels in $B/gpu/kernels: make gpu-check-build" >&2
    exit 1
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/gpu/libraries"
cp "$B/gpu-check" "$folder/gpu-check"
cp "$B/gpu/libnvrtc-carried.so" "$folder/gpu"
strip "$folder/gpu-check" "$folder/gpu/libnvrtc-carried.so"
cp "$B/gpu/commit" "$folder/gpu" 2> /dev/null || echo "not known" > "$folder/gpu/commit"
cp -R "$B/gpu/kernels" "$folder/gpu"
for library in libfcp libfcpc; do
    if [ ! -e "$B/$library.so" ]; then
        echo "pack: there is no $B/$library.so (make shared): gpu-check cannot try the Python package" >&2
        continue
    fi
    cp "$B/$library.so" "$folder/gpu/libraries"
    strip --strip-unneeded "$folder/gpu/libraries/$library.so"
    for needed in $(ldd "$B/$library.so" | sed -n 's/.* => \(.*\/lib\(isal\|nettle\)\.so[^ ]*\) .*/\1/p'); do
        cp -L "$needed" "$folder/gpu/libraries"
    done
done
tar -C "$folder" -czf "$out.part" gpu-check gpu
size=$(wc -c < "$out.part")
if [ "$size" -gt $((most * 1048576)) ]; then
    rm -f "$out.part"
    echo "pack: $size bytes are more than $most MiB, and cannot be carried" >&2
    exit 1
fi
mv "$out.part" "$out"
major=$(sed 's/\..*//' "$B/gpu/kernels/version")
echo "the kernels need a driver for CUDA $major or later ($([ "$major" -ge 13 ] && echo 580 || echo 525))"
echo "$out: $size bytes, $(ls "$folder/gpu/kernels" | wc -l) files in kernels"
