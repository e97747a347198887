"""A placement: the nodes on which a job is to start now, and what it gets on each."""

from __future__ import annotations

import msgspec

from eslurm.core.model.amounts import Vector
from eslurm.core.model.job import Span


class Placement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A decision to start a job now, on these nodes. Fields are only ever appended.

    `wide` is what it takes of the resources that belong to no node. A planned start that was noticed late comes `late_us`
    after its time, and so does its end.
    """

    job_id: int
    spans: tuple[Span, ...]
    until_us: int
    wide: Vector = ()
    late_us: int = 0
