"""A running job gives nodes back in place, or asks for further ones, on request.

Invariant: the first node, where the batch script runs, stays; a node is free for others only when it has said that nothing
of the job is left there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from eslurm.core.control.jobs.access import check_managed, get_seen, name_of, part_of
from eslurm.core.control.jobs.growth_requests import growth_facts, growth_of
from eslurm.core.control.jobs.movable import check_here
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


def on_resize(state: State, message: ResizeJob, now_us: int) -> tuple[list[facts.Fact], Resized]:
    """Let a running job give nodes back, or ask for further ones. Raises `Refused` with the way out."""
    job = _named(state, message)
    attempt = _resizable(job)
    spans = present(attempt)
    own = [span.node for span in spans]
    wanted = _wanted(state, job, own, message)
    growth_id = state.growing.get(job.job_id)
    found: list[facts.Fact] = []
    if growth_id is not None:
        place = state.get_job(growth_id).grows
        _check_growth(job, attempt, growth_id, wanted, message, is_own=place is not None and place.is_own)
        text = f"withdrawn by {message.by.name}"
        found.append(facts.JobFinished(growth_id, JobState.CANCELLED, text))
    before = amounts(state, spans)
    after = amounts(state, [span for span in spans if span.node not in wanted.out])
    answer = Resized(
        job.job_id, before, after, names(state, wanted.out), steps_on(state, job, wanted.out), 0, wanted.more
    )
    if growth_id is not None:
        answer = replace(answer, withdrawn=growth_id)
    if wanted.more:
        asked = growth_facts(state, job, attempt, message.by, wanted.more, wanted.include, now_us)
        found += asked
        answer = replace(answer, growth_id=0 if message.dry_run else growth_of(asked))
    elif wanted.out:
        # A step that is being started there waits for the node's word: its tasks may run already, and get the grace.
        found.append(facts.JobShrunk(job.job_id, attempt.number, wanted.out, message.by.name))
    return [] if message.dry_run else found, answer


class Wanted(NamedTuple):
    """The change of a job's nodes: those to give back, or the number of further ones, with those named among them."""

    out: tuple[int, ...] = ()
    more: int = 0
    include: tuple[str, ...] = ()


def _check_growth(
    job: Job, attempt: Attempt, growth_id: int, wanted: Wanted, message: ResizeJob, *, is_own: bool
) -> None:
    """Refuse a change while nodes join, and one more growth beside one that a user has asked for."""
    if attempt.joining:
        text = f"job {job.job_id} is just getting nodes (growth {growth_id}): try again in a moment"
        raise Refused(RefusalCode.CONFLICT, text)
    if wanted.more and message.by_nodes and not is_own:
        raise Refused(
            RefusalCode.CONFLICT,
            f"job {job.job_id} waits for nodes already (growth {growth_id}): give the number of nodes in all instead of "
            f"{message.by_nodes:+d}, or withdraw it: escancel {growth_id}",
        )


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
    elif job.guests is not None or job.guest_of is not None:
        problem = f"{what} has nodes in several cells, which hold them until its end: its nodes stay"
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


def _wanted(state: State, job: Job, own: Sequence[int], message: ResizeJob) -> Wanted:
    """Translate the message into the change that it asks for. Raises `Refused`."""
    given = (message.by_nodes != 0, message.to_nodes != 0, bool(message.nodes), bool(message.without))
    if sum(given) != 1:
        raise Refused(RefusalCode.INVALID, "say how: by how many nodes, to how many, or which nodes")
    if message.nodes:
        return _of_list(state, job, own, message.nodes)
    if message.without:
        named = _numbers(state, job, own, message.without)
        out = tuple([node for node in own if node in named])
        _check_first(state, job, own, out)
        return Wanted(out)
    wanted = message.to_nodes or len(own) + message.by_nodes
    if wanted < 1:
        raise Refused(
            RefusalCode.INVALID,
            f"nodes: job {job.job_id} has {counted(len(own), 'node')} and keeps the first one, where its script runs: "
            f"at most {len(own) - 1} can be given back",
        )
    if wanted > len(own):
        return Wanted((), wanted - len(own))
    return Wanted(chosen(state, job, own, len(own) - wanted))


def _of_list(state: State, job: Job, own: Sequence[int], named: Sequence[str]) -> Wanted:
    """The nodes that the job is to have: some of its own, or its own and others."""
    known = {state.nodes[node].name for node in own}
    more = tuple([name for name in dict.fromkeys(named) if name not in known])
    if not more:
        keep = _numbers(state, job, own, named)
        out = tuple([node for node in own if node not in keep])
        _check_first(state, job, own, out)
        return Wanted(out)
    for name in more:
        if name not in state.numbers:
            raise Refused(RefusalCode.NOT_FOUND, f"nodelist: node {name} does not exist: see esinfo")
    missing = sorted(known.difference(named))
    if missing:
        raise Refused(
            RefusalCode.INVALID,
            f"nodelist: {fold(missing)} would be given back and {fold(more)} added: make it two changes",
        )
    return Wanted((), len(more), more)


def _check_first(state: State, job: Job, own: Sequence[int], out: Sequence[int]) -> None:
    if own[0] in out:
        first = names(state, own[:1])
        raise Refused(
            RefusalCode.INVALID,
            f"nodelist: the script of job {job.job_id} runs on {first}: it is given back when the script ends",
        )


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
