"""The user's own estimate: the time limit, as a scheduler without an estimator plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eslurm.core.model.forecast import NO_LIMIT, Submitted
from eslurm.estimator.rivals.plain import MOST_S, Plain
from eslurm.estimator.rivals.settings import SettingsReader
from eslurm.ports.estimator import Estimator, Setting

DEFAULT_S: Final = 86_400
"""Of a job without a limit."""


class User(Plain):
    """`user`: setting `default_s`, for jobs without a limit."""

    name = "user"

    def __init__(self, default_s: int = DEFAULT_S) -> None:
        super().__init__()
        self._default_s = default_s

    def estimate_s(self, job: Submitted) -> int:
        """The limit."""
        return self._default_s if job.limit_s == NO_LIMIT else job.limit_s


def make(settings: Mapping[str, Setting]) -> Estimator:
    """See `EstimatorFactory`."""
    reader = SettingsReader(User.name, settings)
    default_s = reader.integer("default_s", DEFAULT_S, 1, MOST_S)
    reader.finish()
    return User(default_s)
