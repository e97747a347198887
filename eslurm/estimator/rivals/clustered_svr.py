"""`clustered-svr`: the published framework as a whole (E-40 .. E-49).

Model generator: every `retrain_every_s` the last `window_jobs` ended jobs are clustered by K-means++ on the features of
Table IV, `k` clusters (15, or "elbow": chosen anew each time), and each gets a support vector regression. Estimation: the
regression of the nearest cluster, times `alpha`. Record: as each job ends, what the model said of it at its submission is
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

import numpy as np

from eslurm.core.forecast.record import Record
from eslurm.core.forecast.trust import AEA_MIN, ALPHA, gated, slacked
from eslurm.core.model.forecast import NO_LIMIT, Forecast, Submitted
from eslurm.estimator.rivals.arrays import (
    Floats,
    Integers,
    check_kind,
    floats,
    integers,
    prefixed,
    under,
)
from eslurm.estimator.rivals.features import Encoder, Scale, feature_names
from eslurm.estimator.rivals.jobs import Ended, Jobs
from eslurm.estimator.rivals.kmeans import ELBOW_MOST, Elbow, elbow, k_means, nearest
from eslurm.estimator.rivals.regression import facts_of, read_facts
from eslurm.estimator.rivals.settings import SettingsReader
from eslurm.estimator.rivals.vectors import COST, EPSILON, Vectors
from eslurm.estimator.rivals.windowed import forecast
from eslurm.estimator.rivals.windows import Window
from eslurm.ports.estimator import Lesson, Model, Setting

NAME: Final = "clustered-svr"
VERSION: Final = 1
CLUSTERS: Final = 15
ELBOW: Final = "elbow"


class Config(NamedTuple):
    """How the generator works."""

    k: int = CLUSTERS
    """0: by the elbow."""
    scale: Scale = Scale.LOG
    limits: bool = False
    cost: float = COST
    epsilon: float = EPSILON


class Scored(NamedTuple):
    """An ended job of the historical queue, with what the model said at its submission; 0: there was none yet."""

    ended: Ended
    estimate_s: float


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


def elbow_of(ended: Sequence[Ended], most: int = ELBOW_MOST) -> Elbow:
    """The curve by which `k = "elbow"` chooses for a window of ended jobs, at least one (E-44)."""
    encoder, _ = Encoder.learn(ended, limits=False)
    return elbow(encoder.rows([one.job for one in ended]), most)


class ClusteredModel:
    """Centres, and a regression for each."""

    def __init__(
        self, encoder: Encoder, centres: Floats, regressions: Sequence[Vectors], scale: Scale
    ) -> None:
        self._encoder = encoder
        self._centres = centres
        self._regressions = regressions
        self._scale = scale

    @property
    def clusters(self) -> int:
        return len(self._centres)

    def predict(self, jobs: Sequence[Submitted]) -> tuple[Integers, Floats]:
        """The cluster of each job, and what its regression says in seconds, before any slack."""
        rows = self._encoder.rows(jobs)
        own = nearest(rows, self._centres)
        predicted = np.zeros(len(jobs))
        for cluster in np.unique(own).tolist():
            members = own == cluster
            predicted[members] = self._regressions[cluster].predict(rows[members])
        return own, self._scale.seconds(predicted)


def generate(window: Sequence[Scored], config: Config, at_s: int) -> Model:
    """The estimation model generator (E-41 .. E-45), with the record that the window's jobs give."""
    ended = [one.ended for one in window]
    encoder, rows = Encoder.learn(ended, limits=config.limits)
    targets = config.scale.targets(ended)
    # Clusters are of jobs as they are coded when they are asked about; only what is learnt in them must not know itself.
    places = encoder.rows([one.job for one in ended])
    clusters = k_means(places, config.k or elbow(places).k)
    own = nearest(places, clusters.centres)
    arrays = {**prefixed("features.", encoder.dump()), "centres": clusters.centres}
    for cluster in range(len(clusters.centres)):
        members = own == cluster
        vectors = Vectors.learn(rows[members], targets[members], cost=config.cost, epsilon=config.epsilon)
        arrays.update(prefixed(f"svr{cluster}.", vectors.dump()))
    scored = [(one.estimate_s, float(one.ended.runtime_s)) for one in window]
    judged = np.array(scored).reshape(len(window), 2)
    kept = judged[:, 0] > 0
    arrays["record_cluster"], arrays["record_s"] = own[kept], judged[kept]
    facts = {
        **facts_of(config.scale, config.limits),
        "kind": NAME,
        "version": VERSION,
        "window_jobs": len(window),
        "learnt_at_s": at_s,
        "clusters": len(clusters.centres),
        "inertia": clusters.inertia,
    }
    return Model(arrays, facts)


def read(model: Model) -> tuple[ClusteredModel, Record]:
    """What `generate` made. Raises `ValueError` when it is of another kind or damaged."""
    check_kind(model, NAME, VERSION)
    scale, limits = read_facts(model.facts)
    arrays, width = model.arrays, len(feature_names(limits))
    centres = floats(arrays, "centres", None, width)
    if not len(centres):
        raise ValueError("the model is damaged: it has no clusters")
    encoder = Encoder.load(under("features.", arrays), limits=limits)
    regressions = [Vectors.load(under(f"svr{cluster}.", arrays), width) for cluster in range(len(centres))]
    of_jobs = integers(arrays, "record_cluster", 0, len(centres) - 1, None)
    seconds = floats(arrays, "record_s", len(of_jobs), 2)
    if len(seconds) and float(seconds.min()) <= 0:
        raise ValueError("the model is damaged: record_s must be above 0")
    record = Record(len(centres))
    record.add_all(
        (cluster, estimate_s, runtime_s)
        for cluster, (estimate_s, runtime_s) in zip(of_jobs.tolist(), seconds.tolist(), strict=True)
    )
    return ClusteredModel(encoder, centres, regressions, scale), record


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
            forecast(question.job, question.elapsed_s, *[estimate_s] * 4, cap_s=NO_LIMIT)
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
        self._model, self._record = read(model)
