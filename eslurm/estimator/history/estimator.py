"""The estimator `history`: it learns from every job and points at the past runs that a new one resembles.

It holds the reported jobs (`Memory`), the models (`Ensemble`) and the outcome of answers (`Calibration`). Invariant:
answers depend on what was reported, adopted and settled when they were asked for; a lesson works on copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from eslurm.core.model.forecast import LONGEST_S, Forecast, Submitted
from eslurm.estimator.history import decide, plain
from eslurm.estimator.history.calibration import Calibration
from eslurm.estimator.history.candidate_features import FEATURES
from eslurm.estimator.history.ensemble import CHUNK, Ensemble, learn
from eslurm.estimator.history.memory import Live, Memory, all_moved
from eslurm.estimator.history.question import Question, batch
from eslurm.estimator.history.table import Floats
from eslurm.estimator.settings import SettingsReader
from eslurm.ports.estimator import Lesson, Model, Setting

NAME: Final = "history"
VERSION: Final = 1
SETTLE_EVERY: Final = 100
"""First questions between two looks at how answers turn out."""
FIRST_LESSON_JOBS: Final = 150
"""Ended jobs before the first lesson; then each time twice as many, until `retrain_jobs` more are enough."""
ENOUGH_OF_ITS_OWN: Final = 1_000
"""Examples from which a first model is as good as one of another cluster, which answers until then."""
LEAST_NEW_SHARE: Final = 0.5
"""Of `retrain_jobs` before a lesson that only time makes due."""
POOLS: Final = ThreadpoolController()
"""The matrices here are small: with several threads, products of them cost many times as much."""
START_WAIT_S: Final = 60
"""A job that waited longer is learnt from as it looked at its start, too."""


class Settings(NamedTuple):
    """Window and period of lessons, and the target share of jobs that run longer than estimated."""

    target_under: float
    window_jobs: int
    retrain_jobs: int
    retrain_every_s: int


def settings_of(given: Mapping[str, Setting]) -> Settings:
    """Raises `ValueError` that names what cannot be used."""
    reader = SettingsReader(NAME, given)
    settings = Settings(
        reader.number("target_under", 0.10, 0.01, 0.5),
        reader.integer("window_jobs", 10_000, 500, 20_000),
        reader.integer("retrain_jobs", 2_000, 100, 100_000),
        reader.integer("retrain_every_s", 54_000, 60, 30 * 86_400),
    )
    reader.finish()
    return settings


class History:
    """See the port for the order of calls."""

    name = NAME

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._memory = Memory()
        self._ensemble: Ensemble | None = None
        self._lessons: deque[Question] = deque(maxlen=settings.window_jobs)
        self._at_submission = Calibration(settings.target_under)
        self._at_start = Calibration(settings.target_under)
        self._unsettled = 0
        self._next_jobs = FIRST_LESSON_JOBS
        self._taught_jobs = 0
        self._taught_at_s: int | None = None
        self._least_examples = 0
        """For the first lesson, where a model was adopted before it: that one has seen more."""

    def submitted(self, job: Submitted) -> None:
        live = self._memory.submitted(job)
        live.lesson.append(self._memory.question(live, job.at_s, True))

    def started(self, job_id: int, at_s: int) -> None:
        live = self._memory.started(job_id, at_s)
        if live is not None and at_s - live.submit_s >= START_WAIT_S:
            live.lesson[1:] = [self._memory.question(live, at_s, True)]

    def limit_changed(self, job_id: int, at_s: int, limit_s: int) -> None:
        self._memory.limit_changed(job_id, limit_s)

    def ended(self, job_id: int, at_s: int, runtime_s: int) -> None:
        live = self._memory.ended(job_id, at_s, runtime_s)
        if live is not None:
            self._lessons.extend(live.lesson)

    def ask(self, job_id: int, at_s: int) -> Question:
        live = self._memory.live[job_id]
        first = self._is_first(live)
        self._unsettled += first
        return self._memory.question(live, at_s, first)

    def answer(self, questions: Sequence[Question]) -> list[Forecast]:
        answers: list[Forecast] = []
        with POOLS.limit(limits=1):
            for begin in range(0, len(questions), CHUNK):
                answers += self._chunk(questions[begin : begin + CHUNK])
        return answers

    def due(self, at_s: int) -> bool:
        return self._unsettled >= SETTLE_EVERY or self._lesson_due(at_s) or self._memory.full

    def settle(self, at_s: int) -> None:
        if self._unsettled >= SETTLE_EVERY:
            self._unsettled = 0
            columns = self._memory.table.view()
            self._at_submission.settle(columns, at_s)
            self._at_start.settle(columns, at_s)
        if self._memory.full:
            renumbered = self._memory.compact()
            self._lessons = deque(all_moved(self._lessons, renumbered), maxlen=self._lessons.maxlen)
            self._at_submission.renumber(renumbered)
            self._at_start.renumber(renumbered)

    def lesson(self, at_s: int) -> Lesson | None:
        if not self._lesson_due(at_s):
            return None
        ended = self._memory.ended_jobs
        self._taught_jobs, self._taught_at_s, self._least_examples = ended, at_s, 0
        self._next_jobs = ended + min(max(ended, FIRST_LESSON_JOBS), self._settings.retrain_jobs)
        columns, questions, former = self._memory.table.view().copied(), list(self._lessons), self._ensemble
        target_under, penalty = self._settings.target_under, self._at_submission.penalty

        def learnt() -> Model:
            facts = {
                "kind": NAME,
                "version": VERSION,
                "features": FEATURES,
                "window_jobs": len(questions),
                "learnt_at_s": at_s,
                "target_under": target_under,
                "penalty": penalty,
            }
            with POOLS.limit(limits=1):
                return Model(learn(columns, questions, former).dump(), facts)

        return learnt

    def adopt(self, model: Model) -> None:
        found = model.facts.get("kind"), model.facts.get("version")
        if found != (NAME, VERSION):
            raise ValueError(
                f"a model of {found[0]!r}, version {found[1]!r}: {NAME} needs version {VERSION} of its own"
            )
        ensemble = Ensemble.load(model.arrays)
        penalty = model.facts.get("penalty")
        # What has proved right for another share of underestimates is none to begin with.
        same_aim = model.facts.get("target_under") == self._settings.target_under
        if same_aim and isinstance(penalty, int | float):
            self._at_submission.begin(penalty)
            self._at_start.begin(penalty)
        self._ensemble = ensemble
        if self._taught_at_s is None:
            self._least_examples = min(_examples(model), self._settings.window_jobs)

    def _lesson_due(self, at_s: int) -> bool:
        ended = self._memory.ended_jobs
        if len(self._lessons) < self._least_examples:
            return False
        if ended >= self._next_jobs:
            return True
        late = self._taught_at_s is not None and at_s - self._taught_at_s >= self._settings.retrain_every_s
        return late and ended - self._taught_jobs >= LEAST_NEW_SHARE * self._settings.retrain_jobs

    def _is_first(self, live: Live) -> bool:
        if live.started_s < 0:
            first, live.asked_submit = not live.asked_submit, True
        else:
            first, live.asked_start = not live.asked_start, True
        return first

    def _chunk(self, questions: Sequence[Question]) -> list[Forecast]:
        columns, ensemble = self._memory.table.view(), self._ensemble
        if ensemble is None:
            return _forecasts(questions, np.array([plain.interval(columns, one) for one in questions]).T)
        found = ensemble.distribution(batch(columns, questions))
        started = np.array([question.elapsed_s >= 0 for question in questions])
        first = np.array([question.first for question in questions])
        by = decide.after(found.by, found.running)
        accuracy = decide.expected_accuracy(found.grid, by)
        accuracy[found.running, 0] = -np.inf
        place = np.zeros(len(questions), np.int64)
        spans: Floats = np.zeros((3, len(questions)))
        for calibration, own in ((self._at_submission, ~started), (self._at_start, started)):
            grid, likely = found.grid[own], by[own]
            place[own] = decide.best(accuracy[own], likely, calibration.penalty)
            for span, share in enumerate((calibration.low, 0.5, calibration.high)):
                spans[span, own] = decide.quantile(grid, likely, share)
            new = own & first
            calibration.add(
                np.array([question.row for question in questions], np.int64)[new],
                found._replace(grid=found.grid[new], by=by[new], running=found.running[new]),
                place[new],
            )
        point = np.exp(found.grid[np.arange(len(questions)), place])
        return _forecasts(questions, np.concatenate((np.exp(spans), point[None, :])))


def _examples(model: Model) -> int:
    """Number of own examples from which an estimator is better than this model."""
    examples = model.facts.get("window_jobs")
    return max(0, min(examples, ENOUGH_OF_ITS_OWN)) if isinstance(examples, int) else ENOUGH_OF_ITS_OWN


def _forecasts(questions: Sequence[Question], seconds: Floats) -> list[Forecast]:
    """Whole seconds, in order, and beyond what has passed, from (p10, p50, p90 and estimate; questions)."""
    low, middle, high, point = seconds
    least = np.array([max(question.elapsed_s + 1, 1) for question in questions])
    p10 = np.clip(np.floor(low), least, LONGEST_S)
    p50 = np.clip(np.rint(middle), p10, LONGEST_S)
    p90 = np.clip(np.ceil(high), p50, LONGEST_S)
    whole = np.stack((p10, p50, p90, np.clip(np.rint(point), least, LONGEST_S)), axis=1)
    return [Forecast(*spans) for spans in whole.astype(np.int64).tolist()]
