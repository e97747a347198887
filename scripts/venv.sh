#!/bin/sh
# Makes the environment everything else runs in: scripts/venv.sh DIRECTORY [PYTHON]
#
# Needs a Python of at least 3.11 and nothing else; installs what requirements/ locks, checked by hash, and this
# project itself. Safe to run again: after an interruption it goes on where it was. Writes DIRECTORY/.installed
# last, so the file is there only when everything is.
set -eu

venv=$1
wanted=${2:-}
log=$venv/install.log

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

recent() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# The interpreter asked for, else the first one that is recent enough.
find_python() {
    for candidate in ${wanted:-python3 python3.11 python3.12 python3.13 python3.14}; do
        if recent "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    found=$("${wanted:-python3}" -V 2>&1) || found='none'
    fail "eslurm needs Python 3.11 or newer (found: $found)." \
        "Install one, or name it: make PYTHON=/path/to/python3.11"
}

make_environment() {
    if [ -x "$venv/bin/python" ] && recent "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        return
    fi
    # --clear empties the directory: only ever do that to an environment.
    if [ -n "$(ls -A "$venv" 2>/dev/null)" ] && [ ! -f "$venv/pyvenv.cfg" ]; then
        fail "$venv exists and is no Python environment. Name another place: make VENV=/path/to/environment"
    fi
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null || fail "$python lacks the modules ensurepip and venv." \
        "Install them (on Debian and Ubuntu the package python3-venv), or name another Python: make PYTHON=..."
    echo "[1/3] making $venv with $("$python" -V)"
    "$python" -m venv --clear "$venv"
}

# Runs a command with its output in the log, saying every ten seconds that it still goes on.
with_progress() {
    "$@" >>"$log" 2>&1 &
    pid=$!
    trap 'kill $pid 2>/dev/null; exit 130' INT TERM
    passed_s=0
    while kill -0 $pid 2>/dev/null; do
        sleep 1
        passed_s=$((passed_s + 1))
        if [ $((passed_s % 10)) -eq 0 ]; then
            echo "      ... still at it after $passed_s s: $(tail -n 1 "$log" | cut -c 1-80)"
        fi
    done
    trap - INT TERM
    if ! wait $pid; then
        tail -n 15 "$log" >&2
        fail "the installation failed (all of it: $log). Without a way to a package index," \
            "tell pip of a mirror or a directory of wheels: PIP_INDEX_URL or PIP_FIND_LINKS"
    fi
}

make_environment
: >"$log"
count=$(cat requirements/run.txt requirements/dev.txt | grep -c '^[a-z].*==' || true)
echo "[2/3] installing about $count locked packages; one to five minutes the first time"
with_progress "$venv/bin/python" -m pip install --disable-pip-version-check --require-hashes --no-compile \
    -r requirements/run.txt -r requirements/dev.txt
# On all cores, and without the packages' own tests; pip would compile one file after the other.
with_progress "$venv/bin/python" -m compileall -qq -j 0 -x 'site-packages/.*/tests?/' "$venv/lib"
echo "[3/3] installing eslurm itself, in place"
with_progress "$venv/bin/python" -m pip install --disable-pip-version-check --no-deps --no-build-isolation --editable .
touch "$venv/.installed"
echo "ready: $venv"
