"""Cores that applications lend: their exclusion on demand, their return, and requests to exclude more (R-01..R-05).

Reports of applications are soft state (`State.reports`); each function looks at the changed ones and returns the facts that
follow. Order of a loan: an application reports idle cores; while jobs wait that accept such cores, the node is told to
exclude them; it confirms; the plan may place a borrower there. Order of a return: the application reports fewer idle cores
than are excluded; what is not lent is given back at once, borrowers of the rest are stopped with the grace that they agreed
to. Invariants: nothing is placed on cores that their node has not confirmed; no borrower is stopped twice.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from eslurm.core.control.jobs.stopping import stop
from eslurm.core.model import facts
from eslurm.core.model.job import Attempt, Job
from eslurm.core.model.job_states import AttemptPhase, StopCause
from eslurm.core.model.lending import (
    FULL,
    REQUEUE,
    CoreReport,
    Exclusion,
    Loan,
    cooperation_of,
    harm_s,
    terms_of,
)
from eslurm.core.model.protocol import CoresReported
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.snapshot import Lendable, Lent, RunningKey
from eslurm.core.resources.vector import CORES
from eslurm.core.state.allocation_amounts import spans_to_come
from eslurm.core.state.cluster import State
from eslurm.core.state.core_reports import ReportKey

LOOKS_PER_BATCH: Final = 256
"""Reports looked at in one batch: about two milliseconds."""
ASK_EVERY_US: Final = 5 * SECOND_US
"""Interval at which applications are looked for that could be asked, and exclusions that had to wait."""
ASK_AFTER_US: Final = SECOND_US
"""A job has waited so long before others are asked for it."""
ASKS_PER_LOOK: Final = 4
ASKED_OF_MAX: Final = 4_096
"""Reports among which one look chooses: some milliseconds."""
ASK_AGAIN_S: Final = 60
ASK_AGAIN_DOUBLINGS_MAX: Final = 6
"""An application is asked again after so long, and after twice as long each time that it has not granted it."""


def note(state: State, report: CoresReported, now_us: int) -> None:
    """Take over a node's report of an attempt that runs there and cooperates; others are old news."""
    job = state.find_job(report.job_id)
    attempt = job.attempt if job is not None else None
    if job is None or attempt is None or attempt.number != report.attempt or report.node not in attempt.held:
        return
    if not cooperates(job, attempt):
        return
    cores = _cores_on(attempt, report.node)
    idle = min(max(0, report.idle), cores)
    told = CoreReport(idle, report.excluded, report.remaining_s, report.rejects, now_us)
    state.reports.note((job.job_id, attempt.number, report.node), told)


def cooperates(job: Job, attempt: Attempt) -> bool:
    """Check whether the attempt may lend cores: its user lets it (R-06), and it is of one part."""
    return cooperation_of(job.spec.cooperate).lends and not attempt.has_parts


def due(state: State, now_us: int) -> list[facts.Fact]:
    """Facts that follow from what has changed since the last look."""
    reports = state.reports
    has_demand = bool(state.borrowers)
    if has_demand and not reports.had_demand:
        reports.touch_all()
    reports.had_demand = has_demand
    is_look_due = has_demand and now_us >= reports.asked_us + ASK_EVERY_US
    if is_look_due:
        reports.resume()
    found: list[facts.Fact] = []
    stopped: set[int] = set()
    for _ in range(min(len(reports.changed), LOOKS_PER_BATCH)):
        key = next(iter(reports.changed))
        del reports.changed[key]
        found += _looked(state, key, now_us, stopped, has_demand=has_demand)
    if is_look_due:
        reports.asked_us = now_us
        found += _asks(state, now_us)
    return found


def lendable(state: State) -> list[Lendable]:
    """Confirmed cores that are not lent, and that their owners do not want back."""
    found: list[Lendable] = []
    for job_id in sorted(state.excluding) if state.borrowers else ():
        job = state.get_job(job_id)
        attempt = job.attempt
        if attempt is None or not _may_lend(job, attempt):
            continue
        for one in attempt.exclusions:
            cores = _free_of(state, job, attempt, one)
            if cores > 0:
                found.append(Lendable((job_id, attempt.number), one.node, cores))
    return found


