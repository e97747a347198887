"""Nodes on which launches fail, and when to blame the node rather than the jobs (C-43).

A job may be one that no node can launch, and a user may have many of them. So a node is set aside only when launches of
different jobs of different users have failed there without a success in between. It is drained for a while and then tried
again by the next placement: one more failure sets it aside for twice as long, a success clears it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.job import Attempt, Job
from eslurm.core.model.node import Node
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State

JOBS_MIN: Final = 3
USERS_MIN: Final = 2
JOBS_KEPT: Final = 8
"""Of so many jobs a node remembers that their launches failed, the last ones."""
ASIDE_FIRST_S: Final = 60
ASIDE_MAX_S: Final = 3_600


def set_aside(state: State, job: Job, blamed: Iterable[int], now_us: int) -> list[facts.Fact]:
    """Nodes to set aside after this job's failed launch. Nodes already drained are left alone."""
    found: list[facts.Fact] = []
    for number in blamed:
        node = state.nodes.get(number)
        if node is None or node.drain or node.faults:
            continue
        failed = _with(node, job)
        jobs, users = len(failed), len({uid for _, uid in failed})
        if node.aside_times or (jobs >= JOBS_MIN and users >= USERS_MIN):
            until_us = now_us + pause_s(node) * SECOND_US
            found.append(facts.NodeSetAside(number, until_us, tuple([job_id for job_id, _ in failed])))
    return found


def pause_s(node: Node) -> int:
    """Seconds for which the node gets no work before it is tried again."""
    return min(ASIDE_FIRST_S << min(node.aside_times, 16), ASIDE_MAX_S)


def reason(jobs: tuple[int, ...]) -> str:
    """The reason for users. The texts of the failed launches belong to their users and are not repeated."""
    shown = ", ".join(str(job_id) for job_id in jobs)
    return (
        f"launches fail here (jobs {shown}): it is tried again after a pause, or after a restart of its agent"
    )


def apply_failed(state: State, job: Job, blamed: Iterable[int]) -> None:
    """Record that these nodes could not launch the job."""
    for number in blamed:
        node = state.nodes.get(number)
        if node is not None:
            state.put_node(replace(node, failed_launches=_with(node, job)))


def apply_launched(state: State, attempt: Attempt) -> None:
    """Record that all nodes of the attempt have launched it."""
    apply_ready(state, [span.node for span in attempt.spans])


def apply_ready(state: State, nodes: Iterable[int]) -> None:
    """Record that these nodes have launched a job."""
    for number in nodes:
        node = state.nodes.get(number)
        if node is not None and (node.failed_launches or node.aside_times) and not node.aside_until_us:
            state.put_node(replace(node, failed_launches=(), aside_times=0))


def _with(node: Node, job: Job) -> tuple[tuple[int, int], ...]:
    """The node's failed jobs, with this one as the last."""
    before = [one for one in node.failed_launches if one[0] != job.job_id]
    return (*before, (job.job_id, job.spec.user.uid))[-JOBS_KEPT:]
