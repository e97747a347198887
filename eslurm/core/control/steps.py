"""Steps that a running job's owner starts on its nodes, turned into facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from eslurm.core.control.jobs.access import check_owned, get_seen
from eslurm.core.control.privacy import Visibility
from eslurm.core.model import facts
from eslurm.core.model.guests import JointStep
from eslurm.core.model.job import Attempt, Job, Principal, Span
from eslurm.core.model.job_states import STARTED, AttemptPhase, JobState
from eslurm.core.model.messages import (
    Changed,
    CreateStep,
    FinishStep,
    PartCreated,
    RefusalCode,
    Refused,
    StepCreated,
    StepProgram,
)
from eslurm.core.model.parts import user_parts
from eslurm.core.model.step import Step, StepState
from eslurm.core.model.step_input import problem_of as input_problem
from eslurm.core.state.allocation_amounts import spans_to_come
from eslurm.core.state.cluster import State

STEPS_MAX = 10_000


def on_create(state: State, message: CreateStep) -> tuple[list[facts.Fact], StepCreated]:
    """Lay the tasks out over the job's nodes: block-wise, at most what each node's share of the job allows.

    A step over several parts of the job is a step in each of them, with consecutive numbers and one order of ranks.
    """
    job, attempt = _running(state, message.by, message.job_id)
    if job.job_id != message.job_id:
        part = message.job_id - job.job_id
        text = f"job {message.job_id} is part {part} of job {job.job_id}: name it --jobid {job.job_id}+{part}"
        raise Refused(RefusalCode.INVALID, text)
    _check_parts(job, message)
    parts = message.components
    if attempt.next_step + len(parts) > STEPS_MAX:
        raise Refused(
            RefusalCode.EXHAUSTED, f"job {job.job_id} has started {STEPS_MAX} steps, the most it may"
        )
    back = next((part for part in parts if part in attempt.finished), None)
    if back is not None:
        left = [part for part in range(len(job.spec.components)) if part not in attempt.finished]
        raise Refused(
            RefusalCode.CONFLICT,
            f"--het-group: part {back} of job {job.job_id} was given back: use {', '.join(map(str, left))}",
        )
    programs = programs_of(message)
    has_parts = user_parts(job.spec) > 1
    spans: dict[int, list[Span]] = {component: [] for component in parts}
    for span in spans_to_come(attempt):
        if span.component in spans and span.node in attempt.held:
            spans[span.component].append(span)
    if message.node_names:
        spans = _on_named(state, message, spans)
    if attempt.is_resized:
        programs = (_of_now(programs[0], message, spans[0]),)
    layouts = [
        _layout(spans[component], program, f"part {component}: " if has_parts else "")
        for component, program in zip(parts, programs, strict=True)
    ]
    counts = [sum(tasks for _, tasks in layout) for layout in layouts]
    together = len(parts) > 1
    first_rank = total = 0
    if message.joint is not None:
        first_rank, total = _joint(message.joint, parts, layouts[0])
    if problem := input_problem(message.input, total or sum(counts)):
        raise Refused(RefusalCode.INVALID, problem)
    found: list[facts.Fact] = []
    made: list[PartCreated] = []
    for at, (component, program, layout) in enumerate(zip(parts, programs, layouts, strict=True)):
        number, rank_first = attempt.next_step + at, first_rank + sum(counts[:at])
        found.append(
            facts.StepCreated(
                job_id=job.job_id,
                attempt=attempt.number,
                step=number,
                name=message.name,
                layout=layout,
                argv=program.argv,
                environment_hash=message.environment_hash,
                work_dir=message.work_dir,
                endpoint=message.endpoint,
                cookie=message.cookie,
                cpus_per_task=program.cpus_per_task,
                component=component,
                rank_first=rank_first,
                tasks_total=sum(counts) if together else total,
                first=attempt.next_step if together else -1,
                others=tuple(zip(parts[1:], layouts[1:], strict=True)) if not at else (),
                joint=message.joint,
                input=message.input,
                mpi=message.mpi,
            )
        )
        named = tuple((state.nodes[node].name, tasks) for node, tasks in layout)
        made.append(PartCreated(component, number, rank_first, named))
    whole = tuple(one for part in made for one in part.layout)
    return found, StepCreated(
        job.job_id, attempt.number, attempt.next_step, whole, tuple(made) if together else ()
    )


def _on_named(
    state: State, message: CreateStep, spans: Mapping[int, Sequence[Span]]
) -> dict[int, list[Span]]:
    """Those of the spans of each part that are on the named nodes. Raises `Refused` for a node that the job has not."""
    named = set(message.node_names)
    found = {
        part: [span for span in own if state.nodes[span.node].name in named] for part, own in spans.items()
    }
    there = {state.nodes[span.node].name for own in found.values() for span in own}
    if missing := sorted(named - there):
        text = f"--nodelist: {missing[0]} is none of the nodes of job {message.job_id}: name some of those that it has"
        raise Refused(RefusalCode.INVALID, text)
    return found


def _joint(joint: JointStep, parts: Sequence[int], layout: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """(first rank, ranks in all) of this cell's part of a step over several cells. Raises `Refused`."""
    if tuple(parts) != (0,):
        raise Refused(RefusalCode.INVALID, "--het-group: a step over several cells is of one part")
    tasks = sum(count for _, count in layout)
    if joint.rank_first + tasks > joint.ranks or joint.node_first + len(layout) > joint.nodes:
        raise Refused(
            RefusalCode.INVALID,
            f"joint: {tasks} tasks on {len(layout)} nodes from rank {joint.rank_first} on are more than its "
            f"{joint.ranks} ranks on {joint.nodes} nodes",
        )
    return joint.rank_first, joint.ranks


