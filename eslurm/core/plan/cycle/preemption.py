"""Preemption: choose victims for a waiting job, and keep the resources that they release for it.

One cycle preempts for one job at most. From then on it is one of the schedule's *preemptors*: before all other planning it
starts if it fits; else the nodes being cleared are booked for it from their expected end on, their free part already until
then; and when that does not suffice, further victims are chosen. Invariants: no job is preempted for one whose own rules
forbid its start there; another waiting job's plan gives way only if the preemptor could preempt that job while it runs, and
a fixed start never does; released resources go to the job for which they were cleared.

Termination without new arrivals: a victim is of a lower rank (`victims`), so jobs of the highest rank start once each, and
lower ones once and again for each time that they were preempted. Room that was cleared and not used (a node failed, a
suspended job resumed there) would break that count: so each further preemption for the same waiting job has to wait twice
as long.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias

import msgspec

from eslurm.core.model.accounts import Qos
from eslurm.core.model.job import Span
from eslurm.core.model.partition import OFF, SUSPEND
from eslurm.core.plan.cycle.array_tasks import merged, split
from eslurm.core.plan.cycle.earliest import is_ready
from eslurm.core.plan.cycle.policy import SKIP_STEPS, TRY_STEPS, Cycle
from eslurm.core.plan.cycle.queue import Pending, QueueEntry
from eslurm.core.plan.cycle.reasons import Why, WhyKind
from eslurm.core.plan.cycle.schedule import Booking, Return
from eslurm.core.plan.cycle.snapshot import Running, RunningKey
from eslurm.core.plan.cycle.victims import Claim, Freed, Preemptable, Ranks, Standing, Victim, victims
from eslurm.core.plan.placement.compiled_request import CompiledRequest
from eslurm.core.plan.placement.mapping import choose, spans_of
from eslurm.core.plan.placement.protocols import Availability, Constraint
from eslurm.core.plan.profile.profile import ProfileError
from eslurm.core.plan.profile.search import PlacementQuery, Start, narrowed, start_exactly
from eslurm.core.plan.rules.constraints import Rules
from eslurm.core.plan.slices import exhaust
from eslurm.core.resources.shares import by_node
from eslurm.core.resources.timeline import INFINITY_US

Work: TypeAlias = Callable[[], Sequence[Preemptable]]
"""The running attempts in preemption's form; called only when preemption is possible."""

_Kind: TypeAlias = tuple[str, tuple[str, ...]]
"""(QOS, partitions) of a waiting job."""

CLAIMS_MAX: Final = 8
"""Shapes of waiting jobs that victims are looked for in one cycle."""
GRACE_US: Final = 60_000_000
"""Greatest delay of a preempting job's start."""
AGAIN_US: Final = 60_000_000
"""Pause before further victims for a job whose first victims did not suffice; doubled each time after that."""
NAMED_MAX: Final = 5


