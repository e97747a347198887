"""Application of facts about the prolog and epilog of an attempt on the controller's host (`model.controller_phases`).

Invariant: a launch is owed only when the prolog has ended well; an attempt that holds no node any more is settled when its
programs have ended.
"""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.controller_phases import UNDER_WAY, ControllerPhase, PhaseStage
from eslurm.core.model.job import Attempt, AttemptMore, Job
from eslurm.core.model.job_states import AttemptPhase
from eslurm.core.model.step_key import EPILOG, PROLOG
from eslurm.core.state.cluster import State
from eslurm.core.state.transitions import phased, staged


def of_placement(state: State) -> ControllerPhase | None:
    """The phases of an attempt that is placed now."""
    programs = state.config.phases
    if programs is None:
        return None
    stage = PhaseStage.WAITING if programs.prolog else PhaseStage.OVER
    return ControllerPhase(PROLOG, stage, owes_epilog=bool(programs.epilog))


def settling(job: Job, attempt: Attempt) -> Attempt | None:
    """The attempt, which holds nothing any more, while its programs have not ended; None when nothing is left of it."""
    phase = attempt.controller
    if phase is None or phase.name == EPILOG:
        return None
    if phase.stage in UNDER_WAY:
        phase = replace(phase, stage=staged(job, phase, PhaseStage.ENDING))
    elif phase.stage is not PhaseStage.WAITING and phase.owes_epilog:
        phase = _epilog(job, phase)
    else:
        return None
    attempt = replace(
        attempt, phase=phased(job, attempt, AttemptPhase.SETTLING), waiting=frozenset(), owed_revision=0
    )
    return with_phase(attempt, phase)


def apply_began(state: State, fact: facts.ControllerPhaseBegan) -> None:
    job, attempt, phase = _get(state, fact.job_id)
    phase = replace(phase, stage=staged(job, phase, PhaseStage.RUNNING), run=fact.run, began_us=state.now_us)
    state.put_job(replace(job, attempt=with_phase(attempt, phase)))


def ended(state: State, fact: facts.ControllerPhaseEnded) -> Job:
    """The job when a program of its attempt has ended; without the attempt when nothing is left of that."""
    job, attempt, phase = _get(state, fact.job_id)
    if attempt.phase is AttemptPhase.SETTLING:
        if phase.name == PROLOG and phase.owes_epilog:
            return replace(job, attempt=with_phase(attempt, _epilog(job, phase)))
        return replace(job, attempt=None)
    if fact.end.is_good:
        _learn(state, job.job_id, attempt.placed_us)
        phase = replace(phase, stage=staged(job, phase, PhaseStage.OVER))
        # The launch is owed from now on.
        attempt = replace(attempt, placed_revision=state.revision)
        return replace(job, attempt=with_phase(attempt, phase))
    phase = replace(phase, stage=staged(job, phase, PhaseStage.FAILED))
    failures = job.launch_failures + 1
    return replace(job, attempt=with_phase(attempt, phase), launch_failures=failures)


def _learn(state: State, job_id: int, placed_us: int) -> None:
    """Learn from a prolog how long attempts wait for theirs, its turn included; each job's counts as another node's."""
    known = state.phase_lengths
    controller = known.controller.after(state.now_us - placed_us, job_id, state.now_us)
    if controller is not known.controller:
        state.put_phase_lengths(replace(known, controller=controller))


def with_phase(attempt: Attempt, phase: ControllerPhase) -> Attempt:
    return replace(attempt, more=replace(attempt.more or AttemptMore(), controller=phase))


def _epilog(job: Job, phase: ControllerPhase) -> ControllerPhase:
    return ControllerPhase(EPILOG, staged(job, phase, PhaseStage.WAITING))


def _get(state: State, job_id: int) -> tuple[Job, Attempt, ControllerPhase]:
    job = state.get_job(job_id)
    assert job.attempt is not None and job.attempt.controller is not None
    return job, job.attempt, job.attempt.controller
