"""The neighbours of a job's run time: its user's last runs, its limit, runs of others with the same request.

The network weighs each neighbour and how near to it the run time will be. Invariant: a neighbour's features are known when
the question is asked.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eslurm.estimator.history.history_index import LEVELS, USER
from eslurm.estimator.history.question import QUANTILES_KEPT, RUNNING_AT, WAITING_AT, Batch
from eslurm.estimator.history.table import Flags, Floats, Indices, Singles

OWN: Final = 40
"""The user's last runs, as they were."""
SCALED: Final = 20
"""Some of them in proportion to the limit."""
LIMITS: Final = np.log(np.array([1.0, 1.004, 0.5, 0.1]))
OTHERS: Final = 10
"""The last runs of all users with the same size and limit."""
ALWAYS: Final = QUANTILES_KEPT
"""The last neighbours, the cluster's quantiles, are always there."""
LOOKED_AT: Final = 20
"""Number of the user's last runs that are compared with a neighbour."""
LATEST: Final = 5
NEAR: Final = 0.06
"""Two run times are alike within this difference of logarithms."""
NONE: Final = -99.0
MINUTE: Final = float(np.log(60.0))
FEATURES: Final = 30
CONTEXT: Final = 23
_SIZE_LIMIT: Final = LEVELS.index("size_limit")


class Neighbours(NamedTuple):
    """`value` (jobs, neighbours): logarithms of seconds; `there`: which of them exist; `context` describes the job."""

    value: Singles
    features: Singles
    context: Singles
    there: Flags


class _Job(NamedTuple):
    """The jobs of a batch, with which neighbours are compared."""

    batch: Batch
    limit: Floats
    cores: Singles
    recent: Singles
    """The user's last runs."""
    twins: Flags
    """Flags of the user's last runs with the same size and limit."""
    running_for: Singles
    running: Flags
    running_twins: Flags
    recent_kinds: Singles
    """(jobs, LOOKED_AT, kinds), 0 or 1: whether a recent run is one of the last five, one of all, a twin."""
    running_kinds: Singles
    """The same for the running jobs: whether there is one, and whether it is a twin."""


def log(seconds: Floats) -> Floats:
    """Of at least one second."""
    return np.log(np.maximum(seconds, 1.0))


def neighbours(batch: Batch) -> Neighbours:
    """All neighbours, for each question."""
    columns, own = batch.columns, batch.row[:, None]
    runs = batch.level(USER)
    past = runs >= 0
    limit = columns.limit[batch.row].astype(np.float64)
    open_rows = batch.rows[:, RUNNING_AT:WAITING_AT]
    twins = past & _alike(batch, runs)
    running = open_rows >= 0
    running_twins = running & _alike(batch, open_rows)
    job = _Job(
        batch,
        limit,
        columns.cores[own],
        np.where(past, columns.run[runs], np.float32(NONE)),
        twins,
        np.where(running, log(batch.running_for + 1.0), 0.0).astype(np.float32),
        running,
        running_twins,
        _kinds(np.arange(LOOKED_AT) < LATEST, np.ones(LOOKED_AT, np.bool_), twins[:, :LOOKED_AT]),
        _kinds(running, running_twins),
    )
    kept = runs[:, :OWN]
    some = runs[:, :SCALED]
    others = batch.level(_SIZE_LIMIT)[:, :OTHERS]
    scaled = columns.run[some] - columns.limit[some] + limit[:, None]
    can_scale = (some >= 0) & columns.limited[some] & columns.limited[own] & ~columns.killed[some]
    can_scale &= columns.limit[some] != columns.limit[own]
    count = len(batch.row)
    given = np.broadcast_to(columns.limited[own], (count, len(LIMITS)))
    blocks = (
        _block(job, 0, _moved(batch, kept), kept >= 0, kept),
        _block(job, 1, scaled, can_scale, some),
        _block(job, 2, limit[:, None] + LIMITS, given, None),
        _block(job, 3, _moved(batch, others), others >= 0, others),
        _block(job, 4, batch.runs, np.ones(batch.runs.shape, np.bool_), None),
    )
    value, features, there = (np.concatenate(parts, axis=1) for parts in zip(*blocks, strict=True))
    return Neighbours(value, features, _context(job), there)


