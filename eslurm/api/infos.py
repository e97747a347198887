"""From records of the core to the messages that commands show: for the controller and for a replay.

Reads only; costs are per record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from eslurm.api.core_infos import CoresShown, add_cores, shares_cores
from eslurm.compat.dependencies import format_condition
from eslurm.core.explain.packs import starts_after
from eslurm.core.explain.retries import retry_text
from eslurm.core.model import ranges
from eslurm.core.model.config import ClusterConfig, Module, Partition
from eslurm.core.model.controller_phases import UNDER_WAY, ControllerPhase, PhaseStage
from eslurm.core.model.forecast import Forecast
from eslurm.core.model.gateways import GatewayStage
from eslurm.core.model.growth import Growth
from eslurm.core.model.guests import Guests, GuestStage
from eslurm.core.model.hostlist import fold
from eslurm.core.model.job import PASSED, Attempt, Job, JobSpec, Span
from eslurm.core.model.job_states import AttemptPhase, JobState
from eslurm.core.model.messages import Amounts, PartGivenBack, Resized
from eslurm.core.model.node import Node
from eslurm.core.model.node_health import KIND as HEALTH
from eslurm.core.model.partition import DOWN, STARTING, UP
from eslurm.core.model.parts import gateway_nodes, partition_of, spans_by_part, user_parts
from eslurm.core.model.ranges import Ranges
from eslurm.core.model.request import Request
from eslurm.core.model.retry import RetryRequest
from eslurm.core.model.step_key import EPILOG
from eslurm.core.model.transfer import Transfer, TransferStage
from eslurm.core.model.units import SECOND_US
from eslurm.core.model.wording import counted
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.resources.vector import WIDTH, subtract
from eslurm.core.state.allocation_amounts import limit_s, spans_to_come
from eslurm.core.state.faults import standing
from eslurm.core.state.pending_reason import Startable, pending_reason
from eslurm.core.state.rows import decode_accounted
from eslurm.core.state.view import View
from eslurm.ports.store import AttemptRow
from eslurm.v1 import controller_pb2 as pb

_PASSED = tuple(name for name in PASSED if name in pb.JobInfo.DESCRIPTOR.fields_by_name)
_RANGES_TOLD = 1000
LOGIN = "LOGIN"
"""Flag of a login host."""
REASONS = {
    "priority": "Priority",
    "resources": "Resources",
    "nodes_unavailable": "ReqNodeNotAvail",
    "partition_down": "PartitionDown",
    "not_examined": "Priority",
    "limit": "ResourceLimit",
    "pool": "KeptFree",
    "licence": "Licenses",
    "reservation": "Reservation",
    "deadline": "DeadLine",
    "start_missed": "StartMissed",
    "dependency": "Dependency",
    "begin_time": "BeginTime",
}


def task_list(tasks: Ranges, limit: int) -> str:
    """An array's waiting tasks in text form: 0-15%4; empty when none waits."""
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in tasks)
    return f"{text}%{limit}" if limit and text else text


def resource_text(*requests: Request) -> str:
    """Resources besides cores and memory, in sum: `gpu:2,licence/matlab:1`."""
    sums: dict[str, int] = {}
    for request in requests:
        wanted = [(name, items * max(request.nodes_min, 1)) for name, items in request.per_node]
        wanted += [(name, items * request.tasks) for name, items in request.per_task]
        wanted += [(name, items * chunk.count) for chunk in request.chunks for name, items in chunk.resources]
        wanted += [(f"licence/{name}", items) for name, items in request.wide]
        for name, items in wanted:
            sums[name] = sums.get(name, 0) + items
    return ",".join(f"{name}:{items}" for name, items in sums.items())


class Shown(Startable, CoresShown, Protocol):
    """The inputs of a job's line beside its record: the committed view, or a replayed state."""

    @property
    def jobs(self) -> Mapping[int, Job]: ...

    @property
    def now_us(self) -> int: ...


