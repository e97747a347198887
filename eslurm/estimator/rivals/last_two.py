"""Last-2: a job runs as long as its user's last two did in the mean (Tsafrir, Etsion, Feitelson 2007; E-56).

Capped by the time limit, which is also the estimate of a user's first job. A job that outlives its estimate is given more by
the same authors' corrections (`overrun`).
"""

from __future__ import annotations

from collections.abc import Mapping

from eslurm.core.model.forecast import NO_LIMIT, Submitted
from eslurm.estimator.rivals.jobs import DEFAULT_S
from eslurm.estimator.rivals.plain import MOST_S, Plain
from eslurm.estimator.rivals.settings import SettingsReader
from eslurm.ports.estimator import Estimator, Setting


class LastTwo(Plain):
    """`last-2`: setting `default_s`, for a user's first job when it has no limit. Keeps two numbers a user."""

    name = "last-2"

    def __init__(self, default_s: int = DEFAULT_S) -> None:
        super().__init__()
        self._default_s = default_s
        self._last: dict[str, tuple[int, ...]] = {}

    def estimate_s(self, job: Submitted) -> int:
        """The mean, rounded up. Jobs of nobody known are nobody's: they have no history."""
        last = self._last.get(job.user, ())
        if not last:
            return self._default_s if job.limit_s == NO_LIMIT else job.limit_s
        mean_s = -(-sum(last) // len(last))
        return mean_s if job.limit_s == NO_LIMIT else min(mean_s, job.limit_s)

    def keep(self, job: Submitted, runtime_s: int) -> None:
        """The last two of this user."""
        if job.user:
            self._last[job.user] = (*self._last.get(job.user, ())[-1:], runtime_s)


def make(settings: Mapping[str, Setting]) -> Estimator:
    """See `EstimatorFactory`."""
    reader = SettingsReader(LastTwo.name, settings)
    default_s = reader.integer("default_s", DEFAULT_S, 1, MOST_S)
    reader.finish()
    return LastTwo(default_s)
