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
bash "$vm" "$image:tests" 'chmod 755 /checks && cd /checks && PYTHONPATH=/checks python3 -m tests.contained' 3072 500
