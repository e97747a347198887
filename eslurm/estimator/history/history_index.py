"""Job histories at several levels of likeness: the runs of a user, of a user's jobs of one size, of one limit, and so on.

Invariant: a history holds the rows of ended jobs in the order of their ends, those of running jobs in the order of their
starts, and nothing that has not been told.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from eslurm.core.model.forecast import Submitted
from eslurm.estimator.history.table import size

LEVELS: Final = (
    "user",
    "user_program",
    "user_size",
    "user_limit",
    "user_size_limit",
    "twin",
    "size_limit",
    "group",
)
"""`twin`: same user, program, size and limit; `group`: of the same group and account."""
USER: Final = LEVELS.index("user")
DEPTHS: Final = (44, *(24,) * (len(LEVELS) - 1))
"""Number of last runs examined on each level."""
OPEN_MAX: Final = 16
"""Number of a user's running jobs, and of the waiting ones, that are examined."""


def keys(job: Submitted) -> tuple[Hashable, ...]:
    """The keys of a job's histories, by level."""
    user, program, wide, limit = job.user, job.name, size(job), job.limit_s
    return (
        (0, user),
        (1, user, program),
        (2, user, wide),
        (3, user, limit),
        (4, user, wide, limit),
        (5, user, program, wide, limit),
        (6, wide, limit),
        (7, job.group, job.account),
    )


class RunHistory:
    """The jobs with one key."""

    __slots__ = ("ended", "last_submit_s", "running", "runs", "submitted", "waiting")

    def __init__(self) -> None:
        self.runs: list[int] = []
        """The last ones, the newest at the end: at least as many as are looked at."""
        self.running: dict[int, int] = {}
        """Rows and when they started."""
        self.waiting: dict[int, None] = {}
        self.submitted = 0
        self.ended = 0
        self.last_submit_s = -1

    def add_run(self, row: int, depth: int) -> None:
        """One more has ended."""
        self.ended += 1
        self.runs.append(row)
        if len(self.runs) > 2 * depth:
            del self.runs[:-depth]

    @property
    def idle(self) -> bool:
        """True when it holds no job."""
        return not (self.runs or self.running or self.waiting)

    def renumber(self, renumbered: list[int]) -> None:
        """After rows have been renumbered: those that are gone (-1) are forgotten."""
        self.runs = [new for new in (renumbered[row] for row in self.runs) if new >= 0]
        self.running = {renumbered[row]: at_s for row, at_s in self.running.items()}
        self.waiting = {renumbered[row]: None for row in self.waiting}