class PreemptionPlanner:
    """Preemption in one cycle."""

    def __init__(self, cycle: Cycle, work: Work) -> None:
        self.cycle = cycle
        self.schedule = cycle.schedule
        self.snapshot = cycle.snapshot
        self._work = work
        self._running: Sequence[Preemptable] | None = None
        # The preemptor of this cycle and its victims.
        self._made: tuple[int, tuple[Victim, ...]] = 0, ()
        self._claims: dict[_Kind, Claim] = {}
        # By QOS and partitions: resources without all preemptable attempts, and those of them that release everything.
        self._emptied: dict[_Kind, tuple[Freed, tuple[RunningKey, ...]]] = {}
        # The rules without these.
        self._lightened: dict[tuple[RunningKey, ...], Rules] = {}
        tiers = [one.tier for one in self.snapshot.partitions.values()]
        self._ranks = Ranks(self.snapshot.policies.get("qos", {}), tiers)
        self._lowest = min(
            (one.tier for one in self.snapshot.partitions.values() if one.preempt_mode != OFF), default=None
        )

    # ---- those that room is being made for ----

    def keep(self) -> Generator[None, None, None]:
        """Start the preemptors or keep their cleared resources, the oldest claim first."""
        schedule, known = self.schedule, self.snapshot.known
        schedule.pushes = {job_id: told for job_id, told in schedule.pushes.items() if job_id in known}
        for job_id in list(schedule.preemptors):
            if job_id not in known or not (yield from self._keep(known[job_id])):
                schedule.give_up_room(job_id)

    def _keep(self, entry: QueueEntry) -> Generator[None, None, bool]:
        """Check whether the job still waits for its resources."""
        job = entry.job
        query = self.cycle.queries.startable(entry)
        if not is_ready(job) or isinstance(query, Why):
            return False
        need = yield from self._open(entry, query)
        if (yield from self._begin(entry, query, need)):
            return False
        if self.cycle.is_full or self._hold(entry, query, need):
            return True
        # They have gone, and it was not enough.
        return self._may_push(job.job_id) and (yield from self._claims_room(entry, query))

    def _hold(self, entry: QueueEntry, query: PlacementQuery, need: CompiledRequest) -> bool:
        """Book the resources of the leaving victims; returns whether they suffice for the job."""
        cycle, schedule = self.cycle, self.schedule
        job = entry.job
        going = self._going()
        if not going:
            return False
        chosen = choose(Freed(cycle.ledger, going), need)
        if chosen is None:
            return False
        spans = spans_of(cycle.ledger.topology, need, chosen)
        nodes = {span.node for span in spans}
        leaving = [one for one in going if any(node in nodes for node, _ in one.shares)]
        # Free already, and yet the rules forbid the start: they still count attempts that leave elsewhere.
        leaving = leaving or list(going)
        ends = [schedule.end_us((one.job_id, one.attempt)) for one in leaving]
        at_us = max((cycle.now_us + 1, *ends))
        planned = [one for one in schedule.bookings.get(job.job_id, ()) if not self._is_room(one)]
        if any(one.start_us <= at_us for one in planned):
            # It has a place that is no worse.
            return False
        self._vacate(job.job_id)
        schedule.preemptors[job.job_id] = None
        # An attempt that is only suspended holds everything until it is: no job can use any of it before.
        if at_us < INFINITY_US:
            booking = cycle.booking(job, need, at_us, spans)
            try:
                schedule.add(entry, booking, must=True)
            except ProfileError:
                at_us = INFINITY_US
            else:
                schedule.preemptors[job.job_id] = booking
        self._keep_free(job.job_id, spans, min(at_us, cycle.now_us + query.duration_us, INFINITY_US))
        when_us = at_us if at_us < INFINITY_US else None
        schedule.whys[job.job_id] = cycle.waiting[job.job_id] = _made_by(leaving, when_us)
        return True

    def _keep_free(self, job_id: int, spans: Sequence[Span], until_us: int) -> None:
        """Book what is already free on these nodes: another job there would outlast the victims."""
        cycle = self.cycle
        positions = cycle.ledger.topology.positions
        free: list[Span] = []
        for node, wanted in by_node(spans):
            there = cycle.ledger.free_on(positions[node])
            amounts = tuple([max(0, min(pair)) for pair in zip(wanted, there, strict=False)])
            if any(amounts):
                free.append(Span(node, amounts, 0))
        booking = Booking(job_id, cycle.now_us, until_us, tuple(free), (), cycle.now_us)
        cycle.spend(TRY_STEPS + len(free))
        try:
            exhaust(self.schedule.claiming(None, booking))
        except ProfileError:
            # What is late to leave there is not expected back before.
            return
        self.schedule.returns.append(Return(None, booking))

    # ---- those that room is to be made for ----

    def make(self) -> Generator[None, None, tuple[int, tuple[Victim, ...]]]:
        """The first waiting job that can start only by preemption, and its victims; (0, ()) when there is none."""
        cycle, schedule = self.cycle, self.schedule
        tried: set[int] = set()
        for entry in self.snapshot.pending:
            if self._made[0]:
                break
            cycle.spend(SKIP_STEPS)
            if cycle.slice_over():
                yield
            job = entry.job
            if entry.shape in tried or not self._may_claim(job):
                continue
            tried.add(entry.shape)
            query = cycle.queries.startable(entry)
            if isinstance(query, Why):
                continue
            if cycle.is_full or len(tried) > CLAIMS_MAX:
                break
            if isinstance(start_exactly(schedule.book, query, cycle.now_us), Start):
                # It could start as it is: the policy lets others go first.
                continue
            if not (yield from self._claims_room(entry, query)):
                schedule.give_up_room(job.job_id)
        return self._made

    def _claims_room(self, entry: QueueEntry, query: PlacementQuery) -> Generator[None, None, bool]:
        """Check whether the job is waiting for leaving attempts: its victims, or others that end anyway."""
        cycle, schedule = self.cycle, self.schedule
        job = entry.job
        if self._made[0]:
            # One at a time: its turn comes in the next cycle.
            return job.job_id in schedule.preemptors
        need = yield from self._open(entry, query, GRACE_US)
        if (yield from self._begin(entry, query, need)):
            return False
        if not need.allowed or not self._could_start(job, query, need):
            return False
        work = self._everybody()
        yield
        found = yield from victims(self._claim(job), cycle.ledger, partial(_fits, need), work, cycle.now_us)
        if found is None or not self._lets_start(job, query, found):
            return False
        schedule.preemptors[job.job_id] = None
        if not found:
            return self._hold(entry, query, need)
        self._made = job.job_id, found
        room = Freed(
            Freed(cycle.ledger, self._going()),
            [one.work for one in found],
            {one.work.job_id: one.mode for one in found},
        )
        if (chosen := choose(room, need)) is not None:
            spans = spans_of(cycle.ledger.topology, need, chosen)
            self._keep_free(job.job_id, spans, min(cycle.now_us + query.duration_us, INFINITY_US))
        told, _ = schedule.pushes.get(job.job_id, (0, 0))
        schedule.pushes[job.job_id] = told + 1, cycle.now_us + (AGAIN_US << told - 1 if told else 0)
        when_us = schedule.whys[job.job_id].planned_start_us if job.job_id in schedule.whys else None
        cycle.waiting[job.job_id] = _made_by([one.work for one in found], when_us)
        return True

    def _everybody(self) -> Sequence[Preemptable]:
        """The running attempts."""
        if self._running is None:
            self._running = self._work()
            self.cycle.spend(TRY_STEPS + len(self._running))
        return self._running

    def _going(self) -> list[Preemptable]:
        """The attempts that are about to end."""
        return [one for one in self._everybody() if one.is_going]

    def _may_push(self, job_id: int) -> bool:
        """Check whether further jobs may be preempted for it."""
        return self.schedule.pushes.get(job_id, (0, 0))[1] <= self.cycle.now_us

    def _may_claim(self, job: Pending) -> bool:
        claim = self._claim(job)
        return (
            (bool(claim.preempts) or (self._lowest is not None and self._lowest < claim.tier))
            and not job.start_at_us
            and not job.followers
            and job.job_id not in self.schedule.preemptors
            and self._may_push(job.job_id)
            and self.cycle.placed.get(job.job_id, 0) < job.startable
        )

    def _begin(
        self, entry: QueueEntry, query: PlacementQuery, need: CompiledRequest
    ) -> Generator[None, None, bool]:
        """Start the job if it fits now, over plans that must give way to it or over none."""
        cycle, schedule = self.cycle, self.schedule
        job = entry.job
        chosen = choose(cycle.ledger, need)
        if chosen is None or cycle.is_full:
            return False
        moves, why = schedule.moves.get(job.job_id, ()), schedule.whys.get(job.job_id)
        own = schedule.bookings.get(job.job_id, ())
        self._vacate(job.job_id)
        booking = cycle.booking(job, need, cycle.now_us, spans_of(cycle.ledger.topology, need, chosen))
        stricter = query.recount(need, chosen) if query.recount is not None else ()
        if self._is_allowed((*query.constraints, *stricter), query.duration_us):
            try:
                schedule.start(job, booking, must=True)
            except ProfileError:
                pass
            else:
                cycle.is_unfinished |= bool(schedule.displaced)
                cycle.waiting.pop(job.job_id, None)
                schedule.pushes.pop(job.job_id, None)
                yield from cycle.place(booking)
                return True
        schedule.remove(job.job_id)
        if own:
            yield from schedule.adding(entry, own, moves)
        if why is not None:
            schedule.whys[job.job_id] = why
        return False

    def _is_room(self, booking: Booking) -> bool:
        """Check whether the booking is the preemptor's cleared resources."""
        return self.schedule.preemptors.get(booking.job_id) is booking

    def _vacate(self, job_id: int) -> None:
        """Release the preemptor's cleared resources, or else its last planned start: one task begins earlier."""
        schedule = self.schedule
        bookings = schedule.bookings.get(job_id, ())
        if not bookings:
            return
        entry, moves, why = (
            schedule.entries[job_id],
            schedule.moves.get(job_id, ()),
            schedule.whys.get(job_id),
        )
        last = next(filter(self._is_room, bookings), None) or max(bookings, key=lambda one: one.start_us)
        schedule.drop(job_id, last)
        if last.tasks > 1:
            schedule.add(entry, merged(split(last)[:-1]), moves)
            if why is not None:
                schedule.whys[job_id] = why

    # ---- what is in the way ----

    def _open(
        self, entry: QueueEntry, query: PlacementQuery, delay_us: int = 0
    ) -> Generator[None, None, CompiledRequest]:
        """The request on those nodes only that no reservation, pool or other plan closes during its whole interval.

        `late_us` is the possible delay of the start.
        """
        cycle = self.cycle
        stop_us = min(cycle.now_us + delay_us + query.duration_us, INFINITY_US)
        if cycle.now_us < query.from_us or (query.until_us < INFINITY_US and stop_us > query.until_us):
            return narrowed(query.need, 0)
        shut = 0
        for closure in query.closed:
            if closure.start_us < stop_us and closure.stop_us > cycle.now_us:
                shut |= closure.mask
        shut |= yield from self._planned(entry.job, query.need, stop_us)
        return narrowed(query.need, query.need.allowed & ~shut)

    def _planned(self, job: Pending, need: CompiledRequest, stop_us: int) -> Generator[None, None, int]:
        """The positions on which plans that do not give way begin before `stop_us`; all, if one has cluster-wide
        resources.
        """
        cycle = self.cycle
        topology = cycle.ledger.topology
        claim = self._claim(job)
        found: set[int] = set()
        for job_id, bookings in list(self.schedule.bookings.items()):
            cycle.spend(SKIP_STEPS)
            if cycle.slice_over():
                yield
            entry = self.schedule.entries.get(job_id)
            # The other tasks of an array keep their places.
            is_own = job_id == job.job_id and len(bookings) == 1 and bookings[0].tasks == 1
            if entry is None or is_own or (job_id != job.job_id and self._gives_way(entry.job, claim)):
                continue
            for booking in bookings:
                if booking.start_us < stop_us and not (job_id == job.job_id and self._is_room(booking)):
                    if any(need.wide) and any(booking.wide):
                        return topology.everything
                    found.update(span.node for span in booking.spans)
                    cycle.spend(len(booking.spans))
        later = {one.job_id for one in self.snapshot.lenders if self._stands_longer(one, claim)}
        for back in self.schedule.returns:
            booking = back.booking
            if booking.start_us < stop_us and booking.job_id not in later:
                found.update(span.node for span in booking.spans)
        for one in self.snapshot.lenders:
            # Its cores go back to it as soon as those are gone whom it lent them to.
            if one.job_id not in later:
                found.update(node for node, _ in one.lent)
        return topology.mask_of_numbers(found)

    def _stands_longer(self, lender: Running, claim: Claim) -> bool:
        """Check whether a suspended attempt would make room for the preemptor, too."""
        if lender.room_for == claim.job_id:
            return True
        return lender.job is not None and claim.mode(self._as_running(lender.job)) != OFF

    def _gives_way(self, job: Pending, claim: Claim) -> bool:
        """Check whether the preemptor could preempt the waiting job if that ran."""
        if job.start_at_us or job.job_id in self.schedule.preemptors:
            return False
        return claim.mode(self._as_running(job)) != OFF

    def _as_running(self, job: Pending) -> Preemptable:
        """The job as a preemptable attempt, as if it ran."""
        qos, standing = self._qos(job), self._standing(job)
        return Preemptable(
            job.job_id,
            0,
            job.priority,
            0,
            (),
            qos=job.qos,
            tier=standing.tier,
            by_qos=qos.preempt_mode if qos is not None else OFF,
            by_tier=standing.by_tier,
            level=self._ranks.level(job.qos),
        )

    def _lets_start(self, job: Pending, query: PlacementQuery, found: Iterable[Victim]) -> bool:
        """Check whether limits, pools and licences let the job start once these are gone."""
        if self._is_allowed(query.constraints, query.duration_us):
            return True
        gone = [(one.work.job_id, one.work.attempt) for one in found if one.mode != SUSPEND]
        rules = self.schedule.rules_without(gone, job.job_id)
        return self._is_allowed(rules.of(job, query.need).constraints, query.duration_us)

    def _could_start(self, job: Pending, query: PlacementQuery, need: CompiledRequest) -> bool:
        """Check whether the job could start with every attempt gone that it may preempt; if not, no victim is sought."""
        room, gone = self._without_all(job)
        if choose(room, need) is None:
            return False
        # Its own plans are left out only once the victims are known.
        if job.job_id in self.schedule.bookings or self._is_allowed(query.constraints, query.duration_us):
            return True
        rules = self._lightened.get(gone)
        if rules is None:
            rules = self._lightened[gone] = self.schedule.rules_without(gone, job.job_id)
        return self._is_allowed(rules.of(job, query.need).constraints, query.duration_us)

    def _without_all(self, job: Pending) -> tuple[Freed, tuple[RunningKey, ...]]:
        key = job.qos, job.partitions
        found = self._emptied.get(key)
        if found is None:
            claim, now_us = self._claim(job), self.cycle.now_us
            going = self._going()
            modes = {
                one.job_id: claim.mode(one)
                for one in self._everybody()
                if not one.is_going and one.exempt_until_us <= now_us
            }
            pushed = [
                one for one in self._everybody() if not one.is_going and modes.get(one.job_id, OFF) != OFF
            ]
            room = Freed(Freed(self.cycle.ledger, going), pushed, modes)
            ended = [*going, *(one for one in pushed if modes[one.job_id] != SUSPEND)]
            found = self._emptied[key] = room, tuple([(one.job_id, one.attempt) for one in ended])
        return found

    def _is_allowed(self, constraints: Iterable[Constraint], duration_us: int) -> bool:
        now_us = self.cycle.now_us
        stop_us = min(now_us + duration_us, INFINITY_US)
        return all(one.earliest(duration_us, now_us, stop_us) == now_us for one in constraints)

    # ---- permissions ----

    def _claim(self, job: Pending) -> Claim:
        key = job.qos, job.partitions
        known = self._claims.get(key)
        if known is None:
            known = self._claims[key] = self._ranks.claim(0, self._qos(job), self._standing(job))
        return msgspec.structs.replace(known, job_id=job.job_id)

    def _standing(self, job: Pending) -> Standing:
        return Standing.of([self.snapshot.partitions.get(name) for name in job.partitions])

    def _qos(self, job: Pending) -> Qos | None:
        found = self.snapshot.policies.get("qos", {}).get(job.qos)
        return found if isinstance(found, Qos) else None


def _fits(need: CompiledRequest, room: Availability) -> bool:
    return choose(room, need) is not None


def _made_by(leaving: Iterable[Preemptable], start_us: int | None) -> Why:
    """The waiting reason that names the leaving jobs."""
    ids = sorted(one.job_id for one in leaving)
    named = ", ".join(map(str, ids[:NAMED_MAX])) + (
        f" and {len(ids) - NAMED_MAX} more" if len(ids) > NAMED_MAX else ""
    )
    text = f"job {named} makes room for it" if len(ids) == 1 else f"jobs {named} make room for it"
    return Why(WhyKind.RESOURCES, text, start_us)
