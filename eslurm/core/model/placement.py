"""A placement: the nodes on which a job starts now, and its resources on each."""

from __future__ import annotations

import msgspec

from eslurm.core.model.amounts import Vector
from eslurm.core.model.job import Span
from eslurm.core.model.lending import Loan


class Placement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A decision to start a job now, on these nodes. Fields are only ever appended.

    `wide` are its cluster-wide resources. `late_us`: delay of the start against its plan, by which its end moves too.
    `anchor_us`: planned start of the pack whose first member this is; 0: none begins.
    """

    job_id: int
    spans: tuple[Span, ...]
    until_us: int
    wide: Vector = ()
    late_us: int = 0
    anchor_us: int = 0
    loans: tuple[Loan, ...] = ()
    """Cores of its spans that running jobs lend it."""
