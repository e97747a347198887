#!/bin/sh
# Containment of jobs by a kernel with all controllers of cgroup v2: scripts/contained.sh VM
#
# VM runs a command as root in such a machine: VM IMAGE COMMAND [MEMORY_MB] [TIMEOUT_S], and ends as the command does. Where
# this machine is one, and nothing else runs there, as root: python -m tests.contained
set -eu

vm=${1:?usage: scripts/contained.sh VM}
image=eslurm-contained
cd "$(dirname "$0")/.."
tidy() { docker rmi -f "$image:tests" "$image:latest" >/dev/null 2>&1 || true; }
trap tidy EXIT

docker build -q -t "$image" . >/dev/null
printf 'FROM %s\nCOPY . /checks/tests\n' "$image" | docker build -q -t "$image:tests" -f - tests >/dev/null
# Compiled by a first import: an emulated machine takes longer for it than a supervisor may take to start.
bash "$vm" "$image:tests" 'chmod 755 /checks && cd /checks && export PYTHONPATH=/checks && unset PYTHONDONTWRITEBYTECODE &&
    python3 -c "import tests.contained.__main__, tests.kits.stepd_trusting, esnoded.stepd.supervisor" &&
    python3 -m tests.contained' 3072 500
