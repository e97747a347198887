#!/bin/sh
# All tests but the attacks (scripts/security.sh) and the simulated clusters (make worlds), on several processes. With
# pytest's options or paths it is plain pytest: scripts/test.sh PYTHON [OPTION ...]
#
# What tests need beside Python is installed first where that is allowed; elsewhere the tests that need it are skipped and
# counted at the end.
set -u

python=$1
shift
if [ $# -gt 0 ]; then exec "$python" -m pytest "$@"; fi

sh scripts/system_packages.sh || echo "NOT VERIFIED: tests that need what is missing: they are skipped (in CI they fail)"
# Twice the cores and one more: tests of daemons mostly wait.
exec "$python" -m pytest tests --ignore=tests/security --ignore=tests/sim --numprocesses=$((2 * $(nproc) + 1)) \
    --dist=loadfile --no-loadscope-reorder -p no:cacheprovider --durations=25 --durations-min=3
