"""The kept plan: bookings from cycle to cycle, on one resource profile.

A cycle first brings the schedule in line with its snapshot (`reconcile`) and then plans; both only touch differences. Long
operations come in two forms: at once, and ("-ing") in slices, between which they are half done. Invariants: the profile
holds exactly the running attempts (until their ends, or a grace beyond them), the placements not seen running yet, and
`bookings`; a booking changes only when its own job changes, when its resources are gone, or to an earlier start.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from eslurm.core.model.job import Span
from eslurm.core.model.partition import PartitionView
from eslurm.core.plan.cycle.queue import Mark, Pending, QueueEntry
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.plan.cycle.snapshot import Running, RunningKey
from eslurm.core.plan.cycle.start_slack import PATIENCE_US, SLIP_HEAD_US, StartSlack, slack_us
from eslurm.core.plan.placement.avoided import compile_job_avoiding
from eslurm.core.plan.placement.compiled_request import CompiledRequest
from eslurm.core.plan.placement.feasible import empty_ledger
from eslurm.core.plan.placement.mapping import end_of
from eslurm.core.plan.profile.profile import SLOTS_MAX, ProfileError, ResourceProfile
from eslurm.core.plan.profile.search import Move, narrowed
from eslurm.core.plan.rules.constraints import Rules
from eslurm.core.plan.slices import exhaust
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import Vector, sum_per_node

NEEDS_MAX: Final = 4_096
KEYS_PER_SLICE: Final = 4_096
CHANGES_PER_SLICE: Final = 16


class Booking(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A start held free for a waiting job (C-36): its spans over [start_us, stop_us).

    `made_us` is the time of its search; a booking that is kept over cycles keeps it. For an array `tasks` of its tasks
    share it. `stop_us` is its expected end, `until_us` the latest. `is_return`: cores that a suspended attempt gets back on
    nodes that it holds.
    """

    job_id: int
    start_us: int
    stop_us: int
    spans: tuple[Span, ...]
    wide: Vector = ()
    made_us: int = 0
    tasks: int = 1
    until_us: int = 0
    is_return: bool = False

    @property
    def pairs(self) -> tuple[tuple[int, Vector], ...]:
        """The booking's (node number, amounts), as the profile takes them: one for each node, whatever parts share it."""
        spans = self.spans
        pairs = tuple([(span.node, span.amounts) for span in spans])
        # As in `has_parts`: all plans pass here, most of them of plain jobs.
        return sum_per_node(pairs) if spans and spans[-1].component else pairs

    @property
    def has_parts(self) -> bool:
        """Check whether it is of a job of several parts: its spans come part by part."""
        return bool(self.spans) and self.spans[-1].component > 0


def job_of(job: Pending, booking: Booking) -> Pending:
    """The member of the job's pack that the booking is for; the job itself without followers."""
    if job.followers and booking.job_id != job.job_id:
        return next(one.job for one in job.followers if one.job.job_id == booking.job_id)
    return job


def ends_of(job: Pending, start_us: int) -> tuple[int, int]:
    """(expected end, latest end) of a job that starts then."""
    return min(start_us + job.stay_us, INFINITY_US), end_of(start_us, job.time_limit_us)


class Return(msgspec.Struct, frozen=True):
    """Cores kept for the return of a suspended attempt; `job` is None for those kept for the job that room is made for."""

    job: Pending | None
    booking: Booking


class Charge(msgspec.Struct, frozen=True, gc=False):
    """A booking as the rules count it; `parts` are (part, node number, amounts) of a job of several parts, else empty.
    Cores that come back add no nodes: the attempt holds these nodes all the time.
    """

    start_us: int
    stop_us: int
    until_us: int
    spans: tuple[tuple[int, Vector], ...]
    wide: Vector
    tasks: int = 1
    parts: tuple[tuple[int, int, Vector], ...] = ()
    adds_nodes: bool = True


class Held(msgspec.Struct, frozen=True):
    """A running attempt in the profile; `booking` is what the rules count."""

    running: Running
    booking: Booking


_Gone: TypeAlias = tuple[QueueEntry, tuple[Booking, ...], tuple[Move, ...], Why | None]
"""Bookings taken out of the profile, with the entry of their job, moves and reason."""


