"""A planned start as the log keeps it: when, and on which nodes, in few bytes (ADR 17).

Invariant: nothing here is known of the job itself; what it asks for and how long it may take is in its own record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from eslurm.core.model.amounts import Vector

PROMISE: Final = "promise"
"""The kind of the rows that hold promises."""


class Run(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The same on `count` nodes with numbers in a row; no `amounts`: as on those before."""

    node: int
    count: int
    tasks: int
    amounts: Vector = ()


class PromisedStart(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Nodes that are kept free from `start_us` on; for an array, `tasks` of its tasks share them."""

    start_us: int
    runs: tuple[Run, ...]
    tasks: int = 1


class Promise(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """What a waiting job has been promised, the earliest start first; of an array, its next starts. None: nothing."""

    job_id: int
    starts: tuple[PromisedStart, ...] = ()

    @property
    def start_us(self) -> int:
        """When the job is to start, or the first of its tasks."""
        return self.starts[0].start_us

    def nodes(self) -> Iterator[int]:
        """The numbers of all nodes that are kept for it."""
        for start in self.starts:
            for run in start.runs:
                yield from range(run.node, run.node + run.count)
