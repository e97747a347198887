"""Idle cores of an application that the batch system does not know of yet (R-03).

An application reports a core when it has been idle for a while: where it ends sooner, its job does. Invariant: each core
is due once.
"""

from __future__ import annotations

from typing import Final

from eslurm.core.model.units import SECOND_US
from eslurm.lab.applications.application import Core

PATIENCE_US: Final = 5 * SECOND_US
"""Least time for which a core is idle before it is reported."""
PATIENCE_SHARE: Final = 0.02
"""And a share of the run time until then: cores of a long run that balances well end seconds apart."""


class Unreported:
    """The idle cores of one run, which began at `begin_us`."""

    def __init__(self, begin_us: int, patience_us: int = PATIENCE_US) -> None:
        self._begin_us = begin_us
        self._patience_us = patience_us
        self._due: list[tuple[int, Core]] = []

    @property
    def next_us(self) -> int | None:
        """The next instant at which a core is due; None: none is idle and unreported."""
        return min((at_us for at_us, _ in self._due), default=None)

    def add(self, cores: list[Core], now_us: int) -> int:
        """Take cores that have become idle now; the instant at which they are due."""
        ran_us = now_us - self._begin_us
        due_us = now_us + max(self._patience_us, round(PATIENCE_SHARE * ran_us))
        self._due += [(due_us, core) for core in cores]
        return due_us

    def take(self, now_us: int) -> list[Core]:
        """The cores to report now, in the order in which they became idle."""
        found = [core for due_us, core in self._due if due_us <= now_us]
        if found:
            self._due = [one for one in self._due if one[0] > now_us]
        return found
