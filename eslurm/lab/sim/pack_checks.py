"""Invariants of packs from outside (D-04): by what clients asked for, by the log and by plans, batch by batch.

S1: each member that begins after the first one is placed at its delay after the pack's start: never earlier, and not later
either unless something was taken from the plan meanwhile. S2: no member is placed, and no script of one runs, before the
pack has begun. A pack that has not begun is planned, begins and is cancelled as a whole. Of a pack whose failures cancel,
no member waits or begins once one has ended otherwise than well.

A pack waits as a whole, again if need be, while nothing of it runs and nothing of it has ended. Nothing here is shared with
the controller but facts, plans and records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from eslurm.core.model import facts
from eslurm.core.model.controller_phases import ControllerPrograms
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.step_key import PROLOG, StepKey
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.plan import Plan
from eslurm.core.plan.cycle.schedule import Booking
from eslurm.core.state.cluster import State
from eslurm.lab.sim.coverage import Coverage
from eslurm.lab.sim.violation import require

LATE_US: Final = 2 * SECOND_US
"""Longest time from the start that a member is owed to the commit that places it, when no fault is in the way."""
WATCHED: Final = frozenset(
    (
        "JobSubmitted",
        "JobPlaced",
        "AttemptEnded",
        "NodesReleased",
        "PackMoved",
        "JobFinished",
        "ControllerPhaseBegan",
        "ControllerPhaseEnded",
        "NodeStateChanged",
        "NodeDrainChanged",
    )
)
"""Kinds of facts that say something of a pack."""


class _Member(msgspec.Struct):
    """`placed`: since the pack has begun; `attempts` are all that were placed, `held` the nodes of the last of them.

    A member whose attempt has ended waits again once it holds no node any more and the epilog on the controller's host, if
    there is one, has ended (`settling`).
    """

    index: int
    delay_us: int
    """Of the newest log."""
    earlier: tuple[tuple[int, int], ...] = ()
    """Delays before it was moved, each with the epoch of the leader that moved it."""
    state: JobState = JobState.PENDING
    placed: bool = False
    attempts: int = 0
    held: set[int] = set()
    settles: bool = False
    """A program on the controller's host has to end, perhaps after others, before it waits again."""

    @property
    def waits(self) -> bool:
        """Check whether it waits for its start."""
        return self.state is JobState.PENDING and not self.held and not self.settles

    def delay_by(self, epoch: int) -> int:
        """The delay that a leader of this epoch knows: of moves by later ones it never hears."""
        return next((delay_us for moved_in, delay_us in self.earlier if epoch < moved_in), self.delay_us)


class _Pack(msgspec.Struct):
    """`anchor_us` is 0 while the pack waits as a whole."""

    members: dict[int, _Member] = {}
    anchor_us: int = 0
    is_calm: bool = False
    """It has begun after the last fault."""
    cancels: bool = False
    is_lost: bool = False
    """A failure has cancelled what had not begun."""


