"""Steps that a running job's owner starts on its nodes, turned into facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from eslurm.core.control.jobs.access import check_owned, get_seen
from eslurm.core.control.privacy import Visibility
from eslurm.core.control.step_layout import Laid, Layout, Wanted, lay_out
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
from eslurm.core.model.protocol import TasksOver
from eslurm.core.model.step import OVER, Step, StepState
from eslurm.core.model.step_claim import StepClaim, StepDemand
from eslurm.core.model.step_input import problem_of as input_problem
from eslurm.core.plan.placement.compiled_request import amounts_of
from eslurm.core.state.allocation_amounts import spans_to_come
from eslurm.core.state.cluster import State

STEPS_MAX = 10_000
SIGNAL_MAX = 64


def on_create(state: State, message: CreateStep) -> tuple[list[facts.Fact], StepCreated]:
    """Lay the tasks out over the job's nodes: block-wise, at most what each node's share of the job allows.

    A step with a claim waits while other steps have what it claims, or wait themselves. A step over several parts of the
    job is a step in each of them, with consecutive numbers and one order of ranks.
    """
    job, attempt = _running(state, message.by, message.job_id)
    _check(job, attempt, message)
    parts = message.components
    claim = _claim(state, message)
    demands = _demands(message)
    where = _Where(state, job, attempt, parts, claim)
    programs = programs_of(message)
    laid = _lay_out(where, programs, demands)
    waits = claim is not None and (laid is None or job.job_id in state.step_use.waiting)
    if waits and message.is_immediate:
        text = f"--immediate: the step would have to wait for others of job {job.job_id}"
        raise Refused(RefusalCode.CONFLICT, text)
    counts = [sum(tasks for _, tasks in one.layout) for one in laid or ()]
    first_rank = total = 0
    if message.joint is not None:
        assert laid is not None
        first_rank, total = _joint(message.joint, parts, laid[0].layout)
    if laid is not None and (problem := input_problem(message.input, total or sum(counts))):
        raise Refused(RefusalCode.INVALID, problem)
    first = attempt.next_step
    found = _created(job, attempt, message, claim, programs, demands, (first_rank, total))
    if waits:
        made = [PartCreated(part, first + at, 0, ()) for at, part in enumerate(parts)]
    else:
        assert laid is not None
        granted = _grants(job.job_id, first, parts, laid, first_rank, total)
        found = [_begun(one, grant) for one, grant in zip(found, granted, strict=True)]
        made = [
            PartCreated(part, grant.step, grant.rank_first, _named(state, grant.layout))
            for part, grant in zip(parts, granted, strict=True)
        ]
    whole = tuple(one for part in made for one in part.layout)
    answered = tuple(made) if len(parts) > 1 else ()
    return [*found], StepCreated(job.job_id, attempt.number, first, whole, answered, waits)


def _created(
    job: Job,
    attempt: Attempt,
    message: CreateStep,
    claim: StepClaim | None,
    programs: Sequence[StepProgram],
    demands: Sequence[StepDemand],
    ranks: tuple[int, int],
) -> list[facts.StepCreated]:
    """The facts of the step's parts, not laid out yet. `ranks`: the first one, and all of a step over several cells."""
    parts, first = message.components, attempt.next_step
    found: list[facts.StepCreated] = []
    for at, (component, program, demand) in enumerate(zip(parts, programs, demands, strict=True)):
        own = facts.StepCreated(
            job_id=job.job_id,
            attempt=attempt.number,
            step=first + at,
            name=message.name,
            layout=(),
            argv=program.argv,
            environment_hash=message.environment_hash,
            work_dir=message.work_dir,
            endpoint=message.endpoint,
            cookie=message.cookie,
            cpus_per_task=program.cpus_per_task,
            component=component,
            rank_first=ranks[0],
            tasks_total=ranks[1],
            first=first if len(parts) > 1 else -1,
            others=tuple([(part, ()) for part in parts[1:]]) if not at else (),
            joint=message.joint,
            input=message.input,
            mpi=message.mpi,
            claim=claim,
            demand=demand,
            time_limit_s=message.time_limit_s,
            files=message.files,
        )
        found.append(own)
    return found


def _check(job: Job, attempt: Attempt, message: CreateStep) -> None:
    """Raise `Refused` for a step that the job cannot have, whatever its other steps do."""
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
    if message.files is not None and (message.input is not None or message.mpi or message.joint is not None):
        text = "--async: the step has no input, no MPI and no other cells: its command does not serve it"
        raise Refused(RefusalCode.INVALID, text)


