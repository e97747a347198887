#!/bin/sh
# Programs that speak to Slurm, on a cluster: scripts/clients.sh PYTHON VENV [OPTION ...]
#
# They are in an environment of their own (VENV), made of what requirements/clients.txt locks, checked by hash. Without a way to
# a package index it says NOT VERIFIED and ends well: what was not shown must be seen, and is no fault of what is checked.
set -u

python=$1
venv=$2
shift 2
ready=$venv/.installed
if [ ! -e "$ready" ] || [ requirements/clients.txt -nt "$ready" ]; then
    "$python" -m venv --clear "$venv" || exit 1
    if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/clients.txt; then
        echo "NOT VERIFIED: programs that speak to Slurm: they cannot be installed"
        [ -z "${STAGE_LOG:-}" ] || printf '     - s  %-11s %s\n' clients 'NOT VERIFIED, no package index' >>"$STAGE_LOG"
        exit 0
    fi
    touch "$ready"
fi
CLIENTS_PYTHON=$(cd "$venv/bin" && pwd)/python exec "$python" -m pytest tests/clients --numprocesses=2 \
    -p no:cacheprovider --durations=10 "$@"
