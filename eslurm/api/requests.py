"""From the API's protobuf requests to the core's messages. Malformed ones are refused here, with the option's name."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from google.protobuf.message import Message as Protobuf

from eslurm.api.cell_requests import read_cells
from eslurm.api.gateway_requests import read_gateway
from eslurm.api.module_requests import in_module, partition_in
from eslurm.api.retry_requests import read_retry
from eslurm.compat.constraints import parse_constraint
from eslurm.compat.errors import OptionError, quoted
from eslurm.compat.request_checks import checked_arguments, checked_line, checked_nodes, checked_path
from eslurm.compat.rset import PLACES, settle
from eslurm.compat.traceparent import trace_of
from eslurm.core.model import ranges
from eslurm.core.model import request_limits as limits
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.forecast import Forecast
from eslurm.core.model.guests import JointStep
from eslurm.core.model.job import PASSED, ArraySpec, Dependency, JobSpec, Principal
from eslurm.core.model.job_ids import JOB_ID_MAX
from eslurm.core.model.job_weight import held_bytes
from eslurm.core.model.messages import (
    CancelJobs,
    CreateStep,
    ExtendJob,
    FinishPart,
    FinishStep,
    HoldJobs,
    JobRef,
    MovePack,
    RefusalCode,
    Refused,
    ReleaseJob,
    RequeueJobs,
    ResizeJob,
    SetForecasts,
    StepProgram,
    SubmitJobs,
    SuspendJobs,
    UpdateJob,
    UpdateNodes,
    UpdatePartitions,
    UpdateSatellites,
)
from eslurm.core.model.mpi import mpi_problem
from eslurm.core.model.pack import PackDraft
from eslurm.core.model.request import Chunk, PartSpec, Request
from eslurm.core.model.step_claim import ClaimWish, StepFiles
from eslurm.core.model.step_input import EVERY_RANK, SIZE_MAX, StepInput
from eslurm.core.model.units import SECOND_US
from eslurm.core.model.values import COOKIE_BYTES, EXIT_CODE_MAX, parts_problem, signal_problem, umask_problem
from eslurm.ports.step_checks import parse_endpoint
from eslurm.ports.store import BlobRow, content_hash
from eslurm.v1 import controller_pb2 as pb

T = TypeVar("T")


def _refuse(text: str) -> Refused:
    return Refused(RefusalCode.INVALID, text)


def _line(option: str, value: str, limit: int = limits.NAME_CHARS_MAX) -> str:
    if not value:
        return ""
    try:
        return checked_line(option, value, limit)
    except OptionError as error:
        raise _refuse(str(error)) from None


def _path(option: str, value: str, _most: int = limits.PATH_CHARS_MAX) -> str:
    try:
        return checked_path(option, value) if value else ""
    except OptionError as error:
        raise _refuse(str(error)) from None


def _work_dir(value: str) -> str:
    if not value.startswith("/"):
        raise _refuse(f"--chdir: {quoted(value)} is not an absolute path")
    return _path("--chdir", value)


def _arguments(given: Sequence[str]) -> tuple[str, ...]:
    arguments = tuple(given)
    try:
        checked_arguments(arguments)
    except OptionError as error:
        raise _refuse(str(error)) from None
    return arguments


def _nodes(option: str, given: Sequence[str]) -> tuple[str, ...]:
    names = tuple(given)
    if not names:
        return names
    try:
        checked_nodes(option, names)
    except OptionError as error:
        raise _refuse(str(error)) from None
    return names


def _environment_bytes(environment: bytes) -> bytes:
    if len(environment) > limits.ENVIRONMENT_BYTES_MAX:
        raise _refuse(
            f"--export: the environment has {len(environment)} bytes, at most {limits.ENVIRONMENT_BYTES_MAX} "
            "are possible: export fewer variables"
        )
    return environment


def _endpoint(text: str) -> str:
    """Check an ADDRESS:PORT with the address in the kernel's form."""
    try:
        host, port = parse_endpoint(text)
    except ValueError as error:
        raise _refuse(f"endpoint: {error}") from None
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _signal(option: str, number: int, _most: int = 0) -> int:
    """Check a signal, or 0: none."""
    return _checked(option, number, signal_problem(number)) if number else 0


