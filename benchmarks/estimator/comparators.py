"""Published estimators that `history` is measured against (E-56), on plain scikit-learn. No administrator runs them.

A method learns from the last ended jobs and predicts run times: that is all that differs between them. Features are those of
Table IV and the time limit. Models live in memory only. Readings: the forest and `prep` learn seconds, the others
logarithms, what suits each; no estimate exceeds the time limit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_ndtr
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler, TargetEncoder
from sklearn.svm import SVR

from eslurm.core.model.forecast import LONGEST_S, Forecast, Submitted
from eslurm.estimator import registry
from eslurm.estimator.jobs import Ended, Jobs
from eslurm.estimator.overrun import bounded
from eslurm.estimator.window import Window
from eslurm.ports.estimator import Estimator, Lesson, Model, Setting

Table: TypeAlias = NDArray[Any]
"""(jobs, columns): name, user, nodes, cores, hour, limit (NaN: none)"""
Floats: TypeAlias = NDArray[np.float64]

SEED: Final = 1
TREES: Final = 60
LEAF_JOBS: Final = 3
CUT_AT: Final = 0.98
"""`trip`: a run of so much of its limit was cut off by it."""
CLUSTER_JOBS: Final = 3
REGRESSION_JOBS: Final = 20
"""`prep`: a path is a cluster from so many runs on, and has a regression from so many on."""
P90: Final = 1.2815515655446004
"""A tenth of a normal distribution lies so many deviations above its middle."""
_DIGITS: Final = re.compile(r"\d+")


class Spans(NamedTuple):
    """Seconds, a row a job."""

    p10: Floats
    p50: Floats
    p90: Floats
    estimate: Floats


Predict: TypeAlias = Callable[[Sequence[Submitted]], Spans]
Learn: TypeAlias = Callable[[Sequence[Ended]], Predict]


class Question(NamedTuple):
    job: Submitted
    elapsed_s: int
    predict: Predict | None
    otherwise_s: int


class Comparator:
    """The port's estimator around a method: it learns from the interest window again every 15 h (E-41, E-42)."""

    def __init__(self, name: str, learn: Learn) -> None:
        self.name = name
        self._learn = learn
        self._window: Window[Ended] = Window()
        self._jobs = Jobs()
        self._predict: Predict | None = None
        self._learnt: Predict | None = None

    def submitted(self, job: Submitted) -> None:
        self._jobs.submitted(job)

    def started(self, job_id: int, at_s: int) -> None:
        self._jobs.started(job_id, at_s)

    def ended(self, job_id: int, at_s: int, runtime_s: int) -> None:
        ended = self._jobs.ended(job_id, runtime_s)
        if ended is not None:
            self._window.add(ended)

    def ask(self, job_id: int, at_s: int) -> Question:
        job = self._jobs.get(job_id)
        return Question(job, self._jobs.elapsed_s(job_id, at_s), self._predict, self._jobs.otherwise_s(job))

    def answer(self, questions: Sequence[Question]) -> list[Forecast]:
        # A model changes only when all that was asked of the one before is answered.
        predict = questions[0].predict
        if predict is None:
            spans = [(float(one.otherwise_s),) * 4 for one in questions]
        else:
            found = np.stack(predict([one.job for one in questions]))
            spans = [tuple(row) for row in np.nan_to_num(found, nan=LONGEST_S).T.clip(1, LONGEST_S).tolist()]
        return [
            bounded(seconds, one.job, one.elapsed_s, cap_s=one.job.limit_s)
            for seconds, one in zip(spans, questions, strict=True)
        ]

    def due(self, at_s: int) -> bool:
        return self._window.due(at_s)

    def settle(self, at_s: int) -> None:
        """Nothing is calibrated between lessons."""

    def lesson(self, at_s: int) -> Lesson | None:
        window = self._window.take(at_s)
        return None if window is None else lambda: self._taught(window, at_s)

    def adopt(self, model: Model) -> None:
        self._predict = self._learnt

    def _taught(self, window: Sequence[Ended], at_s: int) -> Model:
        self._learnt = self._learn(window)
        return Model({}, {"kind": self.name, "window_jobs": len(window), "learnt_at_s": at_s})


