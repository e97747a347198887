"""The loop of events of a two-level simulation (R-10..R-14): jobs of the batch level, tasks of their applications.

Time moves from one event of either level to the next (R-12). At an instant applications go first: chunks end, idle cores
are reported; then jobs end and come; then the batch level plans, until nothing is left to do. Nothing is drawn and no clock
is read, so two runs of the same input are equal, which `Course.digest` shows.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from eslurm.core.model.placement import Placement
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import CORES
from eslurm.lab.applications.application import Application, Computed, Core, Program
from eslurm.lab.applications.batch import Asked, BatchLevel, Idle
from eslurm.lab.applications.core_account import CoreAccount
from eslurm.lab.applications.unreported import PATIENCE_US, Unreported
from eslurm.lab.workloads.account import Broken
from eslurm.lab.workloads.machine import Machine
from eslurm.lab.workloads.workload import Job

PROGRESS_EVENTS: Final = 4_096


class Overheads(msgspec.Struct, frozen=True):
    """Microseconds that a cluster of real processes takes for what is done at once here."""

    launch_us: int = 0
    """From a job's placement to its first task."""
    finish_us: int = 0
    """From a job's last task until its cores are free."""
    report_us: int = 0
    """From an application's report of idle cores until others may use them."""


class Task(msgspec.Struct, frozen=True, gc=False):
    """A chunk in a trace."""

    job_id: int
    chunk: Computed


class Lent(msgspec.Struct, frozen=True, gc=False):
    """A core that its owner gave to others at an instant."""

    job_id: int
    core: Core
    at_us: int


class Lived(msgspec.Struct, frozen=True):
    """One job's run. `idle` counts its cores that became idle before its end, `borrowed` those that another job owned."""

    job: Job
    kind: str
    start_us: int
    end_us: int
    cores: tuple[Core, ...]
    imbalance: float
    chunks: int
    idle: int
    borrowed: int

    @property
    def wait_us(self) -> int:
        return self.start_us - self.job.submit_us


class Course(msgspec.Struct, frozen=True):
    """A run: jobs in the order of their start, the accounts of all cores, what was lent, and, if asked for, all tasks."""

    machine: Machine
    lived: tuple[Lived, ...]
    busy_us: int
    lent_us: int
    cycles: int
    reports: int
    requests: int
    granted: int
    digest: str
    """SHA-256 over every event of both levels, in their order."""
    tasks: tuple[Task, ...] = ()
    lent: tuple[Lent, ...] = ()

    @property
    def used_us(self) -> int:
        """Core microseconds that jobs had cores, computing or not."""
        return sum(end_us - start_us for _, _, start_us, end_us in self.stays())

    def stays(self) -> Iterator[tuple[int, Core, int, int]]:
        """(job, core, from, until) in the order of the jobs' starts: until its end, or until it left the core to others."""
        left = {(one.job_id, one.core): one.at_us for one in self.lent}
        for one in self.lived:
            job_id = one.job.pending.job_id
            for core in one.cores:
                yield job_id, core, one.start_us, left.get((job_id, core), one.end_us)

    def cores(self) -> list[Core]:
        """All cores of the machine, in the order of its nodes."""
        totals = self.machine.topology.totals
        return [(position, core) for position, total in enumerate(totals) for core in range(total[CORES])]

    def name_of(self, core: Core) -> str:
        """The core's node, and its number there if there are more."""
        topology = self.machine.topology
        name = topology.names[core[0]]
        return name if topology.totals[core[0]][CORES] == 1 else f"{name} core {core[1]}"


class Item(msgspec.Struct, frozen=True):
    """A job with its program; `kind` groups jobs in results."""

    job: Job
    program: Program
    kind: str = ""


