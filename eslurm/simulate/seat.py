"""The planner as a controller drives it: ledger, queue, running work and schedule live on from cycle to cycle.

Invariant: the ledger holds exactly what was placed and has not been given back, the queue what arrived and was not placed.
"""

from __future__ import annotations

from collections.abc import Iterator

from eslurm.core.plan.cycle import plan_at_once
from eslurm.core.plan.mapping import Placement
from eslurm.core.plan.policy import PlanLimits
from eslurm.core.plan.queue import Pending, PendingQueue
from eslurm.core.plan.schedule import Schedule
from eslurm.core.plan.snapshot import Running, RunningKey, Snapshot
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.simulate.machine import Machine

UNBOUNDED = 1 << 30
LIMITS = PlanLimits(
    placements_max=UNBOUNDED, examined_max=UNBOUNDED, tries_max=UNBOUNDED, searches_max=UNBOUNDED
)
"""Virtual time waits for the planner: nothing has to be cut short."""


class Seat:
    """One policy on one machine. `plan` is the only way in which jobs start."""

    def __init__(self, machine: Machine, policy: str) -> None:
        self._machine = machine
        self._policy = policy
        self._ledger = Ledger(machine.topology)
        self._queue = PendingQueue()
        self._running: dict[RunningKey, Running] = {}
        self._schedule = Schedule()
        self._generation = 0
        self._lengths_us: dict[int, int] = {}
        # When work that is past its estimate is thought to come back, as the schedule has it.
        self._expected_us: dict[RunningKey, int] = {}

    @property
    def waiting(self) -> int:
        """How many jobs wait."""
        return len(self._queue)

    def arrive(self, job: Pending, expected_us: int = 0) -> None:
        """A job is submitted. Once it runs it is expected to take so long (0: its limit)."""
        self._queue.add(job)
        if expected_us:
            self._lengths_us[job.job_id] = expected_us
        self._generation += 1

    def leave(self, placement: Placement) -> None:
        """A job that was placed so has ended."""
        self._ledger.give_back_wide(placement.wide)
        for span in placement.spans:
            self._ledger.give_back(span.node, span.amounts, placement.until_us)
        key = (placement.job_id, 1)
        del self._running[key]
        del self._expected_us[key]
        self._generation += 1

    def plan(self, now_us: int) -> Iterator[Placement]:
        """Cycles until nothing is left to do at this instant; what they place starts now, as soon as it is asked on."""
        is_unfinished = True
        while is_unfinished:
            snapshot = Snapshot.take(
                self._ledger,
                self._machine.partitions,
                self._queue,
                generation=self._generation,
                now_us=now_us,
                running=self._running,
                known=self._schedule.known_jobs(),
            )
            plan = plan_at_once(snapshot, policy=self._policy, limits=LIMITS, schedule=self._schedule)
            for placement in plan.placements:
                yield placement
                self._start(placement, now_us)
            is_unfinished = plan.is_unfinished
        for key, expected_us in self._expected_us.items():
            if expected_us <= now_us:
                self._expected_us[key] = self._schedule.end_us(key)

    def promised_us(self, job_id: int) -> int | None:
        """The start that the last cycle planned for a waiting job; None: it has none."""
        return min((booking.start_us for booking in self._schedule.bookings.get(job_id, ())), default=None)

    def wake_us(self, now_us: int) -> int:
        """The next planned start that comes whether or not anything ends before it; `INFINITY_US` without one.

        A start that was planned for when overdue work is expected back is none: that work's end is an event.
        """
        next_us = self._schedule.next_start_us()
        overdue = {
            expected_us
            for key, expected_us in self._expected_us.items()
            if expected_us > self._running[key].until_us
        }
        if now_us < next_us and next_us not in overdue:
            return next_us
        starts = (one.start_us for some in self._schedule.bookings.values() for one in some)
        return min(
            (at_us for at_us in starts if at_us > now_us and at_us not in overdue), default=INFINITY_US
        )

    def _start(self, placement: Placement, now_us: int) -> None:
        job = self._queue.remove(placement.job_id)
        self._ledger.hold_wide(placement.wide)
        for span in placement.spans:
            self._ledger.hold(span.node, span.amounts, placement.until_us)
        key = (placement.job_id, 1)
        pairs = tuple((span.node, span.amounts) for span in placement.spans)
        length_us = self._lengths_us.pop(job.job_id, 0)
        expected_us = min(now_us + length_us, placement.until_us) if length_us else 0
        self._running[key] = Running(
            placement.job_id,
            pairs,
            placement.until_us,
            placement.wide,
            job,
            expected_us=expected_us,
            since_us=now_us,
        )
        self._expected_us[key] = expected_us or placement.until_us
