#!/bin/sh
# Upgrades a running cluster from an earlier revision of these sources to the present ones, daemon by daemon, in both
# orders, while users submit. scripts/verify_upgrade.sh PYTHON REVISION
set -eu

python=$1
revision=$2
cd "$(dirname "$0")/.."

git rev-parse --quiet --verify "$revision^{commit}" >/dev/null || {
    echo "error: there is no revision '$revision' here: name another one (FROM=), or fetch the whole history" >&2
    exit 1
}
sources=$(mktemp -d)
trap 'rm -rf "$sources"' EXIT
trap 'exit 130' INT TERM
git archive "$revision" eslurm daemons cli | tar -x -C "$sources"
"$python" -m pytest tests/integration/test_rolling.py "--upgrade-from=$sources" -q
