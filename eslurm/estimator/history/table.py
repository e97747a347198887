"""Every job that may still matter, one row each, in columns: what it asked for, when it ran, for how long.

Questions and lessons point at rows. Invariant: what describes a job never changes after its submission, but for the limit of
one that runs, and nothing of a row changes after the job's end; rows are only renumbered by `compact`, at a moment when no
question is open.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from eslurm.core.model.forecast import LONGEST_S, NO_LIMIT, Submitted

Floats: TypeAlias = NDArray[np.float64]
Singles: TypeAlias = NDArray[np.float32]
Indices: TypeAlias = NDArray[np.int64]
Rows: TypeAlias = NDArray[np.int32]
Flags: TypeAlias = NDArray[np.bool_]

UNLIMITED_LOG: Final = float(np.log(86_400.0))
"""Stands for the logarithm of a limit that was not given: any constant would do."""
KILLED: Final = (float(np.log(0.98)), float(np.log(1.25)))
"""A run ended at its limit when it lasted so long in relation to it (logarithms)."""
_FIRST_ROWS: Final = 1_024

_COLUMNS: Final = {
    "program": np.int64,
    "partition": np.int64,
    "cores": np.float32,
    "limit": np.float32,
    "limited": np.bool_,
    "memory": np.float32,
    "submitted": np.float64,
    "started": np.float64,
    "ended": np.float64,
    "run": np.float32,
    "killed": np.bool_,
}


class Columns(NamedTuple):
    """The table as arrays. Times of day are seconds, `started` and `ended` -1 until then.

    `run` and `limit` are natural logarithms of seconds (`run`: -1 until known), `cores` one of base 2, `memory` of 1 + MiB.
    """

    program: Indices
    partition: Indices
    cores: Singles
    limit: Singles
    limited: Flags
    memory: Singles
    submitted: Floats
    started: Floats
    ended: Floats
    run: Singles
    killed: Flags

    def copied(self) -> Columns:
        """The same, for another thread."""
        return Columns._make(column.copy() for column in self)


def code(text: str) -> int:
    """A number for a word: the same everywhere, and 0 for none."""
    return zlib.crc32(text.encode("utf-8", "surrogateescape")) + 1 if text else 0


def size(job: Submitted) -> int:
    """Cores, or what is known of the kind."""
    return max(job.cores, job.nodes, 1)


class Table:
    """Rows are numbered from 0 in the order of submission."""

    def __init__(self) -> None:
        self._rows = 0
        self._columns: dict[str, NDArray[Any]] = {
            name: np.zeros(_FIRST_ROWS, dtype) for name, dtype in _COLUMNS.items()
        }

    def __len__(self) -> int:
        return self._rows

    def view(self) -> Columns:
        """All rows as they are now; later ends show in it."""
        return Columns._make(column[: self._rows] for column in self._columns.values())

    def add(self, job: Submitted) -> int:
        """A new row for a job that has been submitted."""
        row = self._rows
        if row == len(self._columns["run"]):
            self._columns = {
                name: np.concatenate((column, np.zeros_like(column)))
                for name, column in self._columns.items()
            }
        values: tuple[Any, ...] = (
            code(job.name),
            code(job.partition),
            np.log2(size(job)),
            *_limit(job.limit_s),
            np.log1p(max(job.memory_mib, 0)),
            job.at_s,
            -1.0,
            -1.0,
            -1.0,
            False,
        )
        for column, value in zip(self._columns.values(), values, strict=True):
            column[row] = value
        self._rows += 1
        return row

    def change_limit(self, row: int, limit_s: int) -> None:
        """It runs, under another limit."""
        self._columns["limit"][row], self._columns["limited"][row] = _limit(limit_s)

    def start(self, row: int, at_s: int) -> None:
        """It runs."""
        self._columns["started"][row] = at_s

    def end(self, row: int, at_s: int, runtime_s: int) -> None:
        """Record its end after this run time."""
        columns = self._columns
        run = float(np.log(min(max(runtime_s, 1), LONGEST_S)))
        columns["ended"][row] = at_s
        columns["run"][row] = run
        beyond = run - float(columns["limit"][row])
        columns["killed"][row] = bool(columns["limited"][row]) and KILLED[0] < beyond < KILLED[1]

    def cancel(self, row: int, at_s: int) -> None:
        """Record its end without a run."""
        self._columns["ended"][row] = at_s

    def compact(self, keep: Indices) -> Indices:
        """Keep only these rows (ascending). Returns the new number of each old row, -1 for removed ones."""
        renumbered = np.full(self._rows, -1, np.int64)
        renumbered[keep] = np.arange(len(keep))
        spare = max(_FIRST_ROWS, len(keep))
        self._columns = {
            name: np.concatenate((column[keep], np.zeros(spare, column.dtype)))
            for name, column in self._columns.items()
        }
        self._rows = len(keep)
        return renumbered


def _limit(limit_s: int) -> tuple[float, bool]:
    """A limit as column values."""
    limited = limit_s > NO_LIMIT
    return float(np.log(min(limit_s, LONGEST_S))) if limited else UNLIMITED_LOG, limited
