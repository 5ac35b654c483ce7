#!/bin/sh
# Builds the site: build.sh FOLDER. `make site` calls it. $B is the build folder, whose site-python is Sphinx's
# environment (.ci/python.sh). FOLDER/play, the playground, stays as it is; all else in FOLDER is made anew. The same
# tree gives the same bytes.
set -eu
cd "$(dirname "$0")/../.."
B=${B:-build}
python=$B/site-python/bin/python
[ -x "$python" ] || { echo "no site: there is no $B/site-python, which make site installs" >&2; exit 1; }
site=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-site.XXXXXX")
trap 'rm -rf "$work"' EXIT
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1580601600}
export SOURCE_DATE_EPOCH PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1

play=
[ ! -e "$site/play/index.html" ] || play=--play
"$python" .ci/site/pages.py "$work/pages" "$B/fcpc" $play
"$python" -m sphinx -q -W --keep-going -j 2 -c .ci/site -d "$work/trees" "$work/pages" "$work/site"
rm -rf "$work/site/.buildinfo" "$work/site/_sources"
cp -r "$work/pages/." "$work/site" # the plain pages, and their pictures
mkdir -p "$site"
find "$site" -mindepth 1 -maxdepth 1 ! -name play -exec rm -rf {} +
cp -r "$work/site/." "$site"
"$python" .ci/site/check.py "$site"
