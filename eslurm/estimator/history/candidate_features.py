"""Candidates for a job's run time, and the features by which the trees judge each: the chance of an end by then.

Candidates are the run times of related jobs, a little more than those, the job's limit and just beyond, and the cluster's
quantiles: whole seconds. Invariant: a candidate's features are known when the question is asked.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from eslurm.estimator.history.history_index import LEVELS, USER
from eslurm.estimator.history.neighbour_features import log
from eslurm.estimator.history.question import Batch
from eslurm.estimator.history.table import Floats, Singles

CANDIDATES: Final = 63
GRID: Final = 36
"""Number of examined candidates: those farthest from the next one."""
DEPTH: Final = 24
RECENCY: Final = 0.93
MOST_BEYOND: Final = 0.1
"""Runs under other limits count as no longer than so much beyond this job's (logarithm)."""
_OWN_LIMIT: Final = frozenset(("user_limit", "user_size_limit", "twin", "size_limit"))
"""Levels whose runs had the same limit."""
_CLOSE: Final = frozenset(("user", "user_limit", "twin", "user_program"))
_RUNNING: Final = ("user", "user_limit", "twin")
_QUANTILES: Final = (
    ("user", (0.25, 0.5, 0.75, 0.9, 1.0)),
    ("user_limit", (0.5, 0.75, 0.9, 1.0)),
    ("twin", (0.5, 0.75, 0.9, 1.0)),
    ("size_limit", (0.25, 0.5, 0.75, 0.9)),
    ("group", (0.5, 0.9)),
)
PAIRED: Final = 41
ALONE: Final = 111
FEATURES: Final = PAIRED + ALONE


class Relatives(NamedTuple):
    """By level: the logarithms of the last runs, newest first, as they would be under this job's limit; NaN: none."""

    runs: tuple[Floats, ...]

    def of(self, name: str) -> Floats:
        """The run times of one level."""
        return self.runs[LEVELS.index(name)]


def relatives(batch: Batch) -> Relatives:
    """The last runs of each level."""
    columns, own = batch.columns, batch.row[:, None]
    limit = columns.limit[own].astype(np.float64)
    limited = columns.limited[own]
    most = limit + np.maximum(MOST_BEYOND, batch.beyond[:, -1:] + 0.05)
    found = []
    for level, name in enumerate(LEVELS):
        rows = batch.level(level)
        values = columns.run[rows].astype(np.float64)
        if name not in _OWN_LIMIT:
            moved = np.where(columns.killed[rows], limit + values - columns.limit[rows], values)
            values = np.where(limited, np.minimum(moved, most), values)
        found.append(np.where(rows >= 0, values, np.nan))
    return Relatives(tuple(found))


def candidates(batch: Batch, known: Relatives) -> Floats:
    """(jobs, CANDIDATES) logarithms of whole seconds, ascending."""
    columns = batch.columns
    user, twin, same_limit = known.of("user"), known.of("twin"), known.of("user_limit")
    parts = [
        user[:, :6],
        twin[:, :5],
        same_limit[:, :4],
        known.of("user_program")[:, :2],
        known.of("user_size")[:, :2],
    ]
    parts += [_quantiles(known.of(name)[:, :DEPTH], shares) for name, shares in _QUANTILES]
    parts.append(user[:, :1] + np.log([1.02, 1.06, 1.2]))
    parts.append(twin[:, :1] + np.log([1.02, 1.06]))
    parts += [
        np.fmax.reduce(runs[:, :3], axis=1)[:, None] + np.log([1.02, 1.1]) for runs in (twin, same_limit)
    ]
    limit = np.where(columns.limited[batch.row], columns.limit[batch.row].astype(np.float64), np.nan)[:, None]
    parts += [limit, limit + batch.beyond, batch.runs]
    oldest = [batch.counted(LEVELS.index(name), "oldest") for name in _RUNNING]
    parts += [np.log(np.where(age > 0, age, np.nan) * 1.3)[:, None] for age in oldest]
    every = np.concatenate(parts, axis=1)
    most = limit + np.maximum(batch.beyond[:, -1:], 0.003) + 0.05
    every = np.where(np.isnan(most), every, np.minimum(every, most))
    every = np.where(np.isnan(every), batch.runs[:, 5:6], every)
    return np.sort(np.log(np.maximum(np.ceil(np.exp(every) * (1.0 - 1e-6)), 1.0)), axis=1)


def thinned(every: Floats) -> Floats:
    """(jobs, GRID): the uppermost of each cluster of candidates, in order."""
    gap = np.concatenate((np.diff(every, axis=1), np.full((len(every), 1), np.inf)), axis=1)
    kept = np.sort(np.argsort(-gap, axis=1, kind="stable")[:, :GRID], axis=1)
    return np.take_along_axis(every, kept, axis=1)


