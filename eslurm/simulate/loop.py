"""The event loop: jobs arrive and end in virtual time, and one planning cycle runs at each such instant.

The loop believes the planner nothing: what it places is booked on a second account of every node's amounts. Invariant
(`Broken` otherwise): no node ever gives more than it has, every job starts exactly once and not before it came; under
`conservative`, when no job outlives its estimate, nobody starts later than it was first promised.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Final

import msgspec

from eslurm.core.plan.mapping import Placement
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import add, is_negative, subtract
from eslurm.simulate.machine import Machine
from eslurm.simulate.seat import Seat
from eslurm.simulate.workload import Job, Workload

KEEPS_PROMISES: Final = "conservative"
PROGRESS_EVENTS: Final = 256


class Broken(Exception):
    """The planner did what it must never do; the text names the job and the instant."""


class Ran(msgspec.Struct, frozen=True, gc=False):
    """How one job went. `spans` are (position, cores) in the order of the nodes."""

    job: Job
    start_us: int
    end_us: int
    spans: tuple[tuple[int, int], ...]

    @property
    def wait_us(self) -> int:
        return self.start_us - self.job.submit_us


class Result(msgspec.Struct, frozen=True):
    """One run: jobs in the order of their start, and what can only be seen on the way.

    `lost_us` are processor microseconds idle while a job waited that would have fitted on them (see
    `metrics.Metrics.loss_of_capacity`).
    """

    policy: str
    machine: Machine
    ran: tuple[Ran, ...]
    lost_us: int
    cycles: int
    waiting_max: int


class Step(msgspec.Struct, frozen=True):
    """Where a run is, for people who watch it."""

    done: int
    jobs: int
    waiting: int
    now_us: int


def replay(
    workload: Workload, machine: Machine, policy: str, progress: Callable[[Step], None] | None = None
) -> Result:
    """Runs all jobs to their end. Raises `Broken`, and `ValueError` for an unknown policy."""
    return _Loop(workload, machine, policy, progress).run()


class _Loop:
    def __init__(
        self, workload: Workload, machine: Machine, policy: str, progress: Callable[[Step], None] | None
    ) -> None:
        self._jobs = workload.jobs
        self._machine = machine
        self._policy = policy
        self._progress = progress
        self._seat = Seat(machine, policy)
        self._account = _Account(machine)
        self._promises = _Promises(policy == KEEPS_PROMISES and workload.keeps_estimates)
        self._idle = _Idle(machine.processors)
        self._ends: list[tuple[int, int, Placement]] = []
        self._ran: list[Ran] = []
        self._started: set[int] = set()
        self._arrived = 0
        self._cycles = 0
        self._waiting_max = 0

    def run(self) -> Result:
        now_us = self._next(0)
        events = 0
        while now_us < INFINITY_US:
            self._idle.advance(now_us)
            self._end(now_us)
            self._arrive(now_us)
            if self._seat.waiting:
                self._cycle(now_us)
            events += 1
            if self._progress is not None and events % PROGRESS_EVENTS == 0:
                self._progress(Step(len(self._ran), len(self._jobs), self._seat.waiting, now_us))
            now_us = self._next(now_us)
        if len(self._ran) < len(self._jobs):
            missing = next(job for job in self._jobs if job.pending.job_id not in self._started)
            raise Broken(
                f"job {missing.name} was never started, and nothing happens any more that could change that"
            )
        return Result(
            self._policy, self._machine, tuple(self._ran), self._idle.lost_us, self._cycles, self._waiting_max
        )

    def _next(self, now_us: int) -> int:
        """The next instant at which anything happens by itself; planned starts count, rules may open then."""
        next_us = self._ends[0][0] if self._ends else INFINITY_US
        if self._arrived < len(self._jobs):
            next_us = min(next_us, self._jobs[self._arrived].submit_us)
        if self._seat.waiting:
            next_us = min(next_us, self._seat.wake_us(now_us))
        return next_us

    def _end(self, now_us: int) -> None:
        while self._ends and self._ends[0][0] <= now_us:
            _, _, placement = heapq.heappop(self._ends)
            self._seat.leave(placement)
            self._account.give_back(placement)
            self._idle.take(-self._jobs[placement.job_id - 1].processors)

    def _arrive(self, now_us: int) -> None:
        while self._arrived < len(self._jobs) and self._jobs[self._arrived].submit_us <= now_us:
            job = self._jobs[self._arrived]
            self._arrived += 1
            self._seat.arrive(job.pending, job.expected_us)
            self._promises.expect(job)
            self._idle.wait(job.processors)

    def _cycle(self, now_us: int) -> None:
        self._cycles += 1
        for placement in self._seat.plan(now_us):
            self._start(placement, now_us)
        self._promises.note(self._seat)
        self._waiting_max = max(self._waiting_max, self._seat.waiting)

    def _start(self, placement: Placement, now_us: int) -> None:
        job = self._jobs[placement.job_id - 1]
        if placement.job_id in self._started or job.submit_us > now_us:
            raise Broken(
                f"job {job.name} was started a second time, or before it was submitted, at {now_us} us"
            )
        self._started.add(placement.job_id)
        self._promises.check(job, now_us)
        spans = self._account.take(placement, job, now_us)
        end_us = now_us + job.run_us
        heapq.heappush(self._ends, (end_us, placement.job_id, placement))
        self._ran.append(Ran(job, now_us, end_us, spans))
        self._idle.start(job.processors)


class _Account:
    """What every node has left, kept apart from the planner's own books."""

    def __init__(self, machine: Machine) -> None:
        self._topology = machine.topology
        self._free = list(machine.topology.totals)

    def take(self, placement: Placement, job: Job, now_us: int) -> tuple[tuple[int, int], ...]:
        """Books a start; the cores by position. Raises `Broken`."""
        spans: list[tuple[int, int]] = []
        for span in placement.spans:
            position = self._topology.positions[span.node]
            left = subtract(self._free[position], span.amounts)
            if is_negative(left):
                raise Broken(
                    f"node {self._topology.names[position]} was given to job {job.name} at {now_us} us beyond what it has: "
                    f"{span.amounts} of {self._free[position]} free"
                )
            self._free[position] = left
            spans.append((position, span.amounts[0]))
        if sum(cores for _, cores in spans) < job.processors:
            raise Broken(f"job {job.name} was started on fewer processors than it asked for, at {now_us} us")
        return tuple(spans)

    def give_back(self, placement: Placement) -> None:
        for span in placement.spans:
            position = self._topology.positions[span.node]
            self._free[position] = add(self._free[position], span.amounts)