def _checked(option: str, value: T, problem: str) -> T:
    if problem:
        raise _refuse(f"{option}: {problem}")
    return value


def _number(option: str, value: int, most: int = limits.COUNT_MAX) -> int:
    """Check a number from 0 to `most`."""
    if not 0 <= value <= most:
        raise _refuse(f"{option}: {value} is not within 0..{most}")
    return value


class BlobCollector:
    """Content-addressed blobs of one call, each once."""

    def __init__(self) -> None:
        self._found: dict[bytes, BlobRow] = {}

    def put(self, data: bytes) -> bytes:
        """The hash under which `data` is stored with the call."""
        digest = content_hash(data)
        if digest not in self._found:
            self._found[digest] = BlobRow(digest, data)
        return digest

    def find(self, digest: bytes) -> BlobRow | None:
        return self._found.get(digest)

    @property
    def rows(self) -> tuple[BlobRow, ...]:
        return tuple(self._found.values())


class SpecReader:
    """Turns job requests of one call into specs; equal parts of many jobs are read once.

    `trace` is for jobs without one of their own, `cell` this cluster's name in its federation; empty: it is no member.
    """

    def __init__(self, user: Principal, config: ClusterConfig, trace: bytes = b"", cell: str = "") -> None:
        self._user = user
        self._config = config
        self._trace = trace
        self._cell = cell
        self._components: dict[bytes, tuple[Request, ...]] = {}
        self._partitions = {"": ""}
        self._texts: dict[str, str] = {}
        self._held_bytes = 0
        self._parts = 0
        self.blobs = BlobCollector()

    def read(self, job: pb.JobRequest) -> JobSpec:
        """One job. Raises `Refused`."""
        spec = self._read(job)
        self._held_bytes += held_bytes(spec)
        if self._held_bytes > limits.SPECS_BYTES_MAX:
            raise _refuse(
                f"the jobs of this call hold more than {limits.SPECS_BYTES_MAX} bytes of arguments, node names, "
                "array ranges and parts: submit them in several calls"
            )
        return spec

    def _read(self, job: pb.JobRequest) -> JobSpec:
        # Each look at a field makes a new object: one look each.
        work_dir = _work_dir(job.work_dir)
        priority = job.priority if job.HasField("priority") else None
        # What is not given (0, empty, false) passes every check.
        checked = {
            name: check(option, value, most) if value else value
            for (name, option, check, most), value in zip(_CHECKED, _checked_values(job), strict=True)
        }
        components, parts, checked["partition"] = self._read_components(job, checked["partition"])
        name = checked.pop("name")
        return JobSpec(
            name=self._shared(name) if name else "job",
            user=self._user,
            components=components,
            parts=parts,
            script_hash=self._script(job),
            environment_hash=self._environment(job),
            work_dir=self._shared(work_dir),
            append_output=not job.truncate_output,
            priority=priority,
            requeue=job.requeue if job.HasField("requeue") else True,
            held=job.held,
            dependencies=_dependencies(job.dependencies) if job.dependencies else (),
            dependency_any=job.dependency_any,
            array=_array(job, self._config.array_tasks_max),
            arguments=_arguments(job.arguments) if job.arguments else (),
            umask=_checked("--umask", job.umask, umask_problem(job.umask)),
            nice=job.nice,
            warn_batch_only=job.warn_batch_only,
            trace=trace_of(job.traceparent) or self._trace,
            gateway=read_gateway(job.gateway) if job.HasField("gateway") else None,
            cells=read_cells(job.cells, self._cell) if job.cells else (),
            span=job.span,
            retry=read_retry(job),
            **checked,
        )

    def _shared(self, text: str) -> str:
        """One string for all jobs of the call that say the same."""
        return self._texts.setdefault(text, text)

    def _read_components(
        self, job: pb.JobRequest, partition: str
    ) -> tuple[tuple[Request, ...], tuple[PartSpec, ...], str]:
        """The request of each part; of a job of several parts what else each has of its own; the job's partition.

        A part that names no partition is in the job's, and where the job names none, in the default one, as with sbatch.
        """
        count = len(job.components)
        if count <= 1:
            if not count:
                return _ONE_CORE, (), partition
            only = job.components[0]
            return self._component(only), (), self._partition(only) or partition or self._of_module(only)
        problem = parts_problem(count)
        if problem:
            raise _refuse(problem)
        self._parts += count
        if self._parts > limits.REFERENCES_MAX:
            raise _refuse(
                f"the jobs of this call have more than {limits.REFERENCES_MAX} parts: submit them in several calls, "
                "or an array"
            )
        requests: list[Request] = []
        named: list[str] = []
        for number, part in enumerate(job.components):
            try:
                requests += self._component(part)
                own = self._partition(part)
                named.append(own if own or partition else self._of_module(part))
            except Refused as refused:
                raise Refused(refused.code, f"part {number}: {refused.text}") from None
        return tuple(requests), tuple(map(PartSpec, named)), partition

    def _component(self, part: pb.ResourceRequest) -> tuple[Request, ...]:
        # Jobs of one call, and parts of one job, mostly ask for the same.
        encoded = part.SerializeToString()
        known = self._components.get(encoded)
        if known is None:
            known = self._components[encoded] = (_component(part, self._config),)
        return known

    def _partition(self, part: pb.ResourceRequest) -> str:
        return self._shared(_line("--partition", part.partition, limits.PARTITION_CHARS_MAX))

    def _of_module(self, part: pb.ResourceRequest) -> str:
        """The partition of a part that names none, but a module."""
        module = part.module
        if module not in self._partitions:
            self._partitions[module] = partition_in(module, self._config)
        return self._partitions[module]

    def _script(self, job: pb.JobRequest) -> bytes:
        if job.script_hash:
            if self.blobs.find(job.script_hash) is None:
                raise _refuse("script: its hash was given, but no earlier job of this call brought it")
            return job.script_hash
        script = job.script
        if job.no_script and not script:
            return b""
        if not script:
            raise _refuse("script: it is empty: give a script or --wrap")
        if len(script) > self._config.script_bytes_max:
            raise _refuse(
                f"script: {len(script)} bytes are more than {self._config.script_bytes_max}: move data into files"
            )
        if b"\0" in script:
            raise _refuse("script: it is a binary file: submit a script that starts it")
        if not script.startswith(b"#!"):
            raise _refuse("script: its first line must name its interpreter, like #!/bin/sh")
        return self.blobs.put(script)

    def _environment(self, job: pb.JobRequest) -> bytes:
        if job.environment_hash:
            if self.blobs.find(job.environment_hash) is None:
                raise _refuse("--export: a hash was given, but no earlier job of this call brought it")
            return job.environment_hash
        return self.blobs.put(_environment_bytes(job.environment))


