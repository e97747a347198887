"""Resources left on the nodes after some parts of a job have taken theirs.

A view of another availability while a job of several parts is mapped. Invariant: nothing is below zero, and a node that a
part has taken from is not idle.
"""

from __future__ import annotations

from eslurm.core.plan.placement.protocols import Assignment, Availability
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import Vector, fits, subtract


class Remaining:
    """The port `Availability` over `room` less what was taken."""

    __slots__ = ("_free", "_left", "_room", "_touched", "topology", "usable", "wide_free")

    def __init__(self, room: Availability) -> None:
        self._room = room
        self._touched = 0
        self._free: dict[int, Vector] = {}
        # Touched positions by what is left on them: equal nodes with equal shares are looked at once.
        self._left: dict[Vector, int] = {}
        self.topology: Topology = room.topology
        self.usable = room.usable
        self.wide_free = room.wide_free

    @property
    def idle(self) -> int:
        """Idle positions that no part has taken from."""
        return self._room.idle & ~self._touched

    def fitting(self, amounts: Vector) -> int:
        """The positions with `amounts` still free."""
        found = self._room.fitting(amounts)
        doubtful = found & self._touched
        if not doubtful:
            return found
        found ^= doubtful
        for free, mask in self._left.items():
            if mask & doubtful and fits(amounts, free):
                found |= mask
        return found

    def free_on(self, position: int) -> Vector:
        """The amounts still free at a position."""
        free = self._free.get(position)
        return free if free is not None else self._room.free_on(position)

    def take(self, chosen: Assignment) -> None:
        """Take the amounts of an assignment on each of its nodes."""
        for position, amounts, _ in chosen:
            bit = 1 << position
            before = self.free_on(position)
            if self._touched & bit:
                rest = self._left[before] & ~bit
                if rest:
                    self._left[before] = rest
                else:
                    del self._left[before]
            self._touched |= bit
            after = self._free[position] = subtract(before, amounts)
            self._left[after] = self._left.get(after, 0) | bit