def table(jobs: Sequence[Submitted]) -> Table:
    """The features as they are."""
    rows = [
        (
            job.name,
            job.user,
            math.log1p(job.nodes),
            math.log1p(job.cores),
            job.at_s // 3_600 % 24,
            math.log(job.limit_s) if job.limit_s > 0 else math.nan,
        )
        for job in jobs
    ]
    return np.array(rows, dtype=object).reshape(len(jobs), 6)


def seconds(ended: Sequence[Ended]) -> Floats:
    """Run times."""
    return np.array([one.runtime_s for one in ended], dtype=np.float64)


def regression(model: Any, *, logs: bool) -> TransformedTargetRegressor | Pipeline:
    """A regression on standardised features: of seconds, or of their logarithms."""
    folds = KFold(5, shuffle=True, random_state=SEED)
    encoder = ColumnTransformer(
        [
            ("names", TargetEncoder(target_type="continuous", smooth=1.0, cv=folds), [0, 1]),
            ("numbers", SimpleImputer(keep_empty_features=True), [2, 3, 4, 5]),
        ]
    )
    pipeline = make_pipeline(encoder, StandardScaler(), model)
    return TransformedTargetRegressor(pipeline, func=np.log, inverse_func=np.exp) if logs else pipeline


def forest() -> RandomForestRegressor:
    return RandomForestRegressor(TREES, min_samples_leaf=LEAF_JOBS, max_features=0.5, random_state=SEED)


def support_vectors() -> TransformedTargetRegressor:
    return TransformedTargetRegressor(SVR(), transformer=StandardScaler())


def learn_mean_of(*made: Callable[[], TransformedTargetRegressor | Pipeline]) -> Learn:
    """The mean of some regressions' seconds."""

    def learn(window: Sequence[Ended]) -> Predict:
        rows, targets = table([one.job for one in window]), seconds(window)
        fitted = [make().fit(rows, targets) for make in made]

        def predict(jobs: Sequence[Submitted]) -> Spans:
            asked = table(jobs)
            found = np.mean([np.clip(one.predict(asked), 1, LONGEST_S) for one in fitted], axis=0)
            return Spans(found, found, found, found)

        return predict

    return learn


class Tobit:
    """The likeliest line when targets of `cut` rows are only known to be at least what is given."""

    def __init__(self) -> None:
        self.line = np.zeros(0)
        self.noise = 1.0

    def fit(self, rows: Floats, targets: Floats, cut: NDArray[np.bool_]) -> Tobit:
        """A row that was not cut counts with the density at its target, another with the probability of lying above it."""
        design = np.column_stack([rows, np.ones(len(rows))])
        # Without one row that was not cut nothing bounds the line.
        cut = cut & ~cut.all()
        start, *_ = np.linalg.lstsq(design, targets, rcond=None)
        noise = max(float((targets - design @ start).std()), 1e-3)

        def cost(guess: Floats) -> float:
            u = (targets - design @ guess[:-1]) / math.exp(guess[-1])
            return -float(np.where(cut, log_ndtr(-u), -0.5 * u * u - guess[-1]).sum())

        bounds = [(None, None)] * len(start) + [(math.log(1e-3), math.log(1e3))]
        found = minimize(cost, [*start, math.log(noise)], method="L-BFGS-B", bounds=bounds).x
        self.line, self.noise = found[:-1], math.exp(found[-1])
        return self

    def predict(self, rows: Floats) -> Floats:
        return np.column_stack([rows, np.ones(len(rows))]) @ self.line