def simulate(
    items: Sequence[Item],
    machine: Machine,
    batch: BatchLevel,
    *,
    traced: bool = False,
    patience_us: int = PATIENCE_US,
    overheads: Overheads | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Course:
    """Run all jobs, in the order of their submission, to their ends. Raises `Broken`."""
    return _Loop(items, machine, batch, traced, patience_us, overheads or Overheads(), progress).run()


class _Live(msgspec.Struct, gc=False):
    """A job that runs, its tasks from `begin_us` on. `idle` counts the cores that it has reported at each position."""

    item: Item
    placement: Placement
    application: Application
    cores: list[Core]
    start_us: int
    begin_us: int
    at: int
    borrowed: int
    idle: dict[int, int]
    unreported: Unreported
    became_idle: int = 0


class _Loop:
    def __init__(
        self,
        items: Sequence[Item],
        machine: Machine,
        batch: BatchLevel,
        traced: bool,
        patience_us: int,
        overheads: Overheads,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._items = items
        self._patience_us = patience_us
        self._overheads = overheads
        self._by_id = {item.job.pending.job_id: item for item in items}
        self._machine = machine
        self._batch = batch
        self._account = CoreAccount(machine)
        self._progress = progress
        self._live: dict[int, _Live] = {}
        # (instant of its next chunk's end, job): one for each running job.
        self._events: list[tuple[int, int]] = []
        # (instant of a report, job).
        self._due: list[tuple[int, int]] = []
        # (instant at which its cores are free, job): one for each job that has done its tasks.
        self._ending: list[tuple[int, int]] = []
        self._lived: list[Lived | None] = []
        self._arrived = 0
        self._ended = 0
        self._cycles = 0
        self._reports = 0
        self._asked = self._granted = 0
        self._wake_us = INFINITY_US
        self._hash = hashlib.sha256()
        self._tasks: list[Task] | None = [] if traced else None
        self._lent: list[Lent] = []

    def run(self) -> Course:
        events = 0
        now_us = self._next_us()
        while now_us < INFINITY_US:
            changed = self._applications(now_us)
            changed |= self._release(now_us)
            changed |= self._report(now_us)
            changed |= self._arrive(now_us)
            if changed or now_us >= self._wake_us:
                self._plan(now_us)
            events += 1
            if self._progress is not None and events % PROGRESS_EVENTS == 0:
                self._progress(self._ended, len(self._items))
            now_us = self._next_us()
        if self._ended < len(self._items):
            raise Broken(f"{len(self._items) - self._ended} jobs never ended, and nothing happens any more")
        lived = tuple(one for one in self._lived if one is not None)
        return Course(
            self._machine,
            lived,
            self._account.busy_us,
            self._account.lent_us,
            self._cycles,
            self._reports,
            self._asked,
            self._granted,
            self._hash.hexdigest(),
            tuple(self._tasks or ()),
            tuple(self._lent),
        )

    def _next_us(self) -> int:
        next_us = self._events[0][0] if self._events else INFINITY_US
        if self._arrived < len(self._items):
            next_us = min(next_us, self._items[self._arrived].job.submit_us)
        if self._due:
            next_us = min(next_us, self._due[0][0])
        if self._ending:
            next_us = min(next_us, self._ending[0][0])
        return min(next_us, self._wake_us)

    def _applications(self, now_us: int) -> bool:
        """Let applications go on to this instant; whether the batch level has something to plan with."""
        changed = False
        while self._events and self._events[0][0] <= now_us:
            _, job_id = heapq.heappop(self._events)
            live = self._live[job_id]
            for chunk in live.application.advance(now_us):
                self._account.computed(job_id, chunk)
                self._note(
                    b"chunk", job_id, *chunk.core, chunk.start, chunk.stop, chunk.begin_us, chunk.end_us
                )
                if self._tasks is not None:
                    self._tasks.append(Task(job_id, chunk))
            changed |= self._follow(job_id, live, now_us)
        return changed

    def _follow(self, job_id: int, live: _Live, now_us: int) -> bool:
        """Pass on what an application reports, and its end; whether there is something to plan with."""
        application = live.application
        idle = application.take_idle()
        if application.is_done:
            heapq.heappush(self._ending, (now_us + self._overheads.finish_us, job_id))
            return self._release(now_us)
        next_us = application.next_us
        if next_us is None:
            raise Broken(f"job {job_id} has tasks left and no core computes them, at {now_us} us")
        heapq.heappush(self._events, (next_us, job_id))
        live.became_idle += len(idle)
        if idle and self._batch.cooperates and application.is_uneven:
            due_us = live.unreported.add(idle, max(now_us, live.begin_us))
            heapq.heappush(self._due, (due_us + self._overheads.report_us, job_id))
        return False

    def _release(self, now_us: int) -> bool:
        """End the jobs whose cores are free by now; whether there are any."""
        changed = False
        while self._ending and self._ending[0][0] <= now_us:
            _, job_id = heapq.heappop(self._ending)
            self._end(job_id, self._live[job_id], now_us)
            changed = True
        return changed

    def _report(self, now_us: int) -> bool:
        """Report the cores that have been idle for long enough; whether there are any."""
        changed = False
        while self._due and self._due[0][0] <= now_us:
            _, job_id = heapq.heappop(self._due)
            live = self._live.get(job_id)
            if live is None or live.application.is_done:
                continue
            cores = live.unreported.take(now_us - self._overheads.report_us)
            if cores:
                self._say(job_id, live, cores, now_us)
                changed = True
        return changed

    def _say(self, job_id: int, live: _Live, cores: list[Core], now_us: int) -> None:
        for core in cores:
            live.idle[core[0]] = live.idle.get(core[0], 0) + 1
            self._account.lend(job_id, core, now_us)
            self._lent.append(Lent(job_id, core, now_us))
            self._note(b"idle", job_id, *core, now_us)
        remaining_us = live.application.remaining_us
        positions = sorted({position for position, _ in cores})
        self._reports += 1
        self._batch.idle(
            [Idle(job_id, position, live.idle[position], remaining_us) for position in positions]
        )

    def _end(self, job_id: int, live: _Live, now_us: int) -> None:
        self._account.end(job_id, live.cores, now_us)
        self._batch.leave(live.placement)
        del self._live[job_id]
        self._ended += 1
        self._note(b"end", job_id, now_us)
        self._lived[live.at] = Lived(
            live.item.job,
            live.item.kind,
            live.start_us,
            now_us,
            tuple(live.cores),
            live.application.imbalance,
            live.application.chunks,
            live.became_idle,
            live.borrowed,
        )

    def _arrive(self, now_us: int) -> bool:
        changed = False
        while self._arrived < len(self._items) and self._items[self._arrived].job.submit_us <= now_us:
            job = self._items[self._arrived].job
            self._arrived += 1
            changed = True
            refusal = self._batch.arrive(job)
            if refusal:
                raise Broken(f"job {job.name} is refused: {refusal}")
        return changed

    def _plan(self, now_us: int) -> None:
        """Plan until no job starts that has idle cores at once, and pass on requests."""
        self._batch.advance(now_us)
        again = True
        while again and self._batch.wants_cycle:
            self._cycles += 1
            started = []
            for change in self._batch.plan(now_us):
                assert isinstance(change, Placement), f"jobs without priorities make no room: {change}"
                started.append(self._start(change, now_us))
            again = False
            for job_id in started:
                again |= self._follow(job_id, self._live[job_id], now_us)
        for asked in self._batch.take_asked():
            self._ask(asked, now_us)
        self._wake_us = self._batch.wake_us(now_us) if self._batch.waiting else INFINITY_US

    def _ask(self, asked: Asked, now_us: int) -> None:
        """Put a request to an application. What it grants becomes idle later, and is reported as all else."""
        self._asked += 1
        granted = self._live[asked.job_id].application.ask(asked.cores)
        self._granted += granted
        self._note(b"granted" if granted else b"refused", asked.job_id, asked.cores, now_us)
        if not granted:
            self._batch.refuse(asked)

    def _start(self, placement: Placement, now_us: int) -> int:
        job_id = placement.job_id
        item = self._by_id.pop(job_id, None)
        if item is None or item.job.submit_us > now_us:
            raise Broken(
                f"job {job_id} was started a second time, or before it was submitted, at {now_us} us"
            )
        cores = self._account.start(placement, now_us)
        if len(cores) < item.job.processors:
            raise Broken(
                f"job {item.job.name} got {len(cores)} cores of {item.job.processors}, at {now_us} us"
            )
        borrowed = sum(core in self._account.owners for core in cores)
        begin_us = now_us + self._overheads.launch_us
        application = Application(item.program, cores, begin_us)
        unreported = Unreported(begin_us, self._patience_us)
        self._live[job_id] = _Live(
            item,
            placement,
            application,
            cores,
            now_us,
            begin_us,
            len(self._lived),
            borrowed,
            {},
            unreported,
        )
        self._lived.append(None)
        self._note(b"start", job_id, now_us, *(number for core in cores for number in core))
        return job_id

    def _note(self, kind: bytes, *values: int) -> None:
        self._hash.update(b"%s %b\n" % (kind, repr(values).encode()))
