"""Application of facts about job steps."""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.job_states import IllegalTransition
from eslurm.core.model.step import TRANSITIONS, Step, StepState
from eslurm.core.state import apply_parts
from eslurm.core.state.cluster import State


def moved(step: Step, to: StepState) -> StepState:
    """`to`, if the table allows the transition."""
    if to is not step.state and to not in TRANSITIONS[step.state]:
        raise IllegalTransition(f"step {step.job_id}.{step.step}: {step.state.value} -> {to.value}")
    return to


def apply_created(state: State, fact: facts.StepCreated) -> None:
    job = state.get_job(fact.job_id)
    assert job.attempt is not None
    nodes = tuple(node for node, _ in fact.layout)
    state.put_job(replace(job, attempt=replace(job.attempt, next_step=fact.step + 1)))
    state.put_step(
        Step(
            job_id=fact.job_id,
            attempt=fact.attempt,
            step=fact.step,
            name=fact.name,
            state=StepState.LAUNCHING,
            nodes=nodes,
            tasks=sum(tasks for _, tasks in fact.layout),
            created_us=state.now_us,
            revision=state.revision,
            waiting=frozenset(nodes),
            launch=fact,
        )
    )


def apply_answered(state: State, fact: facts.StepAnswered) -> None:
    step = state.steps[(fact.job_id, fact.step)]
    waiting = step.waiting.difference(fact.started).difference(node for node, _ in fact.failed)
    failed = (*step.failed, *fact.failed)
    to = step.state
    if not waiting and to is StepState.LAUNCHING:
        to = StepState.FAILED if failed else StepState.RUNNING
    state.put_step(replace(step, waiting=waiting, failed=failed, state=moved(step, to)))


def apply_finished(state: State, fact: facts.StepFinished) -> None:
    step = state.steps[(fact.job_id, fact.step)]
    state.put_step(
        replace(
            step,
            state=moved(step, StepState.ENDED),
            exit_code=fact.exit_code,
            signal=fact.signal,
            waiting=frozenset(),
            ended_us=state.now_us,
        )
    )
    job = state.get_job(fact.job_id)
    if job.attempt is not None and job.attempt.more is not None and job.attempt.more.finished:
        apply_parts.give_rest(state, job, job.attempt)
