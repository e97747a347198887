"""A growth of a running job, from the plan's placement until its nodes have joined, turned into facts.

Its nodes join together or not at all: where one cannot be prepared all of them are given back, and the growth waits for
others. Invariant: a growth never ends its job, and a node never joins a job that does not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from eslurm.core.control.jobs.launch_answers import launch_answers
from eslurm.core.control.jobs.times import retry_at_us
from eslurm.core.model import facts
from eslurm.core.model.hostlist import fold
from eslurm.core.model.job import Attempt, Job, Span
from eslurm.core.model.job_states import AttemptPhase, JobState
from eslurm.core.model.messages import EffectDone
from eslurm.core.model.protocol import PhaseReported
from eslurm.core.model.step_key import PROLOG
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.queue import Pending, QueueEntry
from eslurm.core.state import faults, launch_failures
from eslurm.core.state.apply_elastic import left_s
from eslurm.core.state.cluster import State
from eslurm.core.state.job_indexes import fills, shorter_at_us
from eslurm.core.state.queue_entries import pending_of

NAMED_MAX = 4


def growing_attempt(state: State, growth: Job) -> tuple[Job, Attempt] | None:
    """The running job of a growth and its attempt; None when that is over, or is being ended."""
    place = growth.grows
    assert place is not None
    job = state.find_job(place.job_id)
    attempt = job.attempt if job is not None else None
    if job is None or attempt is None or attempt.number != place.attempt:
        return None
    return (job, attempt) if goes_on(attempt) else None


def goes_on(attempt: Attempt) -> bool:
    """Check whether the attempt runs and is not being ended: else all of its nodes are on their way out."""
    return attempt.phase is AttemptPhase.RUNNING and attempt.stop is None


def placed(state: State, growth: Job, spans: tuple[Span, ...], until_us: int) -> list[facts.Fact]:
    """The plan has nodes for a growth. What does not fit its job as it is now is dropped and planned anew."""
    found = growing_attempt(state, growth)
    if found is None:
        return []
    job, attempt = found
    own = {span.node for span in attempt.spans}
    if attempt.suspended_us or until_us < attempt.until_us or any(span.node in own for span in spans):
        return []
    # Whatever its request counted as a task, each node has as many as those before.
    tasks = max(span.tasks for span in attempt.spans)
    spans = tuple([replace(span, tasks=tasks) for span in spans])
    return [facts.GrowthPlaced(job.job_id, attempt.number, growth.job_id, spans)]


def on_prepared(
    state: State, job: Job, attempt: Attempt, message: EffectDone, now_us: int
) -> list[facts.Fact]:
    """The nodes of a growth have answered its launch, or some of them."""
    growth = attempt.growth
    assert growth is not None
    answers = launch_answers(message, growth.waiting, has_phases=bool(attempt.phases))
    if answers.bad:
        why = f"{_names(state, answers.bad)}: {answers.text or 'no answer'}"
        return failed(state, job, attempt, now_us, answers.failed, why)
    found: list[facts.Fact] = []
    if answers.preparing:
        until_us = answers.report_until_us(now_us)
        found.append(facts.GrowthPreparing(job.job_id, attempt.number, answers.preparing, until_us))
    return [*found, *(joined(state, job, attempt, answers.ok) if answers.ok else [])]


def on_prolog(
    state: State, job: Job, attempt: Attempt, report: PhaseReported, now_us: int
) -> list[facts.Fact]:
    """The prolog of a joining node has ended."""
    growth = attempt.growth
    assert growth is not None
    if report.end.is_good:
        ready = report.node in growth.waiting
        return joined(state, job, attempt, (report.node,), report.end.took_us) if ready else []
    node = state.nodes.get(report.node)
    fault = faults.failed(node, report.incarnation, PROLOG, report.end, job.job_id, attempt.number, now_us)
    why = f"{_names(state, (report.node,))}: its prolog failed: {faults.why(report.end)}"
    return [*fault, *failed(state, job, attempt, now_us, (), why)]


def joined(
    state: State, job: Job, attempt: Attempt, nodes: tuple[int, ...], prolog_us: int = 0
) -> list[facts.Fact]:
    """These nodes are ready; with the last one the record of the growth ends well."""
    growth = attempt.growth
    assert growth is not None
    found: list[facts.Fact] = [facts.NodesJoined(job.job_id, attempt.number, nodes, prolog_us)]
    if growth.waiting.issubset(nodes):
        order = [span.node for span in attempt.spans if span.node in growth.joining]
        text = f"job {job.job_id} got {fold(state.node_names(order))}"
        found.append(facts.JobFinished(growth.growth_id, JobState.COMPLETED, text))
    return found


def failed(
    state: State, job: Job, attempt: Attempt, now_us: int, blamed: Sequence[int], text: str
) -> list[facts.Fact]:
    """Give the nodes of a growth back, and wait for others; after too many tries the growth ends."""
    growth = attempt.growth
    assert growth is not None
    record = state.find_job(growth.growth_id)
    if record is None or not growth.joining:
        return []
    why = f"could not join job {job.job_id}: {text}"
    aside = launch_failures.set_aside(state, job, blamed, now_us)
    is_named = bool(record.spec.components[0].include)
    if is_named or record.launch_failures + 1 >= state.config.launch_failures_max:
        # Nodes that it names are the only ones, and these do not come again.
        return [facts.JobFinished(record.job_id, JobState.CANCELLED, why), *aside]
    again_us = retry_at_us(state, record, now_us)
    fact = facts.GrowthFailed(job.job_id, attempt.number, record.job_id, again_us, why, tuple(blamed))
    return [fact, *aside]


def overdue(state: State, job_id: int, now_us: int) -> list[facts.Fact]:
    """Nodes that serve and have not reported the end of their prolog: others are tried."""
    job = state.find_job(job_id)
    attempt = job.attempt if job is not None else None
    if job is None or attempt is None or attempt.growth is None:
        return []
    if not 0 < attempt.growth.preparing_until_us <= now_us or attempt.stop is not None:
        return []
    names = _names(state, sorted(attempt.growth.preparing))
    return failed(state, job, attempt, now_us, (), f"{names}: no report of the end of the prolog")


def shorter(state: State, growth_id: int, now_us: int) -> list[facts.Fact]:
    """A growth that waits asks for nodes until the end of its job, which has come nearer."""
    growth = state.find_job(growth_id)
    found = growing_attempt(state, growth) if growth is not None and growth.grows is not None else None
    if growth is None or found is None or growth.state is not JobState.PENDING or found[1].joining:
        return []
    if not 0 < shorter_at_us(found[0], growth) <= now_us < found[1].until_us:
        return []
    spec = replace(growth.spec, time_limit_s=left_s(found[1].until_us, now_us))
    return [facts.JobChanged(growth_id, spec, growth.priority, growth.not_before_us)]


def concerned(state: State, job_id: int) -> list[int]:
    """The growth of a job that has ended, or is being ended."""
    growth_id = state.growing.get(job_id)
    return [] if growth_id is None else [growth_id]


def hungry(state: State, job_id: int) -> list[int]:
    """The job, if it is elastic and runs on fewer nodes than it may have."""
    job = state.find_job(job_id)
    if job is None or not job.spec.elastic or job.attempt is None or job.grows is not None:
        return []
    return [job_id] if len(job.attempt.held) < job.spec.components[0].nodes_max else []


def after_growth(state: State, growth_id: int) -> list[int]:
    """The job of a growth that ended well: an elastic one may get more."""
    growth = state.find_job(growth_id)
    if growth is None or growth.grows is None or growth.state is not JobState.COMPLETED:
        return []
    return hungry(state, growth.grows.job_id)


def fillers(state: State, now_us: int) -> tuple[QueueEntry, ...]:
    """The growths of elastic jobs that may take what is free now, the oldest first: until the ends of their jobs."""
    entries: list[Pending] = []
    for growth in map(state.get_job, all_growths(state)):
        found = growing_attempt(state, growth) if fills(growth) else None
        if found is not None and found[1].until_us > now_us:
            limit_us = left_s(found[1].until_us, now_us) * SECOND_US
            entries.append(replace(pending_of(growth, 1, use_forecasts=False), time_limit_us=limit_us))
    # Shapes of the queue count upwards from 0: none of them is one of these.
    return tuple([QueueEntry(0, one.submitted_us, one.job_id, -one.job_id, one) for one in entries])


def all_growths(state: State) -> list[int]:
    """The growths that have not ended."""
    return sorted(state.growing.values())


def withdrawn(state: State, growth: Job) -> list[facts.Fact]:
    """End the growth of a job that does not run any more."""
    assert growth.grows is not None
    if growth.state is not JobState.PENDING or growing_attempt(state, growth) is not None:
        return []
    text = f"job {growth.grows.job_id} has ended, or is being ended"
    return [facts.JobFinished(growth.job_id, JobState.CANCELLED, text)]


def _names(state: State, nodes: Iterable[int]) -> str:
    """The first of these nodes by name."""
    numbers = list(nodes)
    return ", ".join(state.node_names(numbers[:NAMED_MAX])) + (", ..." if len(numbers) > NAMED_MAX else "")
