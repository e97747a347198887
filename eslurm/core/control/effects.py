"""Effects of facts, and the effects that the present state still owes.

An effect's identity is (owner, revision of its fact, 0): each fact has at most one. Every durable one can be derived again
from the state (`owed`), so a restarted controller owes exactly what the dead one owed; nodes recognise the repeated
identity.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from eslurm.core.control.gateway_steps import gateway_step, step_spans
from eslurm.core.model import facts, ranges
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.guests import Guest
from eslurm.core.model.hostlist import fold
from eslurm.core.model.job import Attempt, AttemptMore, Job, JobSpec, Span
from eslurm.core.model.job_states import AttemptPhase
from eslurm.core.model.protocol import (
    AskCores,
    Body,
    End,
    Exclude,
    JobLaunch,
    LaunchStep,
    NodeGroup,
    Prepare,
    SetTime,
    Signal,
    Start,
    Suspend,
)
from eslurm.core.model.request import Request
from eslurm.core.model.step import StepState
from eslurm.core.model.step_claim import StepClaim
from eslurm.core.model.step_key import BATCH_STEP
from eslurm.core.resources.vector import MEMORY_MIB, RESOURCES
from eslurm.core.state.allocation_amounts import limit_s, spans_to_come
from eslurm.core.state.cluster import State, attempts_of
from eslurm.core.state.endings import grace_s

STRAY_GRACE_S = 2.0
"""Seconds that processes left on a job's other nodes get when its script has ended."""


class Effect(msgspec.Struct, frozen=True, gc=False):
    """Send `body` to `nodes` (in allocation order) and return the result."""

    revision: int
    nodes: tuple[int, ...]
    body: Body
    owed: bool = True


def effect_of(state: State, fact: facts.Fact) -> Effect | None:
    """The effect of the fact just applied, or None."""
    match fact:
        case facts.JobSignalled():
            return _signal(state, fact)
        case facts.OrphanFound():
            body = End(fact.job_id, fact.attempt, 0.0, "orphan")
            return Effect(state.revision, (fact.number,), body, owed=False)
        case facts.CoresAsked():
            ask = AskCores(fact.job_id, fact.attempt, fact.cores)
            return Effect(state.revision, (fact.node,), ask, owed=False)
        case (
            facts.JobPlaced()
            | facts.NodesPrepared()
            | facts.StopRequested()
            | facts.AttemptSuspended()
            | facts.TimeChanged()
            | facts.AttemptEnded()
            | facts.StepCreated()
            | facts.StepGranted()
            | facts.PartFinished()
            | facts.JobShrunk()
            | facts.GrowthPlaced()
            | facts.GrowthFailed()
            | facts.JobFinished()
            | facts.GatewaysStaged()
            | facts.ControllerPhaseEnded()
            | facts.CoresExcluded()
        ):
            return find_owed(state, state.revision)
        case _:
            return None


def owed(state: State) -> list[Effect]:
    """All effects that the state still owes, oldest first, for a new leader to send again."""
    revisions = sorted((*state.owed, *state.step_owed))
    return [effect for revision in revisions if (effect := find_owed(state, revision)) is not None]


class Owing(enum.Enum):
    """The kind of an attempt's owed effect under one revision."""

    LAUNCH = "launch"
    START = "start"
    RELEASE = "release"
    STOP = "stop"
    SUSPEND = "suspend"
    """Or to let it go on: whichever was said last."""
    SET_TIME = "set_time"
    FINISH = "finish"
    """End what is left on the nodes of finished parts, or on those that the job gives back."""
    EXCLUDE = "exclude"
    """Leave cores to others, or take them back."""
    GATEWAYS = "gateways"
    """The command of the present stage of its gateways."""
    JOIN = "join"
    """The launch on the nodes of its growth."""