def lent(state: State) -> list[Lent]:
    """All cores that running jobs have borrowed."""
    return [
        Lent(borrower, (owner, attempt), node, cores)
        for (owner, attempt, node), borrowers in state.loans.items()
        for borrower, cores in borrowers.items()
    ]


def can_lend(state: State, loans: tuple[Loan, ...], taken: dict[ReportKey, int]) -> bool:
    """Check whether the owners still lend this, besides what is `taken` by the same plan."""
    for loan in loans:
        job = state.find_job(loan.owner)
        attempt = job.attempt if job is not None else None
        if job is None or attempt is None or attempt.number != loan.attempt or not _may_lend(job, attempt):
            return False
        one = next((one for one in attempt.exclusions if one.node == loan.node), None)
        key = (loan.owner, loan.attempt, loan.node)
        if one is None or _free_of(state, job, attempt, one) - taken.get(key, 0) < loan.cores:
            return False
    return True


def _may_lend(job: Job, attempt: Attempt) -> bool:
    return (
        attempt.phase is AttemptPhase.RUNNING
        and attempt.stop is None
        and not attempt.suspended_us
        and cooperates(job, attempt)
    )


def _free_of(state: State, job: Job, attempt: Attempt, one: Exclusion) -> int:
    """Confirmed cores of a node that may be lent now."""
    if one.node in attempt.leaving:
        return 0
    key = (job.job_id, attempt.number, one.node)
    report = state.reports.find(key)
    # A new leader does not know yet what they want back.
    wanted = report.idle if report is not None else 0
    return min(one.cores, one.wanted, wanted) - sum(state.loans.get(key, {}).values())


def _cores_on(attempt: Attempt, node: int) -> int:
    """The attempt's own cores on a node: what it has borrowed is not its to lend."""
    own = sum(span.amounts[CORES] for span in attempt.spans if span.node == node)
    return own - sum(loan.cores for loan in attempt.loans if loan.node == node)


def _looked(
    state: State, key: ReportKey, now_us: int, stopped: set[int], *, has_demand: bool
) -> list[facts.Fact]:
    report = state.reports.find(key)
    job_id, number, node = key
    job = state.find_job(job_id)
    attempt = job.attempt if job is not None else None
    if report is None or job is None or attempt is None or attempt.number != number:
        return []
    if attempt.phase is not AttemptPhase.RUNNING or attempt.stop is not None:
        return []
    one = next((one for one in attempt.exclusions if one.node == node), Exclusion(node, 0, 0))
    if report.idle < one.wanted:
        return _returned(state, job, attempt, one, report, now_us, stopped)
    if report.excluded > one.wanted and not one.revision:
        # Its answer was lost, and it was taken for refused.
        return [facts.CoresExcluded(job_id, number, (node,), one.wanted)]
    if node in attempt.leaving:
        return []
    is_wanted = has_demand and report.idle > one.wanted and not one.revision and _may_lend(job, attempt)
    if is_wanted and state.reports.may_rise(key, now_us):
        return [facts.CoresExcluded(job_id, number, (node,), report.idle)]
    return []


def _returned(
    state: State,
    job: Job,
    attempt: Attempt,
    one: Exclusion,
    report: CoreReport,
    now_us: int,
    stopped: set[int],
) -> list[facts.Fact]:
    """The owner wants cores back: those that are not lent at once, the others when their borrowers have gone.

    Of a node that it gives back, borrowers keep what they have: the owner's end there is on its way.
    """
    borrowers = state.loans.get((job.job_id, attempt.number, one.node), {})
    used = sum(borrowers.values())
    target = max(report.idle, used)
    found: list[facts.Fact] = []
    if target < one.wanted:
        found.append(facts.CoresExcluded(job.job_id, attempt.number, (one.node,), target))
    if one.node in attempt.leaving:
        return found
    missing = used - report.idle
    leaving: list[tuple[int, Job, int]] = []
    for (borrower_id, number), cores in borrowers.items():
        held = state.find_attempt(borrower_id, number)
        attempt_there = held[1] if held is not None and held[1] is held[0].attempt else None
        is_going = attempt_there is None or attempt_there.stop is not None or attempt_there.ended_us
        if held is None or is_going or borrower_id in stopped:
            missing -= cores
        else:
            leaving.append((held[1].placed_us, held[0], cores))
    # The one that has done least loses least.
    for _, borrower, cores in sorted(leaving, key=lambda entry: (-entry[0], entry[1].job_id)):
        if missing <= 0:
            break
        missing -= cores
        stopped.add(borrower.job_id)
        found += recalled(state, borrower, job.job_id, now_us)
    return found


