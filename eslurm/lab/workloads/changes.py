"""Events of running jobs from a driver to the loop, besides placements; job numbers are the workload's."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from eslurm.core.model.placement import Placement

ENDED: Final = "ended"
REQUEUED: Final = "requeued"
CUT: Final = "cut"
"""The fate of a job that has left: it is done, it waits again, or it was ended for others."""


class RunEvents(msgspec.Struct, frozen=True, gc=False):
    """The job makes room for another: it has ended by then."""

    job_id: int
    by_us: int


class Paused(msgspec.Struct, frozen=True, gc=False):
    """The job stands still, and its cores are others'."""

    job_id: int


class Resumed(msgspec.Struct, frozen=True, gc=False):
    """It goes on."""

    job_id: int


Change: TypeAlias = Placement | RunEvents | Paused | Resumed
