"""Parts that a running job gives back before its end, on request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eslurm.core.control.jobs.access import check_managed, get_seen, name_of, part_of
from eslurm.core.model import facts, ranges
from eslurm.core.model.hostlist import fold
from eslurm.core.model.job import Attempt, Job, Span
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import Amounts, FinishPart, PartGivenBack, RefusalCode, Refused
from eslurm.core.model.parts import user_parts
from eslurm.core.model.step import Step, StepState
from eslurm.core.resources.vector import CORES, MEMORY_MIB
from eslurm.core.state.allocation_amounts import spans_in_use
from eslurm.core.state.apply_parts import live_steps, split
from eslurm.core.state.cluster import State

STEPS_NAMED = 4
SIGKILL = 9


def on_finish_part(state: State, message: FinishPart) -> tuple[list[facts.Fact], PartGivenBack]:
    """Give back one part: its nodes are ended, and free when nothing of the job is left there."""
    job, part = _named(state, message)
    attempt = _running(job, part)
    steps = live_steps(state, job, part)
    if steps:
        _check_steps(job, part, steps, kill=message.kill)
    parts = split(state, job, attempt, part)
    before = [span for span in spans_in_use(attempt) if _is_held(attempt, span)]
    after = [span for span in before if span.component != part]
    answer = PartGivenBack(
        job.job_id,
        part,
        _amounts(state, before),
        _amounts(state, after),
        _names(state, parts.leaving),
        _names(state, parts.busy),
        tuple([step.step for step in steps]),
    )
    if message.dry_run:
        return [], answer
    by = message.by.name
    killed = [facts.JobSignalled(job.job_id, attempt.number, SIGKILL, by, step.step) for step in steps]
    return [*killed, facts.PartFinished(job.job_id, attempt.number, part, by)], answer


def _named(state: State, message: FinishPart) -> tuple[Job, int]:
    """The job, or the task of an array, and the part that is named. Raises `Refused`."""
    job = get_seen(state, message.by, message.job.job_id)
    check_managed(state, message.by, job, name_of(message.job))
    part = part_of(job, message.job)
    task = message.job.task
    if task >= 0:
        record = state.find_task(job.job_id, task)
        if record is None:
            waits = job.tasks_left is not None and ranges.contains(job.tasks_left, task)
            text = f"task {task} of job {job.job_id} " + ("waits" if waits else "does not run")
            raise Refused(RefusalCode.CONFLICT, f"{text}: a part is given back while its job runs")
        job = record
    if user_parts(job.spec) == 1:
        raise Refused(
            RefusalCode.INVALID, f"job {job.job_id} has one part: escancel {job.job_id} ends the job"
        )
    if part < 0:
        raise Refused(RefusalCode.INVALID, f"say which part of job {job.job_id}: {job.job_id}+1")
    if part == 0:
        raise Refused(
            RefusalCode.INVALID,
            f"the script of job {job.job_id} runs in part 0: it is given back when the script ends",
        )
    return job, part


def _running(job: Job, part: int) -> Attempt:
    """The attempt, if it can give the part back now. Raises `Refused`."""
    attempt = job.attempt
    if job.state is JobState.SUSPENDED:
        text = f"job {job.job_id} is suspended: give its parts back when it has been resumed"
        raise Refused(RefusalCode.CONFLICT, text)
    if job.state is JobState.LAUNCHING:
        text = f"job {job.job_id} is being started: try again in a moment"
        raise Refused(RefusalCode.CONFLICT, text)
    if attempt is None or job.state is not JobState.RUNNING:
        text = f"job {job.job_id} is {job.state.value}: a part is given back while its job runs"
        raise Refused(RefusalCode.CONFLICT, text)
    if attempt.stop is not None:
        raise Refused(RefusalCode.CONFLICT, f"job {job.job_id} is being ended")
    if part in attempt.finished:
        raise Refused(RefusalCode.CONFLICT, f"part {part} of job {job.job_id} was given back already")
    return attempt


def _check_steps(job: Job, part: int, steps: Sequence[Step], *, kill: bool) -> None:
    named = ", ".join(str(step.step) for step in steps[:STEPS_NAMED]) + (
        ", ..." if len(steps) > STEPS_NAMED else ""
    )
    one = len(steps) == 1
    if not kill:
        text = f"step{'' if one else 's'} {named} run{'s' if one else ''} in part {part} of job {job.job_id}"
        raise Refused(RefusalCode.CONFLICT, f"{text}: end {'it' if one else 'them'} first, or give --kill")
    if any(step.state is StepState.LAUNCHING for step in steps):
        # A launch that is under way may come after the signal.
        text = f"a step is being started in part {part} of job {job.job_id}: try again in a moment"
        raise Refused(RefusalCode.CONFLICT, text)


def _is_held(attempt: Attempt, span: Span) -> bool:
    """Check whether it counts as the job's: what leaves with an earlier part does not."""
    return span.node in attempt.held and span.component not in attempt.finished


def _amounts(state: State, spans: Sequence[Span]) -> Amounts:
    cpus = sum(span.amounts[CORES] for span in spans)
    memory_mib = sum(sum(span.amounts[MEMORY_MIB : MEMORY_MIB + 1]) for span in spans)
    nodes = len({span.node for span in spans})
    return Amounts(nodes, _names(state, spans), cpus, memory_mib)


def _names(state: State, spans: Iterable[Span]) -> str:
    return fold(state.node_names(dict.fromkeys([span.node for span in spans])))
