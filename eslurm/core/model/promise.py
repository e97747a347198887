"""A planned start in the log's compact form: time and nodes (ADR 17).

Invariant: nothing here repeats the job's record, which has the request and the time limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from eslurm.core.model.amounts import Vector

PROMISE: Final = "promise"
"""The kind of the rows that hold promises."""


class Run(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The same amounts on `count` consecutively numbered nodes; empty `amounts`: those of the previous run."""

    node: int
    count: int
    tasks: int
    amounts: Vector = ()


class PromisedStart(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Nodes that are kept free from `start_us` on; for an array, `tasks` of its tasks share them.

    `parts` is the number of runs of each part, in their order; empty: a job of one part.
    """

    start_us: int
    runs: tuple[Run, ...]
    tasks: int = 1
    parts: tuple[int, ...] = ()


class Promise(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Promised starts of a waiting job, the earliest first; several for an array. Empty: none."""

    job_id: int
    starts: tuple[PromisedStart, ...] = ()

    @property
    def start_us(self) -> int:
        """Promised start of the job or of its first task."""
        return self.starts[0].start_us

    def nodes(self) -> Iterator[int]:
        """Numbers of all nodes that are kept for it."""
        for start in self.starts:
            for run in start.runs:
                yield from range(run.node, run.node + run.count)
