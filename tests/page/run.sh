#!/bin/sh
# Tests pages in headless Chromium: no error is logged, nothing is fetched from anywhere, the drawing is right, hovering
# and buttons say what they should, and the page's policy keeps other scripts and images out. Needs jq. Where there is
# no Chromium it says what it skips. Closing line: "page: N passed, M failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
top=$PWD
B=${B:-build}
case "$B" in /*) ;; *) B=$top/$B ;; esac
fcpc=$B/fcpc
[ -x "$fcpc" ] || { echo "page: 0 passed, 1 failed: $fcpc is not there"; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-page.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
passed=0 failed=0
# holds NAME COMMAND...: the command is a condition that must hold
holds() {
    name=$1; shift
    if "$@" > log 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $name"; head -n 10 log \
        | sed 's/^/    /'; fi
}
data() { sed -n 's|.*<script type="application/json" id="data">\(.*\)</script>.*|\1|p' "$1"; }
shows() { data "$1" | jq -e "$2" > /dev/null; }

cat > a.fcp << 'EOF'
model   { heads = 4; kv_heads = 2; head_dim = 64; dtype = bf16 }
cluster { nodes = 2; gpus = 4; gpu = h200 }
batch   { lengths = [9000, 2500 x 2, 600 x 6, 1] }
plan    { mask = lambda(sink = 300, window = 1024); block = 512 }
mask lambda(sink = 4, window = 1024) = causal and (k < sink or q - k < window)
EOF
cat > large.fcp << 'EOF'
model   { heads = 64; kv_heads = 8; head_dim = 128; dtype = bf16 }
cluster { nodes = 32; gpus = 8; gpu = h200 }
batch   { lengths = [262144 x 8, 65536 x 40, 16384 x 120, 2048 x 800] }
plan    { mask = causal; block = 2K }
EOF
holds "a page of a program" "$fcpc" -q show a.fcp --html show.html
holds "a page of a prediction" "$fcpc" -q sim a.fcp --html sim.html
holds "a page of all strategies" "$fcpc" -q sim a.fcp --strategy all --html strategies.html
holds "a page of a sweep" "$fcpc" -q sim a.fcp --strategy fcp,zigzag --sweep plan.block=256,512,1K --html blocks.html
holds "a page of two passes over nodes, some of which cannot be" "$fcpc" -q sim a.fcp --sweep cluster.nodes=1,2,4,0 \
    --html nodes.html
holds "a page of work that moves" "$fcpc" -q show "$top/examples/in_place.fcp" --html in_place.html
holds "a page of 256 ranks" "$fcpc" -q show large.fcp --html large.html
holds "a page of no tokens" "$fcpc" -q show a.fcp -D 'batch.lengths=[0, 0]' --html zeros.html
holds "a page of keys alone" "$fcpc" -q sim a.fcp -D 'batch.lengths=[0:7, 0]' --strategy all --html keys.html

# without a browser: the data
holds "data is JSON" shows show.html '.plans | length == 1'
holds "lanes of every rank and pass" shows show.html '[.plans[0].passes[].lanes | length] == [8, 8]'
holds "as many intervals in each lane as their width divides" \
    shows sim.html 'all(.plans[].passes[].lanes[]; (.compute | length % 6 == 0) and (.net | length % 10 == 0)
        and (.local | length % 10 == 0) and (.compute | length > 0))'
holds "an explanation for each cell" shows sim.html \
    'all(.plans[] | [.grids, .explained] | transpose[]; .[0].rows * .[0].cols == (.[1].cells | length))'
holds "the pairs of the grid of a causal mask, as the plan counts them" \
    shows large.html '.plans[0].grids[0] | (.pairs | add) == .keys * (.keys + 1) / 2'
holds "how busy each part is, for each lane" shows large.html \
    '.plans[0].passes[0].heat | (.compute | length) == .rows * .bins and .rows == 128 and .per == 2'
holds "beyond 64 ranks the 8 busiest and the median" shows large.html '[.plans[0].passes[].lanes | length] == [9, 9]'
holds "the ranks that are asked for" \
    sh -c "'$fcpc' -q show large.fcp --html r.html --ranks 3,200..202 && grep -q '\"lanes\": \[{\"rank\": 3, ' r.html"
holds "who computes what, where work moves" \
    shows in_place.html '.plans[0].grids[0] | (.moved_to | length) == .rows * .cols and (.moved_to | max) <= 8
        and (.moved_to | add) > 0'
holds "and no such marks elsewhere" shows show.html 'all(.plans[].grids[]; .moved_to == [])'
holds "strategies by name" shows strategies.html '[.plans[].name] ==
    ["strategy=fcp", "strategy=ring", "strategy=zigzag", "strategy=cad", "strategy=dcp", "strategy=groups"]'
holds "the points of a sweep" shows blocks.html '(.points | length) == 6 and (.plans | length) == 6'
holds "show and sim make the same page" cmp show.html sim.html
holds "a page of 256 ranks has less than 2 MB" test "$(wc -c < large.html)" -lt 2000000

chromium=
for name in ${CHROMIUM:-chromium chromium-browser google-chrome}; do
    command -v "$name" > /dev/null 2>&1 && { chromium=$name; break; }
done
why="there is no Chromium"
[ -n "${SAN:-}" ] && chromium='' why="no sanitizer looks into it"
if [ -z "$chromium" ]; then
    echo "skipped: pages in a browser, $why"
    echo "page: $passed passed, $failed failed"
    [ $failed = 0 ]
    exit
fi

# browse PAGE [OPTION...]: its DOM in dom, what the browser logged in console, what it asked for in requests
browse() {
    file=$1; shift
    timeout 120 "$chromium" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" \
        --no-first-run --hide-scrollbars \
        --disable-background-networking --disable-component-update --disable-default-apps \
        --disable-sync --disable-extensions \
        --window-size=1300,1600 --virtual-time-budget=10000 --enable-logging=stderr --log-net-log="$work/net.json" \
        --host-resolver-rules='MAP * ~NOTFOUND' "$@" \
        "file://$work/$file" > dom 2> err < /dev/null
    status=$?
    grep CONSOLE err > console
    # what the browser asks for by itself has no origin; a page has, also one from a file
    grep '"initiator":' net.json | grep -v '"initiator":"not an origin"' | grep -o '"url":"[^"]*"' | sort -u \
        | grep -v '^"url":"\(file\|data\):' > requests
    return $status
}
quiet() { ! grep . console && ! grep . requests; }
drawn() { # drawn PAGE: of dom, which becomes PAGE.dom
    holds "$1: it was drawn to its end" grep -q '<html lang="en" data-ready="[0-9]*">' dom
    holds "$1: has its timeline" grep -q '<canvas role="img" class="timeline"' dom
    holds "$1: no number went missing" sh -c '! sed "/^<script/,\$d" dom | grep -E "NaN|undefined|Infinity"'
    cp dom $1.dom
}
# A start of the browser takes a second: make check does without some of them, unless CHECK_LONG is set.
everything=${CHECK_LONG:-}
for page in show strategies zeros ${everything:+keys nodes}; do
    holds "$page: the browser reads it" browse $page.html --dump-dom --screenshot="$work/$page.png" \
        --blink-settings=preferredColorScheme=1
    holds "$page: no message, no request" quiet
    drawn $page
done
# hovering: in a copy without the policy, which would not let the test's own script in. All but the first are read in
# this way alone.
for page in show blocks large ${everything:+in_place}; do
    sed 's/<meta http-equiv="Content-Security-Policy"[^>]*>//' $page.html > moved.html
    cat "$top/tests/page/hover.html" >> moved.html
    holds "$page: with a mouse" browse moved.html --dump-dom
    holds "$page: with a mouse, no message" quiet
    cp dom $page.hover
    [ $page = show ] || drawn $page
    holds "$page: every canvas was painted in more than two colours" sh \
        -c "grep -o '<li>[a-z]* [0-9]*' $page.hover | awk '\$2 <= 2 {bad = 1; print} END {exit bad || !NR}'"
    holds "$page: zooming and turning changes the picture, and All brings it back" grep \
        -q 'data-zoomed="true" data-back="true" data-turned="true"' $page.hover
    holds "$page: the tip goes away" grep -q '^# hidden$' $page.hover
    holds "$page: no tip says what is no number" sh \
        -c "! sed -n '/id=\"said\"/,\$p' $page.hover | grep -E 'NaN|undefined|Infinity|\[object'"
done
holds "a title" grep -q '<title>fcpc: lambda(sink = 300, window = 1024)</title>' show.dom
holds "a card for each pass" \
    sh -c '[ "$(grep -o "<span>[A-Z][a-z]* pass</span>" show.dom | sort | tr -d "\n")" = \
        "<span>Backward pass</span><span>Forward pass</span>" ]'
holds "bounds by name" grep -q 'the longest chain of waits' show.dom
holds "facts" grep -q '<dt>cluster</dt><dd>8 ranks: 2 nodes of 4 GPUs' show.dom
holds "the program" grep -q '<pre>model {' show.dom
holds "candidates side by side" sh -c '[ "$(grep -o "<td>zigzag</td>" strategies.dom | wc -l)" = 2 ]'
holds "a timeline for each candidate" \
    sh -c '[ "$(grep -o "<canvas[^>]*class=\"timeline\"" strategies.dom | wc -l)" = 6 ]'
holds "curves over the block size" grep -q 'Forward: time over block' blocks.dom
holds "time against memory" grep -q 'Backward: time against memory of the largest rank' blocks.dom
holds "a dashed bound beside each curve" sh -c '[ "$(grep -o "class=\"curve bound\"" blocks.dom | wc -l)" = 4 ]'
if [ -n "$everything" ]; then
    holds "a legend of moved work, and what it costs" sh \
        -c 'grep -q "A bar through cells" in_place.dom && grep -q "<dt>moved work</dt>" in_place.dom'
    holds "what could not be planned is told" grep -q 'of which 1 could not be planned' nodes.dom
    holds "as fast as there are more" grep -q 'as many times as fast as there are more of them' nodes.dom
fi

for words in 'rank [0-9], compute: attend' 'rank [0-9], compute: waits' 'for keys and values' \
    'for results on their way home' 'rank [0-9], net: sends KV of block [0-9]* to rank [0-9]' \
    'rank [0-9], local: receives KV' 'receives dKV' 'B/s' 'tokens, ' 'waits .* for keys and values' \
    'of the pairs are allowed' \
    'Q in block [0-9]* of rank [0-9], K and V in block' \
    'sees key [0-9,]*, because' 'does not see key' 'q - k &lt; window is false (' 'k &lt; sink is true (' \
    'queries [0-9,]* to [0-9,]*: block' 'of this time'; do
    holds "a tip says: $words" grep -q "$words" show.hover
done
holds "a point says its setting" grep -q 'strategy = zigzag, block = 256' blocks.hover

# the policy: of a page with a foreign script, style and image in it, nothing runs and nothing is fetched
foreign='<script>document.title = "foreign"</script><style>h1 { color: rgb(1, 2, 3) }</style>'
foreign=$foreign'<img src="http://127.0.0.1:9/x.png"><script src="http://127.0.0.1:9/x.js"></script>'
sed "s|<main id=\"page\">|$foreign&|" \
    show.html > foreign.html
holds "a page with what does not belong there" browse foreign.html --dump-dom
holds "its own script still runs, and no other" grep -q '<title>fcpc: lambda' dom
holds "each of the four is refused" sh -c '[ "$(grep -c "Content Security Policy" console)" -ge 4 ]'
holds "and asked for nowhere" sh -c '! grep "127.0.0.1:9" requests'

if [ -n "$everything" ]; then
    sed 's/<meta http-equiv="Content-Security-Policy"[^>]*>//' foreign.html > open.html
    holds "without the policy" browse open.html --dump-dom
    holds "they would have run and been asked for" sh \
        -c 'grep -q "127.0.0.1:9/x.png" requests && grep -q "127.0.0.1:9/x.js" requests'
    # show.png was taken in light: in the dark it is another picture
    holds "a picture in the dark" browse show.html --screenshot="$work/dark.png" --blink-settings=preferredColorScheme=0
    holds "they differ" sh -c '[ -s show.png ] && [ -s dark.png ] && ! cmp -s show.png dark.png'
fi
echo "page: $passed passed, $failed failed"
[ $failed = 0 ]