class PackChecks:
    """Kept by the run's `Checks`."""

    def __init__(
        self, coverage: Coverage, is_calm: Callable[[], bool], programs: ControllerPrograms | None = None
    ) -> None:
        self._programs = programs or ControllerPrograms()
        self._coverage = coverage
        self._is_calm = is_calm
        self._epoch = 0
        self._packs: dict[int, _Pack] = {}
        # By member.
        self._pack_of: dict[int, _Pack] = {}
        # By leader's epoch the members whose planned start nothing has been taken from.
        self._calm: dict[int, set[int]] = {}
        # Nodes of the planned places of members that wait while their pack has begun, by the newest plan.
        self._planned: dict[int, frozenset[int]] = {}
        # Starts that the newest plan grants to members which are moved.
        self._moving: dict[int, int] = {}
        self.seen: dict[str, int] = {}
        """Number of checks of each kind: a check that never runs finds nothing."""

    # ---- clients ----

    def on_submitted(self, job_ids: Sequence[int], delays_s: Sequence[int]) -> None:
        """A client got the answer that these jobs are a pack."""
        pack = self._packs.get(job_ids[0])
        found = () if pack is None else tuple((job, one.delay_us) for job, one in pack.members.items())
        asked = tuple((job, delay * SECOND_US) for job, delay in zip(job_ids, delays_s, strict=True))
        require(found == asked, f"the pack {asked} was acknowledged, in the log it is {found}")

    def members_of(self, pack_id: int) -> tuple[int, ...]:
        """The jobs of a pack; of another job none."""
        pack = self._packs.get(pack_id)
        return tuple(pack.members) if pack is not None else ()

    # ---- the log ----

    def on_batch(self, epoch: int, batch: Iterable[facts.Fact], at_us: int) -> None:
        """The watched facts of one durable commit of this epoch, in order."""
        self._epoch = epoch
        touched: dict[int, _Pack] = {}
        begun: list[_Pack] = []
        batch = tuple(batch)
        for fact in batch:
            if isinstance(fact, facts.NodeStateChanged | facts.NodeDrainChanged):
                self._on_node(fact)
                continue
            if isinstance(fact, facts.JobSubmitted) and fact.pack is not None:
                self._on_member(fact)
            if isinstance(fact, facts.PackMoved):
                self._on_moved(fact)
                continue
            job_id: int = getattr(fact, "job_id", 0)
            pack = self._pack_of.get(job_id)
            if pack is None:
                continue
            touched[id(pack)] = pack
            member = pack.members[job_id]
            match fact:
                case facts.JobPlaced():
                    if not pack.anchor_us:
                        begun.append(pack)
                    self._on_placed(pack, member, fact, at_us)
                case facts.AttemptEnded():
                    member.state = fact.outcome
                    member.held.difference_update(member.held if fact.residue else fact.released)
                    self._on_end(pack, fact.outcome)
                    self._on_left(pack)
                case facts.NodesReleased() if fact.attempt == member.attempts:
                    member.held.difference_update(fact.nodes)
                    self._on_left(pack)
                case facts.ControllerPhaseBegan(phase=phase) if phase == PROLOG:
                    member.settles = True
                case facts.ControllerPhaseEnded(phase=phase):
                    member.settles = phase == PROLOG and bool(self._programs.epilog)
                    self._on_left(pack)
                case facts.JobFinished():
                    member.state = fact.state
                    self._on_end(pack, fact.state)
                case _:
                    pass
        for pack in begun:
            self._count("begun")
            left = [job for job, one in pack.members.items() if one.waits and not one.delay_us]
            require(not left or not pack.anchor_us, f"a pack begins without jobs {left}, which have no delay")
        for pack in touched.values():
            self._check_whole(pack)

    def _on_member(self, fact: facts.JobSubmitted) -> None:
        place = fact.pack
        assert place is not None
        pack = self._packs.setdefault(place.pack_id, _Pack())
        require(
            len(pack.members) == place.index, f"job {fact.job_id} has the place {place} in {pack.members}"
        )
        pack.cancels = place.cancels
        pack.members[fact.job_id] = _Member(place.index, place.delay_us)
        self._pack_of[fact.job_id] = pack

    def _on_placed(self, pack: _Pack, member: _Member, fact: facts.JobPlaced, at_us: int) -> None:
        job_id = fact.job_id
        require(not pack.is_lost, f"job {job_id} is placed, and another one of its pack has failed")
        if not pack.anchor_us:
            begins = not member.index and 0 < fact.anchor_us <= at_us
            require(begins, f"job {job_id} of a pack that has not begun is placed: {fact}")
            pack.anchor_us, pack.is_calm = fact.anchor_us, self._is_calm()
        else:
            require(not fact.anchor_us, f"job {job_id} begins a pack that has begun at {pack.anchor_us}")
        if member.index and not member.placed:
            self._count("placed")
            owed_us = pack.anchor_us + member.delay_us
            require(
                at_us >= owed_us, f"job {job_id} is placed at {at_us}, its pack lets it start at {owed_us}"
            )
            if pack.is_calm and job_id in self._calm.get(self._epoch, ()):
                self._count("in time")
                is_late = at_us > owed_us + LATE_US
                require(not is_late, f"job {job_id} is placed at {at_us}, its pack owes it {owed_us}")
        member.state, member.placed = JobState.LAUNCHING, True
        member.attempts, member.held = fact.attempt, {span.node for span in fact.spans}
        member.settles = bool(self._programs.epilog and not self._programs.prolog)
        self._planned.pop(job_id, None)

    def _on_moved(self, fact: facts.PackMoved) -> None:
        """The members that were to come start earlier, all by the same time."""
        pack = self._packs[fact.pack_id]
        self._count("moved" if fact.starts else "not moved")
        earlier: set[int] = set()
        for job_id, start_us in fact.starts:
            member = pack.members[job_id]
            require(member.waits and not member.placed, f"job {job_id} is moved to {start_us}, and has begun")
            earlier.add(pack.anchor_us + member.delay_us - start_us)
            member.earlier += ((self._epoch, member.delay_us),)
            member.delay_us = start_us - pack.anchor_us
        require(not earlier or (len(earlier) == 1 and min(earlier) > 0), f"{fact} moves jobs by {earlier}")

    def _on_end(self, pack: _Pack, outcome: JobState) -> None:
        if pack.cancels and pack.anchor_us and outcome not in (JobState.COMPLETED, JobState.PENDING):
            self._count("failed")
            pack.is_lost = True

    def _on_left(self, pack: _Pack) -> None:
        """A member may wait again: with all others it waits for another beginning of the pack."""
        if not pack.anchor_us or not all(one.waits for one in pack.members.values()):
            return
        if not any(one.placed for one in pack.members.values() if one.index):
            self._coverage.count("first member requeued before the second began")
        pack.anchor_us = 0
        for one in pack.members.values():
            one.placed = False

    def _check_whole(self, pack: _Pack) -> None:
        """Check that a pack that has not begun waits with all its members, or has ended with all, and that nothing waits of
        one that a failure has cancelled.
        """
        waiting = [job for job, one in pack.members.items() if one.state is JobState.PENDING]
        require(
            not pack.is_lost or not waiting, f"jobs {waiting} wait, and another one of their pack has failed"
        )
        if pack.anchor_us:
            return
        self._count("whole")
        states = {job: one.state for job, one in pack.members.items()}
        is_whole = len({state in FINAL for state in states.values()}) == 1
        require(is_whole, f"of a pack that has not begun some members have ended: {states}")

    def _on_node(self, fact: facts.NodeStateChanged | facts.NodeDrainChanged) -> None:
        is_out = fact.drain if isinstance(fact, facts.NodeDrainChanged) else fact.state is not NodeState.UP
        if is_out and any(fact.number in nodes for nodes in self._planned.values()):
            self._coverage.count("follower lost its node")

    # ---- processes ----

    def on_script(self, key: StepKey) -> None:
        """The script of an attempt begins to run."""
        pack = self._pack_of.get(key.job_id)
        if pack is None:
            return
        self._count("scripts")
        placed = pack.members[key.job_id].attempts
        require(key.attempt <= placed, f"the script of {key} runs, and its job was placed {placed} times")

    # ---- leaders ----

    def on_lead(self, state: State) -> None:
        """A controller begins to lead from this state."""
        if any(
            job.pack is not None and job.pack.anchor_us and job.pack.index and job.state is JobState.PENDING
            for job in state.jobs.values()
        ):
            self._coverage.count("pack taken over before its second start")

    def on_fact(self, state: State, fact: facts.Fact, takes_nothing: frozenset[str]) -> None:
        """A leader has applied this; it may never be written."""
        if not self._packs:
            return
        calm = self._calm.setdefault(state.epoch, set())
        if type(fact).__name__ not in takes_nothing:
            calm.clear()
        elif isinstance(fact, facts.JobPlaced) and fact.anchor_us and not fact.late_us:
            pack = self._packs.get(fact.job_id)
            calm.update(pack.members if pack is not None else ())
        elif isinstance(fact, facts.AttemptEnded | facts.JobHeld):
            calm.discard(fact.job_id)

    def on_plan(
        self,
        state: State,
        plan: Plan,
        may_be_pushed_out: Callable[[State, Job], bool],
        *,
        gives_way: bool,
    ) -> None:
        """A leader's planner has made this of the state as it is; `gives_way`: places were taken from planned jobs."""
        if not self._packs:
            return
        placed = {one.job_id: one.anchor_us for one in plan.placements}
        self._moving = dict(start for grant in plan.granted for start in grant.starts)
        calm = self._calm.setdefault(state.epoch, set())
        if gives_way or any(one.until_us <= plan.made_us for one in state.live.values()):
            # What goes on beyond its limit holds what was planned for others.
            calm.clear()
        for pack_id in self._packs:
            first = state.find_job(pack_id)
            jobs = [job for one in self._packs[pack_id].members if (job := state.find_job(one)) is not None]
            waiting = [job for job in jobs if job.state is JobState.PENDING and job.pack is not None]
            if not waiting:
                continue
            if any(job.pack is not None and job.pack.anchor_us for job in jobs):
                for job in waiting:
                    if job.job_id in state.queue and job.pack is not None and job.pack.index:
                        is_calm = job.job_id in calm and not may_be_pushed_out(state, job)
                        start_us = plan.made_us if job.job_id in placed else plan.start_us(job.job_id)
                        self._check_owed(job, plan, start_us, state.epoch, is_calm=is_calm)
            elif first is not None:
                self._check_planned(pack_id, waiting, plan, placed, state.epoch)

    def _check_planned(
        self, pack_id: int, waiting: Sequence[Job], plan: Plan, placed: Mapping[int, int], epoch: int
    ) -> None:
        """Check the places of a pack that has not begun, or begins with this plan: all of them, at their delays."""
        bookings = [one for job in waiting for one in plan.bookings.get(job.job_id, ())]
        starts = {one.job_id: one.start_us for one in bookings}
        if pack_id in placed:
            begins_us = placed[pack_id]
            together = {job.job_id for job in waiting if job.pack is not None and not job.pack.delay_us}
            require(
                begins_us > 0 and together <= placed.keys(),
                f"pack {pack_id} begins at {begins_us} with {sorted(together & placed.keys())} of {together}",
            )
            if plan.made_us > begins_us:
                # Its end moves with its start, and may move what is behind it.
                return
            starts |= dict.fromkeys(together, begins_us)
        elif not bookings:
            alone = [job.job_id for job in waiting if job.job_id in placed]
            require(not alone, f"jobs {alone} begin, and their pack {pack_id} has not begun")
            return
        else:
            begins_us = starts.get(pack_id, 0)
        self._count("planned")
        members = self._packs[pack_id].members
        expected = {job.job_id: begins_us + members[job.job_id].delay_by(epoch) for job in waiting}
        require(starts == expected, f"pack {pack_id} is planned for {starts}, its delays say {expected}")

    def _check_owed(self, job: Job, plan: Plan, start_us: int | None, epoch: int, *, is_calm: bool) -> None:
        """Check the planned start, or the start in this plan, of a member whose pack has begun without it."""
        own = self._pack_of.get(job.job_id)
        place = job.pack
        assert place is not None
        if own is None or own.members[job.job_id].placed or own.anchor_us != place.anchor_us:
            # It had begun and waits again, or the log does not say yet that the pack has begun.
            return
        delay_us = place.delay_us if place.moved else own.members[job.job_id].delay_by(epoch)
        # The plan has the start that it grants; the log will have it with this plan's placements.
        owed_us = self._moving.get(job.job_id, own.anchor_us + delay_us)
        self._planned[job.job_id] = _nodes(plan.bookings.get(job.job_id, ()))
        require(
            start_us is None or start_us >= owed_us,
            f"job {job.job_id} is planned for {start_us}, its pack lets it start at {owed_us}",
        )
        if is_calm:
            self._count("owed")
            require(
                start_us == max(owed_us, plan.made_us),
                f"job {job.job_id} is owed its start at {owed_us} and is planned for {start_us} at {plan.made_us}: "
                f"{plan.why(job.job_id)}",
            )

    def _count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1


def _nodes(bookings: Sequence[Booking]) -> frozenset[int]:
    return frozenset(span.node for one in bookings for span in one.spans)
