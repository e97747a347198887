"""What the rivals see of a job: the features of Table IV (E-43), and the time limit where a method looks at it.

Names of users and jobs become numbers: the mean logarithm of the runtimes that they had in the window, drawn towards the
window's mean while there are few. A row that a model learns from is coded by the rows before it only, as it would have been
when its job was submitted: its own runtime is never in its features. A model holds hashes, not names. Invariant: a job's
row depends on the job and the model, never on the rows beside it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from eslurm.core.model.forecast import LONGEST_S, Submitted
from eslurm.estimator.rivals.arrays import Arrays, Floats, floats, hashes
from eslurm.estimator.rivals.jobs import Ended

TABLE_IV: Final = ("job name", "user name", "required nodes", "required cores", "submission hour")
LIMIT: Final = "time limit"

DRAWN: Final = 1.0
"""So many runs of the mean length are added to those that a name has had."""

_LOG_LONGEST: Final = math.log(LONGEST_S)
_HOUR_S: Final = 3_600


def hashed(text: str) -> int:
    """64 bits that stand for a name, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def runtimes(ended: Sequence[Ended]) -> Floats:
    """In seconds."""
    return np.array([max(1, one.runtime_s) for one in ended], dtype=np.float64)


class Scale(Enum):
    """What a regression learns: seconds, or their logarithm (then errors are ratios, as in Equation 4)."""

    SECONDS = "seconds"
    LOG = "log"

    def targets(self, ended: Sequence[Ended]) -> Floats:
        """To learn from."""
        seconds = runtimes(ended)
        return seconds if self is Scale.SECONDS else np.log(seconds)

    def seconds(self, predicted: Floats) -> Floats:
        """From what was predicted. What lies far outside of all runtimes is drawn to the nearest that a plan can hold."""
        if self is Scale.LOG:
            predicted = np.exp(np.clip(predicted, 0.0, _LOG_LONGEST))
        # Nothing but a model that was tampered with predicts what is no number: to be read as far too long.
        known = np.where(np.isnan(predicted), float(LONGEST_S), predicted)
        result: Floats = np.clip(known, 1.0, float(LONGEST_S))
        return result


class Encoder:
    """Makes rows of standardised features, as it was learnt."""

    def __init__(
        self,
        names: Mapping[int, float],
        users: Mapping[int, float],
        middle: Floats,
        spread: Floats,
        limits: bool,
    ) -> None:
        self._names = names
        self._users = users
        self._middle = middle
        self._spread = spread
        self._limits = limits

    @staticmethod
    def learn(ended: Sequence[Ended], *, limits: bool) -> tuple[Encoder, Floats]:
        """From ended jobs in the order of their ends, at least one: the encoder, and the rows of those jobs."""
        logs = np.log(runtimes(ended))
        known = [math.log(one.job.limit_s) for one in ended if one.job.limit_s > 0]
        usual_limit = sum(known) / len(known) if known else 0.0
        names, users = _Means(), _Means()
        rows: list[list[float]] = []
        for one, log in zip(ended, logs.tolist(), strict=True):
            name, user = _key(one.job.name), _key(one.job.user)
            rows.append(_raw(one.job, names.code(name), users.code(user), usual_limit, limits))
            names.add(name, log)
            users.add(user, log)
        raw = np.array(rows)
        # Whatever is in no table or was not given lies in the middle.
        middle = raw.mean(axis=0)
        middle[0] = middle[1] = names.mean
        raw[0, :2] = names.mean  # nothing was before it
        if limits:
            middle[-1] = usual_limit
        spread = raw.std(axis=0)
        spread[spread < 1e-9] = 1.0
        encoder = Encoder(names.codes(), users.codes(), middle, spread, limits)
        return encoder, (raw - middle) / spread

    def rows(self, jobs: Sequence[Submitted]) -> Floats:
        """One row a job."""
        no_name, no_user, no_limit = float(self._middle[0]), float(self._middle[1]), float(self._middle[-1])
        raw = np.array(
            [
                _raw(
                    job,
                    _code(self._names, job.name, no_name),
                    _code(self._users, job.user, no_user),
                    no_limit,
                    self._limits,
                )
                for job in jobs
            ]
        ).reshape(len(jobs), len(self._middle))
        result: Floats = (raw - self._middle) / self._spread
        return result

    def dump(self) -> dict[str, NDArray[Any]]:
        """As arrays, for a model."""
        return {
            "names": np.array(list(self._names), dtype=np.uint64),
            "name_codes": np.array(list(self._names.values()), dtype=np.float64),
            "users": np.array(list(self._users), dtype=np.uint64),
            "user_codes": np.array(list(self._users.values()), dtype=np.float64),
            "middle": self._middle,
            "spread": self._spread,
        }

    @staticmethod
    def load(arrays: Arrays, *, limits: bool) -> Encoder:
        """From a model's arrays. Raises `ValueError`."""
        width = len(feature_names(limits))
        names, users = hashes(arrays, "names"), hashes(arrays, "users")
        spread = floats(arrays, "spread", width)
        if not bool((spread > 0).all()):
            raise ValueError("the model is damaged: spread must be above 0")
        return Encoder(
            dict(zip(names.tolist(), floats(arrays, "name_codes", len(names)).tolist(), strict=True)),
            dict(zip(users.tolist(), floats(arrays, "user_codes", len(users)).tolist(), strict=True)),
            floats(arrays, "middle", width),
            spread,
            limits,
        )


def feature_names(limits: bool) -> list[str]:
    """In the order of a row's columns."""
    return [*TABLE_IV, LIMIT] if limits else list(TABLE_IV)


class _Means:
    """Mean logarithms by name, drawn towards the mean of all so far."""

    def __init__(self) -> None:
        self._sums: dict[int, tuple[float, int]] = {}
        self._sum = 0.0
        self._count = 0

    @property
    def mean(self) -> float:
        return self._sum / self._count if self._count else 0.0

    def add(self, key: int | None, log: float) -> None:
        self._sum += log
        self._count += 1
        if key is not None:
            total, count = self._sums.get(key, (0.0, 0))
            self._sums[key] = (total + log, count + 1)

    def code(self, key: int | None) -> float:
        total, count = self._sums.get(key, (0.0, 0)) if key is not None else (0.0, 0)
        return (total + DRAWN * self.mean) / (count + DRAWN)

    def codes(self) -> dict[int, float]:
        return {key: self.code(key) for key in self._sums}


def _key(text: str) -> int | None:
    """What is not known is nobody's name."""
    return hashed(text) if text else None


def _code(codes: Mapping[int, float], text: str, unknown: float) -> float:
    return codes.get(hashed(text), unknown) if text else unknown


def _raw(job: Submitted, name: float, user: float, usual_limit: float, limits: bool) -> list[float]:
    hour = job.at_s // _HOUR_S % 24
    row = [name, user, math.log1p(max(job.nodes, 0)), math.log1p(max(job.cores, 0)), float(hour)]
    if limits:
        row.append(math.log(job.limit_s) if job.limit_s > 0 else usual_limit)
    return row
