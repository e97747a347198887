"""PBS's variables of a job that are known on its nodes only."""

from __future__ import annotations

from eslurm.compat.errors import whole_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROCESSES = "PBS_CHUNK_PROCS"
"""The variable of jobs of `qsub` that says how often each chunk's host stands in `PBS_HOSTS`."""
HOSTS = "PBS_HOSTS"
_CHARS_MAX = 65_536
"""A longer list of hosts is left out: a program would not start."""


def job_variables(job: Mapping[str, str], slots: Sequence[tuple[str, int]]) -> dict[str, str]:
    """The lines of the file of nodes, `slots` being each node's chunks; none where a list would be too long."""
    each = whole_number(job.get(PROCESSES, ""), 6)
    if each < 1 or sum((len(host) + 1) * chunks * each for host, chunks in slots) > _CHARS_MAX:
        return {}
    return {HOSTS: " ".join(host for host, chunks in slots for _ in range(chunks * each))}