def _alike(batch: Batch, rows: Indices) -> Flags:
    """True where size and limit are the same."""
    columns, own = batch.columns, batch.row[:, None]
    result: Flags = (columns.cores[rows] == columns.cores[own]) & (columns.limit[rows] == columns.limit[own])
    return result


def _moved(batch: Batch, rows: Indices) -> Singles:
    """Run times; one that ended at its limit moves with the limit."""
    columns, own = batch.columns, batch.row[:, None]
    along = columns.killed[rows] & columns.limited[own]
    return np.where(along, columns.limit[own] + columns.run[rows] - columns.limit[rows], columns.run[rows])


def _block(
    job: _Job, kind: int, value: NDArray[np.floating], there: Flags, rows: Indices | None
) -> tuple[Singles, Singles, Flags]:
    """Neighbours of one kind; `rows` are the runs that they come from."""
    value = value.astype(np.float32)
    count, width = value.shape
    features = np.zeros((count, width, FEATURES), np.float32)
    features[:, :, kind] = 1.0
    features[:, :, 5] = value - job.limit[:, None]
    features[:, :, 6] = np.arange(width) / OWN
    if rows is not None:
        _describe(job, features, rows)
        if kind != 3:
            _place(job, features, width)
    near = np.abs(value[:, :, None] - job.recent[:, None, :LOOKED_AT]) < NEAR
    latest, every, among_twins = _counts(near, job.recent_kinds)
    features[:, :, 23] = latest / LATEST
    features[:, :, 24] = every / LOOKED_AT
    features[:, :, 25] = among_twins / (job.twins[:, :LOOKED_AT].sum(axis=1)[:, None] + 1.0)
    outlived = job.running_for[:, None, :] > value[:, :, None] + np.float32(0.02)
    by_any, by_twins = _counts(outlived, job.running_kinds)
    features[:, :, 26] = by_any / (job.running.sum(axis=1)[:, None] + 1.0)
    features[:, :, 27] = by_twins / (job.running_twins.sum(axis=1)[:, None] + 1.0)
    features[:, :, 28] = np.minimum(by_twins, 3) / 3.0
    features[:, :, 29] = value / 10.0
    return value, features, there


def _kinds(*flags: Flags) -> Singles:
    """Beside each other, for `_counts`."""
    return np.stack(np.broadcast_arrays(*flags), axis=-1).astype(np.float32)


def _counts(flags: Flags, kinds: Singles) -> Singles:
    """(kinds, jobs, neighbours): flags of that kind. Sums of whole numbers: their order does not matter."""
    return np.moveaxis(np.matmul(flags.astype(np.float32), kinds), -1, 0)


def _describe(job: _Job, features: Singles, rows: Indices) -> None:
    """The run that a neighbour comes from, beside the job."""
    batch, columns = job.batch, job.batch.columns
    own = batch.row[:, None]
    same_size = columns.cores[rows] == job.cores
    same_limit = columns.limit[rows] == columns.limit[own]
    features[:, :, 7] = log(batch.at[:, None] - columns.ended[rows] + 1.0) / 10.0
    features[:, :, 8] = log(columns.submitted[own] - columns.submitted[rows] + 1.0) / 10.0
    features[:, :, 9] = same_size
    features[:, :, 10] = same_limit
    features[:, :, 11] = same_size & same_limit
    features[:, :, 12] = columns.program[rows] == columns.program[own]
    features[:, :, 13] = columns.partition[rows] == columns.partition[own]
    features[:, :, 14] = columns.memory[rows] == columns.memory[own]
    features[:, :, 15] = np.abs(columns.cores[rows] - job.cores)
    features[:, :, 16] = columns.limit[rows] - columns.limit[own]
    features[:, :, 17] = columns.killed[rows]
    features[:, :, 18] = columns.run[rows] < MINUTE


