"""Prolog and epilog of jobs on the controller's host, turned into facts (F-04).

Each run of a program is a fact before it is started, so that a new leader knows which of them had begun. It cannot know
whether these have ended: it begins each of them again, as the next run. A prolog that fails is no node's fault: the job is
tried again after a pause that grows, and held in the end. An epilog that fails changes nothing.
"""

from __future__ import annotations

from itertools import islice

from eslurm.core.control.jobs.stopping import withdrawn
from eslurm.core.model import facts
from eslurm.core.model.controller_phases import RUNNING_MAX, ControllerPhase, PhaseStage
from eslurm.core.model.job import Attempt, StepEnd
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import ControllerPhaseDone
from eslurm.core.model.step_key import PROLOG
from eslurm.core.state.cluster import State
from eslurm.core.state.faults import why

UNCONFIGURED = StepEnd(0, text="the program is not configured any more")
LOST = StepEnd(0, 9, "lost", "its controller is gone")


def begun(state: State) -> list[facts.Fact]:
    """Begin the programs whose turn has come."""
    programs = state.config.phases
    free = (programs.running_max if programs is not None else RUNNING_MAX) - len(state.phases_running)
    return [_begun(state, job_id) for job_id in islice(state.phases_waiting, max(0, free))]


def begun_again(state: State) -> list[facts.Fact]:
    """A new leader begins again what had begun under another one, and leaves out what its configuration does not name."""
    again = [_begun(state, job_id) for job_id in (*state.phases_running, *state.phases_waiting)]
    return [one for one in again if isinstance(one, facts.ControllerPhaseEnded) or one.run > 1]


def _begun(state: State, job_id: int) -> facts.ControllerPhaseBegan | facts.ControllerPhaseEnded:
    programs = state.config.phases
    attempt, phase = _phase(state, job_id)
    if phase.stage is PhaseStage.ENDING:
        return _ended(job_id, attempt, phase, LOST)
    if programs is None or not programs.program(phase.name):
        return _ended(job_id, attempt, phase, UNCONFIGURED)
    return facts.ControllerPhaseBegan(job_id, attempt.number, phase.name, phase.run + 1)


def on_done(state: State, message: ControllerPhaseDone, now_us: int) -> list[facts.Fact]:
    """A program has ended. Ends of earlier runs change nothing."""
    key, end = message.key, message.end
    if key.job_id not in state.phases_running:
        return []
    job = state.get_job(key.job_id)
    attempt, phase = _phase(state, key.job_id)
    if (attempt.number, phase.name, phase.run) != (key.attempt, key.phase, key.run):
        return []
    over = _ended(key.job_id, attempt, phase, end)
    if phase.name != PROLOG or phase.stage is PhaseStage.ENDING or end.is_good:
        return [over]
    text = f"its controller prolog failed: {why(end)}"
    given_up = withdrawn(state, job, attempt, now_us, JobState.PENDING, text)
    if job.launch_failures + 1 >= state.config.launch_failures_max:
        return [over, given_up, facts.JobHeld(job.job_id, "system", text)]
    return [over, given_up]


def _ended(job_id: int, attempt: Attempt, phase: ControllerPhase, end: StepEnd) -> facts.ControllerPhaseEnded:
    return facts.ControllerPhaseEnded(job_id, attempt.number, phase.name, phase.run, end)


def _phase(state: State, job_id: int) -> tuple[Attempt, ControllerPhase]:
    job = state.get_job(job_id)
    assert job.attempt is not None and job.attempt.controller is not None
    return job.attempt, job.attempt.controller
