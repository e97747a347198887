"""Estimators without a model: the user's time limit (`user`), and the mean of the user's last two runs (`last-2`).

Invariant: memory is held for jobs that have not ended, and for two run times a user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from eslurm.core.model.forecast import NO_LIMIT, Forecast, Submitted, exactly
from eslurm.estimator.jobs import DEFAULT_S, Jobs
from eslurm.estimator.overrun import corrected
from eslurm.estimator.settings import SettingsReader
from eslurm.ports.estimator import Lesson, Model, Setting

DAY_S: Final = 86_400
MOST_S: Final = 10**9
"""Of a setting in seconds."""


class Baseline:
    """An `Estimator` without models. A subclass estimates jobs and keeps what it needs of ended ones."""

    name = ""

    def __init__(self, default_s: int) -> None:
        self._jobs = Jobs()
        self._default_s = default_s

    def estimate_s(self, job: Submitted) -> int:
        """Estimate the whole run time in seconds: the limit, else the default."""
        return self._default_s if job.limit_s == NO_LIMIT else job.limit_s

    def keep(self, job: Submitted, runtime_s: int) -> None:
        """Keep what later estimates need of a job that ran for `runtime_s`, above 0."""

    def submitted(self, job: Submitted) -> None:
        """See `Estimator`."""
        self._jobs.submitted(job)

    def started(self, job_id: int, at_s: int) -> None:
        """See `Estimator`."""
        self._jobs.started(job_id, at_s)

    def limit_changed(self, job_id: int, at_s: int, limit_s: int) -> None:
        """See `HeedsLimits`."""
        self._jobs.limit_changed(job_id, limit_s)

    def ended(self, job_id: int, at_s: int, runtime_s: int) -> None:
        """See `Estimator`."""
        ended = self._jobs.ended(job_id, runtime_s)
        if ended is not None:
            self.keep(ended.job, ended.runtime_s)

    def ask(self, job_id: int, at_s: int) -> Forecast:
        """Answer at once: a batch would save nothing."""
        job = self._jobs.get(job_id)
        estimate_s = max(1, self.estimate_s(job))
        return exactly(corrected(estimate_s, self._jobs.elapsed_s(job_id, at_s), job.limit_s))

    def answer(self, questions: Sequence[Forecast]) -> list[Forecast]:
        """See `Estimator`."""
        return list(questions)

    def due(self, at_s: int) -> bool:
        """False: there is no upkeep."""
        return False

    def settle(self, at_s: int) -> None:
        """Do nothing."""

    def lesson(self, at_s: int) -> Lesson | None:
        """There is none."""
        return None

    def adopt(self, model: Model) -> None:
        """Raises `ValueError`: there are no models."""
        raise ValueError(
            f"estimator {self.name} has no models: this one is of {model.facts.get('kind', 'another')!r}"
        )


class User(Baseline):
    """`user`: the time limit, as a scheduler without an estimator plans."""

    name = "user"


class LastTwo(Baseline):
    """`last-2`: the mean of the user's last two run times, at most the limit (Tsafrir, Etsion, Feitelson 2007; E-56).

    A user's first job is estimated by its limit. A job that outlives its estimate gets the same authors' corrections.
    """

    name = "last-2"

    def __init__(self, default_s: int) -> None:
        super().__init__(default_s)
        self._last: dict[str, tuple[int, ...]] = {}

    def estimate_s(self, job: Submitted) -> int:
        """The mean, rounded up. Jobs without a user have no history."""
        last = self._last.get(job.user, ())
        if not last:
            return super().estimate_s(job)
        mean_s = -(-sum(last) // len(last))
        return mean_s if job.limit_s == NO_LIMIT else min(mean_s, job.limit_s)

    def keep(self, job: Submitted, runtime_s: int) -> None:
        """Keep this user's last two."""
        if job.user:
            self._last[job.user] = (*self._last.get(job.user, ())[-1:], runtime_s)


def make_user(settings: Mapping[str, Setting]) -> User:
    """Setting: `default_s`, for jobs without a limit. Raises `ValueError`."""
    return User(_default_s(User.name, settings, DAY_S))


def make_last_two(settings: Mapping[str, Setting]) -> LastTwo:
    """Setting: `default_s`, for a user's first job when it has no limit. Raises `ValueError`."""
    return LastTwo(_default_s(LastTwo.name, settings, DEFAULT_S))


def _default_s(name: str, settings: Mapping[str, Setting], default_s: int) -> int:
    reader = SettingsReader(name, settings)
    found_s = reader.integer("default_s", default_s, 1, MOST_S)
    reader.finish()
    return found_s
