"""The step that is a node's prolog or epilog: root's program with the job's variables, and nothing of the user's choice.

Invariant: program, user and limit are root's word (`procd.options`); of the job come values of variables with fixed names.
"""

from __future__ import annotations

from collections.abc import Sequence

from eslurm.compat.environment import phase_environment
from eslurm.core.model.job import Principal
from eslurm.core.model.protocol import JobLaunch
from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_runner import StepSpec

GRACE_US = 5_000_000
"""From the end of its time to SIGKILL."""


def build_phase(
    key: StepKey,
    launch: JobLaunch,
    node_name: str,
    names: Sequence[str],
    cluster: str,
    user: Principal,
    program: str,
    end: tuple[int, int] | None = None,
    _local: int = 0,
) -> StepSpec:
    """The phase that `key` names, as `user` runs it. `end`: exit code and signal of the job's script, where known."""
    return StepSpec(
        key=key,
        node_name=node_name,
        uid=user.uid,
        gid=user.gid,
        groups=user.groups,
        argv=(program,),
        env=phase_environment(launch, names, cluster, node_name, key.node, key.phase, end),
        cwd="/",
        kill_grace_us=GRACE_US,
    )
