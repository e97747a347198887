#!/bin/sh
# Resolves the dependencies of pyproject.toml and requirements/*.in and locks them with hashes: scripts/lock.sh PYTHON
#
# pip-tools lives in an environment of its own under build/: it is needed here only and pins nothing of ours. What is
# locked already stays unless ARGS asks otherwise (ARGS=--upgrade, or ARGS='--upgrade-package NAME').
set -eu

python=$1
tools=build/lock
if [ ! -x "$tools/bin/pip-compile" ]; then
    "$python" -m venv --clear "$tools"
    "$tools/bin/python" -m pip install --quiet --disable-pip-version-check 'pip-tools>=7.5'
fi
compile() {
    # shellcheck disable=SC2086  # lists of options
    CUSTOM_COMPILE_COMMAND='make lock' "$tools/bin/pip-compile" --quiet --generate-hashes --allow-unsafe --strip-extras \
        --no-emit-index-url --no-emit-trusted-host --no-emit-find-links ${ARGS:-} --output-file="$2" ${3:-} "$1"
}
echo "locking requirements/run.txt"
# With every optional driver: tests and the images use them all.
compile pyproject.toml requirements/run.txt --all-extras
echo "locking requirements/dev.txt"
compile requirements/dev.in requirements/dev.txt
echo "locking requirements/clients.txt"
compile requirements/clients.in requirements/clients.txt
echo "locking requirements/docs.txt"
compile requirements/docs.in requirements/docs.txt
echo "locking requirements/packages.txt"
compile requirements/packages.in requirements/packages.txt
# What the container image holds, and what its wheel is made with: the same versions, only fewer.
echo "locking requirements/image.txt"
compile pyproject.toml requirements/image.txt "--constraint=requirements/run.txt --extra=postgresql"
echo "locking requirements/build.txt"
compile pyproject.toml requirements/build.txt \
    "--constraint=requirements/dev.txt --only-build-deps --build-deps-for=wheel"
