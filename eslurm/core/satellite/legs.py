"""Which satellites take a broadcast, and which share of it each gets (E-07, E-09, E-13).

Satellites are addressed by negative numbers, so that they never meet a node's number in a relay.
Invariant: the legs' nodes, one after the other, are the list that was given; only satellites that are up
get a leg, and turns go on from one broadcast to the next.
"""

from __future__ import annotations

from collections.abc import Sequence

from eslurm.core.tree.grouping import split
from eslurm.core.tree.messages import Leg


def satellite_number(index: int) -> int:
    """The relay number of the satellite at this place of the configuration."""
    return -1 - index


def legs_wanted(nodes: int, width: int, satellites: int) -> int:
    """How many satellites share `nodes` nodes (E-07): one up to `width`, then one per `width`, at most all."""
    if satellites < 1:
        return 0
    return min(max(1, -(-nodes // width)), satellites)


class Satellites:
    """The satellites with a live link, and whose turn is next."""

    def __init__(self) -> None:
        self._up: dict[int, None] = {}
        self._turn = 0
        self.given: dict[int, int] = {}
        """Broadcasts given to each satellite that is up."""

    @property
    def up(self) -> tuple[int, ...]:
        """Those that may be given work, by number."""
        return tuple(self._up)

    def set_up(self, number: int, is_up: bool) -> None:
        """The link to a satellite came up or went down."""
        if is_up:
            self._up[number] = None
            self.given[number] = 0
        else:
            self._up.pop(number, None)
            self.given.pop(number, None)

    def legs(self, nodes: Sequence[int], width: int) -> tuple[Leg, ...]:
        """One leg per satellite in turn, of nearly equal size; none when no satellite is up (E-16)."""
        up = self.up
        wanted = legs_wanted(len(nodes), width, len(up))
        if not wanted:
            return ()
        shares = split(nodes, wanted)
        first = self._turn
        self._turn = (first + len(shares)) % len(up)
        legs = tuple(Leg(up[(first + at) % len(up)], tuple(share)) for at, share in enumerate(shares))
        for leg in legs:
            self.given[leg.to_node] += 1
        return legs
