"""A running job gives nodes back in place, on request.

Invariant: the first node, where the batch script runs, stays; a node is free for others only when it has said that nothing
of the job is left there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from eslurm.core.control.jobs.access import check_managed, get_seen, name_of, part_of
from eslurm.core.control.jobs.movable import check_here
from eslurm.core.control.jobs.stopping import without_steps
from eslurm.core.model import facts, ranges
from eslurm.core.model.hostlist import fold
from eslurm.core.model.job import Attempt, Job, Span
from eslurm.core.model.job_states import AttemptPhase, JobState
from eslurm.core.model.messages import Amounts, RefusalCode, Refused, Resized, ResizeJob
from eslurm.core.model.parts import user_parts
from eslurm.core.model.step import StepState
from eslurm.core.model.wording import counted
from eslurm.core.resources.vector import CORES, MEMORY_MIB
from eslurm.core.state.allocation_amounts import spans_to_come
from eslurm.core.state.cluster import State

NAMED_MAX = 8


def on_resize(state: State, message: ResizeJob) -> tuple[list[facts.Fact], Resized]:
    """Let a running job give nodes back. Raises `Refused` naming the thing, the value and the way out."""
    job = _named(state, message)
    attempt = _resizable(job)
    spans = present(attempt)
    out = _leaving(state, job, spans, message)
    before = amounts(state, spans)
    after = amounts(state, [span for span in spans if span.node not in out])
    steps = steps_on(state, job, out)
    answer = Resized(job.job_id, before, after, names(state, out), steps)
    if message.dry_run or not out:
        return [], answer
    why = f"given back by {message.by.name}"
    ended = [fact for number in out for fact in without_steps(state, job, number, why)]
    return [facts.JobShrunk(job.job_id, attempt.number, out, message.by.name), *ended], answer


def present(attempt: Attempt) -> list[Span]:
    """The spans that new steps of the job may use, in its order."""
    return [span for span in spans_to_come(attempt) if span.node in attempt.held]


def _named(state: State, message: ResizeJob) -> Job:
    """The job, or the running task of an array. Raises `Refused`."""
    ref = message.job
    job = get_seen(state, message.by, ref.job_id)
    check_managed(state, message.by, job, name_of(ref))
    part_of(job, ref)
    if ref.task >= 0:
        task = state.find_task(job.job_id, ref.task)
        if task is None:
            waits = job.tasks_left is not None and ranges.contains(job.tasks_left, ref.task)
            text = f"task {ref.task} of job {job.job_id} " + ("waits" if waits else "does not run")
            raise Refused(RefusalCode.CONFLICT, f"{text}: nodes are added and given back while a task runs")
        job = task
    check_here(job)
    return job


def _resizable(job: Job) -> Attempt:
    """The attempt, if its nodes can change now. Raises `Refused`."""
    attempt, what = job.attempt, f"job {job.job_id}"
    problem = ""
    if job.is_array:
        problem = f"{what} is an array: name one of its running tasks, like {job.job_id}_1"
    elif user_parts(job.spec) > 1:
        problem = f"{what} has {user_parts(job.spec)} parts: give a whole part back, esctl finish-part"
    elif job.spec.gateway is not None:
        problem = (
            f"{what} has gateways, whose routes are those of its first nodes: its nodes stay as they are"
        )
    elif job.pack is not None:
        problem = f"{what} is in pack {job.pack.pack_id}, whose jobs are planned together: its nodes stay"
    elif job.home:
        problem = f"{what} is of cell {job.home}, which accepted it for these nodes: its nodes stay"
    elif job.state is JobState.SUSPENDED:
        problem = f"{what} is suspended: change its nodes when it has been resumed"
    elif job.state is JobState.LAUNCHING:
        problem = f"{what} is being started: try again in a moment"
    elif attempt is None or attempt.phase is not AttemptPhase.RUNNING:
        problem = f"{what} is {job.state.value}: nodes are added and given back while a job runs"
    elif attempt.stop is not None:
        problem = f"{what} is being ended"
    if problem:
        raise Refused(RefusalCode.CONFLICT, problem)
    assert attempt is not None
    return attempt


def _leaving(state: State, job: Job, spans: Sequence[Span], message: ResizeJob) -> tuple[int, ...]:
    """The nodes to give back, in the job's order. Raises `Refused`."""
    given = (message.by_nodes != 0, message.to_nodes != 0, bool(message.nodes), bool(message.without))
    if sum(given) != 1:
        raise Refused(RefusalCode.INVALID, "say how: by how many nodes, to how many, or which nodes")
    own = [span.node for span in spans]
    if message.nodes or message.without:
        named = _numbers(state, job, own, message.nodes or message.without)
        out = [node for node in own if (node in named) == bool(message.without)]
        if own[0] in out:
            first = names(state, own[:1])
            raise Refused(
                RefusalCode.INVALID,
                f"nodelist: the script of job {job.job_id} runs on {first}: it is given back when the script ends",
            )
        return tuple(out)
    wanted = message.to_nodes or len(own) + message.by_nodes
    if wanted < 1:
        raise Refused(
            RefusalCode.INVALID,
            f"nodes: job {job.job_id} has {counted(len(own), 'node')} and keeps the first one, where its script runs: "
            f"at most {len(own) - 1} can be given back",
        )
    if wanted > len(own):
        raise Refused(
            RefusalCode.INFEASIBLE,
            f"nodes: {wanted} are more than the {len(own)} that job {job.job_id} has: give at most {len(own)}",
        )
    return chosen(state, job, own, len(own) - wanted)


