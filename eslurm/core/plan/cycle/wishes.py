"""Open wishes in the snapshot of a cycle: packs that want to go on earlier, running jobs that want to run for longer.

`plan.cycle.moves` answers them.
"""

from __future__ import annotations

import msgspec


class WantedStarts(msgspec.Struct, frozen=True, gc=False):
    """A pack's wish: (job, owed start) of the members to come, in their order; the first start shall be at `to_us`, or as
    soon after it as possible.
    """

    pack_id: int
    serial: int
    starts: tuple[tuple[int, int], ...]
    to_us: int


class WantedEnd(msgspec.Struct, frozen=True, gc=False):
    """A running attempt's wish: a time limit of `time_limit_s`; it has `has_s`. Its limit counts from `since_us`."""

    job_id: int
    attempt: int
    serial: int
    since_us: int
    has_s: int
    time_limit_s: int


class Wishes(msgspec.Struct, frozen=True, gc=False):
    """All open wishes."""

    starts: tuple[WantedStarts, ...] = ()
    ends: tuple[WantedEnd, ...] = ()
