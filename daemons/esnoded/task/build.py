"""From what a controller has sealed to the step that is run (`StepSpec`).

Invariant: all that decides what is run comes from the sealed command. Only the sockets for the job's commands and programs
are the agent's word: two variables of the job.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from eslurm.compat.environment import (
    StepEnvironment,
    batch_environment,
    cluster_variables,
    decode_environment,
    find_tasks,
)
from eslurm.compat.filenames import FileNameFields, default_output, expand_pattern
from eslurm.core.model.job import JobSpec
from eslurm.core.model.node_groups import find_place
from eslurm.core.model.protocol import JobLaunch, LaunchStep
from eslurm.core.model.step_key import GATEWAY_STEP, StepKey
from eslurm.ports.step_checks import parse_endpoint
from eslurm.ports.step_runner import OutputEndpoint, StepSpec, StepWarning
from esnoded.task.gateways import build_daemon, build_helper
from esnoded.task.user_step import user_step

STEP_ENVIRONMENTS_MAX = 64


class Builder:
    """Builds specs, and keeps what many tasks and nodes of a step have in common."""

    def __init__(self) -> None:
        self._step_environments: OrderedDict[tuple[int, int, int], StepEnvironment] = OrderedDict()

    def build(
        self,
        key: StepKey,
        launch: JobLaunch,
        request: LaunchStep | None,
        node_name: str,
        names: Sequence[str],
        cluster: str,
        script: str,
        environment: bytes,
        socket: str,
        job_socket: str,
        local: int = 0,
    ) -> StepSpec:
        """The step as its task with rank `local` on this node runs it: the file `script`, or what `request` names; of a step
        of gateways the daemon `script`, or the helper.

        `names` are the job's nodes in order.
        Raises ValueError for an endpoint that is none.
        """
        own = cluster_variables(cluster) | _sockets(socket, job_socket)
        if request is None:
            env = batch_environment(launch, names, _decode(environment)) | own
            return _batch(key, launch, node_name, script, env)
        share = _share(key, request)
        if key.is_gateway and key.step != GATEWAY_STEP:
            return build_helper(key, launch, request, node_name)
        shared = self._shared(launch, request, names, environment)
        env = shared.shared | shared.of_task(key.node, local) | own
        if key.is_gateway:
            return build_daemon(key, launch, node_name, env, share, script)
        return _task(key, launch, request, node_name, env, share, local)

    def _shared(
        self, launch: JobLaunch, request: LaunchStep, names: Sequence[str], environment: bytes
    ) -> StepEnvironment:
        key = (launch.job_id, launch.attempt, request.step)
        known = self._step_environments.get(key)
        if known is None or not known.is_of(launch, request):
            known = self._step_environments[key] = StepEnvironment(
                launch, request, names, _decode(environment)
            )
            if len(self._step_environments) > STEP_ENVIRONMENTS_MAX:
                self._step_environments.popitem(last=False)
        return known


def _sockets(socket: str, job_socket: str) -> dict[str, str]:
    """An agent of an earlier release has no socket for jobs."""
    named = {"ESLURM_SOCKET": socket}
    return named | {"ESLURM_JOB_SOCKET": job_socket} if job_socket else named


def outline(key: StepKey, launch: JobLaunch, request: LaunchStep | None, node_name: str) -> StepSpec:
    """The step without its variables and the path of its script. Raises ValueError for an endpoint that is none."""
    if request is None:
        return _batch(key, launch, node_name, "the script", {})
    if key.step == GATEWAY_STEP:
        return build_daemon(key, launch, node_name, {}, _share(key, request), "the daemon")
    if key.is_gateway:
        return build_helper(key, launch, request, node_name)
    return _task(key, launch, request, node_name, {}, _share(key, request))


def _share(key: StepKey, request: LaunchStep) -> tuple[int, int]:
    share = find_tasks(request, key.node)
    if share is None:
        raise ValueError(f"the step has no tasks on node number {key.node}")
    return share


def _batch(key: StepKey, launch: JobLaunch, node_name: str, script: str, env: dict[str, str]) -> StepSpec:
    spec = launch.spec
    fields = _name_fields(launch, node_name)
    output = spec.output or default_output(launch.array_task >= 0)
    step = user_step(key, launch, node_name, (script, *spec.arguments), env, spec.work_dir)
    return replace(
        step,
        stdin=expand_pattern(spec.input, fields) if spec.input else "/dev/null",
        stdout=expand_pattern(output, fields),
        stderr=expand_pattern(spec.error, fields) if spec.error else "",
        tasks=0 if spec.no_script else 1,
        open_mode="append" if spec.append_output else "truncate",
        time_limit_us=spec.time_limit_s * 1_000_000,
        warning=_warning(spec),
    )


def _task(
    key: StepKey,
    launch: JobLaunch,
    request: LaunchStep,
    node_name: str,
    env: dict[str, str],
    share: tuple[int, int],
    local: int = 0,
) -> StepSpec:
    step = user_step(key, launch, node_name, request.argv, env, request.work_dir)
    place = (launch, request, key, node_name, share[1] + local)
    if request.files is not None:
        step = replace(
            step,
            stdout=_task_file(request.files.output, *place),
            stderr=_task_file(request.files.error, *place) if request.files.error else "",
            open_mode="append",
        )
    else:
        address, port = parse_endpoint(request.endpoint)
        step = replace(step, endpoint=OutputEndpoint(address, port, request.cookie))
    given, stdin = request.input, step.stdin
    if given is not None and given.path:
        stdin = _task_file(given.path, *place)
    return replace(
        step,
        tasks=share[0],
        first_task=share[1],
        stdin=stdin,
        input=given,
        mpi=request.mpi,
        time_limit_us=request.time_limit_s * 1_000_000,
        own_memory_mib=request.memory_mib + request.memory_per_task_mib * share[0],
    )


def _task_file(
    pattern: str, launch: JobLaunch, request: LaunchStep, key: StepKey, node_name: str, rank: int
) -> str:
    """The path of a task's own file."""
    node = find_place(request.whole or request.groups, key.node) or 0
    fields = _name_fields(
        launch,
        node_name,
        node=node + (request.joint.node_first if request.joint is not None else 0),
        task=rank,
        step=str(request.step if request.first < 0 else request.first),
    )
    return expand_pattern(pattern, fields)


def _name_fields(launch: JobLaunch, node_name: str, **of_a_task: Any) -> FileNameFields:
    spec = launch.spec
    return FileNameFields(
        launch.job_id,
        job_name=spec.name,
        user=spec.user.name,
        node_name=node_name,
        array_job_id=launch.array_job_id,
        array_task=launch.array_task,
        **of_a_task,
    )


def _warning(spec: JobSpec) -> StepWarning | None:
    if not spec.warn_signal and not spec.warn_script:
        return None
    before_us = spec.warn_before_s * 1_000_000
    return StepWarning(before_us, spec.warn_signal, spec.warn_batch_only, spec.warn_script)


def _decode(environment: bytes) -> dict[str, str]:
    variables = decode_environment(environment)
    # Bytes that are no UTF-8 are not text, as which variables are checked and passed on.
    return variables if _is_text(environment) else {name: _clean(value) for name, value in variables.items()}


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _clean(value: str) -> str:
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
