"""Times of an attempt as far as the controller can know them: a node reports by its own wall clock, which may be wrong.

Invariant: an attempt begins no earlier than it was placed, ends no earlier than it began, and no later than the report.
Its duration is trusted, because it is not measured by the wall clock.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from eslurm.core.model.job import Attempt, Job, StepEnd
from eslurm.core.model.protocol import Preparing
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State

BACKOFF_MAX_S = 60.0
PHASE_LIMIT_MAX_S = 86_400
"""A node's word for how long its prolog may run counts up to this."""
PHASE_REPORT_MARGIN_S = 60
_preparing = msgspec.msgpack.Decoder(Preparing)


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


def retry_at_us(state: State, job: Job, now_us: int) -> int:
    """Earliest time of the next launch: the delay doubles with each failed launch."""
    delay_s = min(state.config.requeue_delay_s * (2.0 ** min(job.launch_failures, 16)), BACKOFF_MAX_S)
    return now_us + int(delay_s * SECOND_US)


def said_limit_s(payload: bytes) -> int:
    """Longest run of a node's prolog. One node's nonsense is no reason to forget what the others answer."""
    try:
        return min(_preparing.decode(payload).limit_s, PHASE_LIMIT_MAX_S)
    except msgspec.DecodeError:
        return 0
