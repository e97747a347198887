#!/bin/sh
# Tests of real processes on loopback, whole clusters among them: scripts/integration.sh PYTHON [OPTION ...]. With pytest's
# options they run in one process.
set -u

python=$1
shift
if [ $# -gt 0 ]; then exec "$python" -m pytest tests/integration "$@"; fi

sh scripts/system_packages.sh || echo "NOT VERIFIED: tests that need what is missing: they are skipped (in CI they fail)"
# More than the cores: of six seconds, daemons and their tests compute in one. Each of these processes has a cluster.
processes=$((4 * $(nproc)))
exec "$python" -m pytest tests/integration --numprocesses=$((processes < 24 ? processes : 24)) \
    --dist=loadfile --no-loadscope-reorder -p no:cacheprovider --durations=10 --durations-min=5
