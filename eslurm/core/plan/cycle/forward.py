"""Forward planning: every job gets a planned start, keeps it, and moves only to an earlier one (C-01, C-37, C-59).

Shared by conservative and full planning, which differ in the order of jobs. In a cycle due starts begin, displaced jobs
get another place, resources that were released early are offered to planned jobs, and then new jobs are planned behind
them. Invariant: no step here delays another job's planned start; `recovery` does, to share a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from eslurm.core.plan.cycle import pack_starts, packs, reasons
from eslurm.core.plan.cycle.array_tasks import as_many
from eslurm.core.plan.cycle.beginnings import Beginnings
from eslurm.core.plan.cycle.earliest import EarliestStarts, is_due, is_ready
from eslurm.core.plan.cycle.policy import LATE_US, TRY_STEPS, Cycle
from eslurm.core.plan.cycle.queue import Pending, QueueEntry
from eslurm.core.plan.cycle.reasons import Why, WhyKind
from eslurm.core.plan.cycle.schedule import Booking
from eslurm.core.plan.placement.mapping import spans_of
from eslurm.core.plan.profile.search import (
    RESOURCES,
    Move,
    NoStart,
    PlacementQuery,
    SearchBounds,
    Start,
    first_start,
    start_exactly,
)
from eslurm.core.resources.timeline import INFINITY_US

PASS_STEPS = 1
PASS_SIZE = 8_192


class ForwardPlanner:
    """The forward planner of one cycle, for policies that book ahead."""

    __slots__ = ("_beginnings", "_never", "cycle", "earliest", "schedule")

    def __init__(self, cycle: Cycle) -> None:
        self.cycle = cycle
        self.schedule = cycle.schedule
        self.earliest = EarliestStarts(cycle)
        self._beginnings = Beginnings(cycle)
        # Quests (by identity, the cycle keeps them) that have no place at all, as was found in this cycle.
        self._never: dict[int, Why] = {}

    # ---- what a cycle consists of ----

    def start_due(self, *, fixed_only: bool = False) -> Generator[None, None, None]:
        """Start every job whose planned time has come. A job that is a little late keeps its place."""
        cycle = self.cycle
        for job_id in self.schedule.due(cycle.now_us):
            entry = self.schedule.entries.get(job_id)
            # One that began before it, but late, may have taken its place.
            if entry is None or (fixed_only and not entry.job.start_at_us):
                continue
            is_refused = cycle.queries.refused(entry.job) is not None
            if not is_refused and is_due(entry.job, cycle.now_us):
                continue
            if is_refused or not is_ready(entry.job):
                self.schedule.displace(job_id)
                continue
            yield from self._beginnings.start_due_tasks(entry)
            cycle.spend(TRY_STEPS)
            if cycle.slice_over():
                yield

    def plan_fixed(self) -> Generator[None, None, None]:
        """Book fixed starts (C-30) under every policy: exactly at their time or not at all."""
        cycle, schedule = self.cycle, self.schedule
        for entry in cycle.snapshot.fixed:
            job_id = entry.job_id
            # One that has just begun has no booking any more.
            is_done = job_id in schedule.bookings or job_id in cycle.placed
            if entry.job.is_owed and schedule.freed and _is_behind(entry.job, schedule.bookings.get(job_id)):
                # It has missed the start that its pack owes it: nothing is improved under every policy.
                yield from self.move_up(job_id, is_changed=True)
            # What was given back may be just what one in the waiting room could not get.
            if is_done or (schedule.stuck.get(job_id) == entry.shape and not schedule.freed):
                continue
            schedule.displaced.pop(job_id, None)
            yield from self._fix(entry)
            cycle.spend(TRY_STEPS)
            if cycle.slice_over():
                yield

    def forget_searches(self) -> None:
        """Forget the searches of this cycle, because places were released since."""
        self.cycle.hints = SearchBounds()
        self._never.clear()

    def improve(self, order: Callable[[], Generator[None, None, list[int]]]) -> Generator[None, None, bool]:
        """Offer early released resources to planned jobs, in this order of job ids: replan, keep the earlier start (C-37).

        False when the pass continues in the next cycle.
        """
        cycle, schedule = self.cycle, self.schedule
        yield from self._improve_changed()
        if not schedule.to_improve and schedule.freed:
            schedule.improving, schedule.freed = schedule.freed, 0
            schedule.to_improve = yield from order()
            schedule.to_improve.reverse()
            # More is free than when they were refused.
            schedule.stuck.clear()
        looked = 0
        while schedule.to_improve:
            if looked and looked == cycle.limits.improved_max:
                cycle.is_unfinished = True
                return False
            job_id = schedule.to_improve.pop()
            cycle.spend(PASS_STEPS)
            if job_id in schedule.bookings:
                looked += yield from self.move_up(job_id)
            if cycle.slice_over():
                yield
        cycle.is_unfinished = bool(schedule.freed)
        return not schedule.freed

    def plan_new(self, order: Sequence[QueueEntry]) -> Generator[None, None, None]:
        """Find a place for every job without one, behind the planned ones."""
        cycle, schedule = self.cycle, self.schedule
        bookings, stuck = schedule.bookings, schedule.stuck
        for start in range(0, len(order), PASS_SIZE):
            part = order[start : start + PASS_SIZE]
            cycle.examined += len(part)
            # Most have a place already: a look at each of them has to be cheap.
            for entry in [entry for entry in part if entry.job_id not in bookings or entry.job.startable > 1]:
                if (
                    stuck.get(entry.job_id) != entry.shape
                    and not entry.job.start_at_us
                    and self._lacking(entry.job) > 0
                ):
                    yield from self.plan(entry)
                cycle.spend(PASS_STEPS)
                if cycle.slice_over():
                    yield
            yield

    # ---- one job ----

    def plan(self, entry: QueueEntry) -> Generator[None, None, None]:
        """Give a job its first possible place; start it when that is now."""
        job = entry.job
        if job.start_at_us:
            yield from self._fix(entry)
            return
        if job.followers:
            yield from self._plan_pack(entry)
            return
        query = self._careful(entry)
        if isinstance(query, Why):
            self._stick(entry, query)
            return
        from_us = self.earliest.from_us(job)
        if from_us is None:
            self._stick(entry, self.earliest.why_unknown(job))
            return
        never = yield from self._find_places(entry, query, from_us, self._lacking(job))
        yield from self._settle(entry, query, never)

    def _find_places(
        self, entry: QueueEntry, query: PlacementQuery, from_us: int, tasks: int
    ) -> Generator[None, None, Why | None]:
        """Book this number of tasks as early as they fit; returns the reason when some have no place."""
        yield from self.schedule.book.preparing(query.need)
        taken: list[Booking] = []
        moves: tuple[Move, ...] = ()
        never: Why | None = None
        while tasks > 0:
            found = self._first_start(query, from_us)
            self.cycle.spend(TRY_STEPS)
            if isinstance(found, Why):
                never = found
                break
            self.cycle.spend(len(found.chosen))
            if self.cycle.slice_over():
                yield
            booking = self._booking(entry, query, found, tasks)
            yield from self.schedule.taking(entry.job, booking)
            taken.append(booking)
            moves = found.moves
            tasks -= booking.tasks
            if self.cycle.slice_over():
                yield
        if taken:
            self.schedule.note(entry, taken, moves)
        return never

    def _settle(
        self, entry: QueueEntry, query: PlacementQuery, never: Why | None = None
    ) -> Generator[None, None, None]:
        """Start the tasks that begin now, and note the waiting reason of the rest."""
        schedule = self.schedule
        job_id = entry.job_id
        yield from self._beginnings.start_if_now(entry)
        if self.cycle.slice_over():
            yield
        if schedule.displaced.pop(job_id, None) is not None:
            # What the plan takes to be free is not yet: it is expected back as what runs past its end is.
            never = yield from self._plan_after_grace(entry, query)
        if job_id in schedule.bookings:
            next_us = min(booking.start_us for booking in schedule.bookings[job_id])
            moves = schedule.moves[job_id]
            plain = self.cycle.queries.startable(entry)
            why = self.cycle.reasons.why_waiting(query if isinstance(plain, Why) else plain, moves, next_us)
            schedule.whys[job_id] = Why(why.kind, self.cycle.reasons.with_late(job_id, why.text), next_us)
        elif never is not None:
            self._stick(entry, never)

    def _plan_after_grace(
        self, entry: QueueEntry, query: PlacementQuery
    ) -> Generator[None, None, Why | None]:
        """Plan a start after the grace; returns the reason when there is none."""
        job = entry.job
        if job.start_at_us and not job.is_owed:
            return reasons.not_then(job.start_at_us, self.cycle.reasons.why_waiting(query, (), None))
        from_us = self.cycle.now_us + max(self.cycle.limits.overdue_grace_us, 1)
        return (yield from self._find_places(entry, query, from_us, self._lacking(job)))

    def _booking(self, entry: QueueEntry, query: PlacementQuery, found: Start, left: int) -> Booking:
        """The booking of the found start, for as many of the remaining tasks as fit then."""
        cycle, schedule = self.cycle, self.schedule
        job = entry.job
        topology = cycle.ledger.topology
        tasks, need, chosen = 1, query.need, found.chosen
        if left > 1:
            tasks, need, chosen = as_many(schedule, job, query, found, left)
        spans = spans_of(topology, need, chosen)
        cycle.spend(TRY_STEPS + len(spans))
        return cycle.booking(job, need, found.at_us, spans, tasks)

    def _first_start(self, query: PlacementQuery, from_us: int) -> Start | Why:
        """The first start from `from_us` on; searches of this cycle for the same query are not repeated."""
        cycle = self.cycle
        never = self._never.get(id(query))
        if never is not None:
            return never
        known_us = cycle.hints.bound_us(id(query), query.duration_us)
        is_first = from_us <= max(known_us, query.from_us)
        found = first_start(self.schedule.book, query, max(from_us, known_us))
        if isinstance(found, NoStart):
            last = found.moves[-1] if found.moves else None
            if last is not None and last.kind != RESOURCES:
                why = Why(reasons.kind_of(last.kind), last.text)
            else:
                why = reasons.no_start(query, cycle.ledger, from_us)
            if is_first:
                self._never[id(query)] = why
            return why
        if is_first:
            cycle.hints.learn(id(query), found.at_us)
        return found

    def _improve_changed(self) -> Generator[None, None, None]:
        """Replan jobs whose request has changed before all others: only they could not use the free resources before."""
        schedule = self.schedule
        changed = [schedule.entries[job_id] for job_id in schedule.changed if job_id in schedule.bookings]
        schedule.changed.clear()
        for entry in sorted(changed, key=lambda one: one.turn):
            yield from self.move_up(entry.job_id, is_changed=True)
            if entry.job.followers:
                continue
            query = self._careful(entry)
            if entry.job_id in schedule.bookings and not isinstance(query, Why):
                yield from self._settle(entry, query)

    def move_up(self, job_id: int, *, is_changed: bool = False) -> Generator[None, None, bool]:
        """Book a planned job at an earlier start, when there is one; returns whether the job was examined.

        `is_changed`: it may use what was free before, too.
        """
        cycle, schedule = self.cycle, self.schedule
        entry = schedule.entries[job_id]
        job = entry.job
        if job.followers:
            return (yield from self._move_pack_up(entry, is_changed=is_changed))
        query = self._careful(entry)
        from_us = None if job.start_at_us and not job.is_owed else self.earliest.from_us(job)
        if isinstance(query, Why) or from_us is None:
            return False
        is_concerned = is_changed or query.constraints or query.need.wide
        if not is_concerned and not query.need.allowed & schedule.improving:
            return False
        from_us = max(from_us, query.from_us)
        bookings = schedule.bookings[job_id]
        # Without its own places a job may start where others like it could not.
        own_us = min(booking.start_us for booking in bookings) - query.duration_us + 1
        known_us = min(cycle.hints.bound_us(id(query), query.duration_us), own_us)
        if all(booking.start_us <= max(from_us, known_us) for booking in bookings):
            return False
        cycle.spend(TRY_STEPS)
        if job.startable > 1 or len(bookings) > 1:
            yield from self._improve_array(entry, query, from_us)
        else:
            yield from self._improve_one(entry, query, from_us, known_us)
        return True

    def _improve_one(
        self, entry: QueueEntry, query: PlacementQuery, from_us: int, known_us: int
    ) -> Generator[None, None, None]:
        cycle, schedule = self.cycle, self.schedule
        job_id = entry.job_id
        (old,) = schedule.bookings[job_id]
        yield from schedule.book.preparing(query.need)
        is_first = from_us <= max(known_us, query.from_us)
        own = ((span.node for span in old.spans), old.start_us)
        # Most have nothing earlier: that shows without touching what is booked.
        at_us = schedule.book.sooner_us(
            query.need, query.duration_us, max(from_us, known_us), own, query.closed
        )
        if at_us is None:
            if is_first:
                cycle.hints.learn(id(query), old.start_us)
            return
        moves, why = schedule.moves.get(job_id, ()), schedule.whys.get(job_id)
        yield from schedule.removing(job_id)
        until_us = old.stop_us - 1 if old.stop_us < INFINITY_US else INFINITY_US
        found = first_start(schedule.book, query, at_us, until_us)
        cycle.spend(TRY_STEPS + len(old.spans))
        if isinstance(found, NoStart) or found.at_us >= old.start_us:
            yield from schedule.adding(entry, (old,), moves)
            if why is not None:
                schedule.whys[job_id] = why
            if is_first:
                cycle.hints.learn(id(query), old.start_us)
            return
        if is_first:
            cycle.hints.learn(id(query), found.at_us)
        yield from schedule.adding(entry, (self._booking(entry, query, found, 1),), found.moves)
        self._gave_back(old)
        yield from self._settle(entry, query)
        yield from self._return_if_later(entry, (old,), moves, why)

    def _return_if_later(
        self, entry: QueueEntry, old: Sequence[Booking], moves: tuple[Move, ...], why: Why | None
    ) -> Generator[None, None, None]:
        """Book the old place again if the new one cannot begin now after all, and the next one is later.

        The old place is free still: no other job is planned between the move and this.
        """
        schedule, job_id = self.schedule, entry.job_id
        new = schedule.bookings.get(job_id)
        if not new or _starts(new) <= _starts(old):
            return
        yield from schedule.removing(job_id)
        yield from schedule.adding(entry, old, moves)
        if why is not None:
            schedule.whys[job_id] = why

    def _improve_array(
        self, entry: QueueEntry, query: PlacementQuery, from_us: int
    ) -> Generator[None, None, None]:
        """Replan all tasks at once: tasks are alike, so new and old starts are compared one by one."""
        schedule = self.schedule
        job_id = entry.job_id
        moves, why = schedule.moves.get(job_id, ()), schedule.whys.get(job_id)
        old = yield from schedule.removing(job_id)
        self.cycle.hints.freed(min(booking.start_us for booking in old))
        tasks = sum(booking.tasks for booking in old)
        yield from self._find_places(entry, query, from_us, tasks)
        if _is_better(_starts(old), _starts(schedule.bookings.get(job_id, ()))):
            for booking in old:
                self._gave_back(booking)
            yield from self._settle(entry, query)
            return
        yield from schedule.removing(job_id)
        yield from schedule.adding(entry, old, moves)
        if why is not None:
            schedule.whys[job_id] = why

    # ---- packs ----

    def _plan_pack(self, entry: QueueEntry) -> Generator[None, None, None]:
        """Give all members of a pack their first possible places; begin it when that is now."""
        cycle, job = self.cycle, entry.job
        pack = cycle.queries.refused(entry.job) or cycle.queries.careful_pack(entry)
        from_us = None if isinstance(pack, Why) else self.earliest.from_us(job)
        if isinstance(pack, Why) or from_us is None:
            self._stick(entry, pack if isinstance(pack, Why) else self.earliest.why_unknown(job))
            return
        known_us = cycle.hints.bound_us(id(pack), pack.span_us)
        is_first = from_us <= max(known_us, cycle.now_us)
        why = yield from self._place_pack(entry, pack, max(from_us, known_us))
        if why is not None and is_first:
            cycle.hints.learn(id(pack), self.schedule.bookings[entry.job_id][0].start_us)
        yield from self._settle_pack(entry, pack, why)

    def _place_pack(
        self, entry: QueueEntry, pack: packs.PackQuery, from_us: int
    ) -> Generator[None, None, Why | None]:
        """Book all members of a pack from then on; returns what decides its start. Without places it is stuck, and None."""
        cycle = self.cycle
        found = yield from packs.find(self.schedule, entry.job, pack, from_us, first=self._first_start)
        cycle.spend(TRY_STEPS * len(pack.queries))
        if cycle.slice_over():
            yield
        if isinstance(found, packs.NoPlaces):
            self._stick(entry, pack_starts.why_not(cycle, pack, found, from_us))
            return None
        why = pack_starts.why_waiting(cycle, pack, found)
        self.schedule.note(entry, found.bookings, found.moves)
        return why

    def _settle_pack(
        self, entry: QueueEntry, pack: packs.PackQuery, why: Why | None
    ) -> Generator[None, None, None]:
        """Begin the pack if its time is now, and note why it waits otherwise."""
        schedule, job_id = self.schedule, entry.job_id
        yield from self._beginnings.start_if_now(entry)
        if schedule.displaced.pop(job_id, None) is not None:
            # As for a job: what the plan takes to be free is not yet.
            from_us = self.cycle.now_us + max(self.cycle.limits.overdue_grace_us, 1)
            why = yield from self._place_pack(entry, pack, from_us)
        if why is not None and job_id in schedule.bookings:
            schedule.whys[job_id] = why

    def _move_pack_up(self, entry: QueueEntry, *, is_changed: bool) -> Generator[None, None, bool]:
        """Book a planned pack at an earlier start, when there is one; all members move by the same time."""
        cycle, schedule, job_id = self.cycle, self.schedule, entry.job_id
        pack = cycle.queries.refused(entry.job) or cycle.queries.careful_pack(entry)
        from_us = self.earliest.from_us(entry.job)
        if isinstance(pack, Why) or from_us is None:
            return False
        is_concerned = is_changed or any(
            query.constraints or query.need.wide or query.need.allowed & schedule.improving
            for query in pack.queries
        )
        start_us = schedule.bookings[job_id][0].start_us
        # Without its own places a pack may begin where others like it could not.
        known_us = min(cycle.hints.bound_us(id(pack), pack.span_us), start_us - pack.span_us + 1)
        if not is_concerned or start_us <= max(from_us, known_us):
            return False
        cycle.spend(TRY_STEPS * len(pack.queries))
        if cycle.slice_over():
            yield
        at_us = yield from packs.sooner_us(schedule, pack, schedule.bookings[job_id], max(from_us, known_us))
        if at_us is None:
            return True
        moves, old_why = schedule.moves.get(job_id, ()), schedule.whys.get(job_id)
        old = yield from schedule.removing(job_id)
        found = yield from packs.find(schedule, entry.job, pack, at_us, start_us)
        cycle.spend(2 * TRY_STEPS * len(old))
        if cycle.slice_over():
            yield
        if isinstance(found, packs.NoPlaces):
            yield from schedule.adding(entry, old, moves)
            if old_why is not None:
                schedule.whys[job_id] = old_why
            return True
        why = pack_starts.why_waiting(cycle, pack, found)
        schedule.note(entry, found.bookings, found.moves)
        for booking in old:
            self._gave_back(booking)
        yield from self._settle_pack(entry, pack, why)
        yield from self._return_if_later(entry, old, moves, old_why)
        return True

    def _gave_back(self, old: Booking) -> None:
        """Offer the place that a job left for a better one to the jobs not yet examined."""
        self.cycle.hints.freed(old.start_us)
        topology = self.cycle.ledger.topology
        self.schedule.improving |= topology.mask_of_numbers(span.node for span in old.spans)

    # ---- fixed starts ----

    def _careful(self, entry: QueueEntry) -> PlacementQuery | Why:
        refused = self.cycle.queries.refused(entry.job)
        return refused if refused is not None else self.cycle.queries.careful(entry)

    def _fix(self, entry: QueueEntry) -> Generator[None, None, None]:
        """Book a fixed start, or the start that a pack owes its member; stick without one."""
        cycle, schedule = self.cycle, self.schedule
        job = entry.job
        query = cycle.queries.startable(entry)
        if isinstance(query, Why):
            self._stick(entry, query)
            return
        earliest_us = self.earliest.from_us(job)
        if earliest_us is None:
            self._stick(entry, self.earliest.why_unknown(job))
            return
        if job.start_at_us + LATE_US < cycle.now_us and not job.is_owed:
            self._stick(entry, reasons.missed())
            return
        at_us = max(job.start_at_us, cycle.now_us)
        if earliest_us > at_us and not job.is_owed:
            self._stick(
                entry, reasons.not_then(at_us, Why(WhyKind.DEPENDENCY, "it waits for other jobs until then"))
            )
            return
        yield from schedule.book.preparing(query.need)
        if job.is_owed:
            # Another place at the same time, and else the first one after it: it is never stuck for having missed it.
            at_us = max(at_us, earliest_us)
            found = start_exactly(schedule.book, cycle.queries.clear_of_overruns(query), at_us)
            if isinstance(found, NoStart):
                found = first_start(schedule.book, query, at_us)
        else:
            found = start_exactly(schedule.book, query, at_us)
        if isinstance(found, NoStart):
            why = cycle.reasons.why_waiting(query, found.moves, None)
            self._stick(entry, why if job.is_owed else reasons.not_then(at_us, why))
            return
        yield from schedule.adding(entry, (self._booking(entry, query, found, 1),), found.moves)
        yield from self._settle(entry, query)

    def _stick(self, entry: QueueEntry, why: Why) -> None:
        """Put the job into the waiting room (C-04)."""
        self.schedule.stuck[entry.job_id] = entry.shape
        self.schedule.whys[entry.job_id] = why

    # ---- tasks ----

    def _lacking(self, job: Pending) -> int:
        """Number of the job's tasks that need a place in the plan and have none."""
        wanted = min(job.startable - self.cycle.placed.get(job.job_id, 0), self.cycle.limits.tasks_ahead_max)
        return wanted - self.schedule.tasks_booked(job.job_id)


def _is_behind(job: Pending, bookings: tuple[Booking, ...] | None) -> bool:
    """Check whether a member of a pack that has begun is planned after the start that it is owed."""
    return bookings is not None and bookings[0].start_us > job.start_at_us


def _starts(bookings: Sequence[Booking]) -> list[int]:
    return sorted(booking.start_us for booking in bookings for _ in range(booking.tasks))


def _is_better(before: list[int], after: list[int]) -> bool:
    """Check whether every task starts no later than its counterpart."""
    return len(after) == len(before) and all(
        mine <= theirs for mine, theirs in zip(after, before, strict=True)
    )
