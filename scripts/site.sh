#!/bin/sh
# The documentation as a site, in build/site: scripts/site.sh PYTHON VENV
#
# Built in an environment of its own (VENV), made of what requirements/docs.txt locks, checked by hash. Without a way to a
# package index it says NOT VERIFIED and ends well: what was not shown must be seen, and is no fault of what is checked.
set -u

python=$1
venv=$2
ready=$venv/.installed
if [ ! -e "$ready" ] || [ requirements/docs.txt -nt "$ready" ]; then
    "$python" -m venv --clear "$venv" || exit 1
    if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt; then
        echo "NOT VERIFIED: the documentation's site: what builds it cannot be installed"
        [ -z "${STAGE_LOG:-}" ] || printf '     - s  %-11s %s\n' site 'NOT VERIFIED, no package index' >>"$STAGE_LOG"
        exit 0
    fi
    touch "$ready"
fi
# Not --quiet: a warning that is not logged does not count as one.
NO_MKDOCS_2_WARNING=1 exec "$venv/bin/python" -m mkdocs build --strict
