"""The model of `clustered-svr`: scikit-learn fits it, plain arrays keep it, and reading them checks every one.

The arrays are the public results of fitting (codes, centres, support vectors), not fitted objects: a list of trusted types
vouches for classes, but libsvm takes an object's arrays unchecked and reads beyond them. Invariant: what `load` accepts
cannot make a prediction raise or read beyond an array; a job's prediction is the same bits whatever jobs are beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.compose import TransformedTargetRegressor
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from eslurm.core.forecast.record import Record
from eslurm.core.model.forecast import Submitted
from eslurm.estimator.clustered_svr.clusters import (
    ELBOW_MOST,
    Elbow,
    Floats,
    Integers,
    elbow,
    k_means,
    nearest,
)
from eslurm.estimator.clustered_svr.features import Arrays, Encoder, Scale, feature_names
from eslurm.estimator.jobs import Ended
from eslurm.ports.estimator import Model

NAME: Final = "clustered-svr"
VERSION: Final = 2
CLUSTERS: Final = 15
COST: Final = 1.0
EPSILON: Final = 0.1
_FLAT: Final = 1e-12
"""Rows with less variance are all the same."""


class Config(NamedTuple):
    """Parameters of a model."""

    k: int = CLUSTERS
    """0: by the elbow."""
    scale: Scale = Scale.LOG
    limits: bool = False
    cost: float = COST
    epsilon: float = EPSILON


class Scored(NamedTuple):
    """An ended job of the window, with what the model estimated at its submission in seconds; 0: there was none yet."""

    ended: Ended
    estimate_s: float


class Regression(NamedTuple):
    """A support vector regression: the sum of dual[i] exp(-gamma |row - support[i]|^2), plus the intercept."""

    support: Floats
    """(vectors, features)"""
    dual: Floats
    """(vectors,)"""
    intercept: float
    gamma: float

    @staticmethod
    def fit(rows: Floats, targets: Floats, *, cost: float, epsilon: float) -> Regression:
        """Learn targets, standardised as `epsilon` and `cost` are meant for them."""
        variance = float(rows.var())
        gamma = 1.0 / (rows.shape[1] * variance) if variance > _FLAT else 1.0
        fitted = TransformedTargetRegressor(
            SVR(C=cost, epsilon=epsilon, gamma=gamma), transformer=StandardScaler(), check_inverse=False
        ).fit(rows, targets)
        svr, scaler = fitted.regressor_, fitted.transformer_
        spread, middle = float(scaler.scale_[0]), float(scaler.mean_[0])
        intercept = float(svr.intercept_[0]) * spread + middle
        support = np.asarray(svr.support_vectors_, dtype=np.float64)
        return Regression(support, np.asarray(svr.dual_coef_, dtype=np.float64)[0] * spread, intercept, gamma)

    def predict(self, rows: Floats) -> Floats:
        """A target for each row (jobs, features); one at a time, which bounds memory and keeps the order of sums."""
        distances = (cdist(row[None], self.support, "sqeuclidean")[0] for row in rows)
        return np.array([(np.exp(-self.gamma * far) * self.dual).sum() + self.intercept for far in distances])


class ClusteredModel:
    """An encoder, centres of clusters, and a regression for each."""

    def __init__(
        self, encoder: Encoder, centres: Floats, regressions: Sequence[Regression], scale: Scale
    ) -> None:
        self._encoder = encoder
        self._centres = centres
        self._regressions = regressions
        self._scale = scale

    def predict(self, jobs: Sequence[Submitted]) -> tuple[Integers, Floats]:
        """The cluster of each job, and its regression's prediction in seconds, before any slack."""
        rows = self._encoder.rows(jobs)
        own = nearest(rows, self._centres)
        predicted = np.zeros(len(jobs))
        for cluster in np.unique(own).tolist():
            members = own == cluster
            predicted[members] = self._regressions[cluster].predict(rows[members])
        return own, self._scale.seconds(predicted)


def elbow_of(ended: Sequence[Ended], most: int = ELBOW_MOST) -> Elbow:
    """The curve by which `k = "elbow"` chooses for a window of ended jobs (E-44)."""
    encoder, _ = Encoder.learn(ended, limits=False)
    return elbow(encoder.rows([one.job for one in ended]), most)


def generate(window: Sequence[Scored], config: Config, at_s: int) -> Model:
    """The estimation model generator (E-41 .. E-45), with the record that the window's jobs give."""
    with threadpool_limits(limits=1):
        return _generate(window, config, at_s)


