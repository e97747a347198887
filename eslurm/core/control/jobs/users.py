"""Users whose jobs a cluster runs, by its configuration. Each node's step supervisor has settings of its own beside it."""

from __future__ import annotations

from eslurm.core.model import facts
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.job import Principal
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.state.cluster import State


def user_problem(config: ClusterConfig, user: Principal) -> str:
    """The reason why jobs of this user are refused, naming the setting; empty when they are not."""
    if user.uid == 0 and not config.allow_root_jobs:
        return "root's jobs are refused (agent.allow_root_jobs)"
    if 0 < user.uid < config.min_uid:
        return (
            f"jobs of {user.name} (uid {user.uid}) are refused: it is below {config.min_uid} (agent.min_uid)"
        )
    return ""


def check_user(state: State, user: Principal) -> None:
    """Raise `Refused` when jobs of this user are not run here."""
    problem = user_problem(state.config, user)
    if problem:
        raise Refused(RefusalCode.DENIED, f"{problem}: submit as an ordinary user")


def held_by_user(state: State, config: ClusterConfig) -> list[facts.Fact]:
    """Hold the waiting jobs of users that a new configuration excludes, naming the setting."""
    if not config.min_uid and config.allow_root_jobs:
        return []
    return [
        facts.JobHeld(job.job_id, "system", problem)
        for job in state.jobs.values()
        if job.state is JobState.PENDING and not job.hold
        if (problem := user_problem(config, job.spec.user))
    ]
