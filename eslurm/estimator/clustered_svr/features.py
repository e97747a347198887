"""The features of Table IV (E-43), and the time limit where it is asked for, as rows of numbers around 0.

Names of users and jobs become the mean logarithm of the run times that they had in the window, drawn towards the window's
mean while there are few. Rows to learn from are coded by the rows before them only, never by their own run time (with
`TargetEncoder` that would depend on parameters that differ among versions of scikit-learn). A model holds hashes, not
names. Invariant: a job's row depends on the job and the model only.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from eslurm.core.model.forecast import LONGEST_S, Submitted
from eslurm.estimator.clustered_svr.clusters import Floats, Integers
from eslurm.estimator.jobs import Ended

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

TABLE_IV: Final = ("job name", "user name", "required nodes", "required cores", "submission hour")
LIMIT: Final = "time limit"
NAMES: Final = 2
"""The first columns are names."""
DRAWN: Final = 1.0
"""Number of runs of mean length that are added to a name's own."""

_LOG_LONGEST: Final = math.log(LONGEST_S)
_HOUR_S: Final = 3_600


class Scale(Enum):
    """The target of a regression: seconds, or their logarithm (then errors are ratios, as in Equation 4)."""

    SECONDS = "seconds"
    LOG = "log"

    def targets(self, ended: Sequence[Ended]) -> Floats:
        """Run times to learn from."""
        seconds = np.array([max(1, one.runtime_s) for one in ended], dtype=np.float64)
        return seconds if self is Scale.SECONDS else np.log(seconds)

    def seconds(self, predicted: Floats) -> Floats:
        """Seconds, drawn into the range that a plan can hold."""
        if self is Scale.LOG:
            predicted = np.exp(np.clip(predicted, 0.0, _LOG_LONGEST))
        # Only a model that was tampered with predicts NaN: it is read as far too long.
        known = np.where(np.isnan(predicted), float(LONGEST_S), predicted)
        result: Floats = np.clip(known, 1.0, float(LONGEST_S))
        return result


class Encoder(NamedTuple):
    """Makes rows. `names` and `users` are ascending hashes, `name_codes` and `user_codes` what they stand for."""

    names: Integers
    name_codes: Floats
    users: Integers
    user_codes: Floats
    unknown: Floats
    """(1,): the code of a name that is not known."""
    middle: Floats
    """(features,)"""
    spread: Floats
    """(features,), above 0"""

    @staticmethod
    def learn(ended: Sequence[Ended], *, limits: bool) -> tuple[Encoder, Floats]:
        """Learn from ended jobs in the order of their ends: the encoder, and the rows (jobs, features) to learn from."""
        hashes, numbers = _columns([one.job for one in ended], limits)
        logs = Scale.LOG.targets(ended)
        (names, name_codes, of_names), (users, user_codes, of_users) = (_codes(own, logs) for own in hashes.T)
        given = ~np.isnan(numbers)
        # A limit that was not given lies in the middle; so do all where none was.
        usual = np.where(given, numbers, 0.0).sum(axis=0) / np.maximum(given.sum(axis=0), 1)
        scaler = StandardScaler()
        rows = scaler.fit_transform(np.column_stack([of_names, of_users, np.where(given, numbers, usual)]))
        unknown = logs.mean(keepdims=True)
        return Encoder(names, name_codes, users, user_codes, unknown, scaler.mean_, scaler.scale_), rows

    def rows(self, jobs: Sequence[Submitted]) -> Floats:
        """Rows of these jobs, (jobs, features)."""
        hashes, numbers = _columns(jobs, len(self.middle) > len(TABLE_IV))
        raw = np.column_stack(
            [
                self._look_up(self.names, self.name_codes, hashes[:, 0]),
                self._look_up(self.users, self.user_codes, hashes[:, 1]),
                np.where(np.isnan(numbers), self.middle[NAMES:], numbers),
            ]
        )
        result: Floats = (raw - self.middle) / self.spread
        return result

    def _look_up(self, known: Integers, codes: Floats, asked: Integers) -> Floats:
        if not len(known):
            return np.full(len(asked), self.unknown[0])
        place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
        return np.where(known[place] == asked, codes[place], self.unknown[0])


def feature_names(limits: bool) -> list[str]:
    """Names of the features, in the order of a row's columns."""
    return [*TABLE_IV, LIMIT] if limits else list(TABLE_IV)


def hashed(text: str) -> int:
    """63 bits that stand for a name, the same on every machine."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def _codes(hashes: Integers, logs: Floats) -> tuple[Integers, Floats, Floats]:
    """The hashes that occur, ascending, the code of each, and the code that each row had before its own run time counted."""
    known, place = np.unique(hashes, return_inverse=True)
    sums, counts = np.zeros(len(known)), np.zeros(len(known))
    before = np.empty(len(logs))
    mean = 0.0
    for row, (at, log) in enumerate(zip(place.tolist(), logs.tolist(), strict=True)):
        before[row] = (sums[at] + DRAWN * mean) / (counts[at] + DRAWN)
        sums[at] += log
        counts[at] += 1
        mean += (log - mean) / (row + 1)
    before[0] = mean  # nothing was before it
    return known, (sums + DRAWN * mean) / (counts + DRAWN), before


def _columns(jobs: Sequence[Submitted], limits: bool) -> tuple[Integers, Floats]:
    """Hashes of names and users (jobs, 2), and the numeric features; NaN: no limit."""
    hashes = np.array([(hashed(job.name), hashed(job.user)) for job in jobs], dtype=np.int64)
    numbers = [
        (
            math.log1p(max(job.nodes, 0)),
            math.log1p(max(job.cores, 0)),
            float(job.at_s // _HOUR_S % 24),
            *([math.log(job.limit_s) if job.limit_s > 0 else math.nan] if limits else []),
        )
        for job in jobs
    ]
    width = len(feature_names(limits)) - NAMES
    return hashes.reshape(len(jobs), NAMES), np.array(numbers, dtype=np.float64).reshape(len(jobs), width)
