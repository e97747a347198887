"""Application of facts about lent cores: exclusions, requests to exclude, and the ends of loans (R-04).

A loan ends with the borrower's hold of its node. When the owner's goes first, the cores become the borrower's own in the
same fact. Invariants: the ledger counts a lent core once, for its owner while that one holds the node, then for the
borrower; what is lent on a node is at most what the node has confirmed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.job import Attempt, AttemptMore, Job, Span
from eslurm.core.model.lending import Exclusion, Loan
from eslurm.core.state.allocation_amounts import loan_core_us
from eslurm.core.state.cluster import State, attempts_of


def of_placement(more: AttemptMore | None, loans: tuple[Loan, ...], now_us: int) -> AttemptMore | None:
    """The attempt's rare parts with its loans, which begin now."""
    if not loans:
        return more
    return replace(more or AttemptMore(), loans=tuple([replace(loan, from_us=now_us) for loan in loans]))


def marked(spans: tuple[Span, ...], loans: Iterable[Loan]) -> tuple[Span, ...]:
    """The spans, those with borrowed cores marked."""
    nodes = {loan.node for loan in loans}
    if not nodes:
        return spans
    return tuple([replace(span, lent=True) if span.node in nodes else span for span in spans])


def closed(attempt: Attempt, nodes: Collection[int], now_us: int) -> Attempt:
    """The attempt without its loans on these nodes, which it leaves and has been charged for; their use is kept."""
    more = attempt.more
    over = [loan for loan in more.loans if loan.node in nodes] if more is not None else []
    if more is None or not over:
        return attempt
    kept = tuple([loan for loan in more.loans if loan.node not in nodes])
    used_us = more.borrowed_core_us + sum(loan_core_us(loan, now_us) for loan in over)
    return replace(attempt, more=replace(more, loans=kept, borrowed_core_us=used_us))


def apply_excluded(state: State, fact: facts.CoresExcluded) -> None:
    job, attempt = _get(state, fact.job_id, fact.attempt)
    kept = {one.node: one for one in attempt.exclusions}
    for node in fact.nodes:
        old = kept.get(node)
        cores = min(old.cores if old is not None else 0, fact.cores)
        kept[node] = Exclusion(node, cores, fact.cores, state.revision)
    _put(state, job, attempt, kept.values())


def apply_confirmed(state: State, fact: facts.CoresConfirmed) -> None:
    job, attempt = _get(state, fact.job_id, fact.attempt)
    kept = []
    granted = False
    for one in attempt.exclusions:
        if one.revision == fact.revision and one.node in fact.nodes:
            granted = granted or one.wanted > one.cores
            state.reports.confirm((job.job_id, attempt.number, one.node), one.wanted)
            one = replace(one, cores=one.wanted, revision=0)
        elif one.revision == fact.revision and one.node in fact.refused:
            one = replace(one, wanted=one.cores, revision=0)
        if one.cores or one.revision:
            kept.append(one)
    # What they said before is not so: their next reports decide.
    state.reports.forget(job.job_id, attempt.number, frozenset(fact.refused))
    if granted and attempt.more is not None:
        attempt = replace(attempt, more=replace(attempt.more, asked=(0, attempt.more.asked[1])))
    _put(state, job, attempt, kept)
    # What was excluded may be lent now.
    state.want_plan()


def apply_asked(state: State, fact: facts.CoresAsked) -> None:
    job, attempt = _get(state, fact.job_id, fact.attempt)
    more = attempt.more or AttemptMore()
    more = replace(more, asked=(more.asked[0] + 1, state.now_us))
    state.put_job(replace(job, attempt=replace(attempt, more=more)))


def settle(state: State) -> None:
    """Follow the loans that ended with the fact just applied, and those whose owners have left their nodes."""
    while state.loan_ends or state.owners_gone:
        while state.loan_ends:
            _credit(state, state.loan_ends.pop())
        if state.owners_gone:
            _make_own(state, *state.owners_gone.pop())


def lent_core_us(state: State, job: Job, attempt: Attempt) -> int:
    """Core-microseconds that others have used of the attempt's cores until now."""
    more = attempt.more
    if more is None or not more.exclusions:
        return more.lent_core_us if more is not None else 0
    found = more.lent_core_us
    for one in more.exclusions:
        for borrower in state.loans.get((job.job_id, attempt.number, one.node), ()):
            held = state.find_attempt(*borrower)
            for loan in held[1].loans if held is not None else ():
                if (loan.owner, loan.attempt, loan.node) == (job.job_id, attempt.number, one.node):
                    found += loan.cores * max(0, state.now_us - loan.from_us)
    return found


def _credit(state: State, loan: Loan) -> None:
    """Note on the owner what was used, and look at the cores again: the owner may want them back."""
    found = state.find_attempt(loan.owner, loan.attempt)
    if found is None or found[0].attempt is not found[1]:
        return
    job, attempt = found
    state.reports.touch((job.job_id, attempt.number, loan.node))
    state.want_plan()
    if attempt.ended_us:
        # Accounting has it with its end.
        return
    more = attempt.more or AttemptMore()
    used_us = more.lent_core_us + loan.cores * max(0, state.now_us - loan.from_us)
    state.put_job(replace(job, attempt=replace(attempt, more=replace(more, lent_core_us=used_us))))


def _make_own(state: State, owner: int, number: int, node: int) -> None:
    """Give the borrowers of a node what its owner has left there."""
    for job_id, attempt_number in sorted(state.loans.get((owner, number, node), ())):
        job = state.get_job(job_id)
        for attempt in attempts_of(job):
            if attempt.number != attempt_number or attempt.more is None:
                continue
            loans = tuple(
                [
                    replace(loan, until_us=state.now_us)
                    if (loan.owner, loan.attempt, loan.node, loan.until_us) == (owner, number, node, 0)
                    else loan
                    for loan in attempt.more.loans
                ]
            )
            _replace_attempt(state, job, attempt, replace(attempt, more=replace(attempt.more, loans=loans)))


def _replace_attempt(state: State, job: Job, old: Attempt, new: Attempt) -> None:
    if job.attempt is old:
        state.put_job(replace(job, attempt=new))
    else:
        state.put_job(replace(job, residues=tuple([new if one is old else one for one in job.residues])))


def _get(state: State, job_id: int, number: int) -> tuple[Job, Attempt]:
    job = state.get_job(job_id)
    assert job.attempt is not None and job.attempt.number == number
    return job, job.attempt


def _put(state: State, job: Job, attempt: Attempt, exclusions: Iterable[Exclusion]) -> None:
    kept = tuple(sorted(exclusions, key=lambda one: one.node))
    more = replace(attempt.more or AttemptMore(), exclusions=kept)
    state.put_job(replace(job, attempt=replace(attempt, more=more)))
