"""Invariants of plans and of their consequences: rules, promises, reasons, preemption, suspended time.

Gets every fact of a leader, every fact in the log, and every plan. Invariant: the checks follow from the facts and the
records alone, whatever the planner keeps for itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import partial

from eslurm.core.explain.inquiry import why_waiting
from eslurm.core.model import facts
from eslurm.core.model.accounts import Qos
from eslurm.core.model.job import Job, Stop
from eslurm.core.model.job_states import JobState, StopCause
from eslurm.core.plan.cycle.cycle import exhaust
from eslurm.core.plan.cycle.plan import Plan
from eslurm.core.plan.cycle.priority import Ranking
from eslurm.core.plan.cycle.schedule import Booking, Schedule
from eslurm.core.plan.cycle.snapshot import RunningKey
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state.cluster import State
from eslurm.lab.sim import naive_rules
from eslurm.lab.sim.pack_checks import PackChecks
from eslurm.lab.sim.promise_checks import PromiseChecks
from eslurm.lab.sim.violation import require

WHY_EVERY = 24
"""One in so many plans one waiting job is asked for its reasons."""
KEEPS_PROMISES = frozenset({"conservative", "planned"})
TAKES_NOTHING = frozenset(
    {
        "ArrivalDropped",
        "AttemptEnded",
        "AttemptInformed",
        "ExtensionAnswered",
        "ExtensionAsked",
        "GrowthAsked",
        "GrowthFailed",
        "GrowthPlaced",
        "GrowthPreparing",
        "IdBlockTaken",
        "IdsLeased",
        "JobFinished",
        "JobHeld",
        "JobOffered",
        "JobPlaced",
        "JobShrunk",
        "JobSubmitted",
        "JobTransferred",
        "JobsForgotten",
        "MailReached",
        "MailTold",
        "MoveAsked",
        "NodesJoined",
        "NodesLost",
        "NodesPrepared",
        "NodesReleased",
        "OfferCancelled",
        "OutcomeTold",
        "PackMoved",
        "PartFinished",
        "StepAnswered",
        "StepCreated",
        "StepFinished",
        "TransferEnded",
    }
)
"""Facts that can take nothing from a planned job: a later job comes behind it (C-59), an ended one releases resources."""
FOR_JOB = re.compile(r"to make room for job (\d+)$")
RECALLED = re.compile(r"to give job (\d+) its cores back")
PREEMPTING = frozenset({StopCause.PREEMPT, StopCause.EVICT})

Attempted = tuple[int, int]


class _Promises:
    """The planned starts of one leader's last plan, and whether nothing has happened since that takes anything.

    `ends` are when it expected what runs to end, `starting` what it had just placed, `returns` are when what stands
    still to make room was to go on, and `room` is what is made. `waits_for_room`: a preempting job, or one that stands
    still, was to go on at once, and what it waits for is not known to have stopped. `has_losses`: jobs have lost their
    places at the end of the plan, and in the next those behind them share the loss (C-39). `phases_us` is what it counted
    on for prolog and epilog.
    """

    def __init__(self) -> None:
        self.starts: dict[int, tuple[int, ...]] = {}
        self.ends: dict[RunningKey, int] = {}
        self.starting: list[int] = []
        self.returns: dict[int, int] = {}
        self.waits_for_room = False
        self.room: dict[int, Booking | None] = {}
        self.has_losses = False
        self.phases_us = 0
        self.is_calm = False


class PlanChecks:
    """Kept by the run's `Checks`."""

    def __init__(self, packs: PackChecks) -> None:
        self._packs = packs
        self._promises: dict[int, _Promises] = {}
        self._plans = 0
        self._preempted: dict[Attempted, StopCause] = {}
        self._ended: dict[Attempted, JobState] = {}
        # Since when an attempt stands still, and how long it did before, by the log.
        self._still_since: dict[Attempted, int] = {}
        self._still_us: dict[Attempted, int] = {}
        self._kept = PromiseChecks()
        self.seen: dict[str, int] = {}
        """Number of checks of each kind: a check that never runs finds nothing."""

    # ---- facts ----

    def on_fact(self, state: State, fact: facts.Fact) -> None:
        """A leader has applied this; it may never be written."""
        kind = type(fact).__name__
        promises = self._promises.setdefault(state.epoch, _Promises())
        is_requeued = isinstance(fact, facts.AttemptEnded) and fact.outcome is JobState.PENDING
        promises.is_calm = promises.is_calm and kind in TAKES_NOTHING and not is_requeued
        self._packs.on_fact(state, fact, TAKES_NOTHING)
        match fact:
            case facts.JobPlaced():
                self._on_placed(state, fact)
            case facts.StopRequested(job_id, _, stop) if RECALLED.search(stop.by):
                self._on_recalled(state, job_id, stop)
            case facts.StopRequested(job_id, _, stop) if stop.cause in PREEMPTING:
                self._on_preempted(state, job_id, stop.by)
            case facts.AttemptSuspended(room_for=room_for) if room_for:
                self._on_preempted(state, fact.job_id, fact.by)
            case _:
                pass

    def _on_placed(self, state: State, fact: facts.JobPlaced) -> None:
        self._count("placed")
        job = state.jobs[fact.job_id]
        assert job.attempt is not None
        for what in naive_rules.broken(state, job, job.attempt):
            require(not what, f"job {fact.job_id} {what}")

    def _on_recalled(self, state: State, job_id: int, stop: Stop) -> None:
        """A borrower has to go: it has borrowed from that owner, and goes as it agreed to."""
        self._count("recalled")
        found = RECALLED.search(stop.by)
        attempt = state.jobs[job_id].attempt
        assert found is not None and attempt is not None
        owners = {loan.owner for loan in attempt.loans}
        require(int(found[1]) in owners, f"job {job_id} is to give job {found[1]} what it has of {owners}")
        mode, _, grace = state.jobs[job_id].spec.borrow.partition(",")
        is_agreed = (stop.cause is StopCause.PREEMPT) == (mode == "requeue")
        require(is_agreed, f"job {job_id} agreed to {mode}, and goes by {stop.cause.value}")
        require(stop.grace_s == int(grace or 30), f"job {job_id} agreed to {grace} s, and has {stop.grace_s}")

    def _on_preempted(self, state: State, job_id: int, by: str) -> None:
        self._count("preempted")
        found = FOR_JOB.search(by)
        require(found is not None, f"job {job_id} makes room for nobody: {by}")
        assert found is not None
        preemptor, victim = state.find_job(int(found[1])), state.jobs[job_id]
        require(preemptor is not None, f"job {job_id} makes room for job {found[1]}, which is not there")
        assert preemptor is not None
        allowed = _may_push_out(state, preemptor, victim)
        require(
            allowed, f"job {job_id} makes room for job {preemptor.job_id}: no rule lets that one push it out"
        )

    # ---- the log ----

    def on_logged(self, replica: State, fact: facts.Fact, at_us: int) -> None:
        """The replay of the log has applied this."""
        self._kept.on_logged(replica, fact)
        match fact:
            case facts.StopRequested(job_id, attempt, stop) if stop.cause in PREEMPTING:
                self._preempted[job_id, attempt] = stop.cause
            case facts.StopRequested(job_id, attempt, stop):
                self._preempted.pop((job_id, attempt), None)
            case facts.AttemptSuspended(job_id, attempt, suspended):
                self._on_suspended(replica, (job_id, attempt), suspended, at_us)
            case facts.AttemptEnded():
                self._ended[fact.job_id, fact.attempt] = fact.outcome
            case facts.JobPlaced(job_id, attempt) if attempt > 1:
                before = self._ended.get((job_id, attempt - 1))
                require(before is JobState.PENDING, f"job {job_id} is placed again after it became {before}")
            case _:
                pass

    def _on_suspended(self, replica: State, key: Attempted, suspended: bool, at_us: int) -> None:
        self._count("suspended")
        if suspended:
            self._still_since[key] = at_us
            return
        since_us = self._still_since.pop(key, at_us)
        still_us = self._still_us[key] = self._still_us.get(key, 0) + at_us - since_us
        job = replica.jobs[key[0]]
        attempt = job.attempt
        assert attempt is not None
        require(
            attempt.paused_us == still_us,
            f"attempt {key} stood still for {still_us} us, not {attempt.paused_us}",
        )
        limit_s = attempt.time_limit_s or job.spec.time_limit_s
        ends_us = attempt.started_us + still_us + limit_s * 1_000_000 if limit_s > 0 else INFINITY_US
        require(attempt.until_us == ends_us, f"attempt {key} goes on until {attempt.until_us}, not {ends_us}")

    def at_end(self) -> None:
        """Check that every preempted attempt has ended, in the recorded way."""
        for key, cause in self._preempted.items():
            outcome = self._ended.get(key)
            require(outcome is not None, f"attempt {key} was pushed out and never ended")
            is_wrong = cause is StopCause.EVICT and outcome is JobState.PENDING
            require(not is_wrong, f"attempt {key} was to be cancelled to make room, and waits again")

    # ---- plans ----

    def on_plan(
        self, state: State, schedule: Schedule, plan: Plan, ranking: Ranking, *, is_old: bool = False
    ) -> None:
        """A leader's planner has made this; `is_old`: the state is not what it was when the cycle began."""
        self._plans += 1
        if is_old:
            # What is not true of the state now may have been true of the one that was planned.
            self._promises[state.epoch] = _Promises()
            self._kept.on_old_plan(state, plan)
            return
        for job_id, times in Counter(placement.job_id for placement in plan.placements).items():
            startable = state.startable(state.jobs[job_id])
            require(
                times <= startable, f"job {job_id} is placed {times} times in one plan, {startable} can start"
            )
        self._check_parts(state, plan)
        gives_way = bool(schedule.preemptors or schedule.displaced or schedule.returns)
        # All stay longer than was known when they were planned.
        gives_way |= state.phases_us > self._promises.setdefault(state.epoch, _Promises()).phases_us
        self._packs.on_plan(state, plan, _may_be_pushed_out, gives_way=gives_way)
        self._check_promises(state, schedule, plan)
        self._count("kept", self._kept.on_plan(state, plan, _may_be_pushed_out, partial(_overtaken, ranking)))
        if self._plans % WHY_EVERY == 0:
            self._check_reasons(state, schedule, plan, ranking)

    def _check_parts(self, state: State, plan: Plan) -> None:
        """Check that a placement and a planned start give nodes to every part of their job."""
        starts = [(one.job_id, one.spans) for one in plan.placements]
        starts += [(one.job_id, one.spans) for ones in plan.bookings.values() for one in ones]
        for job_id, spans in starts:
            job = state.find_job(job_id)
            if job is None or not job.spec.parts:
                continue
            self._count("parts")
            found = [span.component for span in spans]
            require(
                found == sorted(found) and set(found) == set(range(len(job.spec.parts))),
                f"job {job_id} of {len(job.spec.parts)} parts has nodes for parts {found}",
            )

    def _check_promises(self, state: State, schedule: Schedule, plan: Plan) -> None:
        """Check that a planned start is kept, or gets earlier, when only new jobs have come."""
        promises = self._promises.setdefault(state.epoch, _Promises())
        before, now_us = promises.starts, plan.made_us
        starts = {job_id: _starts(plan, job_id) for job_id in plan.bookings}
        overdue = any((one.expected_us or one.until_us) <= now_us for one in state.live.values())
        # It was booked for less long than is expected of it now, and goes on.
        overdue |= any(key in state.live and stop_us <= now_us for key, stop_us in promises.ends.items())
        overdue |= any(stop_us <= now_us for stop_us in promises.starting)
        # What stands still to make room was to go on by now: it goes on later with every moment, and so do those behind it.
        overdue |= (
            any(start_us <= now_us for start_us in promises.returns.values()) or promises.waits_for_room
        )
        # Plans give way to those for whom room is made, and all that are behind in the order share the loss.
        gives_way = promises.has_losses or promises.room != schedule.preemptors
        gives_way |= state.phases_us > promises.phases_us
        # So they do to what stands still: it goes on as soon as its cores are free, which may be sooner than was thought.
        back = [one.booking for one in schedule.returns]
        returns = {one.job_id: one.start_us for one in back if one.start_us > now_us}
        gives_way |= any(
            at_us < promises.returns.get(job_id, INFINITY_US) for job_id, at_us in returns.items()
        )
        missed = any(start_us <= now_us for all_of_it in before.values() for start_us in all_of_it)
        if (
            promises.is_calm
            and not (overdue or missed or gives_way)
            and state.config.policy in KEEPS_PROMISES
        ):
            placed = {placement.job_id for placement in plan.placements}
            for job_id, was in before.items():
                self._count("promises")
                job = state.find_job(job_id)
                # A dependent job follows its dependencies; for a preempting job its cleared resources count.
                is_free = job_id in state.queue and job_id not in schedule.preemptors
                if job is None or not is_free or job_id in placed or _may_be_pushed_out(state, job):
                    continue
                now = starts.get(job_id, ())
                wanted = min(len(was), state.startable(job))
                kept = len(now) >= wanted and all(a <= b for a, b in zip(now, was, strict=False))
                require(kept, f"job {job_id} was promised to start at {was}, now it is {now}")
        promises.starts = starts
        promises.ends = {key: held.booking.stop_us for key, held in schedule.held.items()}
        promises.starting = [booking.stop_us for _, booking in schedule.starting]
        promises.returns, promises.room = returns, dict(schedule.preemptors)
        promises.waits_for_room = len(returns) < len(back)
        promises.has_losses = bool(schedule.displaced)
        promises.phases_us = state.phases_us
        promises.is_calm = True

    def _check_reasons(self, state: State, schedule: Schedule, plan: Plan, ranking: Ranking) -> None:
        placed = {placement.job_id for placement in plan.placements}
        waiting = [
            job for job in state.jobs.values() if job.state is JobState.PENDING and job.job_id not in placed
        ]
        if not waiting:
            return
        job = waiting[self._plans // WHY_EVERY % len(waiting)]
        self._count("reasons")
        slices = why_waiting(
            state,
            schedule,
            job,
            plan.made_us,
            said=plan.why(job.job_id),
            ranking=ranking,
            with_alternatives=False,
        )
        answer = exhaust(slices)
        require(bool(answer.reasons), f"job {job.job_id} waits without any reason: {job}")

    def _count(self, what: str, times: int = 1) -> None:
        self.seen[what] = self.seen.get(what, 0) + times


def _overtaken(ranking: Ranking, state: State, plan: Plan) -> set[int]:
    """The waiting jobs that stand behind one that got its place in this plan, where few are promised theirs: jobs ahead may
    take what was promised then (a slot of an array's `%` came free).
    """
    if state.config.policy in KEEPS_PROMISES:
        return set()
    order = [entry.job_id for entry in ranking.ordered() or state.queue.first(len(state.queue))]
    new = {*(placement.job_id for placement in plan.placements), *plan.bookings} - state.promises.keys()
    first = next((at for at, job_id in enumerate(order) if job_id in new), len(order))
    return set(order[first:])


def _starts(plan: Plan, job_id: int) -> tuple[int, ...]:
    """One planned start per task, in order."""
    return tuple(sorted(one.start_us for one in plan.bookings[job_id] for _ in range(one.tasks)))


def _may_push_out(state: State, preemptor: Job, victim: Job) -> bool:
    """By QOS or by a partition of a higher tier, as the records say."""
    qos, theirs = _qos(state.policies["qos"], preemptor), _qos(state.policies["qos"], victim)
    if (
        qos is not None
        and theirs is not None
        and theirs.name in qos.preempts
        and theirs.preempt_mode != "off"
    ):
        return True
    here, there = state.partitions[preemptor.spec.partition], state.partitions[victim.spec.partition]
    return there.tier < here.tier and there.preempt_mode != "off"


def _may_be_pushed_out(state: State, job: Job) -> bool:
    """Check whether some waiting job might push it out if it ran: then its planned start gives way, too."""
    return any(
        other.state is JobState.PENDING and other is not job and _may_push_out(state, other, job)
        for other in state.jobs.values()
    )


def _qos(named: Mapping[str, object], job: Job) -> Qos | None:
    found = named.get(job.spec.qos)
    return found if isinstance(found, Qos) else None
