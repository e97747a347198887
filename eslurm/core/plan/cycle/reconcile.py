"""The first step of a cycle: bring the kept plan in line with the cluster.

Ended, started, changed and vanished jobs, nodes in and out of service, changed rules: only differences are processed, in
slices. Invariant: afterwards the profile holds exactly the snapshot's running attempts (until their expected ends, or as
`expected` says when those have passed) and the bookings of its waiting jobs.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import islice

from msgspec.structs import replace

from eslurm.core.model.job import Span
from eslurm.core.plan.cycle.assignments import assignment_of
from eslurm.core.plan.cycle.changed_requests import follow_request
from eslurm.core.plan.cycle.changed_rules import keep_allowed
from eslurm.core.plan.cycle.expected import end_us
from eslurm.core.plan.cycle.placement_query import allows, query_of
from eslurm.core.plan.cycle.queue import Pending, QueueEntry, asks_alike, differs_in_estimate
from eslurm.core.plan.cycle.reasons import Why, WhyKind
from eslurm.core.plan.cycle.restored_bookings import take_over
from eslurm.core.plan.cycle.schedule import (
    CHANGES_PER_SLICE,
    KEYS_PER_SLICE,
    Booking,
    Held,
    Schedule,
    ends_of,
    job_of,
)
from eslurm.core.plan.cycle.snapshot import Running, RunningKey, Snapshot
from eslurm.core.plan.placement.mapping import satisfies
from eslurm.core.plan.profile.profile import ProfileError, ResourceProfile
from eslurm.core.plan.profile.search import Move
from eslurm.core.plan.rules.constraints import Rules
from eslurm.core.resources import bits
from eslurm.core.resources.ledger import NODES_PER_SLICE, Ledger
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import Vector, add, padded


def reconcile(schedule: Schedule, snapshot: Snapshot, grace_us: int) -> Generator[None, None, None]:
    """Follow the snapshot; an attempt past its expected end stays booked at least `grace_us` longer."""
    return _Following(schedule, snapshot, grace_us).all()


class _Following:
    """One pass over the differences between a schedule and a snapshot."""

    __slots__ = ("_brief", "grace_us", "now_us", "schedule", "snapshot")

    def __init__(self, schedule: Schedule, snapshot: Snapshot, grace_us: int) -> None:
        self.schedule = schedule
        self.snapshot = snapshot
        self.now_us = snapshot.now_us
        self.grace_us = grace_us
        # What runs and is booked for no time at all until all promises are.
        self._brief: list[RunningKey] = []

    def all(self) -> Generator[None, None, None]:
        """Process all differences."""
        schedule, snapshot = self.schedule, self.snapshot
        schedule.generation = snapshot.generation
        schedule.book.advance(self.now_us)
        if schedule.rules is not None:
            schedule.rules.advance(self.now_us)
        if snapshot.ledger.topology is not schedule.book.topology:
            yield from self._begin_anew()
        yield from self._follow_nodes()
        yield from self._follow_agents()
        self._follow_usable()
        yield from self._follow_waiting()
        yield from self._follow_running()
        if snapshot.policies_changed != schedule.policies_changed:
            yield from self._follow_rules()
        if schedule.is_new:
            for job_id in schedule.displaced:
                schedule.unkept.setdefault(job_id, "the rules do not let it start there any more")
            for key in self._brief:
                yield from self._lengthen(key, 0)

    def _begin_anew(self) -> Generator[None, None, None]:
        """Rebuild for changed nodes: running attempts are booked again, and every plan that still fits keeps its place."""
        schedule, snapshot = self.schedule, self.snapshot
        topology = snapshot.ledger.topology
        wide = topology.wide_totals
        schedule.book = ResourceProfile(topology, wide, now_us=self.now_us, slots_max=schedule.slots_max)
        self._set_usable()
        schedule.older = snapshot.ledger.older
        self._make_rules()
        schedule.held.clear()
        schedule.starting.clear()
        schedule.stuck.clear()
        schedule.needs.clear()
        schedule.freed = topology.everything
        kept, schedule.bookings = schedule.bookings, {}
        # A share of what there is may be another number now: what is kept is held against the rules once more.
        schedule.policies_changed = -1 if kept else snapshot.policies_changed
        entries, schedule.entries = schedule.entries, {}
        moves, schedule.moves = schedule.moves, {}
        yield
        if schedule.is_new and snapshot.promises:
            kept, entries = yield from take_over(schedule, snapshot)
            schedule.policies_changed = -1
        # An end that is rounded up never reaches into what is planned behind it.
        marked = sorted({one.start_us for bookings in kept.values() for one in bookings})
        for at in range(0, len(marked), KEYS_PER_SLICE // 16):
            schedule.book.mark(marked[at : at + KEYS_PER_SLICE // 16])
            yield
        # Running attempts go first: they displace no plan.
        yield from self._follow_running()
        busy_us: dict[int, int] = {}
        for bookings in sorted(kept.values(), key=lambda bookings: bookings[0].start_us):
            job_id = bookings[0].job_id
            try:
                yield from self._book_again(entries[job_id], bookings, moves.get(job_id, ()))
            except ProfileError as error:
                schedule.displaced[job_id] = bookings[0].start_us, INFINITY_US
                if schedule.is_new:
                    schedule.unkept[job_id] = str(error)
                    busy_us = busy_us or self._busy_us()
                    schedule.displaced[job_id] = _after(bookings, busy_us)
            yield
        for at in range(0, len(marked), KEYS_PER_SLICE // 16):
            schedule.book.unmark(marked[at : at + KEYS_PER_SLICE // 16])
            yield

    def _busy_us(self) -> dict[int, int]:
        """Time until which each node is in use, by its number."""
        found: dict[int, int] = {}
        for held in self.schedule.held.values():
            for span in held.booking.spans:
                found[span.node] = max(found.get(span.node, 0), held.booking.stop_us)
        return found

    def _book_again(
        self, entry: QueueEntry, bookings: tuple[Booking, ...], moves: tuple[Move, ...]
    ) -> Generator[None, None, None]:
        """Book the plan of another profile. Raises `BookError` when it does not fit any more."""
        schedule, snapshot = self.schedule, self.snapshot
        topology = snapshot.ledger.topology
        closed = snapshot.closed_partition(entry.job)
        if closed is not None:
            raise ProfileError(f"partition {closed} starts no jobs")
        for one in bookings:
            need = schedule.need(job_of(entry.job, one), snapshot.partitions)
            if not satisfies(topology, need, one.spans, one.wide, one.tasks):
                raise ProfileError("it would get something else now")
        if schedule.is_new:
            for node in {span.node for one in bookings for span in one.spans}:
                if not snapshot.ledger.usable >> topology.positions[node] & 1:
                    raise ProfileError(f"node {topology.names[topology.positions[node]]} is out of service")
        yield from schedule.adding(entry, bookings, moves)

    def _follow_rules(self) -> Generator[None, None, None]:
        """Follow changed limits, pools or reservations: plans that are still allowed stay."""
        self._make_rules()
        self._follow_usable()
        yield from keep_allowed(self.schedule, self.snapshot)
        self.schedule.policies_changed = self.snapshot.policies_changed

    def _follow_usable(self) -> None:
        """Tell the rules which nodes are in service."""
        if self.schedule.rules is not None:
            ledger = self.snapshot.ledger
            self.schedule.rules.set_usable(ledger.usable, _held_elsewhere(ledger))

    def _make_rules(self) -> None:
        schedule, snapshot = self.schedule, self.snapshot
        if not any(snapshot.policies.get(kind) for kind in ("limit", "pool", "reservation")):
            schedule.rules = None
            return
        schedule.rules = Rules(
            snapshot.policies,
            schedule.book.topology,
            schedule.book,
            now_us=self.now_us,
            calendar=snapshot.calendar,
            usable=schedule.book.usable,
        )

    def _follow_nodes(self) -> Generator[None, None, None]:
        schedule = self.schedule
        book, usable = schedule.book, self.snapshot.ledger.usable
        changed = usable ^ book.usable
        if not changed:
            return
        out, back = changed & book.usable, changed & usable
        self._set_usable()
        if back:
            schedule.freed |= back
            schedule.stuck.clear()
        if out:
            numbers = {book.topology.numbers[position] for position in bits.all_positions(out)}
            yield from self._displace_on(numbers)

    def _follow_agents(self) -> Generator[None, None, None]:
        """Follow nodes whose agents were replaced: jobs of several parts leave older ones, and may use updated ones."""
        schedule, older = self.schedule, self.snapshot.ledger.older
        changed, schedule.older = older ^ schedule.older, older
        if not changed:
            return
        if changed & ~older:
            schedule.freed |= changed & ~older
            schedule.stuck.clear()
        numbers = {
            schedule.book.topology.numbers[position] for position in bits.all_positions(changed & older)
        }
        if numbers:
            yield from self._displace_on(numbers, has_parts=True)

    def _set_usable(self) -> None:
        book, usable = self.schedule.book, self.snapshot.ledger.usable
        numbers = book.topology.numbers
        for position in bits.all_positions(usable ^ book.usable):
            book.set_usable(numbers[position], bool(usable >> position & 1))

    def _displace_on(self, numbers: set[int], *, has_parts: bool = False) -> Generator[None, None, None]:
        """Displace the jobs planned on nodes that went out of service (C-39); with `has_parts` those of several parts."""
        schedule = self.schedule
        seen = 0
        for job_id, bookings in list(schedule.bookings.items()):
            if has_parts and not any(booking.has_parts for booking in bookings):
                continue
            if any(span.node in numbers for booking in bookings for span in booking.spans):
                yield from schedule.displacing(job_id)
            seen += sum(len(booking.spans) for booking in bookings)
            if seen > KEYS_PER_SLICE:
                seen = 0
                yield

    def _follow_waiting(self) -> Generator[None, None, None]:
        """Release the places of jobs that are gone; jobs with a changed request may lose theirs."""
        schedule, snapshot = self.schedule, self.snapshot
        known = snapshot.known
        schedule.changed.clear()
        changes = snapshot.changes if snapshot.since == schedule.mark else None
        if changes is None:
            changes = frozenset(schedule.known_jobs())
        elif schedule.followers:
            # Where their pack was not placed after all, the queues know nothing of them.
            changes |= schedule.followers
        schedule.followers.clear()
        # In the order of the ids: what comes out must not depend on how the set was made.
        for number, job_id in enumerate(sorted(changes)):
            entry = known.get(job_id)
            if entry is None:
                schedule.stuck.pop(job_id, None)
                schedule.whys.pop(job_id, None)
                schedule.slack.forget(job_id)
            elif entry.job.after or _had_no_foreseen_start(schedule, job_id):
                # It waits for others than before, or for none: what was not foreseeable may be now.
                schedule.stuck.pop(job_id, None)
            old = schedule.entries.get(job_id)
            if old is not None and (entry is None or _waits_for_others(entry.job, old.job)):
                gone = yield from schedule.removing(job_id)
                schedule.free_early(span for booking in gone for span in booking.spans)
            elif old is not None and entry is not None and entry.job is not old.job:
                is_alike = entry.shape == old.shape or (old.shape < 0 and asks_alike(entry.job, old.job))
                if is_alike and not self._begins_elsewhen(entry.job, old.job):
                    self._follow_entry(entry)
                    if entry.job.after != old.job.after:
                        # It may begin sooner, on nodes that were free all the time.
                        schedule.changed.add(job_id)
                elif entry.job.followers or old.job.followers:
                    yield from schedule.displacing(job_id)
                elif entry.job.phases_us > old.job.phases_us and job_id not in schedule.preemptors:
                    # All others stay longer, too: each is planned anew in its turn.
                    yield from schedule.displacing(job_id)
                elif differs_in_estimate(entry.job, old.job) and job_id not in schedule.preemptors:
                    yield from self._refit(entry)
                else:
                    yield from follow_request(schedule, snapshot, entry)
            if number % KEYS_PER_SLICE == KEYS_PER_SLICE - 1:
                yield
        schedule.mark = snapshot.mark

    def _begins_elsewhen(self, job: Pending, old: Pending) -> bool:
        """Check whether the begin time was changed; the arrival of the old one is no change."""
        if job.not_before_us == old.not_before_us:
            return False
        return bool(job.not_before_us) or old.not_before_us > self.now_us

    def _refit(self, entry: QueueEntry) -> Generator[None, None, None]:
        """Follow another estimate: a place that is long enough is kept, with the new length, and lost otherwise."""
        schedule, job_id, job = self.schedule, entry.job_id, entry.job
        moves, why = schedule.moves.get(job_id, ()), schedule.whys.get(job_id)
        old = yield from schedule.removing(job_id)
        new = tuple([replace(one, stop_us=ends_of(job, one.start_us)[0]) for one in old])
        is_shorter = new[0].stop_us < old[0].stop_us
        is_kept = is_shorter or self._lets_stay(entry, new)
        if is_kept:
            try:
                yield from schedule.adding(entry, new, moves)
            except ProfileError:
                is_kept = False
        if is_shorter or not is_kept:
            schedule.free_early(span for booking in old for span in booking.spans)
        if not is_kept:
            schedule.displaced[job_id] = min(one.start_us for one in old), INFINITY_US
            return
        if why is not None:
            schedule.whys[job_id] = why
        self._follow_entry(entry)

    def _lets_stay(self, entry: QueueEntry, bookings: tuple[Booking, ...]) -> bool:
        """Check whether the rules allow a longer interval than planned."""
        schedule, snapshot = self.schedule, self.snapshot
        if schedule.rules is None or not snapshot.has_partitions(entry.job):
            return True
        need = schedule.need(entry.job, snapshot.partitions)
        query = query_of(entry.job, need, schedule.rules, self.now_us)
        if isinstance(query, Why) or not query.constraints:
            return not isinstance(query, Why)
        if len(bookings) > 1 or bookings[0].tasks > 1:
            # Each alone says nothing of them together.
            return False
        chosen = assignment_of(bookings[0], schedule.book.topology)
        return allows(query, max(bookings[0].start_us, self.now_us), chosen)

    def _follow_entry(self, entry: QueueEntry) -> None:
        """Replace the entry of an unchanged request: another rank, nearer start, or fewer tasks left."""
        schedule, job_id = self.schedule, entry.job_id
        schedule.entries[job_id] = entry
        bookings = schedule.bookings[job_id]
        if entry.job.followers:
            return
        excess = sum(booking.tasks for booking in bookings) - entry.job.startable
        if excess <= 0:
            return
        dropped: list[Booking] = []
        for booking in sorted(bookings, key=lambda one: -one.start_us):
            if excess <= 0:
                break
            excess -= booking.tasks
            dropped.append(booking)
        schedule.drop(job_id, *dropped)
        schedule.free_early(span for booking in dropped for span in booking.spans)

    def _follow_running(self) -> Generator[None, None, None]:
        """Follow attempts that started, ended, released resources, or stay beyond their expected end."""
        schedule, running = self.schedule, self.snapshot.running
        work = 0
        overdue: list[RunningKey] = []
        begun: list[RunningKey] = []
        grown: list[tuple[RunningKey, Held, Running]] = []
        for number, (key, held) in enumerate(list(schedule.held.items())):
            one = running.get(key)
            if one is not held.running and one is not None and self._holds_alike(one, held):
                schedule.discharge(held.running.job, held.booking)
                schedule.charge(one.job, held.booking)
                held = schedule.held[key] = Held(one, held.booking)
                if one.expected_us and held.booking.stop_us > self.now_us:
                    begun.append(key)
            if one is not held.running:
                lasts = one is not None and held.booking.stop_us > self.now_us and self._lasts(one, held)
                if one is not None and lasts and _has_grown(one, held.running):
                    grown.append((key, held, one))
                elif one is not None and lasts and not _has_more(one, held.running):
                    yield from self._keep_rest(key, held, one)
                else:
                    yield from self._end(key, held, one)
                work += 1 + len(held.running.spans) // NODES_PER_SLICE
            elif held.booking.stop_us <= self.now_us:
                overdue.append(key)
            if work >= CHANGES_PER_SLICE or number % KEYS_PER_SLICE == KEYS_PER_SLICE - 1:
                work = 0
                yield
        for key in begun:
            yield from self._lengthen(key, self.grace_us)
            yield
        new = yield from self._recognise()
        yield
        for key, held, one in grown:
            # What it got was booked for its growth until now; its end stays where the plan has it.
            yield from self._keep_rest(key, held, one)
            yield
        for key in overdue:
            late = schedule.held.pop(key)
            # The book has left it behind, but for what was rounded up; rules that count until the latest end have not.
            yield from schedule.giving(late.running.job, late.booking)
            yield from self._hold(key, late.running, is_late=True)
            yield
        for key, one in new:
            yield from self._hold(key, one)
            work += 1 + len(one.spans) // NODES_PER_SLICE
            if work >= CHANGES_PER_SLICE:
                work = 0
                yield

    def _recognise(self) -> Generator[None, None, list[tuple[RunningKey, Running]]]:
        """Match placements with running attempts, drop those that did not happen, and return attempts not yet booked."""
        schedule = self.schedule
        starting, schedule.starting = schedule.starting, []
        placed: dict[tuple[object, ...], list[tuple[Pending, Booking]]] = {}
        for job, booking in starting:
            what = job.job_id, booking.until_us, booking.wide, booking.pairs
            placed.setdefault(what, []).append((job, booking))
        new: list[tuple[RunningKey, Running]] = []
        for number, (key, one) in enumerate(self.snapshot.running.items()):
            if number % KEYS_PER_SLICE == KEYS_PER_SLICE - 1:
                yield
            if key in schedule.held:
                continue
            # Of two that hold the same, each goes by its own forecast; tasks are placed as their array.
            alike = one.until_us, one.wide, one.spans
            same = placed.get((one.job_id, *alike)) or placed.get((one.array_job_id, *alike))
            if same and same[-1][1].stop_us > self.now_us:
                job, booking = same.pop()
                schedule.held[key] = Held(one, booking)
                schedule.discharge(job, booking)
                schedule.charge(one.job, booking)
                yield from self._lengthen(key, self.grace_us)
            else:
                new.append((key, one))
            schedule.changed_ends.update((key[0], one.array_job_id))
        for left in placed.values():
            for job, booking in left:
                yield from schedule.giving(job, booking)
                schedule.free_early(booking.spans)
        return new

    def _lengthen(self, key: RunningKey, tolerance_us: int) -> Generator[None, None, None]:
        """Extend a started attempt's booking to its expected end, as far as no other job is planned there.

        No planned job is delayed by a job that overtook it (C-59). Promises that are renewed in each cycle simply move.
        """
        schedule = self.schedule
        held = schedule.held[key]
        old, job = held.booking, held.running.job
        stop_us = end_us(held.running, self.now_us, self.grace_us)
        if abs(stop_us - old.stop_us) <= tolerance_us:
            return
        is_free = schedule.renews and not self.snapshot.fixed and not schedule.preemptors
        if stop_us > old.stop_us and not is_free:
            stop_us = schedule.book.free_until_us(old.pairs, old.stop_us, stop_us)
            if stop_us == old.stop_us:
                return
        new = replace(old, start_us=self.now_us, stop_us=stop_us, until_us=max(stop_us, old.until_us))
        yield from schedule.giving(job, old)
        try:
            yield from schedule.claiming(job, new) if is_free else schedule.taking(job, new)
        except ProfileError:
            # Its cluster-wide resources are promised to another job.
            new = replace(old, start_us=self.now_us)
            yield from schedule.taking(job, new, is_held=True)
        if new.stop_us < old.stop_us:
            schedule.free_early(new.spans)
        schedule.held[key] = Held(held.running, new)

    def _keep_rest(self, key: RunningKey, held: Held, one: Running) -> Generator[None, None, None]:
        """Keep what an attempt has left, or has got, until its old end: no other job is planned on it."""
        schedule, old = self.schedule, held.booking
        until_us = max(old.stop_us, one.until_us)
        new = replace(old, start_us=self.now_us, spans=_spans_of(one), wide=one.wide, until_us=until_us)
        yield from schedule.giving(held.running.job, old)
        yield from schedule.claiming(one.job, new, is_held=True)
        schedule.held[key] = Held(one, new)
        schedule.free_early(old.spans)

    def _holds_alike(self, one: Running, held: Held) -> bool:
        """Check whether the attempt holds the same amounts for the same time."""
        other = held.running
        return (one.wide, one.spans) == (other.wide, other.spans) and self._lasts_alike(one, held)

    def _lasts(self, one: Running, held: Held) -> bool:
        """Check whether the attempt keeps its booked end: its own end is nearly the same, or earlier and behind it.

        Jobs may be planned behind a booking that is shorter than the attempt (`_lengthen`); an earlier end moves none.
        """
        if self._lasts_alike(one, held):
            return True
        before_us = end_us(held.running, self.now_us, self.grace_us)
        after_us = end_us(one, self.now_us, self.grace_us)
        return held.booking.stop_us <= after_us <= before_us and one.until_us <= held.running.until_us

    def _lasts_alike(self, one: Running, held: Held) -> bool:
        """Check whether the expected end is nearly the same: less than the grace or a slow launch moves no other job."""
        other = held.running
        later_us = one.expected_us - other.expected_us
        longer_us = later_us - (one.since_us - other.since_us)
        return (
            one.until_us == other.until_us
            and bool(one.expected_us) == bool(other.expected_us)
            and min(abs(later_us), abs(longer_us)) <= self.grace_us
        )

    def _end(self, key: RunningKey, held: Held, now: Running | None) -> Generator[None, None, None]:
        """Rebook an attempt that released resources or ends at another time."""
        schedule = self.schedule
        del schedule.held[key]
        yield from schedule.giving(held.running.job, held.booking)
        schedule.changed_ends.update((key[0], held.running.array_job_id))
        # Members of packs keep clear of it until its limit, whatever was expected of it.
        stop_us = held.booking.until_us if self.snapshot.has_packs else held.booking.stop_us
        if stop_us > self.now_us and not self._is_longer(held, now):
            schedule.free_early(held.booking.spans)

    def _is_longer(self, held: Held, now: Running | None) -> bool:
        """Check whether the attempt keeps all its resources, none for a shorter time than expected."""
        return (
            now is not None
            and (now.spans, now.wide) == (held.running.spans, held.running.wide)
            and end_us(now, self.now_us, self.grace_us) >= held.booking.stop_us
        )

    def _hold(self, key: RunningKey, one: Running, *, is_late: bool = False) -> Generator[None, None, None]:
        """Book a running attempt; `is_late`: it has outlived its booking."""
        stop_us = end_us(one, self.now_us, self.grace_us)
        if self.schedule.is_new and self.snapshot.promises and one.expected_us > self.now_us:
            # The planner of these promises delayed no job for such an expectation.
            stop_us = self.now_us + 1
            self._brief.append(key)
        until_us = max(stop_us, one.until_us)
        booking = Booking(
            one.job_id, self.now_us, stop_us, _spans_of(one), one.wide, self.now_us, until_us=until_us
        )
        before = len(self.schedule.displaced)
        yield from self.schedule.claiming(one.job, booking, is_held=True)
        if (is_late and self.now_us < one.until_us) or 0 < one.expected_us <= self.now_us:
            for job_id in islice(self.schedule.displaced, before, None):
                self.schedule.slack.by[job_id] = one.job_id
        self.schedule.held[key] = Held(one, booking)
        self.schedule.changed_ends.update((key[0], one.array_job_id))


def _has_more(one: Running, before: Running) -> bool:
    """Check whether the attempt holds more than before on some node: it is booked when all that has ended is not."""
    had = dict(before.spans)
    return any(
        number not in had or any(more > less for more, less in zip(amounts, had[number], strict=False))
        for number, amounts in one.spans
    )


def _has_grown(one: Running, before: Running) -> bool:
    """Check whether the attempt got nodes: they are booked for its growth, whose booking ends before they are its own."""
    had = {number for number, _ in before.spans}
    return any(number not in had for number, _ in one.spans)


def _spans_of(one: Running) -> tuple[Span, ...]:
    """The holdings of an attempt as spans of a booking, part by part."""
    if one.parts:
        return tuple([Span(node, amounts, 0, part) for part, node, amounts in one.parts])
    return tuple([Span(node, amounts, 0) for node, amounts in one.spans])


def _had_no_foreseen_start(schedule: Schedule, job_id: int) -> bool:
    """Check whether the job was without a place because the end of another job could not be foreseen."""
    why = schedule.whys.get(job_id)
    return why is not None and why.kind is WhyKind.DEPENDENCY


def _waits_for_others(job: Pending, old: Pending) -> bool:
    """Check whether the plan of a job that waits for other jobs may be too early now: it waits for more, or for others."""
    if not job.after or (job.after, job.after_any) == (old.after, old.after_any):
        return False
    return job.after_any or old.after_any or not set(job.after) <= set(old.after)


def _after(bookings: tuple[Booking, ...], busy_us: dict[int, int]) -> tuple[int, int]:
    """The first of these starts, and the end of the attempt in its place; INFINITY when that is not the cause."""
    start_us = min(one.start_us for one in bookings)
    until_us = max([busy_us.get(span.node, 0) for one in bookings for span in one.spans], default=0)
    return start_us, until_us if until_us > start_us else INFINITY_US


def _held_elsewhere(ledger: Ledger) -> Vector:
    """Amounts held on unusable nodes: no pool can count on them."""
    topology = ledger.topology
    found = (0,) * len(topology.resources)
    for position in bits.all_positions(topology.everything & ~ledger.usable & ~ledger.idle):
        for _, amounts in ledger.holds_on(position):
            found = add(found, padded(amounts, len(found)))
    return found
