"""From what the controller asks (`JobLaunch`, `LaunchStep`) to what the step runner needs (`StepSpec`).

Invariant: building a spec has no effect but that its script is held as a file, and may be repeated.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from eslurm.compat.environment import StepEnvironment, batch_environment, decode_environment
from eslurm.compat.filenames import FileNameFields, default_output, expand_pattern
from eslurm.core.agent.actions import RunBatch, RunTasks, StepId
from eslurm.core.wire import JobLaunch
from eslurm.ports.step_checks import parse_endpoint
from eslurm.ports.step_runner import OutputEndpoint, StepKey, StepSpec, StepWarning
from esnoded.scripts import Scripts

STEP_ENVIRONMENTS_MAX = 64


class Launcher:
    """Builds specs. `door` is the socket at which a job's commands reach the controller."""

    def __init__(self, scripts: Scripts, door: Path) -> None:
        self._scripts = scripts
        self._door = str(door)
        self._step_environments: OrderedDict[tuple[int, int, int], StepEnvironment] = OrderedDict()

    def batch_spec(self, action: RunBatch, node_name: str, script: bytes, environment: bytes) -> StepSpec:
        """The batch script as a step; its file is held for the attempt. Raises OSError: the node's fault, not the job's."""
        launch = action.launch
        env = batch_environment(launch, _decode(environment))
        env["ESLURM_SOCKET"] = self._door
        fields = FileNameFields(
            launch.job_id,
            job_name=launch.name,
            user=launch.user.name,
            node_name=node_name,
            array_job_id=launch.array_job_id,
            array_task=launch.array_task,
        )
        step, user = action.step, launch.user
        attempt = (step.node, step.job_id, step.attempt)
        path = self._scripts.hold(attempt, user.uid, user.gid, launch.script_hash, script)
        output = launch.output or default_output(launch.array_task >= 0)
        return StepSpec(
            key=step_key(action.step),
            node_name=node_name,
            uid=launch.user.uid,
            gid=launch.user.gid,
            groups=launch.user.groups,
            argv=(path, *launch.arguments),
            env=env,
            cwd=launch.work_dir,
            stdin=expand_pattern(launch.input, fields) if launch.input else "/dev/null",
            stdout=expand_pattern(output, fields),
            stderr=expand_pattern(launch.error, fields) if launch.error else "",
            open_mode="append" if launch.append_output else "truncate",
            umask=launch.umask,
            time_limit_us=launch.time_limit_s * 1_000_000,
            kill_grace_us=int(launch.kill_grace_s * 1_000_000),
            orphan_timeout_us=int(launch.orphan_timeout_s * 1_000_000),
            warning=_warning(launch),
        )

    def tasks_spec(self, action: RunTasks, node_name: str, environment: bytes) -> StepSpec:
        """A step's tasks on one node. Raises ValueError for an endpoint that is none."""
        launch, request = action.launch, action.request
        shared = self._step_environment(action, environment)
        return StepSpec(
            key=step_key(action.step),
            node_name=node_name,
            uid=launch.user.uid,
            gid=launch.user.gid,
            groups=launch.user.groups,
            argv=request.argv,
            env=shared.shared | {"ESLURM_SOCKET": self._door},
            cwd=request.work_dir,
            endpoint=_endpoint(request.endpoint, request.cookie),
            umask=launch.umask,
            kill_grace_us=int(launch.kill_grace_s * 1_000_000),
            orphan_timeout_us=int(launch.orphan_timeout_s * 1_000_000),
            tasks=action.tasks,
            first_task=action.first_task,
            task_env=shared.of_tasks(action.step.node),
        )

    def _step_environment(self, action: RunTasks, environment: bytes) -> StepEnvironment:
        """Built once per step: many nodes of this process may have a part in it."""
        step = action.step
        key = (step.job_id, step.attempt, step.step)
        known = self._step_environments.get(key)
        if known is None:
            known = StepEnvironment(action.launch, action.request, _decode(environment))
            self._step_environments[key] = known
            if len(self._step_environments) > STEP_ENVIRONMENTS_MAX:
                self._step_environments.popitem(last=False)
        return known


def _warning(launch: JobLaunch) -> StepWarning | None:
    if not launch.warn_signal and not launch.warn_script:
        return None
    before_us = launch.warn_before_s * 1_000_000
    return StepWarning(before_us, launch.warn_signal, launch.warn_batch_only, launch.warn_script)


def step_key(step: StepId) -> StepKey:
    """The runner's name for a step."""
    return StepKey(step.job_id, step.attempt, step.step, step.node)


def step_id(key: StepKey) -> StepId:
    """The core's name for a step."""
    return StepId(key.job_id, key.attempt, key.step, key.node)


def _decode(environment: bytes) -> dict[str, str]:
    variables = decode_environment(environment)
    # Bytes that are no UTF-8 cannot travel to the runner as text.
    return variables if _is_text(environment) else {name: _clean(value) for name, value in variables.items()}


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _clean(value: str) -> str:
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _endpoint(text: str, cookie: bytes) -> OutputEndpoint:
    host, port = parse_endpoint(text)
    return OutputEndpoint(host, port, cookie)
