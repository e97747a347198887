#!/bin/sh
# All tests in two halves side by side: those with real processes, which mostly wait, and the others, which compute.
# With pytest's options or paths it is plain pytest. scripts/test.sh PYTHON [OPTION ...]
set -u

python=$1
shift
if [ $# -gt 0 ]; then exec "$python" -m pytest "$@"; fi

log=$(mktemp)
others=
stop() {
    if [ -n "$others" ]; then kill "$others" 2>/dev/null; fi
    rm -f "$log"
}
trap stop EXIT
trap 'exit 130' INT TERM

echo "the tests without real processes run meanwhile; they are shown at the end"
"$python" -m pytest --ignore=tests/integration -p no:cacheprovider >"$log" 2>&1 &
others=$!
"$python" -m pytest tests/integration
integration=$?
wait "$others"
rest=$?
others=
echo
cat "$log"
if [ "$integration" -ne 0 ]; then
    echo "FAILED: tests with real processes, see above" >&2
    exit "$integration"
fi
exit "$rest"
