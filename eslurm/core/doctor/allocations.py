"""Consistency of the jobs' holdings, the ledger and the nodes' resources, and of each job's record with the indexes.

Invariant: each record is judged by itself, against the state at that instant, so a check that pauses between two records
never takes a change for a contradiction.
"""

from __future__ import annotations

from eslurm.core.doctor.finding import ERROR, Finding, Sliced
from eslurm.core.model.job import Job
from eslurm.core.resources.ledger import Hold
from eslurm.core.resources.vector import Vector, add, aligned, fits, is_negative
from eslurm.core.state.allocation_amounts import shares_of
from eslurm.core.state.cluster import State, attempts_of, is_usable, owed_revisions
from eslurm.core.state.invariants import check_job

ALLOCATIONS = "allocations"
RECORDS = "records"

_BUG = (
    "this is a defect of the controller: save `esctl log export` for a report, then restart esctld: "
    "its state is rebuilt from the store"
)


class Spread:
    """Amounts that each job holds on each of its nodes, cached by the job's record."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Job, dict[int, list[Hold]]]] = {}

    def of(self, job: Job) -> dict[int, list[Hold]]:
        """The holds by node number, as the ledger names them."""
        known = self._known.get(job.job_id)
        if known is not None and known[0] is job:
            return known[1]
        found: dict[int, list[Hold]] = {}
        for attempt in attempts_of(job):
            for node, amounts in shares_of(attempt):
                found.setdefault(node, []).append((attempt.until_us, amounts))
        self._known[job.job_id] = (job, found)
        return found


def check_records(state: State) -> Sliced:
    """Each job and step by the rules of its own record, and what is filed under it."""
    for job_id in list(state.jobs):
        yield None
        job = state.find_job(job_id)
        if job is None:
            continue
        for text in _job_faults(state, job):
            yield Finding(RECORDS, ERROR, f"job {job_id}", text, _BUG)
    for key, step in list(state.steps.items()):
        yield None
        holder = state.find_job(key[0])
        live = holder is not None and holder.attempt is not None and holder.attempt.number == step.attempt
        if key in state.steps and not live:
            what = f"step {key[0]}.{key[1]}"
            yield Finding(RECORDS, ERROR, what, f"outlives its attempt {step.attempt}", _BUG)
    for revision, job_id in list(state.owed.items()):
        yield None
        job = state.find_job(job_id)
        owes = job is not None and any(revision in owed_revisions(attempt) for attempt in attempts_of(job))
        if state.owed.get(revision) == job_id and not owes:
            text = f"effect {revision} is filed as owed, the job does not owe it"
            yield Finding(RECORDS, ERROR, f"job {job_id}", text, _BUG)


def _job_faults(state: State, job: Job) -> list[str]:
    faults = []
    try:
        check_job(state, job)
    except (AssertionError, LookupError) as error:
        faults.append(str(error))
    for attempt in attempts_of(job):
        missing = [revision for revision in owed_revisions(attempt) if state.owed.get(revision) != job.job_id]
        if missing:
            faults.append(f"owes effects {missing} that are not filed")
    return faults


def check_allocations(state: State) -> Sliced:
    """Double allocation, and the ledger (the timelines' present) against the spans of jobs."""
    spread = Spread()
    for job_id in list(state.jobs):
        yield None
        job = state.find_job(job_id)
        if job is None:
            continue
        for number in spread.of(job):
            if number not in state.ledger.topology.positions:
                text = f"holds node #{number}, which the ledger does not know"
                yield Finding(ALLOCATIONS, ERROR, f"job {job_id}", text, _BUG)
            elif job_id not in state.jobs_on.get(number, ()):
                text = f"holds node {_name(state, number)}, where it is not filed"
                yield Finding(ALLOCATIONS, ERROR, f"job {job_id}", text, _BUG)
    for number in list(state.ledger.topology.numbers):
        yield None
        yield from _check_node(state, spread, number)


def _check_node(state: State, spread: Spread, number: int) -> Sliced:
    position = state.ledger.topology.positions.get(number)
    if position is None:
        return
    what = f"node {_name(state, number)}"
    total = state.ledger.topology.totals[position]
    spans: list[Hold] = []
    jobs: list[int] = []
    for job_id in sorted(state.jobs_on.get(number, ())):
        job = state.find_job(job_id)
        held = spread.of(job).get(number, []) if job is not None else []
        spans += [(until_us, aligned(amounts, len(total))) for until_us, amounts in held]
        if held:
            jobs.append(job_id)
        else:
            yield Finding(
                ALLOCATIONS, ERROR, what, f"job {job_id} is filed here and holds nothing here", _BUG
            )
    used = _sum(spans)
    names = ", ".join(map(str, jobs))
    if not fits(used, total):
        text = f"allocated twice: jobs {names} hold {used}, the node has {total}"
        yield Finding(ALLOCATIONS, ERROR, what, text, f"drain the node and cancel one of jobs {names}")
    booked = state.ledger.holds_on(position)
    if sorted(booked) != sorted(spans):
        text = f"the ledger has {_sum(booked)} held, its jobs ({names or 'none'}) hold {used}"
        yield Finding(ALLOCATIONS, ERROR, what, text, _BUG)
    free = state.ledger.free_on(position)
    if add(free, _sum(booked)) != total or is_negative(free):
        text = f"{free} free and {_sum(booked)} held do not make {total}"
        yield Finding(ALLOCATIONS, ERROR, what, text, _BUG)
    node = state.nodes.get(number)
    usable = node is not None and is_usable(node) and number not in state.removed
    if bool(state.ledger.usable >> position & 1) != usable:
        text = f"the planner takes it for {'unusable' if usable else 'usable'}, its record says otherwise"
        yield Finding(ALLOCATIONS, ERROR, what, text, _BUG)


def _sum(holds: list[Hold] | tuple[Hold, ...]) -> Vector:
    together: Vector = (0, 0)
    for _, amounts in holds:
        together = add(together, amounts)
    return together


def _name(state: State, number: int) -> str:
    return state.node_names([number])[0]