def job_info(shown: Shown, job: Job, why: Why | None, priority: int | None = None) -> pb.JobInfo:
    """One job. `why` is the last plan's reason, if it was examined, and `priority` its priority in plans."""
    spec = job.spec
    request = spec.components[0]
    info = pb.JobInfo(
        job_id=job.job_id,
        array_job_id=job.array_job_id,
        name=spec.name,
        user=spec.user.name,
        uid=spec.user.uid,
        state=job.state.value,
        priority=job.priority if priority is None else priority,
        submitted_us=job.submitted_us,
        begin_us=spec.begin_us,
        time_limit_s=limit_s(job, job.attempt) if job.attempt is not None else spec.time_limit_s,
        tasks=request.tasks,
        exit_code=job.exit_code,
        exit_signal=job.exit_signal,
        exit_text=job.exit_text,
        attempts=job.attempts,
        work_dir=spec.work_dir,
        output=spec.output,
        error=spec.error,
        dependencies=_dependencies(shown, job) if job.open else "",
        requeue=spec.requeue,
        cron=spec.cron,
        nice=spec.nice,
        deadline_us=spec.deadline_us,
        resources=resource_text(request),
        constraint=request.constraint,
        trace=spec.trace.hex(),
        details=_details(job),
        request=_request_message(request),
    )
    for name in _PASSED:
        setattr(info, name, getattr(spec, name))
    if job.state not in (JobState.PENDING, JobState.LAUNCHING):
        # What an earlier attempt did is no news of a job that waits again.
        info.started_us, info.ended_us, info.paused_us = job.started_us, job.ended_us, job.paused_us
    if job.array_task >= 0:
        info.array_task = job.array_task
    if job.tasks_left is not None:
        info.array_tasks_left = task_list(job.tasks_left, spec.array.limit if spec.array is not None else 0)
        info.tasks_running = job.tasks_running
        info.tasks_done = ranges.count(job.tasks_ok)
        info.tasks_failed = ranges.count(job.tasks_failed)
    attempt = job.attempt
    if attempt is not None:
        if not attempt.ended_us:
            info.paused_us, info.suspended_us = attempt.paused_us, attempt.suspended_us
        spans = spans_to_come(attempt)
        if spec.gateway is not None:
            count = user_parts(spec)
            spans = [span for span in spans if span.component < count]
        numbers = dict.fromkeys([span.node for span in spans])
        info.nodes = len(numbers)
        info.cpus, info.memory_mib = _held(spans)
        info.node_names = fold(shown.node_names(numbers))
        lost = attempt.gone.difference(node for _, node in attempt.given)
        if lost:
            names = fold(shown.node_names(sorted(lost)))
            info.reason_text = f"without {names}, lost since its start"
        elif attempt.finished:
            info.reason_text = f"without {_parts(attempt.finished)}, given back"
        elif attempt.leaving and attempt.phase is AttemptPhase.RUNNING:
            info.reason_text = f"gives back {fold(shown.node_names(sorted(attempt.leaving)))}"
        elif attempt.growth is not None and attempt.phase is AttemptPhase.RUNNING:
            info.reason_text = _growth_text(shown, attempt.growth)
        elif attempt.phases:
            info.reason_text = _phase_text(shown, attempt)
        if attempt.controller is not None:
            info.reason_text = _controller_phase_text(shown, attempt.controller) or info.reason_text
        if spec.gateway is not None:
            info.gateway_names = fold(shown.node_names(gateway_nodes(spec, attempt)))
            texts = (info.reason_text, _gateway_text(shown, spec, attempt))
            info.reason_text = "; ".join(filter(None, texts))
    else:
        info.nodes, info.cpus, info.memory_mib = _asked(request)
    if spec.gateway is not None:
        info.gateways = spec.gateway.count
    if user_parts(spec) > 1:
        _add_parts(shown, job, info)
    if job.pack is not None:
        info.pack_id, info.pack_index, info.pack_size = job.pack.pack_id, job.pack.index, job.pack.count
        info.delay_s = job.pack.delay_us // SECOND_US
        info.pack_start_us = job.pack.anchor_us
        info.pack_cancels, info.pack_failed = job.pack.cancels, job.pack.failed
    if job.grows is not None:
        info.grows = job.grows.job_id
    if attempt is not None and attempt.growth is not None:
        info.growth_id = attempt.growth.growth_id
    if job.transfer is not None:
        info.home = job.home
        info.owner = "" if job.home else job.transfer.cell
    if job.guests is not None:
        info.span = True
        if job.guests.stage is GuestStage.HELD:
            # Its request is for its own part alone.
            info.nodes += sum(guest.nodes for guest in job.guests.guests)
        info.guests.extend(
            pb.GuestInfo(cell=one.cell, nodes=one.nodes, job_id=one.job_id, node_list=one.node_list)
            for one in job.guests.guests
        )
    if job.guest_of is not None:
        info.guest_of = f"{job.guest_of.job_id}@{job.guest_of.home}"
    if spec.retry is not None:
        _add_retries(job, spec.retry, info)
    info.first_estimate_s = job.first_estimate_s
    if job.forecast is not None:
        info.forecast.CopyFrom(forecast_message(job.forecast))
    if attempt is not None and shares_cores(job):
        add_cores(shown, job, attempt, info)
    if job.state is JobState.PENDING:
        _explain(shown, job, why, info)
    elif job.state is JobState.SUSPENDED:
        info.reason_text = "; ".join(filter(None, (job.reason_text, info.reason_text)))
    elif job.transfer is not None and job.state is JobState.TRANSFERRED:
        info.reason_text = transfer_text(job.transfer)
    return info


