"""The features of a job for an estimator, and the answer.

Times are whole seconds; instants count from any epoch as long as it is the same for all (the controller uses UTC, a log
its own start). Invariant: a `Submitted` holds only what is known at submission.
"""

from __future__ import annotations

from typing import Final

import msgspec

NO_LIMIT: Final = 0
LONGEST_S: Final = 10 * 365 * 86_400
"""Upper bound of a plausible runtime."""


class Submitted(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A job as its user described it. "" and 0 mean: not known, or not given."""

    job_id: int
    at_s: int
    user: str = ""
    group: str = ""
    account: str = ""
    name: str = ""
    """The job's name, or the number of its program in a log (E-43)."""
    command: str = ""
    """Directory of its submission, or the path of its script, for clustering by path (E-56, PREP)."""
    partition: str = ""
    nodes: int = 0
    cores: int = 0
    memory_mib: int = 0
    limit_s: int = NO_LIMIT
    """The user's own time limit: an upper bound that the cluster enforces, and the only one (see `Forecast`)."""


class Forecast(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Expected runtime of a job in seconds: the point estimate for plans, and an interval.

    Eight of ten jobs are meant to end between `p10_s` and `p90_s`, half of them before `p50_s`. Invariant: 1 <= p10_s <=
    p50_s <= p90_s and estimate_s >= 1. `estimate_s` may exceed a time limit (jobs run into their grace): the planner takes
    the smaller one. It never ends a job.
    """

    p10_s: int
    p50_s: int
    p90_s: int
    estimate_s: int


def exactly(seconds: int) -> Forecast:
    """A forecast without an interval, for predictors that give one number."""
    seconds = max(1, seconds)
    return Forecast(seconds, seconds, seconds, seconds)
