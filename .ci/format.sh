#!/bin/sh
# Lays out C as .clang-format says: by default only the lines that were changed since a commit.
#
# Usage: format.sh [--check] [COMMIT | all]
# COMMIT: HEAD if something is not committed yet, and else the commit before it. `all`: every line of every file.
# --check changes nothing: it prints what would change, and fails if anything would.
#
# Only changed lines, because some lists are laid out by hand as tables, and read better so.
set -u
cd "$(dirname "$0")/.." || exit 1
check=
if [ "${1:-}" = --check ]; then check=1; shift; fi
command -v git-clang-format > /dev/null 2>&1 || { echo "format: there is no clang-format: make setup installs it"; exit 1; }
since=${1:-}
if [ "$since" = all ]; then
    files=$(git ls-files '*.c' '*.h')
    if [ -n "$check" ]; then
        # shellcheck disable=SC2086
        clang-format --dry-run --Werror $files
        exit
    fi
    # shellcheck disable=SC2086
    clang-format -i $files
    exit
fi
if [ -z "$since" ]; then
    since=HEAD
    if git diff --quiet HEAD -- '*.c' '*.h' 2> /dev/null; then since=HEAD~1; fi
fi
git rev-parse --verify --quiet "$since^{commit}" > /dev/null || { echo "format: there is no commit $since to compare with"; exit 0; }
if [ -z "$check" ]; then
    git clang-format --quiet --force --extensions c,h "$since"
    exit
fi
changes=$(git clang-format --quiet --diff --extensions c,h "$since") # older versions end with 0 even so
case "$changes" in
    '' | 'no modified files to format' | 'clang-format did not modify any files') echo "format: the lines since $since: 1 passed" ;;
    *)
        echo "$changes"
        echo "format: make format lays these lines out"
        exit 1
        ;;
esac
