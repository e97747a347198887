"""The amounts that an attempt holds on its nodes, its time limit, and its expected end.

Invariant: the ledger has one hold for each node of an attempt, `shares_of` until `Attempt.until_us`; both are functions of
the attempt's record alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from eslurm.core.model.amounts import Vector
from eslurm.core.model.job import NO_LIMIT, Attempt, Job, Span
from eslurm.core.model.lending import Loan
from eslurm.core.model.units import SECOND_US
from eslurm.core.resources.shares import Share, by_node
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import CORES

UNLIMITED_S = -1
"""`Attempt.time_limit_s` of an attempt whose limit was lifted; 0 there means the job's own."""


def attempts_of(job: Job) -> tuple[Attempt, ...]:
    """Every attempt of the job that may still hold resources. One that only waits for its controller epilog does not."""
    if job.attempt is None or not job.attempt.held:
        return job.residues
    return (job.attempt, *job.residues) if job.residues else (job.attempt,)


def lends(attempt: Attempt) -> bool:
    """Check whether its cores are lent: it was suspended for another job, and every node has stopped its processes.

    The stopped processes still have their memory and devices.
    """
    return bool(attempt.room_for) and not attempt.informing


def spans_in_use(attempt: Attempt) -> Sequence[Span]:
    """Its spans without those that it has given back. Those of nodes that it has lost are among them."""
    given = attempt.more.given if attempt.more is not None else None
    if not given:
        return attempt.spans
    return [span for span in attempt.spans if (span.component, span.node) not in given]


def spans_to_come(attempt: Attempt, *, with_joining: bool = False) -> Sequence[Span]:
    """The spans that a further step may use: of parts that are not finished, on nodes that are not lost or given back, nor
    are still joining.
    """
    more = attempt.more
    if more is None or not (more.finished or more.gone or more.leaving or more.given or attempt.joining):
        return attempt.spans
    finished, out = attempt.finished, more.gone | more.leaving
    if not with_joining:
        out |= attempt.joining
    return tuple(
        [
            span
            for span in attempt.spans
            if span.component not in finished
            and span.node not in out
            and (span.component, span.node) not in more.given
        ]
    )


def amounts_on(attempt: Attempt, nodes: frozenset[int]) -> list[Share]:
    """The amounts of its own on these of its nodes, lent or not, the sum over its parts for each.

    Cores that it has borrowed are their owners'.
    """
    spans = spans_in_use(attempt)
    shares = by_node(spans if len(nodes) == len(spans) else [span for span in spans if span.node in nodes])
    more = attempt.more
    if more is None or not more.loans:
        return shares
    borrowed = _borrowed(more.loans)
    return [(node, _less_cores(amounts, borrowed.get(node, 0))) for node, amounts in shares]


def own_spans(spans: Sequence[Span], loans: Iterable[Loan]) -> tuple[Span, ...]:
    """The spans of a job of one part without the cores that it borrows."""
    borrowed = _borrowed(loans)
    return tuple(
        [
            replace(span, amounts=_less_cores(span.amounts, borrowed[span.node]))
            if span.node in borrowed
            else span
            for span in spans
        ]
    )


def _borrowed(loans: Iterable[Loan]) -> dict[int, int]:
    """Borrowed cores by node."""
    found: dict[int, int] = {}
    for loan in loans:
        if not loan.until_us:
            found[loan.node] = found.get(loan.node, 0) + loan.cores
    return found


def shares_on(attempt: Attempt, nodes: frozenset[int]) -> list[Share]:
    """The ledger's holds for the attempt on these of its nodes, one for each."""
    shares = amounts_on(attempt, nodes)
    return [(node, without_cores(amounts)) for node, amounts in shares] if lends(attempt) else shares


def lent_on(attempt: Attempt) -> list[Share]:
    """The amounts on the nodes whose cores a lending attempt has lent.

    Nodes that leave the job meanwhile are among them: the cores have been another job's since all of it was stopped.
    """
    return amounts_on(attempt, attempt.held)


def shares_of(attempt: Attempt) -> list[Share]:
    """The ledger's holds for the attempt: on each node that it still holds, the sum over its parts."""
    return shares_on(attempt, attempt.held)


def held_by_part(attempt: Attempt) -> tuple[tuple[int, int, Vector], ...]:
    """(part, node, amounts) of what the ledger holds for the attempt; empty for a job of one part."""
    spans = attempt.spans
    if not spans or not spans[-1].component:
        return ()
    has_lent = lends(attempt)
    return tuple(
        [
            (span.component, span.node, without_cores(span.amounts) if has_lent else span.amounts)
            for span in spans_in_use(attempt)
            if span.node in attempt.held
        ]
    )


def lent_by_part(attempt: Attempt) -> tuple[tuple[int, int, Vector], ...]:
    """(part, node, amounts) of what it has lent; empty for a job of one part, and for an attempt that lends nothing."""
    spans = attempt.spans
    if not spans or not spans[-1].component or not lends(attempt):
        return ()
    return tuple(
        [
            (span.component, span.node, span.amounts)
            for span in spans_in_use(attempt)
            if span.node in attempt.held
        ]
    )


def _less_cores(amounts: Vector, cores: int) -> Vector:
    """The same amounts with so many cores less."""
    return (*amounts[:CORES], amounts[CORES] - cores, *amounts[CORES + 1 :]) if cores else amounts


def borrowed_core_us(attempt: Attempt) -> int:
    """Core-microseconds that an attempt which has ended has used of other jobs' cores."""
    more = attempt.more
    if more is None:
        return 0
    return more.borrowed_core_us + sum(loan_core_us(loan, attempt.ended_us) for loan in more.loans)


def loan_core_us(loan: Loan, until_us: int) -> int:
    """Core-microseconds of a loan until then."""
    return loan.cores * max(0, min(loan.until_us or until_us, until_us) - loan.from_us)


def without_cores(amounts: Vector) -> Vector:
    """The same amounts without the cores."""
    return (*amounts[:CORES], 0, *amounts[CORES + 1 :])


def limit_s(job: Job, attempt: Attempt) -> int:
    """The attempt's current time limit in seconds; 0: none (C-40)."""
    if attempt.time_limit_s == UNLIMITED_S:
        return NO_LIMIT
    return attempt.time_limit_s or job.spec.time_limit_s


def elapsed_us(attempt: Attempt, now_us: int) -> int:
    """The used part of a started attempt's time limit; suspensions do not count."""
    until_us = attempt.suspended_us or now_us
    return max(0, until_us - attempt.started_us - attempt.paused_us)


def paused_us(attempt: Attempt, at_us: int) -> int:
    """Total time of an attempt's suspensions until then."""
    return attempt.paused_us + (max(0, at_us - attempt.suspended_us) if attempt.suspended_us else 0)


def end_us(attempt: Attempt, time_limit_s: int) -> int:
    """Latest end of a running attempt with this limit (seconds; 0: none)."""
    if time_limit_s == NO_LIMIT:
        return INFINITY_US
    return (attempt.started_us or attempt.placed_us) + attempt.paused_us + time_limit_s * SECOND_US