def _generate(window: Sequence[Scored], config: Config, at_s: int) -> Model:
    ended = [one.ended for one in window]
    encoder, rows = Encoder.learn(ended, limits=config.limits)
    targets = config.scale.targets(ended)
    # Clusters are of jobs as they are coded when they are asked about; only rows to learn from must not know themselves.
    places = encoder.rows([one.job for one in ended])
    clusters = k_means(places, config.k or elbow(places).k)
    own = nearest(places, clusters.centres)
    regressions = [
        Regression.fit(
            rows[own == cluster], targets[own == cluster], cost=config.cost, epsilon=config.epsilon
        )
        for cluster in range(len(clusters.centres))
    ]
    scored = np.array([(one.estimate_s, float(one.ended.runtime_s)) for one in window])
    judged = scored[:, 0] > 0
    arrays = {
        **encoder._asdict(),
        "centres": clusters.centres,
        "support": np.concatenate([one.support for one in regressions]),
        "dual": np.concatenate([one.dual for one in regressions]),
        "vectors": np.array([len(one.dual) for one in regressions], dtype=np.int64),
        "intercept": np.array([one.intercept for one in regressions]),
        "gamma": np.array([one.gamma for one in regressions]),
        "record_cluster": own[judged],
        "record_s": scored[judged],
    }
    facts = {
        "kind": NAME,
        "version": VERSION,
        "features": feature_names(config.limits),
        "limits": config.limits,
        "scale": config.scale.value,
        "window_jobs": len(window),
        "learnt_at_s": at_s,
        "clusters": len(clusters.centres),
        "inertia": clusters.inertia,
    }
    return Model(arrays, facts)


def load(model: Model) -> tuple[ClusteredModel, Record]:
    """Read what `generate` made. Raises `ValueError` for a model of another kind, another version, or a damaged one."""
    facts, arrays = model.facts, model.arrays
    if (facts.get("kind"), facts.get("version")) != (NAME, VERSION):
        raise ValueError(
            f"a model of {facts.get('kind')!r}, version {facts.get('version')!r}: "
            f"estimator {NAME} needs version {VERSION} of its own"
        )
    limits = facts.get("limits")
    _check(isinstance(limits, bool), "it does not say whether limits are a feature")
    _check(facts.get("scale") in [scale.value for scale in Scale], f"it has the scale {facts.get('scale')!r}")
    width = len(feature_names(bool(limits)))
    names, users = _integers(arrays, "names", None), _integers(arrays, "users", None)
    encoder = Encoder(
        names,
        _floats(arrays, "name_codes", len(names)),
        users,
        _floats(arrays, "user_codes", len(users)),
        _floats(arrays, "unknown", 1),
        _floats(arrays, "middle", width),
        _floats(arrays, "spread", width),
    )
    _check(bool((encoder.spread > 0).all()), "spread must be above 0")
    centres = _floats(arrays, "centres", None, width)
    count = len(centres)
    _check(count > 0, "it has no clusters")
    dual, gamma = _floats(arrays, "dual", None), _floats(arrays, "gamma", count)
    support, intercept = _floats(arrays, "support", len(dual), width), _floats(arrays, "intercept", count)
    _check(bool((gamma > 0).all()), "gamma must be above 0")
    vectors = _integers(arrays, "vectors", count)
    # Each is bounded before they are added: a sum must not wrap around.
    sound = bool(((vectors >= 0) & (vectors <= len(dual))).all()) and sum(vectors.tolist()) == len(dual)
    _check(sound, "vectors must share out the support vectors")
    ends = np.cumsum(vectors).tolist()
    regressions = [
        Regression(support[begin:end], dual[begin:end], float(intercept[at]), float(gamma[at]))
        for at, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True))
    ]
    clustered = ClusteredModel(encoder, centres, regressions, Scale(facts["scale"]))
    return clustered, _record(arrays, count)


def _record(arrays: Arrays, clusters: int) -> Record:
    of_jobs = _integers(arrays, "record_cluster", None)
    seconds = _floats(arrays, "record_s", len(of_jobs), 2)
    _check(bool(((of_jobs >= 0) & (of_jobs < clusters)).all()), "record_cluster must name clusters")
    _check(bool((seconds > 0).all()), "record_s must be above 0")
    record = Record(clusters)
    record.add_all(
        (cluster, estimate_s, runtime_s)
        for cluster, (estimate_s, runtime_s) in zip(of_jobs.tolist(), seconds.tolist(), strict=True)
    )
    return record


def _floats(arrays: Arrays, name: str, *shape: int | None) -> Floats:
    found = _shaped(arrays, name, np.float64, shape)
    _check(bool(np.isfinite(found).all()), f"{name} must hold finite decimals")
    return np.ascontiguousarray(found)


def _integers(arrays: Arrays, name: str, *shape: int | None) -> Integers:
    return np.ascontiguousarray(_shaped(arrays, name, np.int64, shape))


def _shaped(arrays: Arrays, name: str, kind: type, shape: tuple[int | None, ...]) -> NDArray[Any]:
    """An array of this kind and shape; None is any length."""
    found = arrays.get(name)
    fits = (
        found is not None
        and found.dtype == kind
        and found.ndim == len(shape)
        and all(wanted in (None, length) for wanted, length in zip(shape, found.shape, strict=True))
    )
    if found is None or not fits:
        wanted_text = " x ".join("any" if length is None else str(length) for length in shape)
        raise ValueError(f"the model is damaged: {name} must be {kind.__name__}, {wanted_text}")
    return found


def _check(sound: bool, text: str) -> None:
    if not sound:
        raise ValueError(f"the model is damaged: {text}")