def _details(job: Job) -> pb.JobDetails:
    """The rest of a job's record; of an array with many gaps only the beginning of the failed tasks."""
    failed = task_list(job.tasks_failed[:_RANGES_TOLD], 0) if job.is_array else ""
    return pb.JobDetails(gid=job.spec.user.gid, input=job.spec.input, tasks_failed=failed)


def _request_message(request: Request) -> pb.ResourceRequest:
    """A part's request as tasks on nodes; the constraint has a field of its own, and chunks are left out."""
    return pb.ResourceRequest(
        tasks=request.tasks,
        cpus_per_task=request.cpus_per_task,
        nodes_min=request.nodes_min,
        nodes_max=request.nodes_max,
        tasks_per_node=request.tasks_per_node,
        memory_per_node_mib=request.memory_per_node_mib,
        memory_per_cpu_mib=request.memory_per_cpu_mib,
        exclusive=request.exclusive,
        include=request.include,
        exclude=request.exclude,
        per_node=[pb.ResourceAmount(name=name, items=items) for name, items in request.per_node],
        per_task=[pb.ResourceAmount(name=name, items=items) for name, items in request.per_task],
        wide=[pb.ResourceAmount(name=name, items=items) for name, items in request.wide],
    )


def _add_retries(job: Job, wish: RetryRequest, info: pb.JobInfo) -> None:
    """Add the retries that the job may have, those that it had, and what they wasted."""
    info.retry_on = str(wish)
    record = job.retry
    if record is None:
        return
    info.retries = record.count
    info.retry_text = retry_text(job)
    info.wasted_s = record.wasted_us // SECOND_US
    info.wasted_cpu_s = record.wasted_cpu_us // SECOND_US


def _held(spans: Iterable[Span]) -> tuple[int, int]:
    """Cores and memory of spans."""
    cores = memory_mib = 0
    for span in spans:
        cores += span.amounts[0]
        if len(span.amounts) > 1:
            memory_mib += span.amounts[1]
    return cores, memory_mib


def _asked(request: Request) -> tuple[int, int, int]:
    """Nodes, cores and memory of a request that waits."""
    nodes, cores = max(request.nodes_min, 1), request.tasks * request.cpus_per_task
    return nodes, cores, request.memory_per_node_mib * nodes or request.memory_per_cpu_mib * cores


def _add_parts(shown: Shown, job: Job, info: pb.JobInfo) -> None:
    """Add a line for each part; the job's own numbers become their sums."""
    spec = job.spec
    spans = spans_by_part(spec, job.attempt) if job.attempt is not None else ()
    ended = (
        dict(job.attempt.more.finished) if job.attempt is not None and job.attempt.more is not None else {}
    )
    requests = spec.components[: user_parts(spec)]
    for number, request in enumerate(requests):
        part = info.parts.add(
            part=number,
            partition=partition_of(spec, number),
            tasks=request.tasks,
            resources=resource_text(request),
            constraint=request.constraint,
        )
        if job.attempt is not None:
            held = [
                span for span in spans[number] if number not in ended and span.node not in job.attempt.gone
            ]
            part.ended_us = ended.get(number, 0)
            part.nodes = len(held)
            part.cpus, part.memory_mib = _held(held)
            part.node_names = fold(shown.node_names([span.node for span in held]))
        else:
            part.nodes, part.cpus, part.memory_mib = _asked(request)
    info.tasks = sum([part.tasks for part in info.parts])
    info.resources = resource_text(*requests)
    if len({request.constraint for request in requests}) > 1:
        info.constraint = ""
    if not spans:
        info.nodes = sum([part.nodes for part in info.parts])
        info.cpus = sum([part.cpus for part in info.parts])
        info.memory_mib = sum([part.memory_mib for part in info.parts])


