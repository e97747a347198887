#!/bin/sh
# An environment of its own for one stage: scripts/locked_environment.sh PYTHON VENV REQUIREMENTS STAGE TEXT
#
# Made of what REQUIREMENTS locks, checked by hash, and anew when that has changed. Without a way to a package index it says
# NOT VERIFIED and the TEXT, and ends with 3: what was not shown must be seen, and is no fault of what is checked.
set -u

python=$1
venv=$2
requirements=$3
stage=$4
text=$5
ready=$venv/.installed
[ ! -e "$ready" ] || [ "$requirements" -nt "$ready" ] || exit 0
"$python" -m venv --clear "$venv" || exit 1
if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$requirements"; then
    echo "NOT VERIFIED: $text"
    [ -z "${STAGE_LOG:-}" ] || printf '     - s  %-11s %s\n' "$stage" 'NOT VERIFIED, no package index' >>"$STAGE_LOG"
    exit 3
fi
touch "$ready"
