"""One estimator, driven as its port requires: events in, answers out in batches, lessons in between.

`esestd` and the evaluation on logs both drive estimators through a `Session` and therefore agree on the time of each
answer and each change of model. Invariant: the model and the calibration in force when a question is asked answer it:
every change of them (`settle`, a lesson's model, `adopt`) answers open questions first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from eslurm.core.model.forecast import Forecast, Submitted
from eslurm.ports.estimator import Estimator, HeedsLimits, Lesson, Model

BATCH_MAX: Final = 1_024
"""Questions that wait for one pass over a model: more would only cost memory."""

Tag = TypeVar("Tag")


class BadAnswer(Exception):
    """An estimator broke its contract. The text has its name and its answer."""


class Spent:
    """CPU seconds, and numbers of calls. `ask_s` and `answer_s` together are the cost of predictions."""

    __slots__ = ("answer_s", "answers", "ask_s", "learn_max_s", "learn_s", "lessons", "settle_s")

    def __init__(self) -> None:
        self.ask_s = 0.0
        self.answer_s = 0.0
        self.answers = 0
        self.settle_s = 0.0
        """In `settle` and in making lessons, which share the driver's thread."""
        self.learn_s = 0.0
        """In lessons that were learnt in place."""
        self.learn_max_s = 0.0
        self.lessons = 0
        """Those handed out count too."""

    @property
    def per_answer_ms(self) -> float:
        """Mean cost of a prediction; 0 before the first."""
        return 1e3 * (self.ask_s + self.answer_s) / self.answers if self.answers else 0.0

    @property
    def per_lesson_s(self) -> float:
        """Mean cost of a training; 0 before the first."""
        return self.learn_s / self.lessons if self.lessons else 0.0


class Session(Generic[Tag]):
    """Passes events to an estimator and collects questions, each under a tag of the driver's choice.

    `deliver` gets the answers in the order of their questions, in batches: when one is full, when the estimator is due, at
    `flush`. Lessons are learnt in place, or handed to `teach`: the driver learns elsewhere and returns with `adopt` or
    `again`, and no other lesson is taken before. `cpu` is a clock of CPU seconds.
    """

    def __init__(
        self,
        estimator: Estimator,
        deliver: Callable[[list[tuple[Tag, Forecast]]], None],
        *,
        teach: Callable[[Lesson], None] | None = None,
        batch_max: int = BATCH_MAX,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self.estimator = estimator
        self.spent = Spent()
        self._deliver = deliver
        self._teach = teach
        self._batch_max = batch_max
        self._cpu = cpu
        self._tags: list[Tag] = []
        self._questions: list[Any] = []
        self._learning = False

    @property
    def learning(self) -> bool:
        """True while a lesson is out: not adopted yet."""
        return self._learning

    @property
    def open(self) -> int:
        """Questions without an answer yet."""
        return len(self._tags)

    def submitted(self, job: Submitted) -> None:
        """Report a submitted job."""
        self.tick(job.at_s)
        self.estimator.submitted(job)

    def started(self, job_id: int, at_s: int) -> None:
        """Report that a job runs (again)."""
        self.tick(at_s)
        self.estimator.started(job_id, at_s)

    def limit_changed(self, job_id: int, at_s: int, limit_s: int) -> None:
        """Report another time limit of a running job; 0: none."""
        self.tick(at_s)
        # What was asked before is answered by the limit that was in force.
        self.flush()
        tell_limit(self.estimator, job_id, at_s, limit_s)

    def ended(self, job_id: int, at_s: int, runtime_s: int) -> None:
        """Report the end of a job; `runtime_s` is 0 when it never ran."""
        self.tick(at_s)
        self.estimator.ended(job_id, at_s, runtime_s)

    def ask(self, tag: Tag, job_id: int, at_s: int) -> None:
        """Ask for the job's whole run time, as of now. It must be reported and not have ended."""
        self.tick(at_s)
        began = self._cpu()
        question = self.estimator.ask(job_id, at_s)
        self.spent.ask_s += self._cpu() - began
        self._tags.append(tag)
        self._questions.append(question)
        if len(self._tags) >= self._batch_max:
            self.flush()

    def tick(self, at_s: int) -> None:
        """Set the time: settle and learn when the estimator is due. Every event does this first."""
        if not self.estimator.due(at_s):
            return
        self.flush()
        began = self._cpu()
        self.estimator.settle(at_s)
        lesson = None if self._learning else self.estimator.lesson(at_s)
        self.spent.settle_s += self._cpu() - began
        if lesson is not None:
            self._learn(lesson)

    def flush(self) -> None:
        """Answer the open questions. Raises `BadAnswer`."""
        if not self._tags:
            return
        tags, questions = self._tags, self._questions
        self._tags, self._questions = [], []
        began = self._cpu()
        answers = self.estimator.answer(questions)
        self.spent.answer_s += self._cpu() - began
        self.spent.answers += len(questions)
        if len(answers) != len(questions):
            raise BadAnswer(
                f"estimator {self.estimator.name}: {len(answers)} answers to {len(questions)} questions"
            )
        for answer in answers:
            if not _is_sound(answer):
                raise BadAnswer(
                    f"estimator {self.estimator.name}: {answer}: needs whole seconds, 1 <= p10 <= p50 <= p90 "
                    "and an estimate from 1 s"
                )
        self._deliver(list(zip(tags, answers, strict=True)))

    def adopt(self, model: Model) -> None:
        """Answer with this model from now on: the lesson's that was out, or one from a file.

        Raises `ValueError`; then nothing has changed, and a lesson that was out still is.
        """
        self.flush()
        self.estimator.adopt(model)
        self._learning = False

    def again(self, lesson: Lesson, at_s: int) -> None:
        """The lesson that was out failed: learn a newer one if the estimator has one by now, else this again."""
        self._learning = False
        self.tick(at_s)
        if not self._learning:
            self._learn(lesson)

    def _learn(self, lesson: Lesson) -> None:
        self.spent.lessons += 1
        if self._teach is not None:
            self._learning = True
            self._teach(lesson)
            return
        began = self._cpu()
        model = lesson()
        took_s = self._cpu() - began
        self.spent.learn_s += took_s
        self.spent.learn_max_s = max(self.spent.learn_max_s, took_s)
        self.estimator.adopt(model)


def tell_limit(estimator: Estimator, job_id: int, at_s: int, limit_s: int) -> None:
    """Report a running job's new limit to an estimator that heeds it."""
    if isinstance(estimator, HeedsLimits):
        estimator.limit_changed(job_id, at_s, limit_s)


def _is_sound(answer: Forecast) -> bool:
    spans = (answer.p10_s, answer.p50_s, answer.p90_s, answer.estimate_s)
    if not all(isinstance(seconds, int) for seconds in spans):
        return False
    return 1 <= answer.p10_s <= answer.p50_s <= answer.p90_s and answer.estimate_s >= 1
