"""The common base of all steps of a job's user, whichever program they run."""

from __future__ import annotations

from eslurm.core.model.protocol import JobLaunch
from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_runner import StepSpec


def user_step(
    key: StepKey, launch: JobLaunch, node_name: str, argv: tuple[str, ...], env: dict[str, str], cwd: str
) -> StepSpec:
    """A step of one task that runs as the job's user, with the job's umask and grace."""
    spec = launch.spec
    return StepSpec(
        key=key,
        node_name=node_name,
        uid=spec.user.uid,
        gid=spec.user.gid,
        groups=spec.user.groups,
        argv=argv,
        env=env,
        cwd=cwd,
        umask=spec.umask,
        kill_grace_us=int(launch.kill_grace_s * 1_000_000),
        orphan_timeout_us=int(launch.orphan_timeout_s * 1_000_000),
    )