def _flag(_option: str, value: bool, _most: int) -> bool:
    return value


_CHECKS: dict[type, Callable[[str, Any, int], Any]] = {str: _line, int: _number, bool: _flag}
_CHECKED: tuple[tuple[str, str, Callable[[str, Any, int], Any], int], ...] = (
    ("name", "--job-name", _line, limits.NAME_CHARS_MAX),
    ("time_limit_s", "--time", _number, limits.TIME_LIMIT_MAX_S),
    ("output", "--output", _path, limits.PATH_CHARS_MAX),
    ("error", "--error", _path, limits.PATH_CHARS_MAX),
    ("input", "--input", _path, limits.PATH_CHARS_MAX),
    ("begin_us", "--begin", _number, limits.MOMENT_MAX_US),
    ("start_at_us", "--start-at", _number, limits.MOMENT_MAX_US),
    ("deadline_us", "--deadline", _number, limits.MOMENT_MAX_US),
    ("warn_signal", "--signal", _signal, 0),
    ("warn_before_s", "--signal", _number, limits.WARN_BEFORE_MAX_S),
    ("warn_script", "--warn-script", _path, limits.PATH_CHARS_MAX),
    *(
        (
            name,
            f"--{name.replace('_', '-')}",
            _CHECKS[kind],
            limits.COUNT_MAX if kind is int else limits.LINE_CHARS_MAX.get(name, limits.NAME_CHARS_MAX),
        )
        for name, kind in PASSED.items()
    ),
)
"""Fields of a job that one check each looks at: their names, options, checks and bounds."""
_checked_values = operator.attrgetter(*(name for name, *_ in _CHECKED))
_ONE_CORE = (Request(),)


