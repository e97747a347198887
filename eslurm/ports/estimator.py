"""The port of run time estimators: for `esestd`, for evaluation on logs, and for plug-ins (`eslurm.estimators`).

An estimator gets events in the order of time, and questions in between. Asking and answering are two steps so that many
questions cost one pass over a model: a question holds everything known when it is asked. Invariant: an answer depends on
nothing but what was reported, adopted and settled before its question, however questions are batched.

A driver keeps to this loop:

    told -> (questions) -> due? -> answer all questions -> settle -> lesson -> learn (elsewhere, slow) -> adopt -> told ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from eslurm.core.model.forecast import Forecast, Submitted

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENTRY_POINTS = "eslurm.estimators"
"""The group of entry points: each names a class or function that makes an `Estimator` from its settings."""

Setting: TypeAlias = str | int | float | bool


class Model(NamedTuple):
    """A learnt model: plain arrays (no objects, so a file of them can be read without trust) and facts about them.

    `facts` holds only what JSON holds; the keys `features`, `window_jobs` and `learnt_at_s` are expected by people.
    """

    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]


Lesson: TypeAlias = Callable[[], Model]
"""Learns from what it was made with: takes seconds, shares nothing with the estimator, may run on another thread."""


class Estimator(Protocol):
    """Learns from ended jobs, and predicts the run times of others.

    Instants never go back. A job is reported as submitted once, started at most once per run, and ended once; then its id
    may be forgotten. `at_s` and `runtime_s` are seconds; a runtime of 0 is that of a job that never ran.
    """

    @property
    def name(self) -> str: ...

    def submitted(self, job: Submitted) -> None:
        """A job was submitted. It may be asked about from now on."""
        ...

    def started(self, job_id: int, at_s: int) -> None:
        """It runs (again: after it was requeued)."""
        ...

    def ended(self, job_id: int, at_s: int, runtime_s: int) -> None:
        """The job ended after this run time. Unknown jobs are ignored."""
        ...

    def ask(self, job_id: int, at_s: int) -> Any:
        """A question about a submitted job that has not ended: cheap, and only valid for `answer`.

        Before its start it is about the whole run; after it, the elapsed time is known, and the answer exceeds it.
        """
        ...

    def answer(self, questions: Sequence[Any]) -> list[Forecast]:
        """The answers, in order."""
        ...

    def due(self, at_s: int) -> bool:
        """True when `settle` or `lesson` have something to do: answer open questions first."""
        ...

    def settle(self, at_s: int) -> None:
        """Cheap upkeep, such as calibration on the answers given so far."""
        ...

    def lesson(self, at_s: int) -> Lesson | None:
        """The next lesson; None when it is too early or there is too little to learn from."""
        ...

    def adopt(self, model: Model) -> None:
        """Answer with this model from now on: one just learnt, or one from a file.

        Raises `ValueError`, and changes nothing, when the model is of another kind or damaged.
        """
        ...


@runtime_checkable
class HeedsLimits(Protocol):
    """An addition to `Estimator`: without it an estimator uses the limit of the submission."""

    def limit_changed(self, job_id: int, at_s: int, limit_s: int) -> None:
        """A running job has another time limit from now on; 0: none. Lessons use the requested limit."""
        ...


class EstimatorFactory(Protocol):
    """The function that an entry point names. Raises `ValueError` that names an unusable setting."""

    def __call__(self, settings: Mapping[str, Setting]) -> Estimator: ...
