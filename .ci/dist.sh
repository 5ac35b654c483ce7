#!/bin/sh
# make dist: builds what a release has into $B/release, tries each thing where there is nothing else of fcpc, and writes
# SHA256SUMS. The commit is what is built, not the working tree, which must be clean.
#
#   fcpc-V.tar.gz   the source: git archive; it is unpacked into a fresh folder and built there, and a plan is run
#   fcpc-V-*.whl    from that folder: its tag is what auditwheel finds; tried in an empty virtual environment
#   *.deb           from that folder, by dpkg-buildpackage; looked at by lintian, unpacked and run
#   fcpc-V-site.tar.gz, *.vsix   if this tree has the targets `site` and `vscode`
#
# All clocks are the commit's, so the same commit should give the same bytes; CHECK=twice builds everything twice and
# compares.
# What only this needs (debhelper, lintian, fakeroot) is installed with apt if it is missing and can be.
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build} JOBS=${JOBS:-2}
case "$B" in /*) ;; *) B=$PWD/$B ;; esac
top=$PWD version=$(cat VERSION)
stop() { echo "dist: $*" >&2; exit 1; }
git rev-parse -q --verify HEAD > /dev/null || stop "this is no clone: a release is made of a commit"
[ -z "$(git status --porcelain)" ] || stop "the tree differs from its commit: commit it, or put it aside (git stash)"
if ! command -v dh > /dev/null || ! command -v lintian > /dev/null || ! command -v fakeroot > /dev/null; then
    as_root=
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    $as_root apt-get install -y -qq --no-install-recommends debhelper dpkg-dev fakeroot lintian > /dev/null ||
        stop "debhelper, dpkg-dev, fakeroot and lintian are missing, and apt cannot install them"
fi
python=$top/build/python/bin/python
[ -x "$python" ] || stop "there is no build/python to make the wheel with: make setup"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
release=$B
unset B MAKEFLAGS MAKELEVEL MFLAGS FCPC_LIBRARIES FCPC_BUILD PYTHONPATH # what is built here is built in its own folder
umask 022
# one folder for both builds: a path that differs must not be what makes them differ
work=$(mktemp -d "${TMPDIR:-/tmp}/fcpc-dist.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT

quietly() { # quietly WHAT COMMAND...: its output is shown if it fails
    what=$1
    shift
    "$@" > "$work/log" 2>&1 || { tail -n 40 "$work/log"; stop "$what failed"; }
    echo "dist: $what"
}
tries() { # tries WHAT FCPC: this program makes a plan, and runs it
    quietly "$1" sh -c "cd '$work' && $2 -q '$top/examples/lambda.fcp' -o '$work/plan' && $2 verify '$work/plan' &&
        $2 run -q '$top/examples/my_mask.fcp' && $2 doctor"
    rm -f "$work/plan"
}
build() { # build FOLDER: all of a release
    out=$1 tree=$work/tree/fcpc-$version
    rm -rf "$out" "$work/tree"
    mkdir -p "$out" "$work/tree"
    git archive --format=tar --prefix="fcpc-$version/" HEAD | gzip -9n > "$out/fcpc-$version.tar.gz"
    tar -xzf "$out/fcpc-$version.tar.gz" -C "$work/tree"
    quietly "the source archive builds" make -C "$tree" -j"$JOBS" OPT=-O3 all shared
    tries "and what it builds runs" "$tree/build/fcpc"

    quietly "the wheel" make -C "$tree" OPT=-O3 FCPC_MAKE="make OPT=-O3" PYTHON="$python" wheel
    cp "$tree"/build/dist/*.whl "$out"
    quietly "an empty environment" sh -c "rm -rf '$work/env' && '$python' -m venv --without-pip '$work/env'"
    quietly "the wheel is installed" "$python" -m pip --disable-pip-version-check --python "$work/env/bin/python" \
        install -q --no-index --no-compile "$out"/*.whl
    tries "and runs there" "$work/env/bin/fcpc"

    cp -r "$tree/.ci/debian" "$tree/debian"
    printf 'fcpc (%s) unstable; urgency=medium\n\n  * CHANGELOG.md says what this version has.\n\n -- %s  %s\n' \
        "$version" "$(sed -n 's/^Maintainer: //p' "$tree/debian/control")" "$(date -R -d "@$SOURCE_DATE_EPOCH")" \
        > "$tree/debian/changelog"
    quietly "Debian's packages" sh -c "cd '$tree' && DEB_BUILD_OPTIONS=noautodbgsym dpkg-buildpackage -b -us -uc -d"
    cp "$work"/tree/*.deb "$out"
    quietly "lintian finds no error" lintian --fail-on error --no-tag-display-limit "$out"/*.deb
    rm -rf "$work/root"
    for deb in "$out"/*.deb; do case "$deb" in *-dbgsym*) ;; *) dpkg -x "$deb" "$work/root" ;; esac; done
    tries "and they run, unpacked" "env LD_LIBRARY_PATH=$(echo "$work"/root/usr/lib/*-linux-gnu) $work/root/usr/bin/fcpc"

    if make -n site > /dev/null 2>&1; then
        quietly "the site" make B="$release" site
        tar -C "$release" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - site |
            gzip -9n > "$out/fcpc-$version-site.tar.gz"
    fi
    if make -n vscode > /dev/null 2>&1; then
        quietly "the extension of VS Code" make B="$release" vscode
        find "$release" -maxdepth 2 -name '*.vsix' -exec cp {} "$out" \;
    fi
    (cd "$out" && sha256sum ./* | sed 's|\./||') > "$work/sums"
    mv "$work/sums" "$out/SHA256SUMS"
}

build "$release/release"
if [ "${CHECK:-}" = twice ]; then
    build "$work/again"
    diff "$release/release/SHA256SUMS" "$work/again/SHA256SUMS" || stop "two builds of one commit differ"
    echo "dist: a second build gave the same bytes"
fi
cat "$release/release/SHA256SUMS"
