"""What estimators that learn nothing from models have in common: jobs that live, questions that hold their answer.

Invariant: memory is held for jobs that have not ended, and for what a subclass keeps of those that have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eslurm.core.model.forecast import Forecast, Submitted, exactly
from eslurm.estimator.rivals.jobs import Jobs
from eslurm.estimator.rivals.overrun import corrected
from eslurm.ports.estimator import Lesson, Model

MOST_S: Final = 10**9
"""Of a setting in seconds."""


class Plain:
    """An `Estimator` without models: a subclass says what it estimates of a job, and what it keeps of an ended one."""

    name = ""

    def __init__(self) -> None:
        self._jobs = Jobs()

    def estimate_s(self, job: Submitted) -> int:
        """How long it will run in all, by what is known now."""
        raise NotImplementedError

    def keep(self, job: Submitted, runtime_s: int) -> None:
        """It has run for so long: above 0."""

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
        """The answer itself: there is nothing to gain from many at once."""
        job = self._jobs.get(job_id)
        estimate_s = max(1, self.estimate_s(job))
        return exactly(corrected(estimate_s, self._jobs.elapsed_s(job_id, at_s), job.limit_s))

    def answer(self, questions: Sequence[Forecast]) -> list[Forecast]:
        """See `Estimator`."""
        return list(questions)

    def due(self, at_s: int) -> bool:
        """There is nothing to settle or to learn."""
        return False

    def settle(self, at_s: int) -> None:
        """Nothing."""

    def lesson(self, at_s: int) -> Lesson | None:
        """None ever."""
        return None

    def adopt(self, model: Model) -> None:
        """Raises `ValueError`: it has no models."""
        raise ValueError(
            f"estimator {self.name} has no models: this one is of {model.facts.get('kind', 'another')!r}"
        )
