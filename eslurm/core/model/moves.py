"""Times that a workflow changes itself: longer limits of running jobs, and what the planner has granted.

A wish stands in the log until a planning cycle grants or refuses it: only the planner knows what delays no other job. The
wish of a pack is in `model.pack`. Invariant: of what a grant names nothing begins or ends at another time than it says.
"""

from __future__ import annotations

import msgspec


class ExtendWish(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A demand for a longer time limit of a running attempt, in seconds.

    `serial` is the revision at which it was made. It is open until `said` has the planner's answer.
    """

    serial: int
    by: str
    time_limit_s: int
    said: str = ""


class MoveGrant(msgspec.Struct, frozen=True, gc=False):
    """The planner's answer to a pack's wish: (job, planned start) of each job that is moved; none: refused."""

    pack_id: int
    serial: int
    starts: tuple[tuple[int, int], ...]
    text: str


class ExtendGrant(msgspec.Struct, frozen=True, gc=False):
    """The planner's answer to a running job's wish: its limit from now on, in seconds; 0: refused."""

    job_id: int
    attempt: int
    serial: int
    time_limit_s: int
    text: str
