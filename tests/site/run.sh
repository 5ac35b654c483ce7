#!/bin/sh
# Tests what builds the site (.ci/site). check.py finds each kind of fault in a site of two pages, and none where there
# is none. pages.py copies every page of the tree, and draws every example. With CHECK_LONG=1, and where `make site` has
# installed Sphinx, the whole site is built twice, into the same bytes.
# $B is the build folder; closing line: "site: N passed, M failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
B=${B:-build}
if ! command -v python3 > /dev/null 2>&1; then
    echo "skipped: the site: there is no python3"
    echo "site: 0 passed, 0 failed"
    exit 0
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-site.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
. tests/support/check.sh

# --- the checker -----------------------------------------------------------------------------------------------------
small() { # a site without faults
    rm -rf "$work/small"
    mkdir -p "$work/small/_static"
    echo '<a href="b.html#there">b</a><a href="https://example.org">elsewhere</a><img src="_static/a.svg">' \
        > "$work/small/a.html"
    echo '<link rel="stylesheet" href="_static/site.css"><h1 id="there">b</h1>' > "$work/small/b.html"
    touch "$work/small/a.md" "$work/small/b.md" "$work/small/_static/a.svg"
    echo '[a](a.md)' > "$work/small/llms.txt"
    echo '{"programs": [{"id": "one"}]}' > "$work/small/gallery.json"
    echo 'a { background: #ffffff; color: #000000; }' > "$work/small/_static/site.css"
}
finds() { # finds FAULT FILE TEXT: with this text at the end of a file
    small
    echo "$3" >> "$work/small/$2"
    python3 .ci/site/check.py "$work/small" > "$work/said"
    check "the checker fails: $1" [ $? = 1 ]
    check "the checker says: $1" grep -qF "$1" "$work/said"
}
small
check "the checker finds nothing in a right site" python3 .ci/site/check.py "$work/small"
finds 'the link c.html leads nowhere' a.html '<a href="c.html">c</a>'
finds 'b.html has no anchor here' a.html '<a href="b.html#here">b</a>'
finds 'a.html has no anchor e=other' a.html '<a href="#e=one">a</a><a href="#e=other">b</a>'
finds 'loads https://example.org/a.js' a.html '<script src="https://example.org/a.js"></script>'
finds 'loads //example.org/a.png' a.html '<img src="//example.org/a.png">'
finds 'loads https://example.org/a.css' a.html '<link rel="stylesheet" href="https://example.org/a.css">'
finds 'loads https://example.org/font' a.html '<style>a { src: url(https://example.org/font) }</style>'
finds 'loads https://example.org/font' _static/site.css '@import "https://example.org/font";'
finds 'loads b.svg, which is not there' b.html '<img src="b.svg">'
finds 'there is no plain page beside it' c.html '<p>c</p>'
finds 'there is no c.md' llms.txt '[c](c.md)'
finds 'a contrast of 2.' _static/site.css 'b { background: #ffffff; color: #999999; }'

# --- the pages -------------------------------------------------------------------------------------------------------
if [ -z "${SAN:-}" ]; then
    check "the pages are gathered" python3 .ci/site/pages.py "$work/pages" "$B/fcpc"
    find . -name '*.md' ! -path './build*' ! -path '*/.*/*' | sed 's|README\.md$|index.md|' | sort > "$work/wanted"
    (cd "$work/pages" && find . -name '*.md' ! -path './files/*' ! -name gallery.md) | sort > "$work/made"
    check "every page of the tree is there, and no other" diff "$work/wanted" "$work/made"
    grep -rl '^orphan: true' "$work/pages" | grep -v /files/ > "$work/orphans"
    check "every page but files is in the contents: $(cat "$work/orphans")" [ ! -s "$work/orphans" ]
    for example in examples/*.fcp examples/*/*.fcp; do
        [ -s "$work/pages/$example.svg" ] || echo "$example"
    done > "$work/undrawn"
    check "every example has a picture: $(cat "$work/undrawn")" [ ! -s "$work/undrawn" ]
fi

# --- the whole site --------------------------------------------------------------------------------------------------
if [ -n "${CHECK_LONG:-}" ] && [ -z "${SAN:-}" ]; then
    if [ -x "$B/site-python/bin/python" ]; then
        check "the site is built" .ci/site/build.sh "$work/one"
        check "and built again" .ci/site/build.sh "$work/two"
        check "with the same bytes" diff -r "$work/one" "$work/two"
    else
        echo "skipped: building the site: make site installs Sphinx"
    fi
fi
echo "site: $passed passed, $failed failed"
[ $failed = 0 ]
