#!/bin/sh
# All tests but the attacks (scripts/security.sh) in three parts side by side: two with real processes, which mostly wait, and what only computes, which gets
# the time that those leave. With pytest's options or paths it is plain pytest. scripts/test.sh PYTHON [OPTION ...]
#
# The first and the last part are named here; the second is everything else, so that no test is left out.
set -u

python=$1
shift
if [ $# -gt 0 ]; then exec "$python" -m pytest "$@"; fi

first='tests/contract tests/integration/test_[q-z]*.py'
computing='tests/property tests/sim tests/unit/core tests/unit/plan tests/unit/estimator tests/unit/simulate
    tests/unit/benchmarks'

logs=$(mktemp -d)
first_part=
second=
third=
# Each ends what it has started.
stop() {
    for pid in $first_part $second $third; do wait "$pid"; done
    rm -rf "$logs"
}
# Whoever types Ctrl-C interrupts all of them; this one is told alone. It would not hear of it while it waited for a
# command in the foreground.
stop_all() {
    for pid in $first_part $second $third; do kill -TERM "$pid" 2>/dev/null; done
    exit 143
}
# A shell lets what it starts in the background ignore interrupts.
beside() {
    exec env --default-signal=INT "$@"
}
trap stop EXIT
trap 'exit 130' INT
trap stop_all TERM

echo "two more parts of the tests run meanwhile; they are shown at the end"
slowest='--durations=12 --durations-min=3'
set -f # here the pattern is pytest's
ignored=
for path in $first $computing tests/security; do ignored="$ignored --ignore-glob=$path"; done
# shellcheck disable=SC2086  # lists of words
beside "$python" -m pytest tests $ignored -p no:cacheprovider $slowest >"$logs/second" 2>&1 &
second=$!
# shellcheck disable=SC2086
beside nice -n 5 "$python" -m pytest $computing -p no:cacheprovider $slowest >"$logs/third" 2>&1 &
third=$!
set +f
# shellcheck disable=SC2086
beside "$python" -m pytest $first $slowest &
first_part=$!
wait "$first_part"
code=$?
first_part=
[ "$code" -eq 0 ] || echo "FAILED: the first part of the tests, see above" >&2
for part in second third; do
    eval "pid=\$$part"
    # shellcheck disable=SC2154  # set by eval
    wait "$pid"
    ended=$?
    eval "$part="
    echo
    cat "$logs/$part"
    if [ "$ended" -ne 0 ]; then
        echo "FAILED: the $part part of the tests, see above" >&2
        code=$ended
    fi
done
exit "$code"