def _place(job: _Job, features: Singles, width: int) -> None:
    """A neighbour's place among the user's runs, and whether its successors resemble the latest runs."""
    twins = job.twins[:, :OWN]
    rank: Indices = (np.cumsum(twins, axis=1) - twins)[:, :width]
    twins = twins[:, :width]
    features[:, :, 19] = np.where(twins, np.exp(-rank / 3.0), 0.0)
    features[:, :, 20] = (rank == 0) & twins
    after, before_it = job.recent[:, 1 : width + 1], job.recent[:, 2 : width + 2]
    once = np.exp(-10.0 * np.minimum(np.abs(after - job.recent[:, :1]), 9.0))
    features[:, :, 21] = np.where(after > NONE, once, 0.0)
    twice = once * np.exp(-10.0 * np.minimum(np.abs(before_it - job.recent[:, 1:2]), 9.0))
    features[:, :, 22] = np.where(before_it > NONE, twice, 0.0)


def _context(job: _Job) -> Singles:
    """The job itself, and how its user's jobs have been lately."""
    batch, columns = job.batch, job.batch.columns
    own, last = batch.row, batch.level(USER)[:, 0]
    steps = np.abs(np.diff(job.recent[:, :21].astype(np.float64), axis=1))
    known = job.recent[:, 1:21] > NONE
    past = job.recent[:, :20] > NONE
    twins = job.twins[:, :20]
    hour = columns.submitted[own] // 3_600 % 24 * np.pi / 12.0
    queue = batch.rows[:, WAITING_AT:]
    waiting = queue >= 0
    since = np.where(waiting, log(batch.at[:, None] - columns.submitted[queue] + 1.0), 14.0)
    running_twins = np.where(job.running_twins, job.running_for, 0.0)
    spread = _spread(job.recent[:, :20].astype(np.float64), twins, 2.0)
    parts = (
        job.limit / 10.0,
        columns.cores[own] / 5.0,
        np.sin(hour),
        np.cos(hour),
        (job.recent[:, :OWN] > NONE).sum(axis=1) / OWN,
        job.twins.sum(axis=1) / OWN,
        _mean(np.exp(-steps[:, :5]), known[:, :5], 0.3),
        _mean(np.exp(-steps), known, 0.3),
        _mean((steps < 0.05).astype(np.float64), known, 0.1),
        spread / 2.0,
        np.sqrt(job.running.sum(axis=1)) / 3.0,
        np.sqrt(waiting.sum(axis=1)) / 3.0,
        np.sqrt(job.running_twins.sum(axis=1)) / 3.0,
        np.sqrt((waiting & _alike(batch, queue)).sum(axis=1)) / 3.0,
        job.running_for.max(axis=1) / 10.0,
        running_twins.max(axis=1) / 10.0,
        np.where(last >= 0, log(batch.at - columns.ended[last] + 1.0), 14.0) / 10.0,
        ((job.recent[:, :20] < MINUTE) & past).mean(axis=1),
        (columns.killed[batch.level(USER)[:, :20]] & past).mean(axis=1),
        _mean(job.recent[:, :20].astype(np.float64), past, 6.0) / 10.0,
        since.min(axis=1) / 10.0,
        log(batch.waited) / 10.0,
        columns.limited[own],
    )
    return np.stack(parts, axis=1).astype(np.float32)


def _mean(values: Floats, of: Flags, otherwise: float) -> Floats:
    number = of.sum(axis=1)
    result: Floats = np.where(
        number > 0, np.where(of, values, 0.0).sum(axis=1) / np.maximum(number, 1), otherwise
    )
    return result


def _spread(values: Floats, of: Flags, otherwise: float) -> Floats:
    middle = _mean(values, of, 0.0)
    variance = _mean((values - middle[:, None]) ** 2, of, otherwise * otherwise)
    return np.sqrt(variance)
