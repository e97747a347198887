"""Steps that a running job's owner starts on its nodes, turned into facts."""

from __future__ import annotations

from eslurm.core.control.jobs.access import check_owned, get_seen
from eslurm.core.control.privacy import Visibility
from eslurm.core.model import facts
from eslurm.core.model.job import Attempt, Job, Principal
from eslurm.core.model.job_states import STARTED, AttemptPhase, JobState
from eslurm.core.model.messages import Changed, CreateStep, FinishStep, RefusalCode, Refused, StepCreated
from eslurm.core.model.step import StepState
from eslurm.core.state.cluster import State

STEPS_MAX = 10_000


def on_create(state: State, message: CreateStep) -> tuple[list[facts.Fact], StepCreated]:
    """Lay the tasks out over the job's nodes: block-wise, at most what each node's share of the job allows."""
    job, attempt = _running(state, message.by, message.job_id)
    if attempt.next_step >= STEPS_MAX:
        raise Refused(
            RefusalCode.EXHAUSTED, f"job {job.job_id} has started {STEPS_MAX} steps, the most it may"
        )
    layout = _layout(attempt, message)
    fact = facts.StepCreated(
        job_id=job.job_id,
        attempt=attempt.number,
        step=attempt.next_step,
        name=message.name,
        layout=layout,
        argv=message.argv,
        environment_hash=message.environment_hash,
        work_dir=message.work_dir,
        endpoint=message.endpoint,
        cookie=message.cookie,
        cpus_per_task=message.cpus_per_task,
    )
    names = tuple((state.nodes[node].name, tasks) for node, tasks in layout)
    return [fact], StepCreated(job.job_id, attempt.number, attempt.next_step, names)


def not_running(job: Job) -> Refused:
    """The refusal of a step in a job that has no nodes now."""
    text = f"job {job.job_id} is {job.state.value}: steps start inside a running job"
    return Refused(RefusalCode.CONFLICT, text)


def _running(state: State, by: Principal, job_id: int) -> tuple[Job, Attempt]:
    job = get_seen(state, by, job_id)
    check_owned(by, job)
    if job.attempt is None or (job.state not in STARTED and job.state is not JobState.LAUNCHING):
        raise not_running(job)
    if job.state is JobState.SUSPENDED:
        raise Refused(
            RefusalCode.CONFLICT, f"job {job_id} is suspended: steps start when it has been resumed"
        )
    if job.attempt.stop is not None:
        raise Refused(RefusalCode.CONFLICT, f"job {job_id} is being ended")
    if job.attempt.phase is AttemptPhase.PREPARING and not job.attempt.is_on_one_node:
        # If a node cannot be prepared the job starts elsewhere at once: nothing of it may run by then.
        raise Refused(RefusalCode.CONFLICT, f"job {job_id} is still being prepared: try again in a moment")
    return job, job.attempt


def _layout(attempt: Attempt, message: CreateStep) -> tuple[tuple[int, int], ...]:
    if message.cpus_per_task < 1:
        raise Refused(
            RefusalCode.INVALID, f"--cpus-per-task: {message.cpus_per_task} is too few: a task needs one cpu"
        )
    if message.tasks < 0 or message.nodes < 0:
        raise Refused(
            RefusalCode.INVALID, "--ntasks and --nodes must not be negative: leave out what is open"
        )
    spans = [span for span in attempt.spans if span.node in attempt.held]
    nodes = message.nodes or (len(spans) if message.tasks == 0 else min(len(spans), message.tasks))
    if nodes > len(spans):
        raise Refused(RefusalCode.INFEASIBLE, f"--nodes: {nodes} are more than the job's {len(spans)} nodes")
    tasks = message.tasks or nodes
    if tasks < nodes:
        raise Refused(RefusalCode.INVALID, f"--ntasks: {tasks} tasks cannot be spread over {nodes} nodes")
    room = [span.amounts[0] // message.cpus_per_task for span in spans]
    chosen = list(range(nodes))
    share, more = divmod(tasks, nodes)
    wanted = [share + (at < more) for at in chosen]
    if all(want <= room[at] for at, want in zip(chosen, wanted, strict=True)):
        return tuple((spans[at].node, want) for at, want in zip(chosen, wanted, strict=True))
    if sum(room[:nodes]) < tasks or not all(room[:nodes]):
        raise Refused(
            RefusalCode.INFEASIBLE,
            f"--ntasks: {tasks} tasks of {message.cpus_per_task} cpus are more than {nodes} nodes of the job hold "
            f"({sum(room[:nodes])})",
        )
    filled = [1] * nodes
    left = tasks - nodes
    for at in chosen:
        extra = min(left, room[at] - 1)
        filled[at] += extra
        left -= extra
    return tuple((spans[at].node, count) for at, count in zip(chosen, filled, strict=True))


def on_finish(state: State, message: FinishStep) -> tuple[list[facts.Fact], Changed]:
    """The step's own command saw it end."""
    job = state.find_job(message.job_id)
    step = state.steps.get((message.job_id, message.step))
    if job is None or step is None or not Visibility(state, message.by).job(job):
        return [], Changed(0)
    check_owned(message.by, job)
    if step.state in (StepState.ENDED, StepState.FAILED):
        return [], Changed(0)
    return [facts.StepFinished(message.job_id, message.step, message.exit_code, message.signal)], Changed(1)