def find_owing(state: State, revision: int) -> tuple[Job, Attempt, Owing] | None:
    """The debtor and the kind of an owed effect; None if it is settled, or a step's."""
    job_id = state.owed.get(revision)
    if job_id is None:
        return None
    job = state.get_job(job_id)
    for attempt in attempts_of(job):
        if attempt.phase is AttemptPhase.PREPARING and attempt.placed_revision == revision:
            return job, attempt, Owing.LAUNCH
        if attempt.gateway is not None and attempt.gateway.revision == revision:
            return job, attempt, Owing.GATEWAYS
        if attempt.phase is AttemptPhase.STARTING and attempt.owed_revision == revision:
            return job, attempt, Owing.START
        if attempt.phase is AttemptPhase.RELEASING and attempt.owed_revision == revision:
            return job, attempt, Owing.RELEASE
        if attempt.stop is not None and attempt.stop_revision == revision:
            return job, attempt, Owing.STOP
        if attempt.suspend_revision == revision:
            return job, attempt, Owing.SUSPEND
        if attempt.time_revision == revision:
            return job, attempt, Owing.SET_TIME
        if attempt.more is not None and attempt.more.part_revision == revision:
            return job, attempt, Owing.FINISH
        if attempt.growth is not None and attempt.growth.revision == revision:
            return job, attempt, Owing.JOIN
        if any(one.revision == revision for one in attempt.exclusions):
            return job, attempt, Owing.EXCLUDE
    return None


def owed_nodes(state: State, revision: int) -> frozenset[int]:
    """The nodes to which it is still owed; empty if it is settled."""
    if (key := state.step_owed.get(revision)) is not None:
        return state.steps[key].waiting
    found = find_owing(state, revision)
    if found is None:
        return frozenset()
    _, attempt, owing = found
    match owing:
        case Owing.LAUNCH:
            # Those that run their prolog have it, and report.
            return attempt.waiting - attempt.preparing if attempt.more is not None else attempt.waiting
        case Owing.START | Owing.SET_TIME:
            return frozenset((attempt.first,))
        case Owing.SUSPEND:
            return attempt.informing
        case Owing.FINISH:
            return attempt.leaving
        case Owing.EXCLUDE:
            return frozenset(one.node for one in attempt.exclusions if one.revision == revision)
        case Owing.GATEWAYS:
            return attempt.gateway.waiting if attempt.gateway is not None else frozenset()
        case Owing.JOIN:
            growth = attempt.growth
            return growth.waiting - growth.preparing if growth is not None else frozenset()
        case _:
            return attempt.held


def find_owed(state: State, revision: int) -> Effect | None:
    """The owed effect of that revision, for the nodes that have not answered yet; None if it is settled."""
    if (key := state.step_owed.get(revision)) is not None:
        return _step_effect(state, *key)
    found = find_owing(state, revision)
    if found is None:
        return None
    job, attempt, owing = found
    body: Body
    match owing:
        case Owing.LAUNCH:
            body = Prepare(job_launch(state, job, attempt), start=not attempt.prepares_first)
        case Owing.JOIN:
            body = Prepare(job_launch(state, job, attempt, with_joining=True), start=False)
        case Owing.START:
            body = Start(job.job_id, attempt.number, job_launch(state, job, attempt))
        case Owing.FINISH if not attempt.has_parts:
            # Its steps on a node that it gives back get the signal, and the time of any other end.
            body = End(job.job_id, attempt.number, state.config.kill_grace_s, "released")
        case Owing.RELEASE | Owing.FINISH:
            body = End(job.job_id, attempt.number, STRAY_GRACE_S, "released")
        case Owing.STOP:
            assert attempt.stop is not None
            body = End(job.job_id, attempt.number, grace_s(state, attempt.stop), attempt.stop.cause.value)
        case Owing.SUSPEND:
            body = Suspend(job.job_id, attempt.number, resume=not attempt.suspended_us)
        case Owing.SET_TIME:
            body = SetTime(job.job_id, attempt.number, limit_s(job, attempt))
        case Owing.EXCLUDE:
            wanted = next(one.wanted for one in attempt.exclusions if one.revision == revision)
            body = Exclude(job.job_id, attempt.number, wanted)
        case Owing.GATEWAYS:
            body = _gateway_step(state, job, attempt)
    return Effect(revision, _ordered(attempt, owed_nodes(state, revision)), body)


class Described(Protocol):
    """The part of the state, or of the committed view, that a launch needs beside its job."""

    @property
    def config(self) -> ClusterConfig: ...

    def node_names(self, numbers: Iterable[int]) -> list[str]:
        """Names of nodes for output."""
        ...


