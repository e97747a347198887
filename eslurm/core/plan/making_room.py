"""Making room: which waiting job pushes out whom, and that nobody else takes what comes free for it.

In each cycle one job at most is made room for. From then on it is one of the schedule's *claimants*: before all other
planning it is started if it fits, and else the nodes that are being cleared are booked for it from their expected end
on. Invariants: nobody is pushed out for a job that its own rules would not let start there; a plan of another waiting
job gives way only if the claimant might push that job out when it runs, and never a fixed start.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias

import msgspec

from eslurm.core.account.model import Qos
from eslurm.core.plan.ahead import is_ready
from eslurm.core.plan.book import BookError
from eslurm.core.plan.bulk import merged, split
from eslurm.core.plan.explain import Why, WhyKind
from eslurm.core.plan.mapping import choose, spans_of
from eslurm.core.plan.need import Need
from eslurm.core.plan.policy import SKIP_STEPS, TRY_STEPS, Cycle
from eslurm.core.plan.preempt import OFF, SUSPEND, Claim, Freed, Preemptable, Victim, victims
from eslurm.core.plan.queue import Entry, Pending
from eslurm.core.plan.room import Constraint, Room
from eslurm.core.plan.schedule import Booking
from eslurm.core.plan.search import Quest, Start, narrowed, start_exactly
from eslurm.core.resources.timeline import INFINITY_US

Work: TypeAlias = Callable[[], Sequence[Preemptable]]
"""What runs, as preemption looks at it; asked only when somebody might be pushed out."""

CLAIMS_MAX: Final = 8
"""Shapes of waiting jobs that victims are looked for in one cycle."""
GRACE_US: Final = 60_000_000
"""How much later than now a job whose room is being made may have to start."""
NAMED_MAX: Final = 5


class MakingRoom:
    """The workbench of preemption; one for each cycle."""

    __slots__ = ("_claims", "_lowest", "_work", "cycle", "schedule", "snapshot")

    def __init__(self, cycle: Cycle, work: Work) -> None:
        self.cycle = cycle
        self.schedule = cycle.schedule
        self.snapshot = cycle.snapshot
        self._work = work
        self._claims: dict[tuple[str, str], Claim] = {}
        tiers = [one.tier for one in self.snapshot.partitions.values() if one.preempt_mode != OFF]
        self._lowest = min(tiers, default=None)

    # ---- those that room is being made for ----

    def keep(self) -> Generator[None, None, None]:
        """The claimants start or keep what is being cleared for them, the first in the queue first."""
        known = self.snapshot.known
        found = [known[job_id] for job_id in self.schedule.claimants if job_id in known]
        self.schedule.claimants = {entry[2]: self.schedule.claimants[entry[2]] for entry in found}
        for entry in sorted(found):
            if not (yield from self._keep(entry)):
                self.schedule.claimants.pop(entry[2], None)

    def _keep(self, entry: Entry) -> Generator[None, None, bool]:
        """Whether it still waits for its room."""
        job = entry[4]
        if not is_ready(job) or self.cycle.refused(job) is not None:
            return False
        quest = self.cycle.quest(entry)
        if isinstance(quest, Why):
            return False
        need = yield from self._open(entry, quest)
        if (yield from self._begin(entry, quest, need)):
            return False
        going = [one for one in self._work() if one.is_going]
        self.cycle.spend(TRY_STEPS + len(going))
        return bool(going) and self._hold(entry, need, going)

    def _hold(self, entry: Entry, need: Need, going: Sequence[Preemptable]) -> bool:
        """Books what those who are on their way out leave; whether it is enough for the job."""
        cycle, schedule = self.cycle, self.schedule
        job = entry[4]
        chosen = choose(Freed(cycle.ledger, going), need)
        if chosen is None:
            return False
        spans = spans_of(cycle.ledger.topology, need, chosen)
        nodes = {span.node for span in spans}
        leaving = [one for one in going if any(node in nodes for node, _ in one.shares)]
        # What is free already and yet no start is kept from it by rules, which still count those who go from elsewhere.
        leaving = leaving or list(going)
        ends = [schedule.end_us((one.job_id, one.attempt)) for one in leaving]
        at_us = max((cycle.now_us + 1, *ends))
        planned = [one for one in schedule.bookings.get(job.job_id, ()) if not self._is_room(one)]
        if any(one.start_us <= at_us for one in planned):
            # It has a place that is no worse.
            return False
        self._vacate(job.job_id)
        schedule.claimants[job.job_id] = None
        # Who is only to stand still holds everything until it does: then nobody can take anything before.
        if at_us < INFINITY_US:
            booking = cycle.booking(job, need, at_us, spans)
            try:
                schedule.add(entry, booking, must=True)
            except BookError:
                at_us = INFINITY_US
            else:
                schedule.claimants[job.job_id] = booking
        when_us = at_us if at_us < INFINITY_US else None
        schedule.whys[job.job_id] = cycle.waiting[job.job_id] = _made_by(leaving, when_us)
        return True

    # ---- those that room is to be made for ----

    def make(self) -> Generator[None, None, tuple[int, tuple[Victim, ...]]]:
        """The first waiting job that can start only if others go, and who; (0, ()) when there is none."""
        cycle, schedule = self.cycle, self.schedule
        tried: set[int] = set()
        work: Sequence[Preemptable] | None = None
        for entry in self.snapshot.pending:
            cycle.spend(SKIP_STEPS)
            if cycle.slice_over():
                yield
            job = entry[4]
            if entry[3] in tried or not self._may_claim(job):
                continue
            tried.add(entry[3])
            quest = cycle.refused(job) or cycle.quest(entry)
            if isinstance(quest, Why):
                continue
            if cycle.is_full or len(tried) > CLAIMS_MAX:
                break
            if isinstance(start_exactly(schedule.book, quest, cycle.now_us), Start):
                # It could start as it is: the policy lets others go first.
                continue
            need = yield from self._open(entry, quest, GRACE_US)
            if (yield from self._begin(entry, quest, need)):
                continue
            if work is None:
                work = self._work()
                cycle.spend(len(work))
                yield
            found = yield from victims(
                self._claim(job), cycle.ledger, partial(_fits, need), work, cycle.now_us
            )
            if found is None or not self._lets_start(job, quest, found):
                continue
            schedule.claimants[job.job_id] = None
            if found:
                when_us = schedule.whys[job.job_id].planned_start_us if job.job_id in schedule.whys else None
                cycle.waiting[job.job_id] = _made_by([one.work for one in found], when_us)
                return job.job_id, found
            if not self._hold(entry, need, [one for one in work if one.is_going]):
                schedule.claimants.pop(job.job_id)
        return 0, ()

    def _may_claim(self, job: Pending) -> bool:
        claim = self._claim(job)
        return (
            (bool(claim.preempts) or (self._lowest is not None and self._lowest < claim.tier))
            and not job.start_at_us
            and job.job_id not in self.schedule.claimants
            and self.cycle.placed.get(job.job_id, 0) < job.startable
        )

    def _begin(self, entry: Entry, quest: Quest, need: Need) -> Generator[None, None, bool]:
        """Starts the job if it fits now, in the way of plans that have to give way to it or of none."""
        cycle, schedule = self.cycle, self.schedule
        job = entry[4]
        chosen = choose(cycle.ledger, need)
        if chosen is None or cycle.is_full:
            return False
        moves, why = schedule.moves.get(job.job_id, ()), schedule.whys.get(job.job_id)
        own = schedule.bookings.get(job.job_id, ())
        self._vacate(job.job_id)
        booking = cycle.booking(job, need, cycle.now_us, spans_of(cycle.ledger.topology, need, chosen))
        stricter = quest.recount(need, chosen) if quest.recount is not None else ()
        if self._is_allowed((*quest.constraints, *stricter), quest.duration_us):
            try:
                schedule.start(job, booking, must=True)
            except BookError:
                pass
            else:
                cycle.is_unfinished |= bool(schedule.displaced)
                cycle.waiting.pop(job.job_id, None)
                yield from cycle.place(booking)
                return True
        schedule.remove(job.job_id)
        for one in own:
            schedule.add(entry, one, moves)
        if why is not None:
            schedule.whys[job.job_id] = why
        return False

    def _is_room(self, booking: Booking) -> bool:
        """Whether it is what is booked for the room that is being made."""
        return self.schedule.claimants.get(booking.job_id) is booking

    def _vacate(self, job_id: int) -> None:
        """Gives back what is booked for the room that is made, or else the last planned start: one task begins earlier."""
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

    def _open(self, entry: Entry, quest: Quest, delay_us: int = 0) -> Generator[None, None, Need]:
        """The need on those nodes only that no reservation, pool or plan of others keeps from it all through its stay.

        The stay may begin so much later than now.
        """
        cycle = self.cycle
        stop_us = min(cycle.now_us + delay_us + quest.duration_us, INFINITY_US)
        if cycle.now_us < quest.from_us or (quest.until_us < INFINITY_US and stop_us > quest.until_us):
            return narrowed(quest.need, 0)
        shut = 0
        for closure in quest.closed:
            if closure.start_us < stop_us and closure.stop_us > cycle.now_us:
                shut |= closure.mask
        shut |= yield from self._planned(entry[4], quest.need, stop_us)
        return narrowed(quest.need, quest.need.allowed & ~shut)

    def _planned(self, job: Pending, need: Need, stop_us: int) -> Generator[None, None, int]:
        """The positions on which plans begin before `stop_us` that need not give way; all, if one has what is wide."""
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
            if entry is None or is_own or (job_id != job.job_id and self._gives_way(entry[4], claim)):
                continue
            for booking in bookings:
                if booking.start_us < stop_us and not (job_id == job.job_id and self._is_room(booking)):
                    if any(need.wide) and any(booking.wide):
                        return topology.everything
                    found.update(span.node for span in booking.spans)
                    cycle.spend(len(booking.spans))
        for booking in self.schedule.returns:
            if booking.start_us < stop_us:
                found.update(span.node for span in booking.spans)
        return topology.mask_of_numbers(found)

    def _gives_way(self, job: Pending, claim: Claim) -> bool:
        """Whether the claimant might push the waiting job out if it ran."""
        if job.start_at_us or job.job_id in self.schedule.claimants:
            return False
        qos, partition = self._qos(job), self.snapshot.partitions.get(job.partition)
        seen = Preemptable(
            job.job_id,
            0,
            job.priority,
            0,
            (),
            qos=job.qos,
            tier=partition.tier if partition is not None else 0,
            by_qos=qos.preempt_mode if qos is not None else OFF,
            by_tier=partition.preempt_mode if partition is not None else OFF,
            preempts=qos.preempts if qos is not None else (),
        )
        return claim.mode(seen) != OFF

    def _lets_start(self, job: Pending, quest: Quest, found: Iterable[Victim]) -> bool:
        """Whether limits, pools and licences let the job start once these are gone."""
        if not quest.constraints:
            return True
        gone = [(one.work.job_id, one.work.attempt) for one in found if one.mode != SUSPEND]
        rules = self.schedule.rules_without(gone, job.job_id)
        return self._is_allowed(rules.of(job, quest.need).constraints, quest.duration_us)

    def _is_allowed(self, constraints: Iterable[Constraint], duration_us: int) -> bool:
        now_us = self.cycle.now_us
        stop_us = min(now_us + duration_us, INFINITY_US)
        return all(one.earliest(duration_us, now_us, stop_us) == now_us for one in constraints)

    # ---- who may ----

    def _claim(self, job: Pending) -> Claim:
        known = self._claims.get((job.qos, job.partition))
        if known is None:
            qos, partition = self._qos(job), self.snapshot.partitions.get(job.partition)
            known = self._claims[job.qos, job.partition] = Claim(
                0,
                qos.preempts if qos is not None else (),
                partition.tier if partition is not None else 0,
                job.qos,
            )
        return msgspec.structs.replace(known, job_id=job.job_id)

    def _qos(self, job: Pending) -> Qos | None:
        found = self.snapshot.policies.get("qos", {}).get(job.qos)
        return found if isinstance(found, Qos) else None


def _fits(need: Need, room: Room) -> bool:
    return choose(room, need) is not None


def _made_by(leaving: Iterable[Preemptable], start_us: int | None) -> Why:
    """Who makes room for it."""
    ids = sorted(one.job_id for one in leaving)
    named = ", ".join(map(str, ids[:NAMED_MAX])) + (
        f" and {len(ids) - NAMED_MAX} more" if len(ids) > NAMED_MAX else ""
    )
    text = f"job {named} makes room for it" if len(ids) == 1 else f"jobs {named} make room for it"
    return Why(WhyKind.RESOURCES, text, start_us)
