"""The steps of a job's gateways: a daemon on each gateway node, and the helpers on the first node; all as the job's user.

Invariant: which daemon runs is the job's request or root's word (`procd.request_checks`); the helper is this release's own
(`task.routes`), with none of the user's variables.
"""

from __future__ import annotations

import os

from msgspec.structs import replace

from eslurm.compat.environment import PHASE_PATH
from eslurm.compat.filenames import gateway_log
from eslurm.core.model.gateways import GatewayRequest, GatewayStep
from eslurm.core.model.protocol import JobLaunch, LaunchStep
from eslurm.core.model.step_key import ROUTE_ERROR_STEP, StepKey
from eslurm.ports.step_runner import StepSpec
from esnoded.task.errand import Errand, helper_argv
from esnoded.task.user_step import user_step

_OF_JOB = ("SLURM", "ESLURM")
_OF_LOGIN = frozenset(("HOME", "USER", "LOGNAME", "SHELL"))
HELPER_GRACE_US = 5_000_000
"""From the end of the job to SIGKILL, for the removal of a file."""


def build_daemon(
    key: StepKey, launch: JobLaunch, node_name: str, env: dict[str, str], share: tuple[int, int], daemon: str
) -> StepSpec:
    """A gateway daemon, with the job's variables and those that are asked for. `share`: tasks here, rank of the first."""
    spec = launch.spec
    asked = spec.gateway or GatewayRequest(0)
    env = (_apart(env) if asked.apart else env) | ({"ESLURM_GATEWAY_DEBUG": "1"} if asked.debug else {})
    step = user_step(key, launch, node_name, (daemon,), env | dict(asked.env), spec.work_dir)
    log = gateway_log(launch.job_id, node_name, spec.work_dir) if asked.debug else ""
    return replace(step, tasks=share[0], first_task=share[1], stderr=log, open_mode="append")


def _apart(env: dict[str, str]) -> dict[str, str]:
    """The job's variables without those of its user: a wrong library path there is none of the daemon's."""
    own = {name: value for name, value in env.items() if name.startswith(_OF_JOB) or name in _OF_LOGIN}
    return own | {"PATH": PHASE_PATH}


def build_helper(key: StepKey, launch: JobLaunch, request: LaunchStep, node_name: str) -> StepSpec:
    """The helper that writes the routes, or the file that says why there are none. Raises ValueError."""
    spec, asked = launch.spec, launch.spec.gateway
    if asked is None:
        raise ValueError("the job has no gateways")
    errand = Errand(
        launch.job_id,
        spec.work_dir,
        asked.file,
        asked.plugin,
        asked.cleanup,
        request.gateway or GatewayStep(),
        key.step == ROUTE_ERROR_STEP,
    )
    own = {"PATH": PHASE_PATH, "LC_ALL": "C.UTF-8", "PYTHONSAFEPATH": "1"}
    env = own | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    step = user_step(key, launch, node_name, helper_argv(errand), env, "/")
    return replace(step, kill_grace_us=HELPER_GRACE_US)
