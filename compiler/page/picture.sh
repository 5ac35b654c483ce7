#!/bin/sh
# Draws compiler/page/page.png, a picture of a page for compiler/OUTPUT.md: the timeline and the masks of an example, in
# headless Chromium. Without Chromium it leaves the picture as it is, and says so. $B is the build folder.
set -eu
cd "$(dirname "$0")/../.."
fcpc=${B:-build}/fcpc
chromium=
for name in chromium chromium-browser google-chrome; do
    command -v "$name" > /dev/null 2>&1 && { chromium=$name; break; }
done
[ -n "$chromium" ] || { echo "skipped: compiler/page/page.png: there is no Chromium"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$fcpc" -q sim examples/lambda.fcp --html "$work/page.html"
# Without the policy, which would keep the script below out.
sed 's/<meta http-equiv="Content-Security-Policy"[^>]*>//' "$work/page.html" > "$work/shown.html"
echo '<script>
for (const e of page.children) if (!/^(timeline|mask)$/.test(e.id)) e.hidden = true;
for (const e of document.querySelectorAll(".cards, .facts, details")) e.style.display = "none";
timeline.firstChild.style.margin = 0;
dispatchEvent(new Event("resize"));
</script>' >> "$work/shown.html"
timeout 120 "$chromium" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" --no-first-run \
    --disable-background-networking --hide-scrollbars --blink-settings=preferredColorScheme=1 \
    --window-size=1240,1130 --virtual-time-budget=5000 --screenshot="$work/page.png" \
    "file://$work/shown.html" > "$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
cmp -s "$work/page.png" compiler/page/page.png || mv "$work/page.png" compiler/page/page.png