def _component(part: pb.ResourceRequest, config: ClusterConfig) -> Request:
    request = _of_tasks(part)
    wide = _named("--licenses", part.wide)
    constraint = in_module(_constraint("--constraint", part.constraint), part.module, config)
    place = part.place or "free"
    if place not in PLACES:
        raise _refuse(f"--rset: {quoted(place)} is no placement: use one of {', '.join(PLACES)}")
    if not part.chunks:
        return msgspec.structs.replace(
            request,
            per_node=_named("--gres", part.per_node),
            per_task=_named("--gpus-per-task", part.per_task),
            wide=wide,
            constraint=constraint,
            place=place,
        )
    chunks, of_job, constraint = _chunks(part, constraint, config)
    return msgspec.structs.replace(
        request,
        tasks=sum(chunk.count for chunk in chunks),
        cpus_per_task=chunks[0].cores,
        nodes_min=0,
        nodes_max=0,
        tasks_per_node=0,
        wide=_added((*wide, *of_job)),
        constraint=constraint,
        chunks=chunks,
        place=place,
    )


def _chunks(
    part: pb.ResourceRequest, constraint: str, config: ClusterConfig
) -> tuple[tuple[Chunk, ...], tuple[tuple[str, int], ...], str]:
    """The chunks, cluster-wide resources, and the features of the whole job: words are interpreted here (C-16)."""
    if len(part.chunks) > limits.CHUNKS_MAX:
        raise _refuse(
            f"--rset: {len(part.chunks)} kinds of chunks are more than {limits.CHUNKS_MAX}: join equal ones"
        )
    of_nodes = {one.name for one in config.resources if not one.wide_total}
    of_cluster = {one.name for one in config.resources if one.wide_total}
    wide: list[tuple[str, int]] = []
    chunks: list[Chunk] = []
    try:
        for one in part.chunks:
            count = one.count or 1
            named, rest = settle(_constraint("--rset", one.constraint), of_nodes | of_cluster)
            asked = (*_named("--rset", one.resources), *named)
            wide += [(name, items * count) for name, items in asked if name in of_cluster]
            items = tuple(pair for pair in asked if pair[0] not in of_cluster)
            chunks.append(_chunk(count, one, _added(items), rest))
        named, constraint = settle(constraint, of_nodes | of_cluster)
    except OptionError as error:
        raise _refuse(str(error)) from None
    for name, _ in named:
        if name in of_nodes:
            raise _refuse(
                f"--rset: {name} belongs to nodes, not to the whole job: join it to a chunk with ':'"
            )
    return tuple(chunks), (*wide, *named), constraint


def _chunk(count: int, one: pb.Chunk, items: tuple[tuple[str, int], ...], constraint: str) -> Chunk:
    return Chunk(
        _number("--rset", count),
        _number("--rset", one.cores or 1),
        _number("--rset", one.memory_mib, limits.MEMORY_MAX_MIB),
        items,
        constraint,
    )