def _parts(numbers: Sequence[int]) -> str:
    """`part 2`, `parts 1, 2`."""
    listed = ", ".join(map(str, sorted(numbers)))
    return f"part {listed}" if len(numbers) == 1 else f"parts {listed}"


def _amounts(one: Amounts) -> pb.Amounts:
    return pb.Amounts(nodes=one.nodes, node_names=one.node_names, cpus=one.cpus, memory_mib=one.memory_mib)


def given_back(answer: PartGivenBack) -> pb.FinishPartReply:
    """The answer to a part that is given back."""
    return pb.FinishPartReply(
        job_id=answer.job_id,
        part=answer.part,
        before=_amounts(answer.before),
        after=_amounts(answer.after),
        leaving=answer.leaving,
        busy=answer.busy,
        steps=answer.steps,
    )


def resized(answer: Resized) -> pb.ResizeJobReply:
    """The answer to a change of a running job's nodes."""
    return pb.ResizeJobReply(
        job_id=answer.job_id,
        before=_amounts(answer.before),
        after=_amounts(answer.after),
        leaving=answer.leaving,
        steps=answer.steps,
        growth_id=answer.growth_id,
        more=answer.more,
        withdrawn=answer.withdrawn,
    )


def _growth_text(shown: Shown, growth: Growth) -> str:
    """`waits for 2 nodes more: eswhy 57`, or `gets cn[3-4]` while they are being prepared."""
    if growth.joining:
        return f"gets {fold(shown.node_names(sorted(growth.joining)))}"
    record = shown.jobs.get(growth.growth_id)
    count = record.spec.components[0].nodes_max if record is not None else 0
    if record is not None and record.grows is not None and record.grows.is_own:
        return f"takes up to {counted(count, 'node')} more"
    return f"waits for {counted(count, 'node')} more: eswhy {growth.growth_id}"


def _gateway_text(shown: Shown, spec: JobSpec, attempt: Attempt) -> str:
    """The gateways' stage before the script starts, and the daemons that ended since."""
    gateway = attempt.gateway
    if gateway is None:
        return ""
    if gateway.ended:
        return "; ".join([f"gateway {name}: {text}" for name, text in _named(shown, gateway.ended)])
    match gateway.stage:
        case GatewayStage.DAEMONS:
            count = len(gateway_nodes(spec, attempt))
            return f"the daemons of {len(gateway.addresses)} of {count} gateways have told their addresses"
        case GatewayStage.ROUTES:
            return "the routes over its gateways are being written"
        case GatewayStage.FAILED:
            return f"its gateways failed: {gateway.text}"
        case _:
            return ""


def _named(shown: Shown, texts: Iterable[tuple[int, str]]) -> list[tuple[str, str]]:
    """Texts about nodes, by the nodes' names."""
    numbers, said = zip(*texts, strict=True)
    return list(zip(shown.node_names(numbers), said, strict=True))


def _phase_text(shown: Shown, attempt: Attempt) -> str:
    """Phases that the job waits for: `prolog on 3 of 8 nodes`, `epilog on cn003`; empty when its nodes run neither."""
    if attempt.preparing:
        return f"prolog on {len(attempt.preparing)} of {len(attempt.nodes)} nodes"
    if attempt.phase is AttemptPhase.RELEASING and EPILOG in attempt.phases:
        return f"epilog on {fold(shown.node_names([node for node in attempt.nodes if node in attempt.held]))}"
    return ""


def _controller_phase_text(shown: Shown, phase: ControllerPhase) -> str:
    """`controller prolog since 12 s`, and whether a new leader has begun it again; empty when none runs or waits."""
    what = f"controller {phase.name}"
    if phase.stage is PhaseStage.WAITING:
        return f"{what} waits for its turn"
    if phase.stage not in UNDER_WAY:
        return ""
    since_s = max(0, shown.now_us - phase.began_us) // SECOND_US
    again = f" (run {phase.run}: the leader has changed)" if phase.run > 1 else ""
    told = ", told to end" if phase.stage is PhaseStage.ENDING else ""
    return f"{what} since {since_s} s{again}{told}"


