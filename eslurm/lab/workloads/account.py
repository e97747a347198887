"""The loop's own account beside the planner's: free amounts of every node, promises, and idle processors."""

from __future__ import annotations

from bisect import bisect_left, insort

from eslurm.core.model.placement import Placement
from eslurm.core.resources.vector import CORES, Vector, add, is_negative, subtract
from eslurm.lab.workloads.core_driver import CoreDriver
from eslurm.lab.workloads.machine import Machine
from eslurm.lab.workloads.planner_driver import PlannerDriver
from eslurm.lab.workloads.workload import Job


class Broken(Exception):
    """The planner did what it must never do; the text names the job and the instant."""


class ProcessorAccount:
    """The free amounts of every node."""

    def __init__(self, machine: Machine) -> None:
        self._topology = machine.topology
        self._free = list(machine.topology.totals)

    def take(self, placement: Placement, job: Job, now_us: int) -> tuple[tuple[int, int], ...]:
        """Books a start; the cores by position. Raises `Broken`."""
        spans: list[tuple[int, int]] = []
        for span in placement.spans:
            position = self._topology.positions[span.node]
            self._take(position, span.amounts, job, now_us)
            spans.append((position, span.amounts[0]))
        if sum(cores for _, cores in spans) < job.processors:
            raise Broken(f"job {job.name} was started on fewer processors than it asked for, at {now_us} us")
        return tuple(spans)

    def give_back(self, placement: Placement) -> None:
        """It has ended."""
        for span in placement.spans:
            position = self._topology.positions[span.node]
            self._free[position] = add(self._free[position], span.amounts)

    def lend(self, placement: Placement) -> None:
        """It stands still: its cores are others', all else stays its own."""
        for span in placement.spans:
            position = self._topology.positions[span.node]
            self._free[position] = add(self._free[position], _cores_of(span.amounts))

    def take_back(self, placement: Placement, job: Job, now_us: int) -> None:
        """It goes on. Raises `Broken` when its cores are not free."""
        for span in placement.spans:
            position = self._topology.positions[span.node]
            self._take(position, _cores_of(span.amounts), job, now_us)

    def _take(self, position: int, amounts: Vector, job: Job, now_us: int) -> None:
        left = subtract(self._free[position], amounts)
        if is_negative(left):
            raise Broken(
                f"node {self._topology.names[position]} was given to job {job.name} at {now_us} us beyond what it has: "
                f"{amounts} of {self._free[position]} free"
            )
        self._free[position] = left


def _cores_of(amounts: Vector) -> Vector:
    return amounts[: CORES + 1]


class Promises:
    """The first planned start of each job, and that it is kept."""

    def __init__(self, kept: bool) -> None:
        self._kept = kept
        self._without: dict[int, None] = {}
        self._first_us: dict[int, int] = {}

    def expect(self, job: Job) -> None:
        """A job has come: the next cycle may promise it a start."""
        if self._kept:
            self._without[job.pending.job_id] = None

    def note(self, seat: PlannerDriver | CoreDriver) -> None:
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


class Idle:
    """Sums up processors that are idle while a job waits that needs no more than them."""

    def __init__(self, processors: int) -> None:
        self._free = processors
        self._waiting: list[int] = []
        self._at_us = 0
        self.lost_us = 0

    def advance(self, now_us: int) -> None:
        """Close the interval since the last event."""
        if self._waiting and self._waiting[0] <= self._free:
            self.lost_us += self._free * (now_us - self._at_us)
        self._at_us = now_us

    def wait(self, processors: int) -> None:
        """One more waits."""
        insort(self._waiting, processors)

    def start(self, processors: int) -> None:
        """One of those that wait starts."""
        del self._waiting[bisect_left(self._waiting, processors)]
        self.take(processors)

    def take(self, processors: int) -> None:
        """So many are busy now, or with a minus free again."""
        self._free -= processors