def _added(named: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Each name once, in the order of the first mention."""
    sums: dict[str, int] = {}
    for name, items in named:
        sums[name] = sums.get(name, 0) + items
    return tuple(sums.items())


def _named(option: str, amounts: Iterable[pb.ResourceAmount]) -> tuple[tuple[str, int], ...]:
    given = tuple(amounts)
    if not given:
        return ()
    if len(given) > limits.RESOURCES_MAX:
        raise _refuse(f"{option}: names {len(given)} resources, at most {limits.RESOURCES_MAX} are possible")
    found = tuple((_line(option, one.name, limits.RESOURCE_CHARS_MAX), one.items) for one in given)
    for name, items in found:
        if not 0 < items <= limits.COUNT_MAX:
            raise _refuse(f"{option}: {items} of {name}: ask for 1 to {limits.COUNT_MAX}")
    return _added(found)


def _constraint(option: str, text: str) -> str:
    try:
        return parse_constraint(text, option) if text else ""
    except OptionError as error:
        raise _refuse(str(error)) from None


_COUNTED: tuple[tuple[str, str, int], ...] = (
    ("nodes_min", "--nodes", limits.COUNT_MAX),
    ("nodes_max", "--nodes", limits.COUNT_MAX),
    ("tasks_per_node", "--ntasks-per-node", limits.COUNT_MAX),
    ("tasks", "--ntasks", limits.COUNT_MAX),
    ("cpus_per_task", "--cpus-per-task", limits.COUNT_MAX),
    ("memory_per_node_mib", "--mem", limits.MEMORY_MAX_MIB),
    ("memory_per_cpu_mib", "--mem-per-cpu", limits.MEMORY_MAX_MIB),
)
"""Counts of a request for tasks: their names, options and bounds."""
_counted_values = operator.attrgetter(*(name for name, *_ in _COUNTED))


def _of_tasks(part: pb.ResourceRequest) -> Request:
    # What is not given (0) passes every check.
    nodes_min, nodes_max, tasks_per_node, given_tasks, cpus_per_task, per_node_mib, per_cpu_mib = [
        _number(option, value, most) if value else 0
        for (_name, option, most), value in zip(_COUNTED, _counted_values(part), strict=True)
    ]
    tasks = given_tasks or _number("--ntasks", max(1, nodes_min * max(1, tasks_per_node)))
    if nodes_max and nodes_max < nodes_min:
        raise _refuse(f"--nodes: the maximum {nodes_max} is below the minimum {nodes_min}")
    if nodes_min and tasks < nodes_min and given_tasks:
        raise _refuse(f"--ntasks: {tasks} tasks cannot be spread over {nodes_min} nodes: ask for fewer nodes")
    if per_node_mib and per_cpu_mib:
        raise _refuse("--mem and --mem-per-cpu exclude each other: give one")
    return Request(
        tasks=tasks,
        cpus_per_task=cpus_per_task or 1,
        nodes_min=nodes_min,
        nodes_max=nodes_max or nodes_min,
        tasks_per_node=tasks_per_node,
        memory_per_node_mib=per_node_mib,
        memory_per_cpu_mib=per_cpu_mib,
        exclusive=part.exclusive,
        include=_nodes("--nodelist", part.include),
        exclude=_nodes("--exclude", part.exclude),
    )


def pack_drafts(given: Sequence[pb.PackRequest], jobs: int) -> tuple[PackDraft, ...]:
    """The packs of a call of this many jobs. Raises `Refused`; the core looks at the members."""
    left = jobs
    for pack in given:
        count = len(pack.delays_s)
        if not 2 <= count <= limits.PACK_MEMBERS_MAX:
            raise _refuse(f"pack: it has {count} parts: give 2 to {limits.PACK_MEMBERS_MAX}, or submit a job")
        left -= count
        if left < 0 or pack.first > jobs - count:
            raise _refuse(f"pack: it takes jobs that are not among the {jobs} of this call")
    return tuple([PackDraft(pack.first, tuple(pack.delays_s), pack.cancels) for pack in given])


def _dependencies(given: Sequence[pb.Dependency]) -> tuple[Dependency, ...]:
    if len(given) > limits.DEPENDENCIES_MAX:
        raise _refuse(f"--dependency: more than {limits.DEPENDENCIES_MAX} conditions")
    delay_max_s = limits.DEPENDENCY_DELAY_MAX_S
    return tuple(
        Dependency(
            one.kind,
            one.job_id,
            _number("--dependency", one.delay_s, delay_max_s),
            task=_number("--dependency", one.task) if one.HasField("task") else -1,
            part=_number("--dependency", one.part) if one.HasField("part") else -1,
        )
        for one in given
    )


def _array(job: pb.JobRequest, tasks_max: int) -> ArraySpec | None:
    """The tasks as ranges. Counts everything before it builds a list."""
    parts = [(part.first, part.last, max(1, part.step)) for part in job.array[: limits.ARRAY_PARTS_MAX + 1]]
    if not parts:
        return None
    if len(parts) > limits.ARRAY_PARTS_MAX:
        raise _refuse(f"--array: {len(job.array)} parts are more than {limits.ARRAY_PARTS_MAX}: split it")
    for first, last, _step in parts:
        if last < first:
            raise _refuse(f"--array: the range {first}-{last} runs backwards")
    if sum((last - first) // step + 1 for first, last, step in parts) > tasks_max:
        raise _refuse(f"--array: more than {tasks_max} tasks: split it")
    _number("--array", max(last for _first, last, _step in parts), limits.ARRAY_TASK_MAX)
    strided = [(first, last, step) for first, last, step in parts if step > 1]
    listed = sum((last - first) // step + 1 for first, last, step in strided)
    if listed > limits.ARRAY_STRIDED_MAX:
        raise _refuse(
            f"--array: {listed} tasks with a step are more than {limits.ARRAY_STRIDED_MAX}: split it, "
            "or number the tasks without one"
        )
    plain = tuple((first, last) for first, last, step in parts if step == 1)
    numbers = (number for first, last, step in strided for number in range(first, last + 1, step))
    return ArraySpec(ranges.union(plain, ranges.from_numbers(numbers)), job.array_limit)


def job_ref(ref: pb.JobRef) -> JobRef:
    task = ref.task if ref.HasField("task") else -1
    return JobRef(ref.job_id, task, ref.part if ref.HasField("part") else -1)


def _given(message: Protobuf, *names: str) -> dict[str, object]:
    return {name: getattr(message, name) for name in names if message.HasField(name)}


def cancel(request: pb.CancelRequest, by: Principal) -> CancelJobs:
    refs = tuple(job_ref(ref) for ref in request.jobs)
    number = _signal("--signal", request.signal)
    if request.lost and (number or not refs):
        raise _refuse("--lost: name the jobs that are lost with their cell, and give no signal")
    if request.reach not in ("", "steps", "all"):
        raise _refuse(f"reach: {quoted(request.reach)} is none of a signal: use steps or all")
    return CancelJobs(
        by,
        refs,
        request.user,
        request.name,
        request.partition,
        request.state,
        number,
        request.lost,
        request.reach,
        request.cron,
    )


def hold(request: pb.HoldRequest, by: Principal) -> HoldJobs:
    return HoldJobs(by, tuple(job_ref(ref) for ref in request.jobs), request.release)


def requeue(request: pb.RequeueRequest, by: Principal) -> RequeueJobs:
    return RequeueJobs(by, tuple(job_ref(ref) for ref in request.jobs), request.hold)


def suspend(request: pb.SuspendRequest, by: Principal) -> SuspendJobs:
    return SuspendJobs(by, tuple(job_ref(ref) for ref in request.jobs), request.resume)


def move_pack(request: pb.MovePackRequest, by: Principal) -> MovePack:
    _number("to", request.to_us, limits.MOMENT_MAX_US)
    _number("earlier-by", request.earlier_s, limits.TIME_LIMIT_MAX_S)
    if request.to_us and request.earlier_s:
        raise _refuse("earlier-by: goes with no --to: give one of them, or neither: as early as possible")
    return MovePack(by, job_ref(request.job), request.earlier_s * SECOND_US, request.to_us)


def extend_job(request: pb.ExtendJobRequest, by: Principal) -> ExtendJob:
    _number("by", request.by_s, limits.TIME_LIMIT_MAX_S)
    _number("to", request.to_s, limits.TIME_LIMIT_MAX_S)
    if bool(request.by_s) is bool(request.to_s):
        raise _refuse("by: give either how much longer (--by) or the whole time limit (--to)")
    return ExtendJob(by, job_ref(request.job), request.by_s, request.to_s)


def set_forecasts(request: pb.SetForecastsRequest, by: Principal) -> SetForecasts:
    """The core's message. A forecast without values becomes zeros, which the core refuses."""
    found = []
    for one in request.forecasts:
        said = one.forecast
        found.append((one.job_id, Forecast(said.p10_s, said.p50_s, said.p90_s, said.estimate_s)))
    return SetForecasts(by, tuple(found), _line("model", request.model))


_UPDATED_WHOLE: Final = ("by", "job", "request", "was", "dependencies", "dependency_any", "dry_run")
"""Fields of `UpdateJob` that are no plain values of the message."""


def update_job(request: pb.UpdateJobRequest, by: Principal, config: ClusterConfig) -> UpdateJob:
    names = [name for name in UpdateJob.__struct_fields__ if name not in _UPDATED_WHOLE]
    for option, value, limit in (
        ("name", request.name, limits.NAME_CHARS_MAX),
        ("partition", request.partition, limits.PARTITION_CHARS_MAX),
        ("comment", request.comment, limits.COMMENT_CHARS_MAX),
        ("qos", request.qos, limits.NAME_CHARS_MAX),
        ("account", request.account, limits.NAME_CHARS_MAX),
        ("reservation", request.reservation, limits.NAME_CHARS_MAX),
        ("wckey", request.wckey, limits.NAME_CHARS_MAX),
    ):
        _line(option, value, limit)
    for option, path in (("output", request.output), ("error", request.error), ("input", request.input)):
        _path(option, path)
    if request.HasField("work_dir"):
        _work_dir(request.work_dir)
    for option, number, most in (
        ("time", request.time_limit_s, limits.TIME_LIMIT_MAX_S),
        ("begin", request.begin_us, limits.MOMENT_MAX_US),
        ("deadline", request.deadline_us, limits.MOMENT_MAX_US),
        ("nodes", max(request.nodes_min, request.nodes_max), limits.COUNT_MAX),
    ):
        _number(option, number, most)
    given = _given(request, *names)
    if request.HasField("constraint"):
        given["constraint"] = _constraint("constraint", request.constraint)
    if request.HasField("request"):
        given["request"], given["was"] = _component(request.request, config), tuple(request.was)
    if request.HasField("dependencies"):
        given["dependencies"] = _dependencies(request.dependencies.all)
        given["dependency_any"] = request.dependencies.any
    update = UpdateJob(by, job_ref(request.job), dry_run=request.dry_run)
    return msgspec.structs.replace(update, **given)


def update_nodes(request: pb.UpdateNodesRequest, by: Principal) -> UpdateNodes:
    reason = _line("reason", request.reason, limits.REASON_CHARS_MAX)
    return UpdateNodes(by, _nodes("nodes", request.names), request.action, reason)


def update_partitions(request: pb.UpdatePartitionsRequest, by: Principal) -> UpdatePartitions:
    return UpdatePartitions(by, _nodes("partitions", request.names), request.state)


def update_satellites(
    request: pb.UpdateSatellitesRequest, by: Principal, known: tuple[str, ...]
) -> UpdateSatellites:
    reason = _line("reason", request.reason, limits.REASON_CHARS_MAX)
    return UpdateSatellites(by, _nodes("satellites", request.names), request.action, reason, known)


def create_step(
    request: pb.CreateStepRequest, by: Principal, blobs: BlobCollector, home: str = ""
) -> CreateStep:
    """The message of a step. `home` is the cell that a step over several cells was started in."""
    if len(request.components) > limits.PARTS_MAX or len(request.programs) > limits.PARTS_MAX:
        many = max(len(request.components), len(request.programs))
        raise _refuse(f"--het-group: {many} parts are more than the {limits.PARTS_MAX} of the largest job")
    if not all(one.argv for one in request.programs) or not (request.argv or request.programs):
        raise _refuse("command: it is empty: say what to run")
    argv = _arguments(request.argv)
    programs = tuple(map(_step_program, request.programs))
    # Each part of the step has a record with its own words.
    together = [word for one in programs for word in one.argv] or argv * max(1, len(request.components))
    _arguments(together)
    files = _step_files(request.files) if request.HasField("files") else None
    if files is not None and (request.endpoint or request.cookie):
        raise _refuse("--async: the step has files, and no command that it could send its output to")
    if files is None and len(request.cookie) != COOKIE_BYTES:
        raise _refuse(f"cookie: {len(request.cookie)} bytes instead of {COOKIE_BYTES}: use esrun")
    return CreateStep(
        by=by,
        job_id=request.job_id,
        tasks=_number("--ntasks", request.tasks),
        nodes=_number("--nodes", request.nodes),
        argv=argv,
        environment_hash=blobs.put(_environment_bytes(request.environment)),
        work_dir=_work_dir(request.work_dir),
        components=tuple(_number("--het-group", one) for one in request.components) or (0,),
        programs=programs,
        endpoint=_endpoint(request.endpoint) if files is None else "",
        cookie=request.cookie,
        cpus_per_task=_number("--cpus-per-task", request.cpus_per_task or 1),
        name=_line("--job-name", request.name),
        joint=_joint(request.joint, home) if request.HasField("joint") else None,
        tasks_open=request.tasks_open,
        nodes_open=request.nodes_open,
        input=_step_input(request.input) if request.HasField("input") else None,
        mpi=_mpi(request.mpi),
        node_names=_nodes("--nodelist", request.node_names),
        claim=_claim(request.claim) if request.HasField("claim") else None,
        is_immediate=request.immediate,
        files=files,
        time_limit_s=_number("--time", request.time_limit_s, limits.TIME_LIMIT_MAX_S),
    )


def _step_files(given: pb.StepFiles) -> StepFiles:
    if not given.output:
        raise _refuse("--output: it is empty: name a file, e.g. slurm-%J.out")
    return StepFiles(_path("--output", given.output), _path("--error", given.error) if given.error else "")


def _claim(given: pb.StepClaim) -> ClaimWish:
    if given.memory_mib and given.memory_per_cpu_mib:
        raise _refuse("--mem: excludes --mem-per-cpu: give one of them")
    return ClaimWish(
        whole=given.whole,
        memory_mib=_number("--mem", given.memory_mib, limits.MEMORY_MAX_MIB),
        memory_per_cpu_mib=_number("--mem-per-cpu", given.memory_per_cpu_mib, limits.MEMORY_MAX_MIB),
        per_node=_named("--gres", given.per_node),
        per_task=_named("--gpus-per-task", given.per_task),
    )


def _step_input(given: pb.StepInput) -> StepInput:
    if given.path:
        return StepInput(path=_path("--input", given.path))
    if given.rank < EVERY_RANK:
        raise _refuse(f"--input: {given.rank} is no task: name one from 0 on")
    if not given.HasField("terminal"):
        return StepInput(given.rank)
    rows, columns = given.terminal.rows, given.terminal.columns
    size = (_number("--pty", rows, SIZE_MAX), _number("--pty", columns, SIZE_MAX))
    return StepInput(given.rank, terminal=size)


def _mpi(given: str) -> str:
    if problem := mpi_problem(given):
        raise _refuse(problem)
    return given


def _joint(given: pb.JointStep, home: str) -> JointStep:
    """The place of one cell's part in a step over several. `home` is the cell of the job that spans them."""
    job_id = _number("joint", given.home_job_id, JOB_ID_MAX)
    ranks, nodes = _number("joint", given.ranks), _number("joint", given.nodes)
    return JointStep(
        f"{job_id}@{home}",
        _number("joint", given.rank_first, ranks),
        ranks,
        _number("joint", given.node_first, nodes),
        nodes,
        _line("joint", given.node_list, limits.NODE_LIST_CHARS_MAX),
        _line("joint", given.tasks_per_node, limits.NODE_LIST_CHARS_MAX),
    )


def _step_program(program: pb.StepProgram) -> StepProgram:
    return StepProgram(
        argv=_arguments(program.argv),
        tasks=_number("--ntasks", program.tasks),
        nodes=_number("--nodes", program.nodes),
        cpus_per_task=_number("--cpus-per-task", program.cpus_per_task or 1),
    )


def finish_step(request: pb.FinishStepRequest, by: Principal) -> FinishStep:
    if not 0 <= request.exit_code <= EXIT_CODE_MAX:
        raise _refuse(f"exit code: {request.exit_code} is not within 0..{EXIT_CODE_MAX}")
    return FinishStep(by, request.job_id, request.step, request.exit_code, _signal("signal", request.signal))


def release_job(request: pb.ReleaseJobRequest, by: Principal) -> ReleaseJob:
    return ReleaseJob(by, request.job_id, request.exit_code)


def resize_job(request: pb.ResizeJobRequest, by: Principal) -> ResizeJob:
    if not -limits.COUNT_MAX <= request.by_nodes <= limits.COUNT_MAX:
        raise _refuse(f"nodes: {request.by_nodes:+} is not within -{limits.COUNT_MAX}..{limits.COUNT_MAX}")
    return ResizeJob(
        by,
        job_ref(request.job),
        request.by_nodes,
        _number("nodes", request.to_nodes),
        _nodes("nodelist", request.nodes),
        _nodes("nodelist", request.without),
        request.dry_run,
    )


def finish_part(request: pb.FinishPartRequest, by: Principal) -> FinishPart:
    return FinishPart(by, job_ref(request.job), request.kill, request.dry_run)


__all__ = [
    "BlobCollector",
    "SpecReader",
    "SubmitJobs",
    "cancel",
    "create_step",
    "finish_part",
    "finish_step",
    "hold",
    "job_ref",
    "release_job",
    "requeue",
    "resize_job",
    "set_forecasts",
    "suspend",
    "update_job",
    "update_nodes",
    "update_satellites",
]
