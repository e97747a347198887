"""Preemption: the running work that may be preempted, the requests to victims, and their resumption.

The planner chooses victims on a snapshot (`core.plan.cycle.victims`); here each is checked again against the present
state. Invariant: a victim is touched only if its QOS or partition allows it at this moment.
"""

from __future__ import annotations

from collections.abc import Iterable

from eslurm.core.control.jobs.running import cores_are_back, shut_when_resumed, suspend
from eslurm.core.control.jobs.stopping import stop
from eslurm.core.model import facts
from eslurm.core.model.accounts import Qos
from eslurm.core.model.job import Attempt, Job
from eslurm.core.model.job_states import AttemptPhase, JobState, StopCause
from eslurm.core.model.messages import Preemption
from eslurm.core.model.partition import OFF, REQUEUE, SUSPEND
from eslurm.core.model.parts import partitions_of
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.priority import Ranking, weighs
from eslurm.core.plan.cycle.victims import Claim, Preemptable, Ranks, Standing
from eslurm.core.state.allocation_amounts import amounts_on
from eslurm.core.state.cluster import State, attempts_of, waits

ROOM_KEPT_US = 300 * SECOND_US
"""A suspended victim waits so long for its preemptor to begin: something else may keep the preemptor waiting by now."""


def is_possible(state: State) -> bool:
    """Check whether any job can preempt any other: if not, no cycle examines running work."""
    if any(isinstance(qos, Qos) and qos.preempts for qos in state.policies["qos"].values()):
        return True
    tiers = {partition.tier for partition in state.config.partitions}
    return len(tiers) > 1 and any(partition.preempt_mode != OFF for partition in state.config.partitions)


def claim_of(state: State, job: Job) -> Claim:
    """The attempts that the waiting job may preempt."""
    return _ranks(state).claim(job.job_id, _qos(state, job), _standing(state, job))


def running_work(state: State, ranking: Ranking | None = None) -> list[Preemptable]:
    """All started work in preemption's form, and the rest of work that has ended on some of its nodes.

    Priorities are those of `ranking`, where any weight is set.
    """
    ranks = _ranks(state)
    weighed = ranking if ranking is not None and weighs(state.config.priority) else None
    return [
        _running(state, job, attempt, ranks, weighed)
        for job_id in sorted({job_id for job_id, _ in state.live})
        for job in (state.get_job(job_id),)
        for attempt in attempts_of(job)
        if attempt is not job.attempt or attempt.phase in (AttemptPhase.RUNNING, AttemptPhase.RELEASING)
    ]


def on_preemptions(state: State, preemptions: Iterable[Preemption], now_us: int) -> list[facts.Fact]:
    """Preempt the victims of a plan: requeue, end or suspend them, each with its grace."""
    found: list[facts.Fact] = []
    done: set[int] = set()
    for preemption in preemptions:
        victim = state.find_job(preemption.victim)
        preemptor = state.find_job(preemption.for_job)
        if victim is None or preemptor is None or preemption.victim in done:
            continue
        if _mode_now(state, victim, preemption.attempt, preemptor, now_us) != preemption.mode:
            continue
        done.add(preemption.victim)
        found += _make_room(state, victim, preemption, now_us)
    return found


def resumptions(state: State, now_us: int) -> list[facts.Fact]:
    """Resume suspended victims when their preemptor needs the cores no more, and these are free again."""
    found: list[facts.Fact] = []
    taken: set[int] = set()
    for job_id in sorted(state.lending):
        job = state.get_job(job_id)
        attempt = job.attempt
        if attempt is None or attempt.stop is not None or not attempt.suspended_us:
            continue
        if attempt.phase is not AttemptPhase.RUNNING:
            # It has ended where it stood, and gives its nodes back.
            continue
        if _is_wanted(state, attempt, now_us) or not cores_are_back(state, attempt):
            continue
        if shut_when_resumed(state, job, attempt, now_us) is not None:
            # Its nodes are closed before it would end: it stands still until they are open again.
            continue
        # Two that lent the same cores: the second is looked at again when the first holds its own.
        if taken.isdisjoint(attempt.held):
            taken |= attempt.held
            found += suspend(state, job, "", now_us, resume=True)
    return found