class Schedule:
    """The profile, the bookings and the usage of rules. Belongs to one planner."""

    __slots__ = (
        "_empty",
        "_starts",
        "_starts_max",
        "awaited",
        "book",
        "bookings",
        "changed",
        "changed_ends",
        "displaced",
        "entries",
        "followers",
        "freed",
        "generation",
        "granted",
        "held",
        "improving",
        "is_new",
        "mark",
        "moved",
        "moves",
        "needs",
        "noted",
        "older",
        "policies_changed",
        "preemptors",
        "pushes",
        "renews",
        "returns",
        "rules",
        "slack",
        "slots_max",
        "starting",
        "stuck",
        "to_improve",
        "told_us",
        "unkept",
        "whys",
    )

    def __init__(self, *, slots_max: int = SLOTS_MAX) -> None:
        self.slots_max = slots_max
        self.book = ResourceProfile(Topology(()), now_us=0, slots_max=slots_max)
        self.rules: Rules | None = None
        self.generation = 0
        self.bookings: dict[int, tuple[Booking, ...]] = {}
        self.entries: dict[int, QueueEntry] = {}
        self.moves: dict[int, tuple[Move, ...]] = {}
        self.whys: dict[int, Why] = {}
        # The waiting room (C-04): jobs without a start, until something changes that could give them one.
        self.stuck: dict[int, int] = {}
        # Jobs that have lost their place: the start they had, and after which one they lose by it.
        self.displaced: dict[int, tuple[int, int]] = {}
        # Members of packs that have begun or were moved in this cycle, booked before the state knows of it.
        self.followers: set[int] = set()
        # Waiting jobs whose plans have changed, where places that are firm by limits are kept (`firm_places`); else None.
        self.noted: set[int] | None = None
        # Jobs that ask for something else since the last cycle, and still fit where they were planned.
        self.changed: set[int] = set()
        # Jobs that others are making room for, and what is booked for that, if anything can be.
        self.preemptors: dict[int, Booking | None] = {}
        # How often others have been told to go for a job that waits, and from when on more of them may be.
        self.pushes: dict[int, tuple[int, int]] = {}
        # The cores that were lent, from when they are to be given back (`resuming`).
        self.returns: list[Return] = []
        self.slack = StartSlack()
        # True when the policy renews its promises in each cycle: they delay no job.
        self.renews = False
        # Jobs whose planned end is not what it was.
        self.changed_ends: set[int] = set()
        # Positions on which something was given back before it was expected: others may now start earlier.
        self.freed = 0
        # The current improvement pass (C-37): its nodes, and the jobs not yet examined, the last one first.
        self.improving = 0
        self.to_improve: list[int] = []
        self.needs: dict[tuple[object, ...], CompiledRequest] = {}
        # Positions of the book's topology whose agents start no job of several parts.
        self.older = 0
        # All nodes of the book's topology with nothing held; made when a job first avoids nodes.
        self._empty: Ledger | None = None
        self.held: dict[RunningKey, Held] = {}
        self.starting: list[tuple[Pending, Booking]] = []
        # The starts of all bookings, and of some that are gone: a heap, tidied when it has grown to so many.
        self._starts: list[tuple[int, int]] = []
        self._starts_max = KEYS_PER_SLICE
        self.policies_changed = -1
        # Before its first cycle, which begins with the promises of the previous planner.
        self.is_new = True
        # Nodes of theirs that are not known to be back yet.
        self.awaited: set[int] | None = None
        # Why a promise of theirs could not be kept as it was, by job.
        self.unkept: dict[int, str] = {}
        # Waiting jobs whose promises may not be what the log says any more, and when it was told for the last time.
        self.moved: set[int] = set()
        self.told_us = 0
        # By job the start that was granted it in the last cycle, and the place that it leaves when that is committed.
        self.granted: dict[int, tuple[int, Booking]] = {}
        # What of the queues' changes has been followed.
        self.mark: Mark | None = None

    # Reading

    def known_jobs(self, changes: Collection[int] | None = None) -> list[int]:
        """The waiting jobs with a plan or a note here: a snapshot should report on them.

        With `changes` only those that may have changed, and the preempting ones.
        """
        if changes is None:
            return [
                *self.bookings,
                *self.stuck,
                *self.whys,
                *self.slack.jobs(),
                *self.preemptors,
                *self.pushes,
                *self.followers,
            ]
        known = (self.bookings, self.stuck, self.whys)
        return [
            *(id for id in changes if any(id in one for one in known) or self.slack.is_known(id)),
            *self.preemptors,
            *self.pushes,
            *self.followers,
        ]

    def next_push_us(self, now_us: int) -> int:
        """Time at which the next preempting job may choose further victims; `INFINITY_US` without one."""
        return min((at_us for _, at_us in self.pushes.values() if at_us > now_us), default=INFINITY_US)

    def next_start_us(self) -> int:
        """Begin of the next booking; `INFINITY_US` when there is none."""
        starts = self._starts
        while starts and not self._begins(*starts[0]):
            heapq.heappop(starts)
        return starts[0][0] if starts else INFINITY_US

    def due(self, now_us: int) -> list[int]:
        """The jobs with a booking whose start has come, in the order of their starts."""
        found: dict[int, None] = {}
        starts = self._starts
        taken: list[tuple[int, int]] = []
        while starts and starts[0][0] <= now_us:
            start = heapq.heappop(starts)
            if self._begins(*start) and start[1] not in found:
                found[start[1]] = None
                taken.append(start)
        for start in taken:
            heapq.heappush(starts, start)
        return list(found)

    def ends(self) -> dict[int, int]:
        """Expected end of each running job; an array's tasks count for the array too."""
        found: dict[int, int] = {}
        for (job_id, _), held in self.held.items():
            stop_us = held.booking.stop_us
            for key in (job_id, held.running.array_job_id):
                if key and found.get(key, 0) < stop_us:
                    found[key] = stop_us
        for job, booking in self.starting:
            if found.get(job.job_id, 0) < booking.stop_us:
                found[job.job_id] = booking.stop_us
        return found

    def end_us(self, key: RunningKey) -> int:
        """Expected release of an attempt's resources; 0 when it is unknown."""
        held = self.held.get(key)
        return held.booking.stop_us if held is not None else 0

    def rules_without(self, gone: Iterable[RunningKey], waiting: int) -> Rules:
        """A copy of the rules without these attempts and the plans of that job."""
        assert self.rules is not None
        book = self.book.copy()
        rules = self.rules.copy(book)
        left = [(held.running.job, held.booking) for key in gone if (held := self.held.get(key)) is not None]
        left += [
            (job_of(self.entries[waiting].job, booking), booking)
            for booking in self.bookings.get(waiting, ())
        ]
        for job, booking in left:
            book.revoke(booking.pairs, booking.start_us, booking.stop_us, booking.wide)
            if job is not None:
                rules.revoke(job, charge_of(booking))
        return rules

    def planned_end_us(self, job_id: int) -> int:
        """End of a waiting job's last booking; 0 when it has none."""
        return max((booking.stop_us for booking in self.bookings.get(job_id, ())), default=0)

    def tasks_booked(self, job_id: int) -> int:
        """Number of a waiting job's tasks with a place."""
        return sum(booking.tasks for booking in self.bookings.get(job_id, ()))

    def need(self, job: Pending, partitions: Mapping[str, PartitionView]) -> CompiledRequest:
        """The job's compiled request, cached; all its partitions exist."""
        topology = self.book.topology
        # How long it runs matters to nodes that only short jobs may use.
        limit_us = job.time_limit_us if topology.rules else 0
        older = self.older if job.parts else 0
        key = (job.parts or job.partition, job.request, job.avoid, limit_us, older, job.apart)
        found = self.needs.get(key)
        if found is None:
            if len(self.needs) >= NEEDS_MAX:
                self.needs.clear()
            asked = job.parts or (job,)
            found = compile_job_avoiding(
                [one.request for one in asked],
                [partitions[one.partition] for one in asked],
                topology,
                job.avoid,
                job.time_limit_us,
                self._empty_ledger,
            )
            if older:
                found = narrowed(found, topology.everything & ~older)
            if job.apart:
                found = narrowed(found, topology.everything & ~topology.mask_of_numbers(job.apart))
            self.needs[key] = found
        return found

    def _empty_ledger(self) -> Ledger:
        if self._empty is None or self._empty.topology is not self.book.topology:
            self._empty = empty_ledger(self.book.topology)
        return self._empty

    # Booking

    def add(
        self, entry: QueueEntry, booking: Booking, moves: tuple[Move, ...] = (), *, must: bool = False
    ) -> None:
        """Book a planned start. Raises `BookError` when it is not free; with `must` other plans give way."""
        if must:
            exhaust(self.claiming(entry.job, booking))
            self.note(entry, (booking,), moves)
        else:
            exhaust(self.adding(entry, (booking,), moves))

    def adding(
        self, entry: QueueEntry, bookings: Sequence[Booking], moves: tuple[Move, ...] = ()
    ) -> Generator[None, None, None]:
        """Book planned starts of one job in slices. Raises `BookError`, with none of them booked, when one is not free."""
        job = entry.job
        taken = 0
        # An end that is rounded up never reaches into what comes behind it.
        marked = [booking.start_us for booking in bookings] if len(bookings) > 1 else []
        self.book.mark(marked)
        try:
            for booking in bookings:
                yield from self.taking(job_of(job, booking) if job.followers else job, booking)
                taken += 1
                if taken % CHANGES_PER_SLICE == 0:
                    yield
        except ProfileError:
            for booking in bookings[:taken]:
                exhaust(self.giving(job_of(job, booking), booking))
            raise
        finally:
            self.book.unmark(marked)
        self.note(entry, bookings, moves)

    def note(self, entry: QueueEntry, bookings: Sequence[Booking], moves: tuple[Move, ...]) -> None:
        """Record bookings that are already taken as the plan of a waiting job."""
        job_id = entry.job_id
        self.bookings[job_id] = (*self.bookings.get(job_id, ()), *bookings)
        self.entries[job_id] = entry
        self.moves[job_id] = moves
        self.stuck.pop(job_id, None)
        start_us = min([booking.start_us for booking in bookings])
        may_slip_us = SLIP_HEAD_US if self.renews else slack_us(start_us - self.book.now_us)
        is_patient = self.renews and self.book.now_us - entry.job.since_us >= PATIENCE_US
        self.slack.note(entry, start_us, may_slip_us, is_shut=is_patient)
        self.changed_ends.add(job_id)
        self.moved.add(job_id)
        if self.noted is not None:
            self.noted.add(job_id)
        for start_us in {booking.start_us for booking in bookings}:
            heapq.heappush(self._starts, (start_us, job_id))
        if len(self._starts) > self._starts_max:
            starts = {(one.start_us, one.job_id) for some in self.bookings.values() for one in some}
            self._starts = sorted(starts)
            self._starts_max = 4 * len(self._starts) + KEYS_PER_SLICE

    def remove(self, job_id: int) -> tuple[Booking, ...]:
        """Release all bookings of a waiting job; returns them."""
        return exhaust(self.removing(job_id))

    def removing(self, job_id: int) -> Generator[None, None, tuple[Booking, ...]]:
        """`remove` in slices."""
        bookings = self.bookings.pop(job_id, ())
        entry = self.entries.pop(job_id, None)
        self.moves.pop(job_id, None)
        self.whys.pop(job_id, None)
        if entry is not None:
            yield from self._giving_all(entry.job, bookings)
        if bookings:
            self.changed_ends.add(job_id)
            self.moved.add(job_id)
            if self.noted is not None:
                self.noted.add(job_id)
        return bookings

    def hand_out(self, job_id: int) -> None:
        """Take all bookings of a pack that begins out of its name; they stay in the profile."""
        del self.bookings[job_id], self.entries[job_id]
        self.moves.pop(job_id, None)
        self.whys.pop(job_id, None)
        if self.noted is not None:
            self.noted.add(job_id)

    def drop(self, job_id: int, *gone: Booking) -> None:
        """Release some of the bookings of an array."""
        known = {id(booking) for booking in gone}
        left = tuple([one for one in self.bookings[job_id] if id(one) not in known])
        if not left:
            self.remove(job_id)
            return
        exhaust(self._giving_all(self.entries[job_id].job, gone))
        self.bookings[job_id] = left
        self.changed_ends.add(job_id)
        self.moved.add(job_id)

    def give_up_room(self, job_id: int) -> None:
        """Make no more room for a job. What was booked for that is no planned start: no rule has been asked about it."""
        room = self.preemptors.pop(job_id, None)
        if any(one is room for one in self.bookings.get(job_id, ())):
            assert room is not None
            self.drop(job_id, room)

    def displace(self, job_id: int) -> None:
        """Release a job's place; it must be replanned."""
        exhaust(self.displacing(job_id))

    def displacing(self, job_id: int, until_us: int = INFINITY_US) -> Generator[None, None, None]:
        """`displace` in slices. `until_us` is the end of the cause: a start after it is a loss."""
        bookings = yield from self.removing(job_id)
        self.lose(job_id, bookings, until_us)

    def lose(self, job_id: int, bookings: Sequence[Booking], until_us: int = INFINITY_US) -> None:
        """Record the loss of these already released places: the job must be replanned."""
        self.free_early(span for booking in bookings for span in booking.spans)
        self.displaced[job_id] = _first_and_last(bookings, until_us)

    def start(self, job: Pending, booking: Booking, *, must: bool = False) -> None:
        """Book a start that begins now; the next cycle finds it running, or finds that it was not placed after all.

        With `must` it displaces plans in its way: it was promised this time, and is late.
        """
        exhaust(self.claiming(job, booking) if must else self.taking(job, booking))
        self.starting.append((job, booking))
        self.slack.forget(job.job_id)

    def begin(self, job: Pending, booking: Booking, placed: Sequence[Booking]) -> None:
        """Begin a booking exactly as planned: as `placed`, which together take the same resources."""
        bookings = self.bookings[job.job_id]
        index = next(index for index, one in enumerate(bookings) if one is booking)
        left = bookings[:index] + bookings[index + 1 :]
        if left:
            self.bookings[job.job_id] = left
        else:
            del self.bookings[job.job_id]
            del self.entries[job.job_id]
            self.moves.pop(job.job_id, None)
            self.whys.pop(job.job_id, None)
            self.slack.forget(job.job_id)
        if len(placed) > 1:
            exhaust(self.giving(job, booking))
            for part in placed:
                exhaust(self.taking(job, part))
        self.starting += [(job, part) for part in placed]
        self.changed_ends.add(job.job_id)
        self.moved.add(job.job_id)

    def free_early(self, spans: Iterable[Span]) -> None:
        """Record a release: jobs that could use these nodes may start earlier now."""
        self.freed |= self.book.topology.mask_of_numbers(span.node for span in spans)

    def claiming(
        self, job: Pending | None, booking: Booking, *, is_held: bool = False
    ) -> Generator[None, None, None]:
        """Book resources that are in use for certain. Plans in the way are displaced."""
        try:
            yield from self.taking(job, booking)
        except ProfileError:
            freed = self.freed
            gone = yield from self._clear_way(booking)
            try:
                yield from self.taking(job, booking, is_held=is_held)
            except ProfileError:
                self.freed = freed
                yield from self._put_back(gone)
                raise

    def taking(
        self, job: Pending | None, booking: Booking, *, is_held: bool = False
    ) -> Generator[None, None, None]:
        """Book in the profile and the rules. Raises `BookError` when it is not free."""
        charge = charge_of(booking)
        stay = booking.start_us, booking.stop_us
        yield from self.book.booking(charge.spans, *stay, booking.wide, is_held=is_held)
        if job is not None and self.rules is not None:
            self.rules.book(job, charge)

    def giving(self, job: Pending | None, booking: Booking) -> Generator[None, None, None]:
        """Revoke in the profile and the rules."""
        charge = charge_of(booking)
        yield from self.book.revoking(charge.spans, booking.start_us, booking.stop_us, booking.wide)
        if job is not None and self.rules is not None:
            self.rules.revoke(job, charge)

    def charge(self, job: Pending | None, booking: Booking) -> None:
        """Count it in the rules."""
        if job is not None and self.rules is not None:
            self.rules.book(job, charge_of(booking))

    def discharge(self, job: Pending | None, booking: Booking) -> None:
        """Stop counting it in the rules."""
        if job is not None and self.rules is not None:
            self.rules.revoke(job, charge_of(booking))

    # Inside

    def _clear_way(self, wanted: Booking) -> Generator[None, None, list[_Gone | Return]]:
        """Displace plans that leave too little for a present attempt; lent cores may come back later."""
        gone: list[_Gone | Return] = []
        start_us, stop_us = wanted.start_us, wanted.stop_us
        short = {
            node
            for node, amounts in wanted.pairs
            if any(
                free < asked
                for free, asked in zip(self.book.free_on(node, start_us, stop_us), amounts, strict=False)
            )
        }
        returns, self.returns = self.returns, []
        for one in returns:
            booking = one.booking
            if self._meets(booking, start_us, stop_us) and any(span.node in short for span in booking.spans):
                yield from self.giving(one.job, booking)
                gone.append(one)
            else:
                self.returns.append(one)
        for job_id, bookings in list(self.bookings.items()):
            for booking in bookings:
                if not self._meets(booking, start_us, stop_us):
                    continue
                shares = any(span.node in short for span in booking.spans)
                if shares or (any(booking.wide) and any(wanted.wide)):
                    gone.append(
                        (self.entries[job_id], bookings, self.moves.get(job_id, ()), self.whys.get(job_id))
                    )
                    yield from self.displacing(job_id, stop_us)
                    break
        return gone

    def _put_back(self, gone: Sequence[_Gone | Return]) -> Generator[None, None, None]:
        for one in gone:
            if isinstance(one, Return):
                yield from self.taking(one.job, one.booking)
                self.returns.append(one)
                continue
            entry, bookings, moves, why = one
            try:
                yield from self.adding(entry, bookings, moves)
            except ProfileError:
                # Its end was rounded up otherwise: it stays displaced.
                continue
            del self.displaced[entry.job_id]
            if why is not None:
                self.whys[entry.job_id] = why

    def _meets(self, booking: Booking, start_us: int, stop_us: int) -> bool:
        """Check whether the profile holds something for the booking in that interval, rounded or not."""
        if booking.start_us < stop_us and booking.stop_us > start_us:
            return True
        if not self.book.is_rounded(booking.stop_us):
            return False
        from_us, until_us = self.book.stay(booking.pairs, booking.start_us, booking.stop_us, booking.wide)
        return from_us < stop_us and until_us > start_us

    def _giving_all(self, job: Pending, bookings: Sequence[Booking]) -> Generator[None, None, None]:
        for number, booking in enumerate(bookings, 1):
            yield from self.giving(job_of(job, booking) if job.followers else job, booking)
            if number % CHANGES_PER_SLICE == 0:
                yield

    def _begins(self, start_us: int, job_id: int) -> bool:
        return any(booking.start_us == start_us for booking in self.bookings.get(job_id, ()))


def _first_and_last(bookings: Sequence[Booking], until_us: int) -> tuple[int, int]:
    """The earliest of these starts, and the latest of them or that instant."""
    starts = [booking.start_us for booking in bookings]
    return min(starts, default=INFINITY_US), max([until_us, *starts])


def charge_of(booking: Booking) -> Charge:
    """The booking as the rules count it."""
    start_us, stop_us, until_us = booking.start_us, booking.stop_us, booking.until_us
    until_us = max(stop_us, until_us)
    spans = booking.spans
    pairs = tuple([(span.node, span.amounts) for span in spans])
    # As in `pairs` and `has_parts`, which are calls: each booking and each release passes here.
    if not spans or not spans[-1].component:
        return Charge(
            start_us, stop_us, until_us, pairs, booking.wide, booking.tasks, (), not booking.is_return
        )
    parts = tuple([(span.component, span.node, span.amounts) for span in spans])
    together = sum_per_node(pairs)
    return Charge(
        start_us, stop_us, until_us, together, booking.wide, booking.tasks, parts, not booking.is_return
    )