def job_launch(state: Described, job: Job, attempt: Attempt, *, with_joining: bool = False) -> JobLaunch:
    """The data of a launch for the attempt's nodes (E-06, "job loading"): all that it still has."""
    spans = spans_to_come(attempt, with_joining=with_joining)
    spec = job.spec
    array = spec.array.tasks if spec.array is not None and job.array_job_id else ()
    # What grows with dependencies, named nodes or ranges of tasks, and what nodes do not look at.
    own = tuple([Request(cpus_per_task=request.cpus_per_task) for request in spec.components])
    spec = msgspec.structs.replace(spec, components=own, dependencies=(), array=None, retry=None)
    devices, device_parts = _devices(state, spans)
    return JobLaunch(
        job_id=job.job_id,
        attempt=attempt.number,
        spec=spec,
        groups=node_groups(spans),
        node_names=fold(state.node_names(dict.fromkeys([span.node for span in spans]))),
        kill_grace_s=state.config.kill_grace_s,
        orphan_timeout_s=state.config.orphan_timeout_s if spec.requeue else 0.0,
        array_job_id=job.array_job_id,
        array_task=job.array_task,
        array_count=ranges.count(array),
        array_min=array[0][0] if array else 0,
        array_max=array[-1][1] if array else 0,
        devices=devices,
        device_parts=device_parts,
        phases=attempt.phases,
        guests=_guests_of(job, attempt),
    )


def _guests_of(job: Job, attempt: Attempt) -> tuple[Guest, ...]:
    guests = job.guests
    return guests.guests if guests is not None and guests.attempt == attempt.number else ()


def _gateway_step(state: State, job: Job, attempt: Attempt) -> LaunchStep:
    assert attempt.gateway is not None
    launch = _without_arguments(job_launch(state, job, attempt))
    groups = node_groups(step_spans(job.spec, attempt, attempt.gateway))
    return gateway_step(state, job.spec, attempt, launch, groups)


def _without_arguments(launch: JobLaunch) -> JobLaunch:
    return msgspec.structs.replace(launch, spec=msgspec.structs.replace(launch.spec, arguments=()))


def _memory_mib(claim: StepClaim | None) -> int:
    """The memory that a claim names for each node; 0: none."""
    return sum(claim.on_node[MEMORY_MIB : MEMORY_MIB + 1]) if claim is not None else 0


def with_devices(state: State, launch: JobLaunch, step: facts.StepCreated) -> JobLaunch:
    """The launch for a step: of a resource that its claim names it sees its own devices only."""
    if not step.devices:
        return launch
    names = _resource_names(state)
    own = {(node, names[index]): numbers for node, index, numbers in step.devices}
    parts = launch.device_parts or (0,) * len(launch.devices)
    devices = tuple(
        [
            (node, name, own.get((node, name), numbers) if part == step.component else numbers)
            for (node, name, numbers), part in zip(launch.devices, parts, strict=True)
        ]
    )
    return msgspec.structs.replace(launch, devices=devices)


def _resource_names(state: Described) -> list[str]:
    return [*RESOURCES, *(one.name for one in state.config.resources if not one.wide_total)]


def _devices(
    state: Described, spans: Sequence[Span]
) -> tuple[tuple[tuple[int, str, tuple[int, ...]], ...], tuple[int, ...]]:
    """(node, resource, numbers) of numbered devices, and the component of each (one part: none)."""
    names: list[str] = []
    found = []
    components = []
    for span in spans:
        for index, numbers in span.devices:
            names = names or _resource_names(state)
            found.append((span.node, names[index], numbers))
            components.append(span.component)
    return tuple(found), tuple(components) if spans[-1].component else ()


def node_groups(spans: Iterable[Span]) -> tuple[NodeGroup, ...]:
    """Spans folded into runs of consecutive nodes on which one component holds the same, in order."""
    groups: list[tuple[list[tuple[int, int]], tuple[int, ...], int, int]] = []
    for span in spans:
        if groups and groups[-1][1:] == (span.amounts, span.tasks, span.component):
            runs = groups[-1][0]
            first, length = runs[-1]
            if span.node == first + length:
                runs[-1] = (first, length + 1)
            else:
                runs.append((span.node, 1))
        else:
            groups.append(([(span.node, 1)], span.amounts, span.tasks, span.component))
    return tuple(NodeGroup(tuple(runs), amounts, tasks, part) for runs, amounts, tasks, part in groups)


