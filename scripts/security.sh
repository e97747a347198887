#!/bin/sh
# The tests that attack as another user of the host: scripts/security.sh PYTHON [OPTION ...]
#
# They need root to become that user. Without it most are skipped, which is said loudly, in the list of stages, too.
set -u

python=$1
shift
if [ "$(id -u)" -ne 0 ]; then
    echo "NOT VERIFIED: attacks as another user: run it as root"
    if [ -n "${STAGE_LOG:-}" ]; then
        printf '     - s  %-11s %s\n' security 'NOT VERIFIED, most attacks need root' >>"$STAGE_LOG"
    fi
fi
if [ $# -gt 0 ]; then exec "$python" -m pytest tests/security "$@"; fi
# They mostly wait, and each file has its own cluster.
exec "$python" -m pytest tests/security --numprocesses=$((2 * $(nproc))) --dist=loadfile --no-loadscope-reorder \
    -p no:cacheprovider --durations=5 --durations-min=5
