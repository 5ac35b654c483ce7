#!/bin/sh
# Draws grammar/pictures/NAME.svg, one for each mask of the prelude, and for rect and slices. `fcpc show --svg` draws
# each mask for 4096 tokens in blocks of 128, and the part of its picture that shows the mask is cut out. The bytes are
# the same every time, and a picture that has not changed is not written. $B is the build folder.
#   --list            prints the calls that are drawn, and draws nothing
#   --fields FOLDER   writes the files of the fields that the calls read into FOLDER, prints the declarations of these
#                     fields, and draws nothing
set -eu
here=$PWD
cd "$(dirname "$0")/../.."
fcpc=${B:-build}/fcpc
calls='full
causal
window(w = 1024)
window_both(l = 1024, r = 512)
prefix(p = 1024)
lambda(sink = 256, window = 1024)
shared_question(p = 25, answers = 4)
causal_blockwise(b = 512, w = 2)
block_causal(b = 512)
global_window(g = 256, w = 512)
dilated(w = 2048, d = 512)
causal_blockwise_fm(b = 512)
qk_sparse(o = 1024, m = 1536)
block_diffusion(b = 256)
draft_train(p = 512, b = 512)
natten1d(kw = 1024, dw = 256)
natten2d(W = 512, kw = 257, kh = 3)
natten3d(W = 32, H = 8, kw = 17, kh = 5, kt = 5, ct = true)
sta2d(W = 128, tw = 16, th = 8, kw = 3, kh = 3)
sta3d(W = 32, H = 8, tw = 8, th = 4, tt = 4, kw = 3, kh = 1, kt = 3)
svg_spatial(P = 256, w = 512)
svg_temporal(P = 256, T = 960, w = 128)
document(d = doc)
causal_document(d = doc)
prefix_document(d = doc, p = 200)
global_field(g = mark, w = 256)
random_eviction(e = until)
tree(first = first, last = last, p = 256)
hash_sparse(bucket = bucket)
rect(512..3072, 1024..4096, causal)
slices([0, 1024, 0, 1024, causal], [1024, 2048, 1024, 2048, inverse], [2048, 3072, 512, 2560, both], '\
'[3072, 4096, 0, 2048], [3072, 4096, 3072, 4096, causal])'
# Makes the fields that the calls read:
#   doc, mark     lists that are written out below
#   until         the position that evicts a key: 1 to 1024 after the key, more often soon than late
#   bucket        one of 8 buckets for each token, drawn at random
#   first, last   the subtree of each node of a tree in depth-first order. Before each node the path from the root to
#                 the last node is shortened by 0 to 2 nodes, drawn at random
fields() {
    awk -v folder="$1" '
        function draw(n) { state = (state * 69069 + 1) % 2147483648; return int(state / 65536) % n }
        BEGIN {
            state = 1; n = 4096; depth = 0
            for (t = 0; t < n; t++) {
                a = draw(1024); print t + 1 + int(a * a / 1024) > (folder "/until.txt")
                print draw(8) > (folder "/bucket.txt")
                for (pop = draw(3); pop > 0 && depth > 1; pop--) last[path[depth--]] = t - 1
                path[++depth] = t
            }
            while (depth) last[path[depth--]] = n - 1
            for (t = 0; t < n; t++) { print t > (folder "/first.txt"); print last[t] > (folder "/last.txt") }
        }'
    echo 'field doc = [0 x 700, 1 x 300, 2 x 1400, 3 x 96, 4 x 1600]'
    echo 'field mark = [0 x 1000, 1 x 16, 0 x 1600, 1 x 64, 0 x 1416]'
    for field in until bucket first last; do echo "field $field = file(\"$field.txt\")"; done
}
if [ "${1:-}" = --list ]; then
    echo "$calls"
    exit
fi
if [ "${1:-}" = --fields ]; then
    cd "$here"
    fields "$2"
    exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fields "$work" > "$work/fields"
echo "$calls" | while read -r call; do
    name=${call%%(*}
    printf 'model { heads = 1 }\nbatch { lengths = [4096]\n%s\n}\n' "$(cat "$work/fields")" > "$work/mask.fcp"
    printf 'plan { mask = %s; block = 128; passes = forward }\n' "$call" >> "$work/mask.fcp"
    "$fcpc" show "$work/mask.fcp" --svg "$work/page.svg"
    # the mask begins below its heading, which words above it may push down
    top=$(($(sed -n 's/.* y="\([0-9]*\)">The mask<.*/\1/p' "$work/page.svg") + 18))
    awk -v call="$call" -v top="$top" '
        /^<svg/ {
            print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"465\" height=\"465\" viewBox=\"55 " top \
                " 700 700\" role=\"img\">"
            next
        }
        /^<title>/ { print "<title>" call " over 4096 tokens: rows are queries, columns are keys</title>"; next }
        /^<defs>/ { next }
        /^<rect width=/ { print "<rect x=\"55\" y=\"" top "\" width=\"700\" height=\"700\" fill=\"#fff\"/>"; next }
        />The mask<\/text>$/ { mask = 1; getline; next }    # its heading and what it says of ranks
        />The ranks<\/text>$/ { mask = 0 }
        /fill="#4477aa"/ || /<text class="s-e" x="[67][0-9.]*"/ { next }   # the strips of owners
        /^<\/?s/ || /^[a-z.]/ { if (!mask) { print; next } }
        mask { sub(/"><title>.*<\/title><\/rect>/, "\"/>"); print }
    ' "$work/page.svg" > "$work/$name.svg"
    cmp -s "$work/$name.svg" "grammar/pictures/$name.svg" && continue
    mv "$work/$name.svg" "grammar/pictures/$name.svg"
    echo "  draw  grammar/pictures/$name.svg"
done
