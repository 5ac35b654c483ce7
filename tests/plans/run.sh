#!/bin/sh
# Plans stay the same, byte for byte: tests/golden/plans.sha256 holds the SHA-256 of the plan of every example, and of
# some of the lists of lengths in $FCPC_WORKLOADS, or ../shared/workloads, where that folder is. A change that is to
# alter plans, or the format of their files, alters this file: GOLDEN_UPDATE=1 rewrites it (make golden-update), and the
# commit says why.
# $B is the build folder; closing line: "plans: N passed, M failed; skipped: ...".
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
golden=tests/golden/plans.sha256
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-plans.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT

# digest NAME ARGUMENT...: "SHA-256 NAME" of the plan, or what went wrong
digest() {
    name=$1; shift
    if "$B/fcpc" -q "$@" -o "$work/plan" > "$work/log" 2>&1; then
        echo "$(sha256sum < "$work/plan" | cut -d' ' -f1) $name"
    else
        echo "status-$?-$(grep -oE 'E[0-9]{3}' "$work/log" | head -n 1) $name"
    fi
    rm -f "$work/plan"
}

for program in examples/*.fcp examples/*/*.fcp; do digest "$program" "$program"; done > "$work/got"

lists=${FCPC_WORKLOADS:-../shared/workloads}
if [ -d "$lists" ]; then
    cat > "$work/list.fcp" << 'EOF'
model   { heads = 64; kv_heads = 8; head_dim = 128; dtype = bf16 }
cluster { nodes = 1; gpus = 8; gpu = h200; memory = 100000 GB }
plan    { mask = causal; block = 1K; passes = forward, backward }
EOF
    for list in prolong-64x32k wlbllm-8x32k; do
        ranks=${list##*-}
        nodes=$((${ranks%%x*} / 8))
        for variant in fcp.planned fcp.contiguous fcp.zigzag ring.planned ring.contiguous zigzag.zigzag; do
            digest "$list $variant" "$work/list.fcp" --lengths "$lists/$list.lengths" -D cluster.nodes=$nodes \
                -D plan.strategy="${variant%.*}" -D plan.layout="${variant#*.}"
        done
    done >> "$work/got"
else
    echo "skipped: plans of lists of lengths: there is no folder $lists"
    grep -v '\.lengths\|x32k ' "$golden" > "$work/golden" 2> /dev/null
fi
if [ -n "${GOLDEN_UPDATE:-}" ]; then
    if [ -d "$lists" ]; then cp "$work/got" "$golden"; else
        { cat "$work/got"; grep 'x32k ' "$golden"; } > "$work/new"
        cp "$work/new" "$golden"
    fi
fi
[ -e "$work/golden" ] || cp "$golden" "$work/golden" || exit 1

failed=$(diff "$work/golden" "$work/got" | tee "$work/diff" | sed -n 's/^[<>] [^ ]* //p' | sort -u | grep -c '')
passed=$(sort "$work/golden" "$work/got" | uniq -d | grep -c '')
[ "$failed" = 0 ] || { echo "FAILED: these plans are not what they were (<: were, >: are)"; cat "$work/diff"; }
echo "plans: $passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 20 ]
