"""Application of facts about job steps."""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.job_states import IllegalTransition
from eslurm.core.model.protocol import TELLS_OF_TASKS
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
    waits = fact.demand is not None
    state.put_job(replace(job, attempt=replace(job.attempt, next_step=fact.step + 1)))
    state.put_step(
        Step(
            job_id=fact.job_id,
            attempt=fact.attempt,
            step=fact.step,
            name=fact.name,
            state=StepState.WAITING if waits else StepState.LAUNCHING,
            nodes=nodes,
            tasks=sum(tasks for _, tasks in fact.layout),
            created_us=state.now_us,
            revision=state.revision,
            waiting=frozenset(nodes),
            launch=fact,
            holding=frozenset(nodes) if fact.is_counted else frozenset(),
        )
    )


def apply_granted(state: State, fact: facts.StepGranted) -> None:
    """Launch a step that has waited: from now on it is like one that has just been created."""
    step = state.steps[(fact.job_id, fact.step)]
    nodes = frozenset(node for node, _ in fact.layout)
    state.put_step(
        replace(
            step,
            state=moved(step, StepState.LAUNCHING),
            nodes=tuple(node for node, _ in fact.layout),
            tasks=sum(tasks for _, tasks in fact.layout),
            created_us=state.now_us,
            revision=state.revision,
            waiting=nodes,
            holding=nodes,
            launch=replace(
                step.launch,
                layout=fact.layout,
                rank_first=fact.rank_first,
                tasks_total=fact.tasks_total,
                others=fact.others,
                demand=None,
                takes=fact.takes,
                devices=fact.devices,
            ),
        )
    )


def apply_answered(state: State, fact: facts.StepAnswered) -> None:
    step = state.steps[(fact.job_id, fact.step)]
    without = [node for node, _ in fact.failed]
    waiting = step.waiting.difference(fact.started, without)
    failed = (*step.failed, *fact.failed)
    to = step.state
    if not waiting and to in (StepState.LAUNCHING, StepState.WAITING):
        to = StepState.FAILED if failed else StepState.RUNNING
    holding = step.holding.difference(without)
    step = replace(step, waiting=waiting, failed=failed, state=moved(step, to), holding=holding)
    if to is StepState.RUNNING and step.launch.is_counted and not holding:
        # Its tasks have ended before the last answer.
        step = _over(state, step)
    state.put_step(step)


def apply_finished(state: State, fact: facts.StepFinished) -> None:
    """The word of its command: nodes that have not answered by now find no listener, and start nothing."""
    step = state.steps[(fact.job_id, fact.step)]
    to = StepState.CANCELLED if step.state is StepState.WAITING else StepState.ENDED
    # Agents of earlier releases do not say when the tasks have ended.
    silent = [number for number in step.holding if _is_silent(state, number)]
    state.put_step(
        replace(
            step,
            state=moved(step, to),
            exit_code=fact.exit_code,
            signal=fact.signal,
            holding=step.holding.difference(step.waiting, silent),
            waiting=frozenset(),
            ended_us=step.ended_us or state.now_us,
        )
    )
    _give_rest(state, fact.job_id)


def apply_tasks_ended(state: State, fact: facts.TasksEnded) -> None:
    """Free what the step took on these nodes; a step with no node left is over."""
    step = state.steps[(fact.job_id, fact.step)]
    worst = max(step.worst, (fact.exit_code, fact.signal))
    step = replace(step, holding=step.holding.difference(fact.nodes), worst=worst)
    if not step.holding and step.state is StepState.RUNNING:
        step = _over(state, step)
    state.put_step(step)
    _give_rest(state, fact.job_id)


def _over(state: State, step: Step) -> Step:
    code, signal = step.worst
    to = moved(step, StepState.ENDED)
    return replace(step, state=to, exit_code=code, signal=signal, ended_us=state.now_us)


def _is_silent(state: State, number: int) -> bool:
    node = state.nodes.get(number)
    return node is None or node.protocol < TELLS_OF_TASKS


def _give_rest(state: State, job_id: int) -> None:
    job = state.get_job(job_id)
    if job.attempt is not None and job.attempt.more is not None and job.attempt.more.finished:
        apply_parts.give_rest(state, job, job.attempt)
