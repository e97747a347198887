"""The result of a planning cycle, and the bounds of one."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from eslurm.core.model.moves import ExtendGrant, MoveGrant
from eslurm.core.model.placement import Placement
from eslurm.core.model.promise import Promise
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.plan.cycle.schedule import Booking
from eslurm.core.plan.cycle.victims import Victim
from eslurm.core.plan.profile.search import Move
from eslurm.core.resources.timeline import INFINITY_US


class PlanLimits(msgspec.Struct, frozen=True):
    """Bounds of one cycle.

    `tries_max` bounds the jobs tried behind the first blocked one, `searches_max` the promises searched anew,
    `improved_max` the bookings examined for an earlier place (0: all), `tasks_ahead_max` the tasks of one array that have
    a place in the plan; `slice_steps` is the work between two yields in units of about a microsecond; a hold past its end
    is expected back after `overdue_grace_us`; a promise is examined again after `promise_refresh_us`.
    """

    placements_max: int = 1_000
    examined_max: int = 10_000
    tries_max: int = 1_000
    searches_max: int = 8
    slice_steps: int = 1_000
    overdue_grace_us: int = 30_000_000
    promise_refresh_us: int = 1_000_000
    improved_max: int = 0
    tasks_ahead_max: int = 10_000


class BrokenPromise(msgspec.Struct, frozen=True):
    """A job whose start an earlier planner promised, and which starts later or at an unknown time (`start_us` 0)."""

    job_id: int
    promised_us: int
    start_us: int
    why: str


class Plan(msgspec.Struct, frozen=True):
    """The result of a cycle: starts in order, bookings, and waiting reasons.

    `moves` lists by job the rules that postponed its planned start, the last one last. `next_us` is the next planned start
    (`INFINITY_US`: none); `is_unfinished`: a bound ended the cycle, the next one continues. `victims` make room for the
    waiting job `preemptor`. `moved` are promises that differ from the log, `promised` those not in it; both only where
    promises are kept. `broken` are promises of an earlier planner that this one could not keep. `granted` and `extended`
    answer wishes.
    """

    generation: int
    made_us: int
    placements: tuple[Placement, ...]
    bookings: Mapping[int, tuple[Booking, ...]]
    waiting: Mapping[int, Why]
    rest: Why
    examined: int
    moves: Mapping[int, tuple[Move, ...]]
    next_us: int = INFINITY_US
    is_unfinished: bool = False
    preemptor: int = 0
    victims: tuple[Victim, ...] = ()
    moved: tuple[Promise, ...] = ()
    promised: tuple[Promise, ...] = ()
    broken: tuple[BrokenPromise, ...] = ()
    granted: tuple[MoveGrant, ...] = ()
    extended: tuple[ExtendGrant, ...] = ()

    def why(self, job_id: int) -> Why:
        """The reason why a pending job was not placed; jobs that were not examined share one."""
        return self.waiting.get(job_id, self.rest)

    def promises(self) -> list[Booking]:
        """All bookings, in the order of their starts."""
        found = [booking for bookings in self.bookings.values() for booking in bookings]
        return sorted(found, key=lambda booking: (booking.start_us, booking.job_id))

    def start_us(self, job_id: int) -> int | None:
        """The planned start of a waiting job, if any; for an array, of its first task."""
        return min((booking.start_us for booking in self.bookings.get(job_id, ())), default=None)