def _numbers(state: State, job: Job, own: Collection[int], named: Iterable[str]) -> set[int]:
    """The numbers of nodes that the job has. Raises `Refused`."""
    found: set[int] = set()
    for name in named:
        number = state.numbers.get(name)
        if number is None:
            raise Refused(RefusalCode.NOT_FOUND, f"nodelist: node {name} does not exist: see esinfo")
        if number not in own:
            has = names(state, own)
            raise Refused(
                RefusalCode.INVALID, f"nodelist: job {job.job_id} does not have {name}: it has {has}"
            )
        found.add(number)
    return found


def chosen(state: State, job: Job, own: Sequence[int], count: int) -> tuple[int, ...]:
    """So many of its nodes to give back: those with the fewest tasks of its steps, of these the last; never the first."""
    tasks = dict.fromkeys(own, 0)
    for number in state.steps_of.get(job.job_id, ()):
        step = state.steps[job.job_id, number]
        if step.state in (StepState.LAUNCHING, StepState.RUNNING):
            for node, share in step.launch.layout:
                if node in tasks:
                    tasks[node] += share
    order = sorted(range(1, len(own)), key=lambda at: (tasks[own[at]], -at))
    return tuple([own[at] for at in sorted(order[:count])])


def steps_on(state: State, job: Job, nodes: Collection[int]) -> tuple[int, ...]:
    """The numbers of the job's live steps with tasks on these nodes."""
    steps = [state.steps[job.job_id, number] for number in sorted(state.steps_of.get(job.job_id, ()))]
    live = (StepState.LAUNCHING, StepState.RUNNING)
    return tuple(
        [step.step for step in steps if step.state in live and any(node in nodes for node in step.nodes)]
    )


def amounts(state: State, spans: Sequence[Span]) -> Amounts:
    """The number of nodes of these spans, their names, and the sums of what they have."""
    cpus = sum(span.amounts[CORES] for span in spans)
    memory_mib = sum(sum(span.amounts[MEMORY_MIB : MEMORY_MIB + 1]) for span in spans)
    return Amounts(len(spans), names(state, [span.node for span in spans]), cpus, memory_mib)


def names(state: State, nodes: Iterable[int]) -> str:
    """The names of these nodes as a host list."""
    return fold(state.node_names(nodes))