def _claim(state: State, message: CreateStep) -> StepClaim | None:
    """The claim by the indexes of the resources. Raises `Refused` for one that no node has."""
    wish = message.claim
    if wish is None or message.joint is not None:
        # The cells of a step over several know nothing of each other's steps: such a step shares.
        return None
    names = state.ledger.topology.resources
    by_task, on_node = (amounts_of(named, names) for named in (wish.per_task, wish.per_node))
    if by_task is None or on_node is None:
        missing = next(name for name, _ in (*wish.per_task, *wish.per_node) if name not in names)
        text = f"--gres: no node here has {missing}: see `esinfo -N` for what they have"
        raise Refused(RefusalCode.INVALID, text)
    if wish.memory_mib:
        on_node = (0, wish.memory_mib, *on_node[2:])
    return StepClaim(
        wish.whole,
        on_node if any(on_node) else (),
        by_task if any(by_task) else (),
        wish.memory_per_cpu_mib,
    )


class _Where(NamedTuple):
    """Parts of a running job, and the claim of a step to them."""

    state: State
    job: Job
    attempt: Attempt
    parts: Sequence[int]
    claim: StepClaim | None


def _lay_out(
    where: _Where, programs: Sequence[StepProgram], demands: Sequence[StepDemand]
) -> list[Laid] | None:
    """Each program laid out in its part; None while other steps have too much. Raises `Refused` for what never fits."""
    state, job, attempt, parts, claim = where
    has_parts = user_parts(job.spec) > 1
    spans: dict[int, list[Span]] = {component: [] for component in parts}
    for span in spans_to_come(attempt):
        if span.component in spans and span.node in attempt.held:
            spans[span.component].append(span)
    if demands[0].node_names:
        spans = _on_named(state, job.job_id, demands[0].node_names, spans)
    if attempt.is_resized:
        programs = (_of_now(programs[0], demands[0], spans[0]),)
    taken = state.step_use.taken.get(job.job_id, {})
    found: list[Laid] = []
    is_free = True
    for component, program, demand in zip(parts, programs, demands, strict=True):
        text = f"part {component}: " if has_parts else ""
        wanted = Wanted(program, claim, demand.nodes_open, text)
        laid = lay_out(spans[component], wanted, taken)
        is_free &= laid is not None
        found += [laid] if laid is not None else []
    return found if is_free else None


def _demands(message: CreateStep) -> list[StepDemand]:
    """The size of the step in each of its parts."""
    return [
        StepDemand(one.tasks, one.nodes, message.tasks_open, message.nodes_open, message.node_names)
        for one in programs_of(message)
    ]


def _grants(
    job_id: int, first: int, parts: Sequence[int], laid: Sequence[Laid], first_rank: int = 0, total: int = 0
) -> list[facts.StepGranted]:
    """The facts that give its layout to each of the steps that form one. `total`: the ranks of all cells together."""
    counts = [sum(tasks for _, tasks in one.layout) for one in laid]
    together = len(parts) > 1
    return [
        facts.StepGranted(
            job_id,
            first + at,
            one.layout,
            rank_first=first_rank + sum(counts[:at]),
            tasks_total=sum(counts) if together else total,
            others=tuple([(part, other.layout) for part, other in zip(parts[1:], laid[1:], strict=True)])
            if not at
            else (),
            takes=one.takes,
            devices=one.devices,
        )
        for at, one in enumerate(laid)
    ]


def _begun(created: facts.StepCreated, grant: facts.StepGranted) -> facts.StepCreated:
    """The fact of a step that does not wait."""
    return replace(
        created,
        layout=grant.layout,
        rank_first=grant.rank_first,
        tasks_total=grant.tasks_total,
        others=grant.others,
        demand=None,
        takes=grant.takes,
        devices=grant.devices,
    )


def _named(state: State, layout: Layout) -> tuple[tuple[str, int], ...]:
    return tuple([(state.nodes[node].name, tasks) for node, tasks in layout])


def next_turn(state: State, job_id: int) -> list[facts.Fact]:
    """The facts that give the first step that waits its turn; none while it has to wait on.

    A step that fits into its job no more fails, so that those behind it have their turn.
    """
    job = state.find_job(job_id)
    waiting = state.step_use.waiting.get(job_id)
    if job is None or not waiting or _why_not(job) is not None:
        return []
    assert job.attempt is not None
    steps = step_parts(state.steps, state.steps[job_id, waiting[0]])
    launches = [step.launch for step in steps]
    parts = [launch.component for launch in launches]
    demands = [launch.demand for launch in launches if launch.demand is not None]
    programs = [
        StepProgram(launch.argv, demand.tasks, demand.nodes, launch.cpus_per_task)
        for launch, demand in zip(launches, demands, strict=True)
    ]
    where = _Where(state, job, job.attempt, parts, launches[0].claim)
    try:
        laid = _lay_out(where, programs, demands)
        if laid is None:
            return []
        tasks = sum(count for one in laid for _, count in one.layout)
        if problem := input_problem(launches[0].input, tasks):
            raise Refused(RefusalCode.INVALID, problem)
    except Refused as refused:
        why = ((job.attempt.first, refused.text),)
        return [facts.StepAnswered(job_id, step.step, (), why) for step in steps]
    return [*_grants(job_id, steps[0].step, parts, laid)]