def _dependencies(shown: Shown, job: Job) -> str:
    """The open dependencies as Slurm shows them: `afterok:20(unfulfilled),afterany:17_*(unfulfilled)`."""
    found = []
    for one in job.open:
        text = format_condition((one.kind, one.job_id, 0, one.task, -1))
        target = shown.jobs.get(one.job_id)
        if target is not None and target.is_array and one.task < 0:
            text += "_*"
        delay = f"+{one.delay_s // 60}" if one.delay_s else ""
        found.append(f"{text}{delay}(unfulfilled)")
    return ("?" if job.spec.dependency_any else ",").join(found)


def forecast_message(forecast: Forecast) -> pb.Forecast:
    """The expected runtime of a job."""
    return pb.Forecast(
        p10_s=forecast.p10_s, p50_s=forecast.p50_s, p90_s=forecast.p90_s, estimate_s=forecast.estimate_s
    )


def transfer_text(transfer: Transfer) -> str:
    """The place of a job between two cells: `in cell beta; cancelled by alice`."""
    words = {
        TransferStage.OFFERED: "offered to",
        TransferStage.ARRIVING: "arriving from",
        TransferStage.TRANSFERRED: "in",
    }
    by = f"; cancelled by {transfer.cancel_by}" if transfer.cancel_by else ""
    return f"{words.get(transfer.stage, 'of')} cell {transfer.cell}{by}"


def gathering_text(guests: Guests) -> str:
    """The state of the nodes of other cells for a job that waits: `asking beta for 4 nodes`."""
    cells = ", ".join([f"{guest.cell} for {guest.nodes} nodes" for guest in guests.guests])
    words = {
        GuestStage.NONE: "waiting for nodes of several cells at once",
        GuestStage.ASKED: f"asking {cells}",
        GuestStage.HELD: "giving its nodes back",
        GuestStage.LEAVING: "giving its nodes back",
    }
    return words[guests.stage]


def _explain(shown: Shown, job: Job, why: Why | None, info: pb.JobInfo) -> None:
    """The reason of a pending job: its own, or the plan's; never empty.

    `why` is the plan's reason of the job that it is planned with: of a pack that has not begun, the first one.
    """
    reason = pending_reason(shown, job)
    if reason:
        info.reason = reason
        info.reason_text = job.reason_text
        if job.transfer is not None and job.is_away:
            info.reason_text = transfer_text(job.transfer)
        if job.guests is not None and job.gathers:
            info.reason_text = gathering_text(job.guests)
        if reason == "BeginTime" and job.exit_text:
            info.reason_text = job.exit_text
        if why is not None:
            info.planned_start_us = why.planned_start_us or 0
        if job.pack is not None and job.pack.waits_for_first:
            if not job.hold:
                info.reason_text = starts_after(job.pack)
            # The plan's reason is that of the pack's first job.
            info.planned_start_us += job.pack.delay_us if info.planned_start_us else 0
    elif why is None:
        info.reason = "Priority"
        info.reason_text = "not looked at by a plan yet"
    else:
        info.reason = REASONS.get(why.kind.value, why.kind.value)
        info.reason_text = why.text
        info.planned_start_us = why.planned_start_us or 0


