"""The planner as a controller drives it: ledger, queue, running work and schedule live on from cycle to cycle.

Invariant: the ledger holds exactly what was placed and has not been given back, the queue what arrived and was not placed.
"""

from __future__ import annotations

from collections.abc import Iterator

from eslurm.core.model.placement import Placement
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.plan.cycle.queue import PendingQueue
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import Running, RunningKey, Snapshot
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.lab.workloads.changes import ENDED
from eslurm.lab.workloads.machine import Machine
from eslurm.lab.workloads.overdue import Overdue
from eslurm.lab.workloads.workload import Job

UNBOUNDED = 1 << 30
LIMITS = PlanLimits(
    placements_max=UNBOUNDED, examined_max=UNBOUNDED, tries_max=UNBOUNDED, searches_max=UNBOUNDED
)
"""Virtual time waits for the planner: nothing has to be cut short."""


class PlannerDriver:
    """One policy on one machine without any rules. `plan` is the only way in which jobs start."""

    keeps_promises = True

    def __init__(self, machine: Machine, policy: str) -> None:
        self._machine = machine
        self._policy = policy
        self._ledger = Ledger(machine.topology)
        self._queue = PendingQueue()
        self._running: dict[RunningKey, Running] = {}
        self._schedule = Schedule()
        self._generation = 0
        self._lengths_us: dict[int, int] = {}
        self._overdue = Overdue()

    @property
    def waiting(self) -> int:
        """Number of waiting jobs."""
        return len(self._queue)

    @property
    def wants_cycle(self) -> bool:
        """Check whether a planning cycle could do anything."""
        return bool(self._queue)

    def advance(self, now_us: int) -> None:
        """Time has passed: nothing depends on it here."""

    def arrive(self, job: Job) -> str:
        """A job is submitted; why it is refused, "" if it is not."""
        self._queue.add(job.pending)
        if job.expected_us:
            self._lengths_us[job.pending.job_id] = job.expected_us
        self._generation += 1
        return ""

    def leave(self, placement: Placement) -> str:
        """A job that was placed so has ended; what becomes of it."""
        self._ledger.give_back_wide(placement.wide)
        for span in placement.spans:
            self._ledger.give_back(span.node, span.amounts, placement.until_us)
        key = (placement.job_id, 1)
        del self._running[key]
        self._overdue.leave(key)
        self._generation += 1
        return ENDED

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
        self._overdue.follow(self._schedule, now_us)

    def promised_us(self, job_id: int) -> int | None:
        """The start that the last cycle planned for a waiting job; None: it has none."""
        return min((booking.start_us for booking in self._schedule.bookings.get(job_id, ())), default=None)

    def wake_us(self, now_us: int) -> int:
        """The next instant at which to plan though nothing comes or ends; `INFINITY_US` without one."""
        return self._overdue.wake_us(self._schedule, now_us) if self._queue else INFINITY_US

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
        self._overdue.start(key, expected_us, placement.until_us)