def learn_trip(window: Sequence[Ended]) -> Predict:
    """`trip`: a Tobit regression of logarithms, as runs that their limit cut off would have lasted longer (Fan et al.)."""
    # The pipeline without its last step makes the rows.
    encoder = regression("passthrough", logs=False)
    targets = np.log(seconds(window))
    cut = np.array([0 < CUT_AT * one.job.limit_s <= one.runtime_s for one in window])
    line = Tobit().fit(encoder.fit_transform(table([one.job for one in window]), targets), targets, cut)

    def predict(jobs: Sequence[Submitted]) -> Spans:
        middle = line.predict(encoder.transform(table(jobs)))
        low, point, high = (
            np.exp(np.minimum(middle + step * line.noise, math.log(LONGEST_S))) for step in (-P90, 0, P90)
        )
        return Spans(low, point, high, point)

    return predict


def learn_prep(window: Sequence[Ended]) -> Predict:
    """`prep`: a Bayesian ridge regression for each cluster of running paths, the mean in small ones (after PREP).

    Paths are clustered by their leading parts: a job belongs to the longest one that has had `CLUSTER_JOBS` runs.
    """
    rows, targets = table([one.job for one in window])[:, 2:].astype(np.float64), seconds(window)
    members: dict[tuple[str, ...], list[int]] = {}
    for index, one in enumerate(window):
        for path in paths(one.job):
            members.setdefault(path, []).append(index)
    lines: dict[tuple[str, ...], tuple[Pipeline | None, Floats]] = {}
    for path, kept in [((), list(range(len(window)))), *members.items()]:
        if len(kept) >= CLUSTER_JOBS:
            line = None
            if len(kept) >= REGRESSION_JOBS:
                imputer = SimpleImputer(keep_empty_features=True)
                line = make_pipeline(imputer, StandardScaler(), BayesianRidge()).fit(
                    rows[kept], targets[kept]
                )
            lines[path] = line, targets[kept]

    def predict(jobs: Sequence[Submitted]) -> Spans:
        asked, found = table(jobs)[:, 2:].astype(np.float64), np.empty(len(jobs))
        of_path: dict[tuple[str, ...], list[int]] = {}
        for index, job in enumerate(jobs):
            path = next((path for path in reversed(paths(job)) if path in lines), ())
            of_path.setdefault(path, []).append(index)
        for path, kept in of_path.items():
            line, known = lines[path]
            within = known.mean() if line is None else line.predict(asked[kept])
            found[kept] = np.clip(within, known.min(), known.max())
        return Spans(found, found, found, found)

    return predict


def paths(job: Submitted) -> list[tuple[str, ...]]:
    """The leading parts of a job's running path under its user; runs that differ by digits only are the same.

    Without a path the name stands for it; the program numbers of a log are names, and digits are all they have.
    """
    if job.command:
        parts = [_DIGITS.sub("#", part) for part in job.command.split("/") if part]
    else:
        parts = [job.name if job.name.isdigit() else _DIGITS.sub("#", job.name)]
    return [(job.user, *parts[:length]) for length in range(len(parts) + 1)]


METHODS: Final[Mapping[str, Learn]] = {
    "svr": learn_mean_of(lambda: regression(support_vectors(), logs=True)),
    "forest": learn_mean_of(lambda: regression(forest(), logs=False)),
    "irpa": learn_mean_of(
        lambda: regression(forest(), logs=False),
        lambda: regression(support_vectors(), logs=True),
        lambda: regression(BayesianRidge(), logs=True),
    ),
    "trip": learn_trip,
    "prep": learn_prep,
}


def names() -> tuple[str, ...]:
    """All that can be measured: the product's estimators, the published model by itself, and these."""
    return (*registry.names(), *registry.VARIANTS, *METHODS)


def make(text: str) -> Estimator:
    """An estimator of the product (`NAME[:KEY=VALUE]...`), or a comparator. Raises `UnknownEstimator`."""
    if text in METHODS:
        return Comparator(text, METHODS[text])
    settings: dict[str, Setting]
    name, settings = registry.parse(text)
    return registry.make(name, settings)