def node_info(view: View, node: Node, partitions: list[str], jobs: list[int]) -> pb.NodeInfo:
    """One node with its present use."""
    topology = view.topology
    position = topology.positions.get(node.number)
    used: tuple[int, ...] = (0,) * len(topology.resources)
    features: tuple[str, ...] = ()
    weight = 0
    if position is not None:
        used = subtract(topology.totals[position], view.free[node.number])
        features, weight = topology.features_on(position), topology.weights.get(position, 0)
    flags = [
        flag
        for flag, is_set in (("DRAIN", node.drain or node.faults), (LOGIN, node.number in view.login))
        if is_set
    ]
    info = pb.NodeInfo(
        number=node.number,
        name=node.name,
        state=node.state.value,
        flags=flags,
        reason="; ".join(filter(None, (node.reason, standing(node)))),
        faults=[fault.text for fault in node.faults],
        reason_since_us=0 if node.reason else min((fault.since_us for fault in node.faults), default=0),
        reason_by=HEALTH if not node.reason and node.faults and all(one.check for one in node.faults) else "",
        cores=node.total[0],
        cores_used=used[0],
        memory_mib=node.total[1],
        memory_used_mib=used[1],
        partitions=partitions,
        endpoint=node.endpoint,
        incarnation=node.incarnation,
        since_us=node.since_us,
        jobs=jobs,
        boot_id=node.boot_id,
        features=features,
        weight=weight,
        module=module_of(view.config.modules, features),
        contained=node.contained,
    )
    for index in range(WIDTH, min(len(topology.resources), len(node.total))):
        if node.total[index]:
            name = topology.resources[index]
            kind = next((word for word in features if word.startswith(f"{name}:")), "").removeprefix(
                f"{name}:"
            )
            info.resources.add(name=name, total=node.total[index], used=used[index], device_type=kind)
    return info


def partition_info(partition: Partition, state: str = "") -> pb.PartitionInfo:
    """One partition of the configuration, with the state that an operator gave it (empty: none)."""
    state = state or (UP if partition.up else DOWN)
    return pb.PartitionInfo(
        name=partition.name,
        is_default=partition.default,
        up=state in STARTING,
        state=state,
        time_limit_max_s=partition.time_limit_max_s,
        time_limit_default_s=partition.time_limit_default_s,
        nodes=len(partition.nodes),
        role=partition.role,
    )


def module_of(modules: Sequence[Module], features: Sequence[str]) -> str:
    """The module of a node with these features: its name is one of them, and no other module's is."""
    return next((module.name for module in modules if module.name in features), "") if modules else ""


def module_info(module: Module) -> pb.ModuleInfo:
    """One module of the configuration."""
    return pb.ModuleInfo(name=module.name, kind=module.kind, reaches=module.reaches)


def partitions_of_nodes(config: ClusterConfig) -> dict[str, list[str]]:
    """The partitions of each node, by its name."""
    inside: dict[str, list[str]] = {}
    for partition in config.partitions:
        for name in partition.nodes:
            inside.setdefault(name, []).append(partition.name)
    return inside


def attempt_info(row: AttemptRow) -> pb.AttemptInfo:
    """One line of accounting."""
    kept = decode_accounted(row.blob)
    info = pb.AttemptInfo(
        job_id=row.job_id,
        array_job_id=kept.array_job_id,
        attempt=row.attempt,
        name=row.name,
        user=row.user,
        account=row.account,
        partition=row.partition,
        state=row.state,
        submitted_us=row.submitted_us,
        started_us=row.started_us,
        ended_us=row.ended_us,
        node_names=kept.node_names,
        nodes=row.nodes,
        cpus=row.cores,
        exit_code=row.exit_code,
        exit_signal=row.signal,
        exit_text=kept.text,
        paused_us=kept.paused_us,
        time_limit_s=kept.time_limit_s,
        first_estimate_s=kept.first_estimate_s,
        trace=kept.trace.hex(),
    )
    if kept.forecast is not None:
        info.forecast.CopyFrom(forecast_message(kept.forecast))
    if kept.pack_id:
        info.pack_id, info.pack_index = kept.pack_id, kept.pack_index
    if kept.lent_core_us:
        info.lent_core_s = kept.lent_core_us // SECOND_US
    if kept.borrowed_core_us:
        info.borrowed_core_s = kept.borrowed_core_us // SECOND_US
    if kept.array_task >= 0:
        info.array_task = kept.array_task
    if kept.end is not None:
        info.user_cpu_us = kept.end.user_cpu_us
        info.system_cpu_us = kept.end.system_cpu_us
        info.max_rss_kib = kept.end.max_rss_kib
    for number, part in enumerate(kept.parts):
        info.parts.add(
            part=number,
            partition=part.partition,
            nodes=part.nodes,
            tasks=part.tasks,
            cpus=part.cores,
            memory_mib=part.memory_mib,
            node_names=part.node_names,
            ended_us=part.ended_us,
        )
    for one in kept.segments:
        info.segments.add(
            from_us=one.from_us,
            until_us=one.until_us,
            node_names=one.node_names,
            nodes=one.nodes,
            cpus=one.cores,
        )
    return info