def _is_wanted(state: State, victim: Attempt, now_us: int) -> bool:
    """Check whether its preemptor still waits to start: once started, it needs no more than it has."""
    job = state.find_job(victim.room_for)
    if job is None or not waits(job) or not state.startable(job):
        return False
    partitions = [state.partition_views.get(name) for name in partitions_of(job.spec)]
    are_up = all(partition is not None and partition.up for partition in partitions)
    return are_up and now_us < victim.suspended_us + ROOM_KEPT_US


def _make_room(state: State, victim: Job, preemption: Preemption, now_us: int) -> list[facts.Fact]:
    by = f"to make room for job {preemption.for_job}"
    if preemption.mode == SUSPEND:
        return suspend(state, victim, by, now_us, resume=False, room_for=preemption.for_job)
    cause = StopCause.PREEMPT if preemption.mode == REQUEUE else StopCause.EVICT
    qos = _qos(state, victim)
    grace_s = float(qos.preempt_grace_s) if qos is not None else -1.0
    return stop(state, victim, cause, now_us, by, grace_s)


def _mode_now(state: State, victim: Job, number: int, preemptor: Job, now_us: int) -> str:
    """The permitted mode for the victim now; `OFF` for none."""
    attempt = victim.attempt
    if attempt is None or attempt.number != number or attempt.phase is not AttemptPhase.RUNNING:
        return OFF
    running = _running(state, victim, attempt, _ranks(state))
    waits = preemptor.state is JobState.PENDING and not preemptor.hold and not preemptor.is_away
    if running.is_going or not waits or running.exempt_until_us > now_us:
        return OFF
    return claim_of(state, preemptor).mode(running)


def _running(
    state: State, job: Job, attempt: Attempt, ranks: Ranks, weighed: Ranking | None = None
) -> Preemptable:
    qos = _qos(state, job)
    standing = _standing(state, job)
    exempt_s = qos.preempt_exempt_s if qos is not None else 0
    is_still = bool(attempt.suspended_us)
    # Cores that are lent, or borrowed, cannot be lent once more.
    is_shared = attempt.more is not None and bool(attempt.exclusions or attempt.loans)
    priority = job.priority
    if weighed is not None and (held := state.live[job.job_id, attempt.number].job) is not None:
        priority = weighed.priority_then(held, attempt.started_us)
    return Preemptable(
        job_id=job.job_id,
        attempt=attempt.number,
        priority=priority,
        started_us=attempt.started_us,
        shares=tuple(amounts_on(attempt, attempt.held)),
        wide=attempt.wide,
        qos=job.spec.qos,
        tier=standing.tier,
        # What stands still has made its room, or is an operator's to decide on.
        by_qos=OFF if qos is None or is_still else _mode(qos.preempt_mode, is_shared=is_shared),
        by_tier=OFF if is_still else _mode(standing.by_tier, is_shared=is_shared),
        exempt_until_us=attempt.started_us + exempt_s * SECOND_US,
        is_going=(
            attempt.stop is not None
            or attempt is not job.attempt
            or attempt.phase is AttemptPhase.RELEASING
            or (bool(attempt.room_for) and bool(attempt.informing))
        ),
        level=ranks.level(job.spec.qos),
    )


def _mode(mode: str, *, is_shared: bool) -> str:
    return OFF if is_shared and mode == SUSPEND else mode


def _standing(state: State, job: Job) -> Standing:
    return Standing.of([state.partitions.get(name) for name in partitions_of(job.spec)])


def _ranks(state: State) -> Ranks:
    return Ranks(state.policies["qos"], [partition.tier for partition in state.config.partitions])


def _qos(state: State, job: Job) -> Qos | None:
    qos = state.policies["qos"].get(job.spec.qos)
    return qos if isinstance(qos, Qos) else None
