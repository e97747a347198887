"""The common base of all steps of a job's user, whichever program they run."""

from __future__ import annotations

from eslurm.core.model.protocol import JobLaunch
from eslurm.core.model.step_key import StepKey
from eslurm.core.resources.vector import CORES, MEMORY_MIB, padded
from eslurm.ports.step_runner import StepSpec


def user_step(
    key: StepKey, launch: JobLaunch, node_name: str, argv: tuple[str, ...], env: dict[str, str], cwd: str
) -> StepSpec:
    """A step of one task that runs as the job's user, with the job's umask and grace."""
    spec = launch.spec
    cores, memory_mib = _amounts(launch, key.node)
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
        cores=cores,
        memory_mib=memory_mib,
    )


def _amounts(launch: JobLaunch, node: int) -> tuple[int, int]:
    """Cores and memory (MiB) that all parts of the job have on a node."""
    here = [
        padded(group.amounts)
        for group in launch.groups
        if any(first <= node < first + count for first, count in group.runs)
    ]
    return sum(amounts[CORES] for amounts in here), sum(amounts[MEMORY_MIB] for amounts in here)
