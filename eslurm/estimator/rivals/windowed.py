"""An estimator that learns one model from the window of the last ended jobs and answers with it until the next.

Owns what the methods share: what is answered before the first model, and that an answer about a running job exceeds what
has passed. A method brings how to learn and how to predict. Invariant: a question carries the model that was in place when
it was asked, so batching changes no answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from eslurm.core.model.forecast import LONGEST_S, NO_LIMIT, Forecast, Submitted
from eslurm.estimator.rivals.arrays import Arrays, Floats, check_kind
from eslurm.estimator.rivals.jobs import Ended, Jobs
from eslurm.estimator.rivals.overrun import corrected
from eslurm.estimator.rivals.windows import Window
from eslurm.ports.estimator import Lesson, Model


class Spans(NamedTuple):
    """Predictions in seconds that a plan can hold, a row a job: an interval (all the same without one) and the point."""

    p10: Floats
    p50: Floats
    p90: Floats
    point: Floats

    @staticmethod
    def exactly(point: Floats) -> Spans:
        """No interval."""
        return Spans(point, point, point, point)


class Learnt(Protocol):
    """A model, ready to predict. The same job gets the same figures whatever is beside it."""

    def predict(self, jobs: Sequence[Submitted]) -> Spans: ...


class Method(Protocol):
    """How to learn from a window, and how to read what was learnt."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    def learn(self, window: Sequence[Ended]) -> tuple[Arrays, Mapping[str, Any]]:
        """Arrays and facts of a model; at least one job."""
        ...

    def load(self, arrays: Arrays, facts: Mapping[str, Any]) -> Learnt:
        """A model from them. Raises `ValueError` when they are damaged."""
        ...


class Question(NamedTuple):
    job: Submitted
    elapsed_s: int
    learnt: Learnt | None
    otherwise_s: int
    """The answer without a model."""


class WindowedEstimator:
    """The port's estimator around a method. No estimate exceeds the time limit, unless the job already has."""

    def __init__(self, method: Method, window: Window[Ended]) -> None:
        self._method = method
        self._window = window
        self._jobs = Jobs()
        self._learnt: Learnt | None = None

    @property
    def name(self) -> str:
        return self._method.name

    def submitted(self, job: Submitted) -> None:
        self._jobs.submitted(job)

    def started(self, job_id: int, at_s: int) -> None:
        self._jobs.started(job_id, at_s)

    def limit_changed(self, job_id: int, at_s: int, limit_s: int) -> None:
        self._jobs.limit_changed(job_id, limit_s)

    def ended(self, job_id: int, at_s: int, runtime_s: int) -> None:
        ended = self._jobs.ended(job_id, runtime_s)
        if ended is not None:
            self._window.add(ended)

    def ask(self, job_id: int, at_s: int) -> Question:
        job = self._jobs.get(job_id)
        return Question(job, self._jobs.elapsed_s(job_id, at_s), self._learnt, self._jobs.otherwise_s(job))

    def answer(self, questions: Sequence[Question]) -> list[Forecast]:
        result: list[Forecast | None] = [None] * len(questions)
        by_model: dict[int, list[int]] = {}
        for index, question in enumerate(questions):
            by_model.setdefault(id(question.learnt), []).append(index)
        for indices in by_model.values():
            for index, spans in zip(indices, _spans([questions[index] for index in indices]), strict=True):
                job, elapsed_s = questions[index].job, questions[index].elapsed_s
                result[index] = forecast(job, elapsed_s, *spans, cap_s=job.limit_s)
        return [one for one in result if one is not None]

    def due(self, at_s: int) -> bool:
        return self._window.due(at_s)

    def settle(self, at_s: int) -> None:
        """Nothing is calibrated between lessons."""

    def lesson(self, at_s: int) -> Lesson | None:
        window, method = self._window.take(at_s), self._method
        return None if window is None else lambda: taught(method, window, at_s)

    def adopt(self, model: Model) -> None:
        check_kind(model, self._method.name, self._method.version)
        self._learnt = self._method.load(model.arrays, model.facts)


def taught(method: Method, window: Sequence[Ended], at_s: int) -> Model:
    """The model of a window, with the facts that people expect beside those of the method."""
    arrays, facts = method.learn(window)
    usual = {"kind": method.name, "version": method.version, "window_jobs": len(window), "learnt_at_s": at_s}
    return Model(arrays, {**usual, **facts})


def forecast(
    job: Submitted, elapsed_s: int, p10: float, p50: float, p90: float, point: float, *, cap_s: int
) -> Forecast:
    """Whole seconds: in order, at most `cap_s` (0: no cap) unless that has passed, and beyond what has passed."""
    most_s = LONGEST_S if cap_s == NO_LIMIT else min(cap_s, LONGEST_S)
    capped = [min(max(1, round(seconds)), most_s) for seconds in (p10, p50, p90, point)]
    beyond = [corrected(seconds, elapsed_s, job.limit_s) for seconds in capped]
    low, middle, high = sorted(beyond[:3])
    return Forecast(low, middle, high, beyond[3])


def _spans(questions: Sequence[Question]) -> list[tuple[float, ...]]:
    """Questions of one model: p10, p50, p90 and the point of each."""
    learnt = questions[0].learnt
    if learnt is None:
        return [(float(question.otherwise_s),) * 4 for question in questions]
    spans = learnt.predict([question.job for question in questions])
    return list(zip(*(column.tolist() for column in spans), strict=True))
