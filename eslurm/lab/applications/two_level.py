"""The loop of events of a two-level simulation (R-10..R-14): jobs of the batch level, tasks of their applications.

Time moves from one event of either level to the next (R-12). At an instant applications go first: chunks end, idle cores
are reported; then jobs end and come; then the batch level plans, until nothing is left to do. Nothing is drawn and no clock is
read, so two runs of the same input are equal, which `Course.digest` shows.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from eslurm.core.model.placement import Placement
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.lab.applications.application import Application, Computed, Core, Program
from eslurm.lab.applications.batch import BatchLevel, Offer, Wish
from eslurm.lab.applications.core_account import CoreAccount
from eslurm.lab.workloads.account import Broken
from eslurm.lab.workloads.machine import Machine
from eslurm.lab.workloads.workload import Job

PROGRESS_EVENTS: Final = 4_096


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
    """One job's run.

    `reported` counts its cores that became idle before its end, `borrowed` its cores that a job had reported and still owned,
    `lent` those that it got by a request.
    """

    job: Job
    kind: str
    start_us: int
    end_us: int
    cores: tuple[Core, ...]
    imbalance: float
    chunks: int
    reported: int
    borrowed: int
    lent: int

    @property
    def wait_us(self) -> int:
        return self.start_us - self.job.submit_us


class Course(msgspec.Struct, frozen=True):
    """A run: jobs in the order of their start, the accounts of all cores, and the trace where it was asked for."""

    machine: Machine
    lived: tuple[Lived, ...]
    busy_us: int
    lent_us: int
    cycles: int
    reports: int
    requests: int
    digest: str
    """SHA-256 over every event of both levels, in their order."""
    tasks: tuple[Task, ...] = ()
    lent: tuple[Lent, ...] = ()


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
    progress: Callable[[int, int], None] | None = None,
) -> Course:
    """Run all jobs, in the order of their submission, to their ends. Raises `Broken`."""
    return _Loop(items, machine, batch, traced, progress).run()


class _Live(msgspec.Struct, gc=False):
    """A job that runs.

    `loans` are the owners of the cores that it has for its time alone, `returned` those of them that it has given back.
    """

    item: Item
    placement: Placement
    application: Application
    cores: list[Core]
    start_us: int
    at: int
    borrowed: int
    loans: dict[Core, int]
    returned: set[Core]
    waste: list[Core]
    """Idle cores that the batch level has not heard of."""
    reported: int = 0
    due_us: int = -1
    """Instant of its next event; an event at another one is none any more."""


class _Loop:
    def __init__(
        self,
        items: Sequence[Item],
        machine: Machine,
        batch: BatchLevel,
        traced: bool,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._items = items
        self._by_id = {item.job.pending.job_id: item for item in items}
        self._machine = machine
        self._batch = batch
        self._account = CoreAccount(machine)
        self._progress = progress
        self._live: dict[int, _Live] = {}
        # (instant of its next chunk's end, job); valid where the job is due then.
        self._events: list[tuple[int, int]] = []
        self._lived: list[Lived | None] = []
        self._arrived = 0
        self._ended = 0
        self._cycles = 0
        self._reports = 0
        self._asked = 0
        self._wake_us = INFINITY_US
        self._hash = hashlib.sha256()
        self._tasks: list[Task] | None = [] if traced else None
        self._lent: list[Lent] = []

    def run(self) -> Course:
        events = 0
        now_us = self._next_us()
        while now_us < INFINITY_US:
            changed = self._applications(now_us)
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
            self._hash.hexdigest(),
            tuple(self._tasks or ()),
            tuple(self._lent),
        )

    def _next_us(self) -> int:
        next_us = self._events[0][0] if self._events else INFINITY_US
        if self._arrived < len(self._items):
            next_us = min(next_us, self._items[self._arrived].job.submit_us)
        return min(next_us, self._wake_us)

    def _applications(self, now_us: int) -> bool:
        """Let applications go on to this instant; whether the batch level has something to plan with."""
        changed = False
        while self._events and self._events[0][0] <= now_us:
            at_us, job_id = heapq.heappop(self._events)
            live = self._live.get(job_id)
            if live is None or live.due_us != at_us:
                continue
            live.due_us = -1
            for chunk in live.application.advance(now_us):
                self._computed(job_id, chunk)
            changed |= self._follow(job_id, live, now_us)
        return changed

    def _computed(self, job_id: int, chunk: Computed) -> None:
        self._account.computed(job_id, chunk)
        self._note(b"computed", job_id, *chunk.core, chunk.start, chunk.stop, chunk.begin_us, chunk.end_us)
        if self._tasks is not None:
            self._tasks.append(Task(job_id, chunk))

    def _schedule(self, job_id: int, live: _Live) -> None:
        """Come back to the application when a core has done its chunk."""
        next_us = live.application.next_us
        if next_us is not None and next_us != live.due_us:
            live.due_us = next_us
            heapq.heappush(self._events, (next_us, job_id))

    def _follow(self, job_id: int, live: _Live, now_us: int) -> bool:
        """Pass on what an application reports, and its end; whether there is something to plan with."""
        idle = live.application.take_idle()
        if live.application.is_done:
            self._end(job_id, live, now_us)
            return True
        self._schedule(job_id, live)
        changed = False
        borrowed = [core for core in idle if core in live.loans and core not in live.returned]
        if borrowed:
            self._return(job_id, live, borrowed, now_us)
        idle = [core for core in idle if core not in live.loans]
        if idle:
            live.reported += len(idle)
            live.waste += idle
        if live.waste and self._batch.hears(job_id, live.application.left_us):
            changed = True
            self._reports += 1
            self._batch.idle(job_id, live.waste)
            for core in live.waste:
                self._account.lend(job_id, core)
                self._lent.append(Lent(job_id, core, now_us))
                self._note(b"reported", job_id, *core, now_us)
            live.waste = []
        return changed

    def _return(self, job_id: int, live: _Live, cores: Sequence[Core], now_us: int) -> None:
        """Give borrowed cores back to their owners, which go on with what they were at."""
        by_owner: dict[int, list[Core]] = {}
        for core in cores:
            by_owner.setdefault(live.loans[core], []).append(core)
        for owner, theirs in by_owner.items():
            self._batch.give_back(job_id, owner, theirs)
            for core in theirs:
                self._account.release(job_id, core)
            self._resume(owner, theirs, now_us)
        live.returned.update(cores)

    def _resume(self, owner: int, cores: Sequence[Core], now_us: int) -> None:
        live = self._live[owner]
        for core in cores:
            self._account.take_back(owner, core)
            live.application.take_back(core, now_us)
            self._note(b"returned", owner, *core, now_us)
        self._schedule(owner, live)

    def _end(self, job_id: int, live: _Live, now_us: int) -> None:
        self._return(job_id, live, [core for core in live.loans if core not in live.returned], now_us)
        self._account.end(job_id, [core for core in live.cores if core not in live.loans])
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
            live.reported,
            live.borrowed,
            len(live.loans),
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
        """Plan, and ask applications for what the first waiting job misses, until nothing follows from it."""
        self._batch.advance(now_us)
        again = True
        while again and self._batch.wants_cycle:
            self._cycles += 1
            started = [self._start(placement, now_us, {}) for placement in self._batch.plan(now_us)]
            again = False
            for job_id in started:
                again |= self._follow(job_id, self._live[job_id], now_us)
            wish = self._batch.find_wish()
            if wish is not None and not again:
                again = self._ask(wish, now_us)
        self._wake_us = self._batch.wake_us(now_us) if self._batch.waiting else INFINITY_US

    def _ask(self, wish: Wish, now_us: int) -> bool:
        """Ask all applications for the cores that a job misses; whether it has started."""
        offers = [
            Offer(job_id, cores, live.application.left_us)
            for job_id, live in self._live.items()
            # Cores that are not its own are not a job's to lend.
            if not live.loans and (cores := live.application.offer(wish.loan_us))
        ]
        self._asked += 1
        loans: dict[Core, int] = {}
        for job_id, count in self._batch.choose(wish, offers):
            live = self._live[job_id]
            cores, done = live.application.lend(count, now_us)
            for chunk in done:
                self._computed(job_id, chunk)
            self._batch.lend(job_id, cores)
            for core in cores:
                loans[core] = job_id
                self._account.lend(job_id, core)
                self._note(b"lent", job_id, *core, now_us)
            self._schedule(job_id, live)
        if not loans:
            return False
        self._cycles += 1
        for placement in self._batch.plan(now_us):
            self._start(placement, now_us, loans)
        borrower = self._live.get(wish.job_id)
        if borrower is None or set(loans) != set(borrower.loans):
            raise Broken(f"cores were lent for job {wish.job_id} and it did not get them, at {now_us} us")
        self._follow(wish.job_id, borrower, now_us)
        return True

    def _start(self, placement: Placement, now_us: int, loans: dict[Core, int]) -> int:
        job_id = placement.job_id
        item = self._by_id.pop(job_id, None)
        if item is None or item.job.submit_us > now_us:
            raise Broken(f"job {job_id} was started a second time, or before it was submitted, at {now_us} us")
        cores = self._account.start(placement, now_us)
        if len(cores) < item.job.processors:
            raise Broken(f"job {item.job.name} got {len(cores)} cores of {item.job.processors}, at {now_us} us")
        mine = {core: loans[core] for core in cores if core in loans}
        borrowed = sum(core in self._account.owners and core not in mine for core in cores)
        application = Application(item.program, cores, now_us)
        self._live[job_id] = _Live(
            item, placement, application, cores, now_us, len(self._lived), borrowed, mine, set(), []
        )
        self._lived.append(None)
        self._note(b"start", job_id, now_us, *(number for core in cores for number in core))
        return job_id

    def _note(self, kind: bytes, *values: int) -> None:
        self._hash.update(b"%s %b\n" % (kind, repr(values).encode()))
