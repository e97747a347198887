"""Usage of users, in weighted resource seconds that decay with a half-life.

One second of holding counts the sum of the held amounts, each times its weight (`PriorityWeights.billing`), times the
usage factor of the job's QOS. Usage counts half one half-life later, so an interval from s to e counts, at e, the integral
of rate * 2**(-(e - t) / half-life) over it. Suspensions do not count: the interval is shorter by them. Invariant: a charge
is never negative, intervals can be cut anywhere, and neither the order of charges nor the time of queries changes the
result.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Final

from eslurm.core.model.accounts import Qos, Usage
from eslurm.core.model.job_states import AttemptPhase
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.fair_tree import Association
from eslurm.core.plan.slices import parts
from eslurm.core.state.allocation_amounts import paused_us, spans_in_use
from eslurm.core.state.apply_accounts import put_usage

if TYPE_CHECKING:
    from eslurm.core.model.amounts import Vector
    from eslurm.core.model.config import ClusterConfig
    from eslurm.core.model.job import Attempt, Job, Span
    from eslurm.core.model.lending import Loan
    from eslurm.core.state.cluster import State
    from eslurm.core.state.view import View

LN_2: Final = math.log(2.0)
RECORDS_PER_SLICE: Final = 2_000


def decay(elapsed_us: int, half_life_s: int) -> float:
    """The factor of decay after this many microseconds; 1 with a half-life of 0."""
    return 2.0 ** (-(elapsed_us / SECOND_US) / half_life_s) if half_life_s else 1.0


def stay(rate: float, from_us: int, until_us: int, half_life_s: int) -> float:
    """Usage at the end of [from_us, until_us) from holding `rate` (weighted items) during it."""
    seconds = max(0, until_us - from_us) / SECOND_US
    if not half_life_s:
        return rate * seconds
    # The integral of the decay; expm1 keeps short stays exact.
    return rate * half_life_s / LN_2 * -math.expm1(-seconds / half_life_s * LN_2)


def as_of(usage: Usage, at_us: int, half_life_s: int) -> float:
    """The recorded usage decayed to `at_us`, which is not before it was recorded."""
    return usage.raw * decay(max(0, at_us - usage.at_us), half_life_s)


def charged(usage: Usage, amount: float, at_us: int, half_life_s: int) -> Usage:
    """The usage plus `amount` as of `at_us`. Charges may come in any order."""
    if at_us >= usage.at_us:
        return Usage(usage.account, usage.user, as_of(usage, at_us, half_life_s) + amount, at_us)
    raw = usage.raw + amount * decay(usage.at_us - at_us, half_life_s)
    return Usage(usage.account, usage.user, raw, usage.at_us)


def rate_of(config: ClusterConfig, amounts: Iterable[Vector], wide: Vector = ()) -> float:
    """Weighted items per second of these amounts (one vector a span, besides the cluster-wide ones)."""
    weights = dict(config.priority.billing)
    names = ["cores", "memory_mib", *(one.name for one in config.resources if not one.wide_total)]
    indices = [(at, weight) for at, name in enumerate(names) if (weight := weights.get(name, 0.0))]
    rate = 0.0
    for vector in amounts:
        for at, weight in indices:
            if at < len(vector):
                rate += weight * vector[at]
    wide_names = [one.name for one in config.resources if one.wide_total]
    for name, items in zip(wide_names, wide, strict=False):
        rate += weights.get(name, 0.0) * items
    return rate


def usage_factor(state: State | View, qos: str) -> float:
    """The factor by which a QOS scales usage; 1 for one that does not exist any more."""
    policy = state.policies["qos"].get(qos)
    return policy.usage_factor if isinstance(policy, Qos) else 1.0


def association_of(job: Job) -> Association:
    """The association that the job charges."""
    return job.spec.account, job.spec.user.name


def charge(state: State, job: Job, attempt: Attempt) -> None:
    """Charge an attempt that ran; part of applying `AttemptEnded`, so that replay finds the same numbers."""
    if not attempt.started_us:
        return
    # Nodes say when it ran, by their own clocks: not longer than it was placed, and not later than now.
    until_us = min(attempt.ended_us, state.now_us)
    length_us = min(attempt.ended_us - attempt.started_us, state.now_us - attempt.placed_us)
    # While it stood still it used nothing.
    length_us -= paused_us(attempt, until_us)
    _add(state, job, _worth_in_use(state, job, attempt, until_us - length_us, until_us), until_us)


def charge_left(state: State, job: Job, attempt: Attempt, spans: Iterable[Span]) -> None:
    """Charge what a running attempt has lost or given back and goes on without; its end charges the rest."""
    if not attempt.started_us:
        return
    from_us = max(attempt.started_us, attempt.placed_us) + paused_us(attempt, state.now_us)
    _add(state, job, _worth(state, job, attempt, list(spans), (), from_us, state.now_us), state.now_us)


def _add(state: State, job: Job, amount: float, until_us: int) -> None:
    if amount > 0.0:
        account, user = key = association_of(job)
        before = state.usage.get(key) or Usage(account, user, 0.0, until_us)
        half_life_s = state.config.priority.half_life_s
        put_usage(state, charged(before, amount, until_us, half_life_s))


def _worth_in_use(state: State | View, job: Job, attempt: Attempt, from_us: int, until_us: int) -> float:
    gone = attempt.gone
    used = [span for span in spans_in_use(attempt) if span.node not in gone]
    return _worth(state, job, attempt, used, attempt.wide, from_us, until_us)


def _worth(
    state: State | View,
    job: Job,
    attempt: Attempt,
    spans: list[Span],
    wide: Vector,
    from_us: int,
    until_us: int,
) -> float:
    """The usage of these spans that the attempt is charged: without what it has borrowed on their nodes (R-04)."""
    worth = _worth_with_loans(state, job, attempt, spans, wide, from_us, until_us)
    if attempt.more is None or not attempt.more.loans:
        return worth
    nodes = {span.node for span in spans}
    loans = [loan for loan in attempt.more.loans if loan.node in nodes]
    return max(0.0, worth - _borrowed(state, job, loans, from_us, until_us))


def _worth_with_loans(
    state: State | View,
    job: Job,
    attempt: Attempt,
    spans: list[Span],
    wide: Vector,
    from_us: int,
    until_us: int,
) -> float:
    """The usage of these spans up to `until_us`: from `from_us` on, or from when the running job got them."""
    half_life_s = state.config.priority.half_life_s
    amount = 0.0
    for joined in attempt.more.grown if attempt.more is not None else ():
        own = [span.amounts for span in spans if span.node in joined.nodes]
        if own:
            # The time of suspensions since then does not count.
            since_us = joined.at_us + paused_us(attempt, until_us) - joined.paused_us
            amount += stay(rate_of(state.config, own), since_us, until_us, half_life_s)
            spans = [span for span in spans if span.node not in joined.nodes]
    amount += stay(
        rate_of(state.config, [span.amounts for span in spans], wide), from_us, until_us, half_life_s
    )
    return amount * usage_factor(state, job.spec.qos)


def _borrowed(state: State | View, job: Job, loans: Iterable[Loan], from_us: int, until_us: int) -> float:
    """The part of an attempt's use that is charged to the owners of these cores (R-04)."""
    half_life_s = state.config.priority.half_life_s
    found = 0.0
    for loan in loans:
        begin_us, end_us = max(from_us, loan.from_us), min(until_us, loan.until_us or until_us)
        rate = rate_of(state.config, [(loan.cores,)])
        found += stay(rate, begin_us, end_us, half_life_s) * decay(until_us - end_us, half_life_s)
    return found * usage_factor(state, job.spec.qos)


def usage_now(
    state: State | View, jobs: Iterable[Job], now_us: int
) -> Generator[None, None, dict[Association, float]]:
    """Usage of each association as of `now_us`, in slices: charges, and the running `jobs` so far.

    Charges are those of the first slice; `jobs` must be of that time, too.
    """
    half_life_s = state.config.priority.half_life_s
    found: dict[Association, float] = {}
    for charges in parts(list(state.usage.items()), RECORDS_PER_SLICE):
        for key, one in charges:
            found[key] = as_of(one, now_us, half_life_s)
        yield
    for records in parts(jobs, RECORDS_PER_SLICE):
        for job in records:
            attempt = job.attempt
            if attempt is not None and attempt.phase is AttemptPhase.RUNNING:
                key = association_of(job)
                from_us = max(attempt.started_us, attempt.placed_us) + paused_us(attempt, now_us)
                found[key] = found.get(key, 0.0) + _worth_in_use(state, job, attempt, from_us, now_us)
        yield
    return found
