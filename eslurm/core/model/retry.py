"""Retries by the server: the request of a job for them, and the record of those that it had.

Times are whole seconds, factors whole percent, memory MiB. Invariant: a job has at most `retries_max` retries, whatever they
are for; requeues and failed launches are none.
"""

from __future__ import annotations

import msgspec

from eslurm.core.model.retry_words import GROW_MEMORY_PERCENT, GROW_TIME_PERCENT, RETRIES


class RetryRequest(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The retries for which a job asks. A maximum of 0 is none of its own."""

    causes: tuple[str, ...]
    retries_max: int = RETRIES
    grow_time_percent: int = GROW_TIME_PERCENT
    max_time_s: int = 0
    grow_memory_percent: int = GROW_MEMORY_PERCENT
    max_memory_mib: int = 0

    def __str__(self) -> str:
        """The words of `--retry-on`: `timeout,node-fail:2`."""
        return f"{','.join(self.causes)}:{self.retries_max}"


class Retried(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The decision to retry: the cause, and the next attempt's limits where they grow (0 and empty: they stay).

    `memory_mib` has for each component its memory per node, per core, and of each kind of chunk. `is_estimated`: the time
    limit is the estimate of its runtime, not the factor's.
    """

    cause: str
    time_limit_s: int = 0
    memory_mib: tuple[tuple[int, ...], ...] = ()
    is_estimated: bool = False


class RetryRecord(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The retries that a job had. `attempt` and `before_s` are the number and the time limit of the latest retried attempt.

    `grown` waits until the nodes of that attempt are free: its own limits stay until then. What is wasted is counted from
    the beginnings of attempts that were followed by another one, requeued ones included.
    """

    count: int = 0
    attempt: int = 0
    before_s: int = 0
    latest: Retried | None = None
    grown: Retried | None = None
    wasted_us: int = 0
    wasted_cpu_us: int = 0
    """The same times its cores."""
