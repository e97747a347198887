"""When an attempt ran, as far as the controller can know: a node says it by its own wall clock, which may be wrong.

Invariant: an attempt begins no earlier than it was placed, ends no earlier than it began, and no later than that was
heard of. How long it ran is believed, for that is not measured by the wall clock.
"""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.model.job import Attempt, StepEnd


def start_in_time(attempt: Attempt, said_us: int, now_us: int) -> int:
    """When its script began, microseconds UTC; the node says `said_us`."""
    return min(max(said_us, attempt.placed_us), now_us)


def end_in_time(attempt: Attempt, end: StepEnd, now_us: int) -> StepEnd:
    """The same end with times that fit in with what the controller knows; 0 stays 0, which says nothing."""
    if not end.started_us or not end.ended_us:
        return end
    ran_us = max(0, end.ended_us - end.started_us)
    started_us = attempt.started_us or start_in_time(attempt, end.started_us, now_us)
    return replace(end, started_us=started_us, ended_us=min(started_us + ran_us, now_us))
