# check.sh: counts the checks of a run.sh, which sources this file. $work is a folder of that run.sh.
# shellcheck shell=sh
passed=0 failed=0
# check NAME COMMAND...: the command ends with 0; where it does not, the end of what it printed is shown
check() {
    what=$1; shift
    if "$@" > "$work/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $what"
        tail -n 20 "$work/log" | cut -c1-400 | sed 's/^/    /'
    fi
}
