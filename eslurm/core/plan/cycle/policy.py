"""The planning port inside the core: the `Policy` protocol, and the workbench `Cycle`.

A policy decides the order and which jobs are booked ahead; `Cycle` searches, places, gives reasons and accounts for work.
Invariant: the schedule's profile and the scratch ledger always contain every placement made so far, so no policy can
allocate the same resources twice, and no placement delays a booking.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final, Protocol

import msgspec

from eslurm.core.model.job import Span
from eslurm.core.model.placement import Placement
from eslurm.core.plan.cycle import pack_starts, packs, reasons
from eslurm.core.plan.cycle.assignments import assignment_of
from eslurm.core.plan.cycle.expected import shortest_for_its_wait_first
from eslurm.core.plan.cycle.placement_query import allows
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.queries import Queries
from eslurm.core.plan.cycle.queue import Pending, QueueEntry
from eslurm.core.plan.cycle.reasons import NOT_EXAMINED, Why
from eslurm.core.plan.cycle.schedule import Booking, Schedule, ends_of
from eslurm.core.plan.cycle.shortage import Reasons
from eslurm.core.plan.cycle.snapshot import Snapshot
from eslurm.core.plan.cycle.victims import Victim
from eslurm.core.plan.placement.compiled_request import CompiledRequest
from eslurm.core.plan.placement.mapping import spans_of
from eslurm.core.plan.placement.protocols import Assignment
from eslurm.core.plan.profile.profile import ProfileError
from eslurm.core.plan.profile.search import (
    NoStart,
    SearchBounds,
    first_start,
    start_exactly,
)
from eslurm.core.plan.slices import exhaust

LATE_US: Final = 60_000_000
"""A fixed start that was missed by no more than this still begins; so little is no reason to ask the rules anew."""


class Policy(Protocol):
    """The rule for the order of starts. It holds no state between cycles."""

    @property
    def name(self) -> str: ...

    def plan(self, cycle: Cycle) -> Generator[None, None, None]:
        """Place and book jobs on the cycle; yield whenever `cycle.slice_over()` is true."""
        ...


# Costs in the unit of `PlanLimits.slice_steps`.
SKIP_STEPS: Final = 1
TRY_STEPS: Final = 40
SPAN_STEPS: Final = 4


class Cycle:
    """One run of a policy over one snapshot, on the schedule of the last run."""

    def __init__(self, snapshot: Snapshot, schedule: Schedule, limits: PlanLimits) -> None:
        self.snapshot = snapshot
        self.schedule = schedule
        self.limits = limits
        self.now_us = snapshot.now_us
        self.ledger = snapshot.ledger.fork()
        self.placements: list[Placement] = []
        # By job, how many of its tasks have been placed.
        self.placed: dict[int, int] = {}
        self.waiting: dict[int, Why] = {}
        self.rest = NOT_EXAMINED
        self.examined = 0
        self.has_failed = False
        self.is_unfinished = False
        self.hints = SearchBounds()
        self.reasons = Reasons(self.ledger, schedule, self.now_us)
        self.reach = self._reachable()
        self.queries = Queries(snapshot, schedule)
        self._entries: dict[int, QueueEntry] = {}
        self._failed: dict[int, Why] = {}
        self._withdrawn: dict[int, tuple[QueueEntry, tuple[Booking, ...]]] = {}
        self._searches = 0
        self._steps = 0
        self._work = schedule.book.work

    # What there is

    def jobs(self) -> Iterator[Pending]:
        """The waiting jobs in planning order, while anything may still start.

        Jobs of partitions that are down, with a fixed start, or with preemption under way are skipped.
        """
        for entry in self.snapshot.pending:
            if self.is_exhausted or self.is_saturated:
                return
            self.examined += 1
            self._steps += SKIP_STEPS
            job = entry.job
            self._entries[job.job_id] = entry
            if job.start_at_us or job.job_id in self.schedule.preemptors:
                continue
            refused = self.queries.refused(job)
            if refused is not None:
                self.waiting[job.job_id] = refused
                continue
            yield job

    @property
    def is_saturated(self) -> bool:
        """Check whether no node of any partition that is up has a core free: nothing more can start."""
        return not self.ledger.open & self.reach

    @property
    def is_full(self) -> bool:
        """Check whether the cycle has reached its number of placements."""
        return len(self.placements) >= self.limits.placements_max

    @property
    def is_exhausted(self) -> bool:
        """Check whether the cycle has reached its number of placements or examinations."""
        return self.is_full or self.examined >= self.limits.examined_max

    def to_fill(self, jobs: Sequence[Pending]) -> Generator[None, None, Sequence[Pending]]:
        """The jobs that `jobs` has yielded, in backfill order: with forecasts, by priority, then the shortest for its
        wait.
        """
        if len(jobs) < 2 or not self.snapshot.has_estimates:
            return jobs
        entries = [self._entries[job.job_id] for job in jobs]
        found = yield from shortest_for_its_wait_first(entries, self.now_us)
        return [entry.job for entry in found]

    def members(self, job: Pending) -> int:
        """The positions of the job's partitions."""
        partitions = self.ledger.topology.partitions
        if not job.parts and not job.followers:
            return partitions.get(job.partition, 0)
        found = 0
        for name in job.partitions:
            found |= partitions.get(name, 0)
        return found

    def spend(self, steps: int) -> None:
        """Account for work done."""
        self._steps += steps

    def slice_over(self) -> bool:
        """Check whether it is time to yield; the next slice begins then."""
        work = self.schedule.book.work
        if self._steps + work - self._work < self.limits.slice_steps:
            return False
        self._steps, self._work = 0, work
        return True

    # Starting now

    def start_now(self, job: Pending) -> Generator[None, None, int]:
        """Place as many of the job's startable tasks as fit now without delaying a booking.

        Returns the number left waiting; `waiting` then has the reason. A request that failed once in a cycle fails again,
        since free resources only shrink: it is not tried again.
        """
        entry = self._entries[job.job_id]
        known = self._failed.get(entry.shape)
        if known is not None:
            self.waiting[job.job_id] = known
            return job.startable
        if job.followers:
            return (yield from self._start_pack_now(entry))
        query = self.queries.careful(entry)
        if isinstance(query, Why):
            self._failed[entry.shape] = self.waiting[job.job_id] = query
            return job.startable
        # A job that room was made for may have begun in this cycle already.
        left = job.startable - self.placed.get(job.job_id, 0)
        yield from self.schedule.book.preparing(query.need)
        while left > 0 and not self.is_full:
            found = start_exactly(self.schedule.book, query, self.now_us)
            self.spend(TRY_STEPS)
            if self.slice_over():
                yield
            if isinstance(found, NoStart):
                if (yield from self._begin_as_promised(entry)):
                    left -= 1
                    continue
                self.has_failed = True
                plain = self.queries.of(entry)
                why = self.reasons.why_not_now(query if isinstance(plain, Why) else plain, found.moves)
                self._failed[entry.shape] = self.waiting[job.job_id] = why
                break
            booking = self.booking(
                job, query.need, self.now_us, spans_of(self.ledger.topology, query.need, found.chosen)
            )
            self.schedule.start(job, booking)
            yield from self.place(booking, self._late_us(job))
            left -= 1
        return left

    def _start_pack_now(self, entry: QueueEntry) -> Generator[None, None, int]:
        """Begin a pack if all its members have places; returns 1 if it is left waiting."""
        job_id = entry.job_id
        if job_id in self.placed:
            return 0
        if not self.has_room(entry.job):
            self.waiting[job_id] = reasons.NEXT_PLAN
            self.is_unfinished = True
            return 1
        _, kept = self._withdrawn.get(job_id, (entry, ()))
        why = yield from pack_starts.start_now(self, entry, kept)
        self.spend(TRY_STEPS * len(entry.job.members))
        if why is None:
            return 0
        self.has_failed = True
        self._failed[entry.shape] = self.waiting[job_id] = why
        return 1

    def has_room(self, pack: Pending) -> bool:
        """Check whether the members of a pack that begin together are within the cycle's number of placements."""
        count = pack.delays_us.count(0)
        return not self.placements or len(self.placements) + count <= self.limits.placements_max

    def late_us(self, planned: Booking) -> int:
        """Delay of a planned start, if short and its planned stay is not over; else 0."""
        late_us = self.now_us - planned.start_us
        return late_us if 0 < late_us <= LATE_US and self.now_us < planned.stop_us else 0

    def _late_us(self, job: Pending) -> int:
        """Delay of the job's planned start, if short; else 0."""
        _, kept = self._withdrawn.get(job.job_id, (None, ()))
        return self.late_us(kept[-1]) if kept else 0

    def _begin_as_promised(self, entry: QueueEntry) -> Generator[None, None, bool]:
        """Start a job at its promised place and time, whatever jobs were let into a pool since."""
        job = entry.job
        kept = self._kept(entry)
        query = self.queries.of(entry)
        if kept is None or kept.start_us > self.now_us or job.job_id in self.placed or isinstance(query, Why):
            return False
        chosen = self.chosen(kept)
        if chosen is None or not allows(query, self.now_us, chosen):
            return False
        booking = self.booking(job, query.need, self.now_us, kept.spans)
        try:
            self.schedule.start(job, booking)
        except ProfileError:
            return False
        yield from self.place(booking, self._late_us(job))
        return True

    def _kept(self, entry: QueueEntry) -> Booking | None:
        """The promise of the job that `withdraw` removed, if any."""
        _, kept = self._withdrawn.get(entry.job_id, (entry, ()))
        return kept[-1] if kept else None

    def chosen(self, booking: Booking) -> Assignment | None:
        """The booking's nodes as an assignment; None when one of them is out of service."""
        topology, usable = self.ledger.topology, self.ledger.usable
        for span in booking.spans:
            position = topology.positions.get(span.node)
            if position is None or not usable >> position & 1:
                return None
        return assignment_of(booking, topology)

    def is_untried(self, job: Pending) -> bool:
        """Check whether no equal request has failed in this cycle."""
        return self._entries[job.job_id].shape not in self._failed

    def place(self, booking: Booking, late_us: int = 0, anchor_us: int = 0) -> Generator[None, None, None]:
        """Note a start that the schedule has booked already; `late_us` after its plan. `anchor_us`: a pack begins."""
        self.placements.append(
            Placement(booking.job_id, booking.spans, booking.until_us, booking.wide, late_us, anchor_us)
        )
        self.placed[booking.job_id] = self.placed.get(booking.job_id, 0) + 1
        self.ledger.hold_wide(booking.wide)
        for node, amounts in booking.pairs:
            self.ledger.hold(node, amounts, booking.until_us)
            self.spend(SPAN_STEPS)
            if self.slice_over():
                yield

    def booking(
        self, job: Pending, need: CompiledRequest, start_us: int, spans: tuple[Span, ...], tasks: int = 1
    ) -> Booking:
        """A booking of the job at that time on these nodes."""
        stop_us, until_us = ends_of(job, start_us)
        return Booking(job.job_id, start_us, stop_us, spans, need.wide, self.now_us, tasks, until_us)

    # Promises for a few

    def withdraw(self) -> Generator[None, None, None]:
        """Remove all promises from the profile; `promise` renews those that are still due.

        Fixed starts and the room of preempting jobs stay. Promises that are not decided by the end of the cycle are put
        back.
        """
        schedule = self.schedule
        schedule.renews = True
        for job_id in list(schedule.bookings):
            entry = schedule.entries[job_id]
            if entry.job.start_at_us or job_id in schedule.preemptors:
                continue
            self._withdrawn[job_id] = entry, schedule.remove(job_id)
            self.spend(TRY_STEPS)
            if self.slice_over():
                yield
        schedule.displaced.clear()
        schedule.freed = 0

    def was_promised(self, job: Pending) -> bool:
        """Check whether `withdraw` removed a promise of the job."""
        return job.job_id in self._withdrawn

    def promise(self, job: Pending) -> bool:
        """Book the first possible start of the job; a recent promise that can be kept is kept."""
        entry = self._entries[job.job_id]
        if job.followers:
            return self._promise_pack(entry)
        query = self.queries.of(entry)
        if isinstance(query, Why):
            return False
        kept = self._kept(entry)
        if (
            kept is not None
            and kept.made_us > self.now_us - self.limits.promise_refresh_us
            and self._renew(entry, kept)
        ):
            return True
        if self._searches >= self.limits.searches_max:
            return kept is not None and self._renew(entry, kept)
        query = self.queries.firm(query)
        self._searches += 1
        self.spend(TRY_STEPS)
        found = first_start(self.schedule.book, query, self.now_us)
        if isinstance(found, NoStart):
            return False
        if kept is not None and self.now_us < kept.start_us <= found.at_us:
            kept = msgspec.structs.replace(kept, made_us=self.now_us)
            if self._renew(entry, kept):
                return True
        spans = spans_of(self.ledger.topology, query.need, found.chosen)
        self.schedule.add(entry, self.booking(job, query.need, found.at_us, spans), found.moves)
        self._say_when(job.job_id, found.at_us)
        return True

    def _promise_pack(self, entry: QueueEntry) -> bool:
        """Book the first possible start of a pack; a promise that can be kept is kept, unless an earlier one is due."""
        _, kept = self._withdrawn.get(entry.job_id, (entry, ()))
        is_recent = bool(kept) and kept[0].made_us > self.now_us - self.limits.promise_refresh_us
        if is_recent and self._renew_pack(entry, kept):
            return True
        if self._searches >= self.limits.searches_max:
            return bool(kept) and self._renew_pack(entry, kept)
        self._searches += 1
        self.spend(TRY_STEPS * len(entry.job.members))
        if not exhaust(pack_starts.promise(self, entry)):
            return False
        start_us = self.schedule.bookings[entry.job_id][0].start_us
        if kept and self.now_us < kept[0].start_us <= start_us:
            # No better than what it was promised.
            found, moves = self.schedule.bookings[entry.job_id], self.schedule.moves[entry.job_id]
            self.schedule.remove(entry.job_id)
            kept = tuple([msgspec.structs.replace(one, made_us=self.now_us) for one in kept])
            if not self._renew_pack(entry, kept):
                exhaust(self.schedule.adding(entry, found, moves))
        self._say_when(entry.job_id, self.schedule.bookings[entry.job_id][0].start_us)
        return True

    def _renew_pack(self, entry: QueueEntry, kept: tuple[Booking, ...]) -> bool:
        if not exhaust(pack_starts.renew(self, entry, kept)):
            return False
        self._say_when(entry.job_id, kept[0].start_us)
        return True

    def _renew(self, entry: QueueEntry, kept: Booking) -> bool:
        if kept.start_us <= self.now_us:
            return False
        chosen = self.chosen(kept)
        if chosen is None:
            return False
        query = self.queries.of(entry)
        # A job ahead that has begun may count against a limit until later than that.
        if isinstance(query, Why) or (query.constraints and not allows(query, kept.start_us, chosen)):
            return False
        try:
            self.schedule.add(entry, kept, self.schedule.moves.get(kept.job_id, ()))
        except ProfileError:
            return False
        self._say_when(kept.job_id, kept.start_us)
        return True

    def _say_when(self, job_id: int, start_us: int) -> None:
        why = self.waiting.get(job_id)
        if why is not None:
            self.waiting[job_id] = Why(
                why.kind, self.reasons.with_late(job_id, why.text), start_us, why.member
            )

    # The end

    def finish(self, preemptor: int = 0, victims: tuple[Victim, ...] = ()) -> Plan:
        """The plan so far, with the preemptor (0: none) and its victims."""
        self._explain_front()
        self._put_back()
        schedule = self.schedule
        return Plan(
            generation=self.snapshot.generation,
            made_us=self.now_us,
            placements=tuple(self.placements),
            bookings=schedule.bookings.copy(),
            waiting={**schedule.whys, **self.waiting},
            rest=self.rest,
            examined=self.examined,
            moves=schedule.moves.copy(),
            next_us=min(schedule.next_start_us(), schedule.next_push_us(self.now_us)),
            is_unfinished=self.is_unfinished,
            preemptor=preemptor,
            victims=victims,
        )

    def _explain_front(self) -> None:
        """Give the first unexamined job a reason of its own, and those behind it a common one."""
        pending = self.snapshot.pending
        if (
            self.examined >= len(pending)
            or self.is_exhausted
            or pending[self.examined].job_id in self.schedule.whys
        ):
            return
        entry = pending[self.examined]
        job = entry.job
        why = self.queries.refused(job)
        if why is None and self.rest is not NOT_EXAMINED:
            why = self.rest
        if why is None and job.followers:
            why = self._why_pack(entry)
        if why is None:
            query = self.queries.of(entry)
            why = query if isinstance(query, Why) else self.reasons.short_now(query)
        self.waiting.setdefault(job.job_id, why)
        if not self.ledger.usable & self.reach:
            self.rest = reasons.NOTHING_IN_SERVICE
        elif self.is_saturated and self.rest is NOT_EXAMINED:
            self.rest = reasons.behind(job.job_id)

    def _why_pack(self, entry: QueueEntry) -> Why:
        pack = self.queries.of_pack(entry)
        return pack if isinstance(pack, Why) else packs.of_member(self.reasons.short_now(pack.queries[0]), 0)

    def _put_back(self) -> None:
        """Restore promises of the jobs that were not reached, and of the one at the front."""
        pending = self.snapshot.pending
        front = pending[self.examined].job_id if self.examined < len(pending) else 0
        for job_id, (entry, bookings) in self._withdrawn.items():
            if job_id in self.schedule.bookings or job_id in self.placed:
                continue
            if job_id == front or job_id not in self.waiting:
                if entry.job.followers:
                    self._renew_pack(entry, bookings)
                else:
                    self._renew(entry, bookings[-1])

    def _reachable(self) -> int:
        reach = 0
        for name, partition in self.snapshot.partitions.items():
            if partition.up:
                reach |= self.ledger.topology.partitions.get(name, 0)
        return reach
