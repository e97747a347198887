"""Reports of the prolog and epilog of nodes, turned into facts (F-01, F-03).

The prolog is a part of the launch: a node is prepared when its prolog has ended well, and one on which it fails has failed
the launch. The epilog is a part of the release: a node is held until its epilog has ended, however it ended. Either failure
is a fault of the node.
"""

from __future__ import annotations

from eslurm.core.control.jobs import gateways, growing
from eslurm.core.control.jobs.outcomes import given_back, launch_failed
from eslurm.core.model import facts
from eslurm.core.model.job import Attempt, Job
from eslurm.core.model.job_states import AttemptPhase
from eslurm.core.model.protocol import CheckPassed, PhaseReported
from eslurm.core.model.step_key import GATEWAY_STEPS, PROLOG
from eslurm.core.state import faults
from eslurm.core.state.cluster import State


def on_phase_reported(state: State, report: PhaseReported, now_us: int) -> list[facts.Fact]:
    """A prolog ended on its node, and one that failed has left nothing there; or a step of the job's gateways ended."""
    if report.phase in GATEWAY_STEPS:
        return gateways.on_step_ended(state, report, now_us)
    if report.phase != PROLOG:
        return []
    job_id, number, node = report.job_id, report.attempt, report.node
    found = state.find_attempt(job_id, number)
    launches = found is not None and _launches(*found, node)
    if found is not None and _joins(*found, report.node):
        return growing.on_prolog(state, *found, report, now_us)
    if report.end.is_good:
        return [facts.NodesPrepared(job_id, number, (node,), report.end.took_us)] if launches else []
    fault = faults.failed(
        state.nodes.get(node), report.incarnation, PROLOG, report.end, job_id, number, now_us
    )
    if found is None or not launches:
        return [*fault, *given_back(state, job_id, number, node, now_us)]
    text = f"its prolog failed: {faults.why(report.end)}"
    # The fault keeps others away: the node is not blamed for the launch as well.
    return [*fault, *launch_failed(state, *found, now_us, (node,), (node,), (), text)]


def _joins(job: Job, attempt: Attempt, node: int) -> bool:
    return attempt is job.attempt and node in attempt.joining and growing.goes_on(attempt)


def _launches(job: Job, attempt: Attempt, node: int) -> bool:
    return attempt is job.attempt and attempt.phase is AttemptPhase.PREPARING and node in attempt.waiting


def on_check_passed(state: State, report: CheckPassed) -> list[facts.Fact]:
    """The check of a node has passed since these faults began."""
    node = state.nodes.get(report.node)
    if node is None:
        return []
    kinds = tuple(fault.kind for fault in node.faults if (fault.kind, fault.job_id) in report.faults)
    return [facts.NodeCleared(report.node, kinds)] if kinds else []


def overdue(state: State, job_id: int, now_us: int) -> list[facts.Fact]:
    """Nodes that serve and have not reported the end of their prolog: the launch is tried elsewhere."""
    job = state.find_job(job_id)
    attempt = job.attempt if job is not None else None
    if job is None or attempt is None or attempt.more is None:
        return []
    if not 0 < attempt.more.preparing_until_us <= now_us:
        return []
    late = tuple(number for number in attempt.nodes if number in attempt.preparing)
    text = f"{len(late)} of its {len(attempt.nodes)} nodes have not reported the end of their prolog"
    return launch_failed(state, job, attempt, now_us, (), late, (), text)
