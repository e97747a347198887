"""The growth of a job's limits from one attempt to the next: pure arithmetic.

Invariants: a grown limit is above the old one and at most the least ceiling; 0 says that there is none.
"""

from __future__ import annotations

from eslurm.core.model.request import Request
from eslurm.core.model.request_limits import MEMORY_MAX_MIB, TIME_LIMIT_MAX_S
from eslurm.core.model.retry_words import SAME_PERCENT


def grown_time_s(old_s: int, percent: int, estimate_s: int, ceiling_s: int) -> int:
    """The next time limit: the larger of factor times old and estimate (0: none), below the ceiling; 0: no longer one.

    A factor of one keeps the limit as it is, whatever is estimated: the next attempt goes on where the last one stopped.
    """
    if percent == SAME_PERCENT:
        return old_s if old_s <= ceiling_s else 0
    found_s = min(max(times(old_s, percent), estimate_s), ceiling_s, TIME_LIMIT_MAX_S)
    return found_s if found_s > old_s else 0


def reached_s(old_s: int, percent: int, retries: int) -> int:
    """The time limit that the factor alone reaches with so many retries, below the largest possible one."""
    for _ in range(retries):
        old_s = min(times(old_s, percent), TIME_LIMIT_MAX_S)
        if percent == SAME_PERCENT or old_s == TIME_LIMIT_MAX_S:
            break
    return old_s


def times(amount: int, percent: int) -> int:
    """The amount times the factor, rounded up."""
    return -(-amount * percent // SAME_PERCENT)


def memory_of(request: Request) -> tuple[int, ...]:
    """The memory for which a component asks, in MiB: per node, per core, of each kind of chunk."""
    return (
        request.memory_per_node_mib,
        request.memory_per_cpu_mib,
        *[chunk.memory_mib for chunk in request.chunks],
    )


def grown_memory_mib(old_mib: tuple[int, ...], percent: int, most_mib: int) -> tuple[int, ...]:
    """Each amount of `memory_of` times the factor, at most `most_mib` (0: any) and never less than before."""
    ceiling_mib = most_mib or MEMORY_MAX_MIB
    return tuple([max(one, min(times(one, percent), ceiling_mib)) for one in old_mib])
