"""The ports inside the planner, between mapping, constraints and the resource profile.

Everything time-dependent answers the same question, "from this instant on, when first for so long?": the profile, limits,
FreePools. A search asks each in turn until none moves the start any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import msgspec

from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import Vector, add

Assignment: TypeAlias = list[tuple[int, Vector, int]]
"""Nodes of a job: (position, amounts, tasks) in ascending order of position."""


class JointAssignment(list[tuple[int, Vector, int]]):
    """Nodes of a job of several parts: the sum of all parts on each node; `members` are the parts' own assignments.

    In those, a part with whole nodes has all amounts of each.
    """

    __slots__ = ("members",)

    def __init__(self, members: Sequence[Assignment]) -> None:
        sums: dict[int, tuple[int, Vector, int]] = {}
        for one in members:
            for entry in one:
                position, amounts, tasks = entry
                before = sums.get(position)
                if before is not None:
                    entry = position, add(before[1], amounts), before[2] + tasks
                sums[position] = entry
        super().__init__([sums[position] for position in sorted(sums)])
        self.members = tuple(members)


class Availability(Protocol):
    """Amounts free on each node throughout an interval; "now" and "at the very best" are such intervals too."""

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
        """Free cluster-wide resources."""
        ...

    def fitting(self, amounts: Vector) -> int:
        """The positions, usable or not, with `amounts` free all the time: exact."""
        ...

    def free_on(self, position: int) -> Vector:
        """The amounts free all the time at a position."""
        ...


class Closure(msgspec.Struct, frozen=True, gc=False):
    """Positions that are closed to a job over [start_us, stop_us): by a reservation of others, maintenance, a FreePool."""

    start_us: int
    stop_us: int
    mask: int
    why: str


class Constraint(Protocol):
    """A rule on amounts, not on nodes: a limit, a FreePool, cluster-wide resources."""

    @property
    def kind(self) -> str:
        """For programs: limit, pool, licence."""
        ...

    def earliest(self, duration_us: int, from_us: int, until_us: int) -> int | None:
        """The first instant from `from_us` on from which the job may run for `duration_us`, all of it before `until_us`."""
        ...

    def why(self) -> str:
        """The reason in words, with numbers: requested, available, held by others."""
        ...


def shut(closed: Sequence[Closure], start_us: int, stop_us: int) -> int:
    """The positions that are closed at any time of an interval; closures come in the order of their starts."""
    found = 0
    for closure in closed:
        if closure.start_us >= stop_us:
            break
        if start_us < closure.stop_us:
            found |= closure.mask
    return found
