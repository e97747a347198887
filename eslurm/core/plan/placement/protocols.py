"""The ports inside the planner: what mapping, constraints and the book of the future know of each other.

Everything time-dependent answers the same question, "from this instant on, when first for so long?": the book of
usage vectors, limits, FreePools. A start is found by asking each in turn until none moves it any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import msgspec

from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import Vector

Chosen: TypeAlias = list[tuple[int, Vector, int]]
"""What a job gets: (position, amounts, tasks) in ascending order of position."""


class Room(Protocol):
    """What is free on each node all through a span of time; "now" and "always, at its best" are such spans too."""

    @property
    def topology(self) -> Topology: ...

    @property
    def usable(self) -> int:
        """Positions on which new work may be placed."""
        ...

    @property
    def idle(self) -> int:
        """Positions on which nothing at all is held, usable or not."""
        ...

    @property
    def wide_free(self) -> Vector:
        """What is free of the resources that belong to no node."""
        ...

    def fitting(self, amounts: Vector) -> int:
        """The positions, usable or not, with `amounts` free all the time: exact."""
        ...

    def free_on(self, position: int) -> Vector:
        """The amounts free all the time at a position."""
        ...


class Closure(msgspec.Struct, frozen=True, gc=False):
    """Positions that are closed for a job over [start_us, stop_us): a reservation of others, maintenance, a FreePool."""

    start_us: int
    stop_us: int
    mask: int
    why: str


class Constraint(Protocol):
    """A rule that looks at counts, not at nodes: a limit, a FreePool, the job-wide resources."""

    @property
    def kind(self) -> str:
        """For programs: limit, pool, licence."""
        ...

    def earliest(self, duration_us: int, from_us: int, until_us: int) -> int | None:
        """The first instant from `from_us` on from which the job may run for `duration_us`, all of it before `until_us`."""
        ...

    def why(self) -> str:
        """In words, with numbers: what is asked, what there is, who has it."""
        ...


def shut(closed: Sequence[Closure], start_us: int, stop_us: int) -> int:
    """The positions that are closed at any time of a stay; closures come in the order of their starts."""
    found = 0
    for closure in closed:
        if closure.start_us >= stop_us:
            break
        if start_us < closure.stop_us:
            found |= closure.mask
    return found