def programs_of(message: CreateStep) -> tuple[StepProgram, ...]:
    """The program of each of the step's parts."""
    same = StepProgram(message.argv, message.tasks, message.nodes, message.cpus_per_task)
    return message.programs or (same,) * len(message.components)


def _of_now(program: StepProgram, message: CreateStep, spans: Sequence[Span]) -> StepProgram:
    """The program of a step in a job whose nodes have changed: what its user left open is as many as there are now."""
    tasks = sum([span.tasks for span in spans]) if message.tasks_open else program.tasks
    return replace(program, tasks=tasks, nodes=0 if message.nodes_open else program.nodes)


def _check_parts(job: Job, message: CreateStep) -> None:
    """Check that the job has the named parts, once each, in their order, and a program for each."""
    parts, size = message.components, user_parts(job.spec)
    wrong = next((one for one in parts if not 0 <= one < size), None)
    if wrong is not None:
        has = "1 part (0)" if size == 1 else f"{size} parts (0-{size - 1})"
        raise Refused(
            RefusalCode.INVALID, f"--het-group: there is no part {wrong}: job {job.job_id} has {has}"
        )
    if not parts or any(one >= after for one, after in pairwise(parts)):
        raise Refused(RefusalCode.INVALID, "--het-group: name each part once, in ascending order: 0,2-3")
    if message.programs and len(message.programs) != len(parts):
        text = (
            f"--het-group: {len(message.programs)} programs do not fit {len(parts)} parts: give one for each"
        )
        raise Refused(RefusalCode.INVALID, f"{text}, or one for all")


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
    is_preparing = job.attempt.phase is AttemptPhase.PREPARING and job.attempt.prepares_first
    if is_preparing or job.attempt.awaits_prolog:
        # If a node cannot be prepared the job starts elsewhere at once: nothing of it may run by then.
        raise Refused(RefusalCode.CONFLICT, f"job {job_id} is still being prepared: try again in a moment")
    return job, job.attempt


def _layout(spans: Sequence[Span], program: StepProgram, where: str) -> tuple[tuple[int, int], ...]:
    """(node, tasks) of a program within one part's spans; `where` begins the texts of refusals."""
    if program.cpus_per_task < 1:
        text = f"--cpus-per-task: {program.cpus_per_task} is too few: a task needs one cpu"
        raise Refused(RefusalCode.INVALID, where + text)
    if program.tasks < 0 or program.nodes < 0:
        text = "--ntasks and --nodes must not be negative: leave out what is open"
        raise Refused(RefusalCode.INVALID, where + text)
    nodes = program.nodes or (len(spans) if program.tasks == 0 else min(len(spans), program.tasks))
    if nodes > len(spans):
        owner = "part" if where else "job"
        text = f"--nodes: {nodes} are more than the {owner}'s {len(spans)} nodes"
        raise Refused(RefusalCode.INFEASIBLE, where + text)
    if not nodes:
        raise Refused(RefusalCode.CONFLICT, where + "none of its nodes is left")
    tasks = program.tasks or nodes
    if tasks < nodes:
        text = f"--ntasks: {tasks} tasks cannot be spread over {nodes} nodes"
        raise Refused(RefusalCode.INVALID, where + text)
    room = [span.amounts[0] // program.cpus_per_task for span in spans]
    chosen = list(range(nodes))
    share, more = divmod(tasks, nodes)
    wanted = [share + (at < more) for at in chosen]
    if all(want <= room[at] for at, want in zip(chosen, wanted, strict=True)):
        return tuple((spans[at].node, want) for at, want in zip(chosen, wanted, strict=True))
    if sum(room[:nodes]) < tasks or not all(room[:nodes]):
        owner = "part" if where else "job"
        text = (
            f"--ntasks: {tasks} tasks of {program.cpus_per_task} cpus are more than {nodes} nodes of the {owner} hold "
            f"({sum(room[:nodes])})"
        )
        raise Refused(RefusalCode.INFEASIBLE, where + text)
    filled = [1] * nodes
    left = tasks - nodes
    for at in chosen:
        extra = min(left, room[at] - 1)
        filled[at] += extra
        left -= extra
    return tuple((spans[at].node, count) for at, count in zip(chosen, filled, strict=True))


def step_parts(steps: Mapping[tuple[int, int], Step], step: Step) -> list[Step]:
    """All steps that form one with this one, a step for each part; it alone where it stands alone."""
    first = step.launch.first
    if first < 0:
        return [step]
    count = 1 + len(steps[step.job_id, first].launch.others)
    return [steps[step.job_id, number] for number in range(first, first + count)]


def joint_state(parts: Iterable[Step]) -> StepState:
    """The state of a step over several parts: failed where one is, launching until all have started."""
    states = {part.state for part in parts}
    for state in (StepState.FAILED, StepState.LAUNCHING, StepState.RUNNING):
        if state in states:
            return state
    return StepState.ENDED


def on_finish(state: State, message: FinishStep) -> tuple[list[facts.Fact], Changed]:
    """The step's own command saw it end; in all its parts."""
    job = state.find_job(message.job_id)
    step = state.steps.get((message.job_id, message.step))
    if job is None or step is None or not Visibility(state, message.by).job(job):
        return [], Changed(0)
    check_owned(message.by, job)
    found: list[facts.Fact] = [
        facts.StepFinished(one.job_id, one.step, message.exit_code, message.signal)
        for one in step_parts(state.steps, step)
        if one.state not in (StepState.ENDED, StepState.FAILED)
    ]
    return found, Changed(1 if found else 0)