def paired(batch: Batch, known: Relatives, grid: Floats) -> Singles:
    """(PAIRED, jobs, grid): a candidate beside what the job's relatives ran for."""
    columns = batch.columns
    limit = np.where(columns.limited[batch.row], columns.limit[batch.row].astype(np.float64), np.nan)[:, None]
    result = np.empty((PAIRED, *grid.shape), np.float32)
    features = [grid, grid - limit]
    weights = RECENCY ** np.arange(DEPTH)
    reached = grid[:, :, None] + 1e-6
    for name, every in zip(LEVELS, known.runs, strict=True):
        runs = every[:, :DEPTH]
        weight = np.where(np.isnan(runs), 0.0, weights)
        by: Floats = np.multiply(runs[:, None, :] <= reached, weight[:, None, :])
        features += [_share(by, weight), grid - runs[:, :1]]
        if name in ("user", "user_limit", "twin", "size_limit"):
            features.append(_share(by[:, :, :4], weight[:, :4]))
        if name in _CLOSE:
            ends = (runs[:, 1], np.fmax.reduce(runs[:, :4], axis=1), np.fmax.reduce(runs, axis=1))
            features += [grid - end[:, None] for end in (*ends, np.fmin.reduce(runs, axis=1))]
    for name in _RUNNING:
        age = batch.counted(LEVELS.index(name), "oldest")
        features.append(grid - np.log(np.where(age > 0, age, np.nan))[:, None])
    for position, feature in enumerate(features):
        result[position] = feature
    return result


def alone(batch: Batch, known: Relatives) -> Singles:
    """(ALONE, jobs): the job, and how each level's jobs have been lately."""
    columns, own = batch.columns, batch.row
    limit_s = np.rint(np.exp(columns.limit[own].astype(np.float64)))
    submitted = columns.submitted[own]
    limited = columns.limited[own]
    features = [
        np.where(limited, columns.limit[own], np.nan),
        columns.cores[own],
        submitted // 3_600 % 24,
        submitted // 86_400 % 7,
        columns.memory[own],
        limited & (limit_s % 3_600 == 0),
        limit_s // 60 % 60,
        np.log1p(batch.waited),
    ]
    for level, name in enumerate(LEVELS):
        features += _level(batch, known, level, name)
    limit = columns.limit[own]
    for position in range(2):
        row = batch.level(USER)[:, position]
        there = row >= 0
        for feature in (
            columns.cores[row] == columns.cores[own],
            columns.limit[row] == limit,
            columns.killed[row],
            columns.partition[row] == columns.partition[own],
            columns.program[row] == columns.program[own],
            columns.run[row] - columns.limit[row],
        ):
            features.append(np.where(there, feature, np.nan))
    return np.stack(features).astype(np.float32)


def _level(batch: Batch, known: Relatives, level: int, name: str) -> list[Floats]:
    """Features of one level: number of jobs, their age, and the latest runs."""
    columns, rows = batch.columns, batch.level(level)[:, :10]
    there = rows >= 0
    runs = np.where(there, columns.run[rows].astype(np.float64), np.nan)
    since = batch.counted(level, "since_submit")
    age, newest = (batch.counted(level, which) for which in ("oldest", "newest"))
    features = [
        np.log1p(batch.counted(level, which)) for which in ("ended", "submitted", "running", "waiting")
    ]
    features.append(np.where(since >= 0, np.log1p(np.maximum(since, 0)), np.nan))
    features.append(np.where(there[:, 0], log(batch.at - columns.ended[rows[:, 0]] + 1.0), np.nan))
    features.append(np.where(age >= 0, np.log1p(np.maximum(age, 0)), np.nan))
    features += [runs[:, 0], runs[:, 1] - runs[:, 0]]
    if name in ("user", "user_limit", "twin", "size_limit"):
        features.append(np.where(newest >= 0, np.log1p(np.maximum(newest, 0)), np.nan))
    if name in ("user", "user_limit", "twin"):
        features.append(runs[:, 2] - runs[:, 0])
    if name not in ("user_size", "user_size_limit"):
        number = np.maximum(there.sum(axis=1), 1)
        middle = np.where(there, runs, 0.0).sum(axis=1) / number
        spread = np.sqrt(np.where(there, (runs - middle[:, None]) ** 2, 0.0).sum(axis=1) / number)
        killed = (columns.killed[rows] & there).sum(axis=1) / number
        features += [np.where(there[:, 0], value, np.nan) for value in (spread, killed)]
    return features


def _quantiles(runs: Floats, shares: tuple[float, ...]) -> Floats:
    """Of the runs that there are; NaN where there are none."""
    ordered = np.sort(runs, axis=1)
    number = (~np.isnan(runs)).sum(axis=1)
    place = np.ceil(np.array(shares) * number[:, None]).astype(np.int64) - 1
    result: Floats = np.take_along_axis(ordered, np.clip(place, 0, runs.shape[1] - 1), axis=1)
    return result


def _share(by: Floats, weight: Floats) -> Floats:
    whole = weight.sum(axis=1)
    result: Floats = by.sum(axis=2) / np.where(whole > 0, whole, np.nan)[:, None]
    return result
