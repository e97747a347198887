#!/bin/sh
# The documentation as a site, in build/site: scripts/site.sh PYTHON VENV
#
# Built in an environment of its own (VENV). Without a way to a package index it says NOT VERIFIED and ends well.
set -u

python=$1
venv=$2
sh scripts/locked_environment.sh "$python" "$venv" requirements/docs.txt site \
    "the documentation's site: what builds it cannot be installed" || { code=$?; [ "$code" -ne 3 ] || exit 0; exit "$code"; }
# Not --quiet: a warning that is not logged does not count as one.
NO_MKDOCS_2_WARNING=1 exec "$venv/bin/python" -m mkdocs build --strict