def _on_named(
    state: State, job_id: int, names: Sequence[str], spans: Mapping[int, Sequence[Span]]
) -> dict[int, list[Span]]:
    """Those of the spans of each part that are on the named nodes. Raises `Refused` for a node that the job has not."""
    named = set(names)
    found = {
        part: [span for span in own if state.nodes[span.node].name in named] for part, own in spans.items()
    }
    there = {state.nodes[span.node].name for own in found.values() for span in own}
    if missing := sorted(named - there):
        text = (
            f"--nodelist: {missing[0]} is none of the nodes of job {job_id}: name some of those that it has"
        )
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


def _of_now(program: StepProgram, demand: StepDemand, spans: Sequence[Span]) -> StepProgram:
    """The program of a step in a job whose nodes have changed: what its user left open is as many as there are now."""
    tasks = sum([span.tasks for span in spans]) if demand.tasks_open else program.tasks
    return replace(program, tasks=tasks, nodes=0 if demand.nodes_open else program.nodes)


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
    if (refused := _why_not(job)) is not None:
        raise refused
    assert job.attempt is not None
    return job, job.attempt


def _why_not(job: Job) -> Refused | None:
    """The reason why no step of the job starts now; None: they do."""
    attempt = job.attempt
    if attempt is None or (job.state not in STARTED and job.state is not JobState.LAUNCHING):
        return not_running(job)
    if job.state is JobState.SUSPENDED:
        text = f"job {job.job_id} is suspended: steps start when it has been resumed"
        return Refused(RefusalCode.CONFLICT, text)
    if attempt.stop is not None:
        return Refused(RefusalCode.CONFLICT, f"job {job.job_id} is being ended")
    if (attempt.phase is AttemptPhase.PREPARING and attempt.prepares_first) or attempt.awaits_prolog:
        # If a node cannot be prepared the job starts elsewhere at once: nothing of it may run by then.
        text = f"job {job.job_id} is still being prepared: try again in a moment"
        return Refused(RefusalCode.CONFLICT, text)
    return None


def step_parts(steps: Mapping[tuple[int, int], Step], step: Step) -> list[Step]:
    """All steps that form one with this one, a step for each part; it alone where it stands alone."""
    first = step.launch.first
    if first < 0:
        return [step]
    count = 1 + len(steps[step.job_id, first].launch.others)
    return [steps[step.job_id, number] for number in range(first, first + count)]


def joint_state(parts: Iterable[Step]) -> StepState:
    """The state of a step over several parts: failed where one is, waiting or launching while one does."""
    states = {part.state for part in parts}
    for state in (StepState.FAILED, StepState.WAITING, StepState.LAUNCHING, StepState.RUNNING):
        if state in states:
            return state
    return StepState.CANCELLED if StepState.CANCELLED in states else StepState.ENDED


def on_finish(state: State, message: FinishStep) -> tuple[list[facts.Fact], Changed]:
    """The step's own command saw it end; in all its parts."""
    job = state.find_job(message.job_id)
    step = state.steps.get((message.job_id, message.step))
    if job is None or step is None or not Visibility(state, message.by).job(job):
        return [], Changed(0)
    check_owned(message.by, job)
    code = message.exit_code, message.signal
    found: list[facts.Fact] = [
        facts.StepFinished(one.job_id, one.step, *code)
        for one in step_parts(state.steps, step)
        if one.state not in OVER or _is_corrected(one, code)
    ]
    return found, Changed(1 if found else 0)


def _is_corrected(step: Step, code: tuple[int, int]) -> bool:
    """Check whether the nodes have told of the step's end before its command, which knows how all of its parts ended."""
    return step.state is StepState.ENDED and code != (step.exit_code, step.signal) == step.worst


def on_tasks_over(state: State, report: TasksOver) -> list[facts.Fact]:
    """A node has no task of a step left."""
    step = state.steps.get((report.job_id, report.step))
    if step is None or step.attempt != report.attempt or report.node not in step.holding:
        return []
    end = report.end
    # A node's word counts as far as the numbers are possible ones.
    exit_code, signal = min(max(end.exit_code, 0), 255), min(max(end.signal, 0), SIGNAL_MAX)
    code = (128 + signal, signal) if signal else (exit_code, 0)
    return [facts.TasksEnded(report.job_id, report.step, (report.node,), *code)]
