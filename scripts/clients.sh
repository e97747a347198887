#!/bin/sh
# Programs that speak to Slurm, on a cluster: scripts/clients.sh PYTHON VENV [OPTION ...]
#
# They are in an environment of their own (VENV). Without a way to a package index it says NOT VERIFIED and ends well.
set -u

python=$1
venv=$2
shift 2
sh scripts/locked_environment.sh "$python" "$venv" requirements/clients.txt clients \
    "programs that speak to Slurm: they cannot be installed" || { code=$?; [ "$code" -ne 3 ] || exit 0; exit "$code"; }
CLIENTS_PYTHON=$(cd "$venv/bin" && pwd)/python exec "$python" -m pytest tests/clients --numprocesses=2 \
    -p no:cacheprovider --durations=10 "$@"