class _Promises:
    """The first planned start of each job, and that it is kept."""

    def __init__(self, kept: bool) -> None:
        self._kept = kept
        self._without: dict[int, None] = {}
        self._first_us: dict[int, int] = {}

    def expect(self, job: Job) -> None:
        """A job has come: the next cycle may promise it a start."""
        if self._kept:
            self._without[job.pending.job_id] = None

    def note(self, seat: Seat) -> None:
        """A cycle is over."""
        for job_id in list(self._without):
            start_us = seat.promised_us(job_id)
            if start_us is not None:
                del self._without[job_id]
                self._first_us[job_id] = start_us

    def check(self, job: Job, now_us: int) -> None:
        """The job starts. Raises `Broken`."""
        self._without.pop(job.pending.job_id, None)
        promised_us = self._first_us.pop(job.pending.job_id, None)
        if promised_us is not None and now_us > promised_us:
            raise Broken(
                f"job {job.name} starts {(now_us - promised_us) / 1e6:g} s later than it was first promised "
                f"(promised {promised_us} us, starts {now_us} us)"
            )


class _Idle:
    """Sums up processors that are idle while a job waits that needs no more than them."""

    def __init__(self, processors: int) -> None:
        self._free = processors
        self._waiting: list[int] = []
        self._at_us = 0
        self.lost_us = 0

    def advance(self, now_us: int) -> None:
        """What was true since the last event ends now."""
        if self._waiting and self._waiting[0] <= self._free:
            self.lost_us += self._free * (now_us - self._at_us)
        self._at_us = now_us

    def wait(self, processors: int) -> None:
        insort(self._waiting, processors)

    def start(self, processors: int) -> None:
        del self._waiting[bisect_left(self._waiting, processors)]
        self.take(processors)

    def take(self, processors: int) -> None:
        self._free -= processors
