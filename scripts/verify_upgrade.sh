#!/bin/sh
# Upgrades a running cluster from an earlier revision of these sources to the present ones, in both orders, while users
# submit: daemon by daemon, or by `eslurm convert` where its daemons share one key. scripts/verify_upgrade.sh PYTHON REVISION
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
tests=tests/integration/test_rolling.py
[ -d "$sources/eslurm/security" ] || tests=tests/integration/test_conversion.py
"$python" -m pytest "$tests" "--upgrade-from=$sources" -q