def _ordered(attempt: Attempt, nodes: frozenset[int]) -> tuple[int, ...]:
    return tuple(node for node in attempt.nodes if node in nodes)


def _signal(state: State, fact: facts.JobSignalled) -> Effect | None:
    found = state.find_attempt(fact.job_id, fact.attempt)
    if found is None:
        return None
    nodes: tuple[int, ...] = (found[1].first,)
    if fact.step != BATCH_STEP:
        step = state.steps.get((fact.job_id, fact.step))
        if step is None:
            return None
        nodes = step.nodes
    body = Signal(fact.job_id, fact.attempt, fact.signal, fact.step)
    return Effect(state.revision, nodes, body, owed=False)


def _step_effect(state: State, job_id: int, number: int) -> Effect | None:
    step = state.steps[(job_id, number)]
    if step.state is not StepState.LAUNCHING:
        return None
    launch = step.launch
    shared = _shared_by_steps(state, job_id, step.attempt, launch.first)
    spans = _step_spans(launch.component, launch.layout, launch.cpus_per_task)
    body = LaunchStep(
        job_id=job_id,
        attempt=step.attempt,
        step=number,
        groups=node_groups(spans),
        argv=launch.argv,
        environment_hash=launch.environment_hash,
        work_dir=launch.work_dir,
        endpoint=launch.endpoint,
        cookie=launch.cookie,
        tasks=step.tasks,
        cpus_per_task=launch.cpus_per_task,
        launch=with_devices(state, shared.launch, launch) if shared is not None else None,
        component=launch.component,
        rank_first=launch.rank_first,
        tasks_total=launch.tasks_total,
        first=launch.first,
        whole=shared.whole if shared is not None else (),
        joint=launch.joint,
        input=launch.input,
        mpi=launch.mpi,
        is_counted=launch.is_counted,
        time_limit_s=launch.time_limit_s,
        memory_mib=_memory_mib(launch.claim),
        files=launch.files,
        memory_per_task_mib=launch.claim.by_cpu_mib * launch.cpus_per_task if launch.claim is not None else 0,
    )
    return Effect(step.revision, tuple(node for node in step.nodes if node in step.waiting), body)


class _SharedBySteps(NamedTuple):
    """The common part of the launches of a step's parts, and its origin."""

    key: tuple[int, int, int]
    made_of: tuple[JobSpec, tuple[Span, ...], AttemptMore | None, ClusterConfig]
    launch: JobLaunch
    whole: tuple[NodeGroup, ...]


def _shared_by_steps(state: State, job_id: int, number: int, first: int) -> _SharedBySteps | None:
    """The common of the step whose first part is `first`; None when the attempt is over. The last one is kept."""
    held = state.find_attempt(job_id, number)
    if held is None:
        return None
    job, attempt = held
    key, made_of = (job_id, number, first), (job.spec, attempt.spans, attempt.more, state.config)
    known = state.memos.get(_SharedBySteps)
    if (
        isinstance(known, _SharedBySteps)
        and known.key == key
        and all(map(operator.is_, known.made_of, made_of))
    ):
        return known
    launch = _without_arguments(job_launch(state, job, attempt))
    found = _SharedBySteps(key, made_of, launch, _whole_step(state, job_id, first) if first >= 0 else ())
    state.memos[_SharedBySteps] = found
    return found


def _step_spans(component: int, layout: Iterable[tuple[int, int]], cpus_per_task: int) -> list[Span]:
    return [Span(node, (tasks * cpus_per_task,), tasks, component=component) for node, tasks in layout]


def _whole_step(state: State, job_id: int, first: int) -> tuple[NodeGroup, ...]:
    """Nodes and tasks of a step over several parts. Its first part has the layout of all: it may be the only one yet."""
    launch = state.steps[(job_id, first)].launch
    layouts = ((launch.component, launch.layout), *launch.others)
    return node_groups(span for part, layout in layouts for span in _step_spans(part, layout, 1))
