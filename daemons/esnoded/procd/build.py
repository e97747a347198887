"""From what a credential allows (`Launchable`) to the step that is run (`StepSpec`).

Invariant: all that decides whose process it is and what it runs comes from the credential, and script and environment have
the hashes that it names. Only the door of the job's commands is the agent's word: one variable of the job.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from eslurm.compat.environment import StepEnvironment, batch_environment, decode_environment
from eslurm.compat.filenames import FileNameFields, default_output, expand_pattern
from eslurm.core.wire import JobLaunch, LaunchStep
from eslurm.ports.step_checks import parse_endpoint
from eslurm.ports.step_runner import OutputEndpoint, StepKey, StepSpec, StepWarning
from esnoded.procd.credential import Launchable, NotAllowed

STEP_ENVIRONMENTS_MAX = 64


class Builder:
    """Builds specs, and keeps what many nodes of a step have in common."""

    def __init__(self) -> None:
        self._step_environments: OrderedDict[tuple[int, int, int], StepEnvironment] = OrderedDict()

    def batch(
        self, key: StepKey, allowed: Launchable, script: str, environment: bytes, door: str
    ) -> StepSpec:
        """The batch script, which is the file `script`, as a step. Raises `NotAllowed`."""
        launch = allowed.launch
        check_hash("environment", environment, launch.environment_hash)
        env = batch_environment(launch, _decode(environment))
        env["ESLURM_SOCKET"] = door
        fields = FileNameFields(
            launch.job_id,
            job_name=launch.name,
            user=launch.user.name,
            node_name=allowed.node_name,
            array_job_id=launch.array_job_id,
            array_task=launch.array_task,
        )
        output = launch.output or default_output(launch.array_task >= 0)
        return StepSpec(
            key=key,
            node_name=allowed.node_name,
            uid=launch.user.uid,
            gid=launch.user.gid,
            groups=launch.user.groups,
            argv=(script, *launch.arguments),
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

    def tasks(self, key: StepKey, allowed: Launchable, environment: bytes, door: str) -> StepSpec:
        """A step's tasks on one node. Raises `NotAllowed`, ValueError for an endpoint that is none."""
        launch, request = allowed.launch, allowed.request
        assert request is not None
        check_hash("environment", environment, request.environment_hash)
        shared = self._step_environment(launch, request, environment)
        share = shared.find_share(key.node)
        if share is None:
            raise NotAllowed(f"the credential has no tasks for node number {key.node}")
        tasks, first_task = share
        address, port = parse_endpoint(request.endpoint)
        return StepSpec(
            key=key,
            node_name=allowed.node_name,
            uid=launch.user.uid,
            gid=launch.user.gid,
            groups=launch.user.groups,
            argv=request.argv,
            env=shared.shared | {"ESLURM_SOCKET": door},
            cwd=request.work_dir,
            endpoint=OutputEndpoint(address, port, request.cookie),
            umask=launch.umask,
            kill_grace_us=int(launch.kill_grace_s * 1_000_000),
            orphan_timeout_us=int(launch.orphan_timeout_s * 1_000_000),
            tasks=tasks,
            first_task=first_task,
            task_env=shared.of_tasks(key.node),
        )

    def _step_environment(
        self, launch: JobLaunch, request: LaunchStep, environment: bytes
    ) -> StepEnvironment:
        key = (launch.job_id, launch.attempt, request.step)
        known = self._step_environments.get(key)
        if known is None or not known.is_of(launch, request):
            known = self._step_environments[key] = StepEnvironment(launch, request, _decode(environment))
            if len(self._step_environments) > STEP_ENVIRONMENTS_MAX:
                self._step_environments.popitem(last=False)
        return known


def check_hash(what: str, data: bytes, digest: bytes) -> None:
    """Raises `NotAllowed` unless `data` is what the credential names; without a name it is empty."""
    if hashlib.sha256(data).digest() != digest and (data or digest):
        raise NotAllowed(f"the {what} is not the one that the credential names")


def _warning(launch: JobLaunch) -> StepWarning | None:
    if not launch.warn_signal and not launch.warn_script:
        return None
    before_us = launch.warn_before_s * 1_000_000
    return StepWarning(before_us, launch.warn_signal, launch.warn_batch_only, launch.warn_script)


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
