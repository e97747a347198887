"""`clustered-svr`: the published framework as a whole (E-40 .. E-49).

Model generator: every `retrain_every_s` the last `window_jobs` ended jobs are clustered by K-means++ on the features of
Table IV, `k` clusters (15, or "elbow": chosen anew each time), and each gets a support vector regression. Estimation: the
regression of the nearest cluster, times `alpha`. Record: when a job ends, the model's estimate at its submission is
scored. Gate: where the user gave a limit, the model is used only when its cluster's average accuracy is above `gate` (0:
always).

Readings: the regression learns logarithms unless `scale` is "seconds"; limits are no feature (Table IV) unless `limits` is
true, and estimates may exceed them, as published. Clusters are new with each model, so the record begins with the jobs of
the window, each scored by what had been estimated when it was submitted and counted for the cluster it now belongs to; jobs
that ended between a lesson and its adoption are left out of it until the next. Invariant: the record holds only estimates
that were made before their job ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from eslurm.core.forecast.record import Record
from eslurm.core.forecast.trust import AEA_MIN, ALPHA, gated, slacked
from eslurm.core.model.forecast import NO_LIMIT, Forecast, Submitted
from eslurm.estimator.clustered_svr.features import Scale
from eslurm.estimator.clustered_svr.model import (
    CLUSTERS,
    COST,
    EPSILON,
    NAME,
    ClusteredModel,
    Config,
    Scored,
    generate,
    load,
)
from eslurm.estimator.jobs import Jobs
from eslurm.estimator.overrun import bounded
from eslurm.estimator.settings import SettingsReader
from eslurm.estimator.window import Window
from eslurm.ports.estimator import Lesson, Model, Setting

ELBOW: Final = "elbow"


class Question(NamedTuple):
    job: Submitted
    elapsed_s: int
    model: ClusteredModel | None
    aeas: tuple[float, ...]
    otherwise_s: int


def make(settings: Mapping[str, Setting]) -> ClusteredSvr:
    """Settings: `window_jobs`, `retrain_every_s`, `k`, `alpha`, `gate`, `scale`, `limits`, `cost`, `epsilon`.

    Raises `ValueError`.
    """
    reader = SettingsReader(NAME, settings)
    window: Window[Scored] = Window.of(reader)
    by_elbow = reader.peek("k") == ELBOW
    config = Config(
        k=0 if by_elbow else reader.integer("k", CLUSTERS, 1, 1_000),
        scale=Scale(reader.choice("scale", "log", "log", "seconds")),
        limits=reader.flag("limits", False),
        cost=reader.number("cost", COST, 1e-3, 1e4),
        epsilon=reader.number("epsilon", EPSILON, 0.0, 10.0),
    )
    alpha = reader.number("alpha", ALPHA, 0.1, 10.0)
    gate = reader.number("gate", AEA_MIN, 0.0, 1.0)
    reader.finish()
    return ClusteredSvr(config, window, alpha=alpha, gate=gate)


class ClusteredSvr:
    """`clustered-svr`: real-time estimation and record module around the newest model."""

    name = NAME

    def __init__(self, config: Config, window: Window[Scored], *, alpha: float, gate: float) -> None:
        self._config = config
        self._window = window
        self._alpha = alpha
        self._gate = gate
        self._jobs = Jobs()
        self._model: ClusteredModel | None = None
        self._record = Record(0)
        self._said_by: dict[int, ClusteredModel] = {}
        """The model at the submission of each live job."""

    @property
    def record(self) -> Record:
        """The record of the newest model's clusters."""
        return self._record

    def submitted(self, job: Submitted) -> None:
        self._jobs.submitted(job)
        if self._model is not None:
            self._said_by[job.job_id] = self._model

    def started(self, job_id: int, at_s: int) -> None:
        self._jobs.started(job_id, at_s)

    def limit_changed(self, job_id: int, at_s: int, limit_s: int) -> None:
        self._jobs.limit_changed(job_id, limit_s)

    def ended(self, job_id: int, at_s: int, runtime_s: int) -> None:
        said_by = self._said_by.pop(job_id, None)
        ended = self._jobs.ended(job_id, runtime_s)
        if ended is None:
            return
        estimate_s = 0.0
        if said_by is not None and self._model is not None:
            own, predicted = said_by.predict([ended.job])
            estimate_s = slacked(float(predicted[0]), self._alpha)
            # A newer model has other clusters: the job counts for the one it would go to now.
            cluster = own if said_by is self._model else self._model.predict([ended.job])[0]
            self._record.add(int(cluster[0]), estimate_s, ended.runtime_s)
        self._window.add(Scored(ended, estimate_s))

    def ask(self, job_id: int, at_s: int) -> Question:
        job = self._jobs.get(job_id)
        otherwise_s = self._jobs.otherwise_s(job)
        return Question(job, self._jobs.elapsed_s(job_id, at_s), self._model, self._record.aeas, otherwise_s)

    def answer(self, questions: Sequence[Question]) -> list[Forecast]:
        estimates = [float(question.otherwise_s) for question in questions]
        by_model: dict[ClusteredModel, list[int]] = {}
        for index, question in enumerate(questions):
            if question.model is not None:
                by_model.setdefault(question.model, []).append(index)
        for model, indices in by_model.items():
            clusters, predicted = model.predict([questions[index].job for index in indices])
            for index, cluster, model_s in zip(indices, clusters.tolist(), predicted.tolist(), strict=True):
                question = questions[index]
                said_s = slacked(model_s, self._alpha)
                estimates[index] = gated(said_s, question.job.limit_s, question.aeas[cluster], self._gate)
        return [
            bounded([estimate_s] * 4, question.job, question.elapsed_s, cap_s=NO_LIMIT)
            for question, estimate_s in zip(questions, estimates, strict=True)
        ]

    def due(self, at_s: int) -> bool:
        return self._window.due(at_s)

    def settle(self, at_s: int) -> None:
        """The record is updated as jobs end."""

    def lesson(self, at_s: int) -> Lesson | None:
        window, config = self._window.take(at_s), self._config
        return None if window is None else lambda: generate(window, config, at_s)

    def adopt(self, model: Model) -> None:
        self._model, self._record = load(model)
