"""Times of an attempt as far as the controller can know them: a node reports by its own wall clock, which may be wrong.

Invariant: an attempt begins no earlier than it was placed, ends no earlier than it began, and no later than the report.
Its duration is trusted, because it is not measured by the wall clock.
"""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.model.job import Attempt, StepEnd


def start_in_time(attempt: Attempt, said_us: int, now_us: int) -> int:
    """Begin of its script in microseconds UTC; the node reports `said_us`."""
    return min(max(said_us, attempt.placed_us), now_us)


def end_in_time(attempt: Attempt, end: StepEnd, now_us: int) -> StepEnd:
    """The same end with times that agree with the controller's; 0 stays 0, which means unknown."""
    if not end.started_us or not end.ended_us:
        return end
    ran_us = max(0, end.ended_us - end.started_us)
    started_us = attempt.started_us or start_in_time(attempt, end.started_us, now_us)
    return replace(end, started_us=started_us, ended_us=min(started_us + ran_us, now_us))