def recalled(state: State, borrower: Job, owner: int, now_us: int) -> list[facts.Fact]:
    """End or requeue a borrower, as it agreed at its submission."""
    terms = terms_of(borrower.spec.borrow)
    assert terms is not None
    cause = StopCause.PREEMPT if terms.mode == REQUEUE else StopCause.EVICT
    return stop(state, borrower, cause, now_us, f"to give job {owner} its cores back", float(terms.grace_s))


def _asks(state: State, now_us: int) -> list[facts.Fact]:
    """Requests to applications for the first job that waits for cores it would borrow, the least harm first (R-02)."""
    waiting = next((entry for entry in state.queue.first(len(state.queue)) if entry.job.borrows), None)
    if waiting is None or now_us < waiting.job.since_us + ASK_AFTER_US:
        return []
    job = waiting.job
    missing = job.request.tasks * job.request.cpus_per_task - _free_cores(state, job.partition)
    missing -= sum(one.cores for one in lendable(state))
    candidates: list[tuple[float, ReportKey, int]] = []
    inside = set(state.partition_nodes.get(job.partition, ()))
    for key, report in islice(state.reports.items(), ASKED_OF_MAX) if missing > 0 else ():
        owner = state.get_job(key[0])
        attempt = owner.attempt
        if attempt is None or key[2] not in inside or key[2] in attempt.leaving:
            continue
        if not _is_askable(owner, attempt, now_us):
            continue
        cores = _cores_of(attempt)
        count = min(missing, _cores_on(attempt, key[2]) - report.idle, cores - 1)
        if count > 0:
            communication = cooperation_of(owner.spec.cooperate).communication_percent
            remaining_s = _remaining_s(owner, attempt, report, now_us)
            candidates.append((harm_s(remaining_s, cores, count, communication), key, count))
    found: list[facts.Fact] = []
    asked: set[RunningKey] = set()
    for _, key, count in sorted(candidates):
        if missing <= 0 or len(found) >= ASKS_PER_LOOK:
            break
        if key[:2] in asked:
            continue
        asked.add(key[:2])
        found.append(facts.CoresAsked(*key, min(count, missing), job.job_id))
        missing -= count
    return found


def _is_askable(job: Job, attempt: Attempt, now_us: int) -> bool:
    if cooperation_of(job.spec.cooperate).level != FULL or not _may_lend(job, attempt):
        return False
    count, at_us = attempt.more.asked if attempt.more is not None else (0, 0)
    pause_s = ASK_AGAIN_S << min(max(0, count - 1), ASK_AGAIN_DOUBLINGS_MAX)
    return not count or now_us >= at_us + pause_s * SECOND_US


def _remaining_s(job: Job, attempt: Attempt, report: CoreReport, now_us: int) -> int:
    """Work that the application has left, in seconds of one core: its word, or by its user's hint, forecast or limit."""
    if report.remaining_s >= 0:
        return report.remaining_s
    ran_s = (now_us - attempt.started_us) // SECOND_US
    length_s = cooperation_of(job.spec.cooperate).expected_s
    if length_s <= ran_s:
        length_s = job.forecast.p50_s if job.forecast is not None else job.spec.time_limit_s
    left_s = max(0, length_s - ran_s) if length_s else 86_400
    return left_s * _cores_of(attempt)


def _cores_of(attempt: Attempt) -> int:
    """The cores of all nodes that the attempt has now."""
    return sum(span.amounts[CORES] for span in spans_to_come(attempt))


def _free_cores(state: State, partition: str) -> int:
    ledger = state.ledger
    positions, usable = ledger.topology.positions, ledger.usable
    return sum(
        ledger.free_on(positions[node])[CORES]
        for node in state.partition_nodes.get(partition, ())
        if node in positions and usable >> positions[node] & 1
    )
