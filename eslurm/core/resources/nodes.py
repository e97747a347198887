"""The nodes as the planner sees them: a fixed order, totals, names and partitions.

A `Topology` is immutable and built once per configuration. The order of its nodes is the
cluster's own (closeness in the network); a node's *position* in that order is what the sets of
`bits` hold, its *number* is its identity everywhere else.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from eslurm.core.resources import bits
from eslurm.core.resources.vector import WIDTH, Vector, padded


class NodeView(msgspec.Struct, frozen=True):
    """One node: its identity, what it has, and whether new work may be placed on it now.

    What is free on it is the ledger's knowledge, not a field that could disagree with it.
    """

    number: int
    name: str
    total: Vector
    usable: bool = True
    partitions: tuple[str, ...] = ()


class Topology:
    """Looks up nodes by position, number, name and partition. Raises `ValueError` on duplicates."""

    __slots__ = (
        "everything",
        "groups",
        "names",
        "numbers",
        "partitions",
        "positions",
        "positions_by_name",
        "size",
        "totals",
        "usable",
    )

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        ordered = tuple(nodes)
        width = max((len(node.total) for node in ordered), default=WIDTH)
        width = max(width, WIDTH)
        self.size = len(ordered)
        self.numbers = tuple(node.number for node in ordered)
        self.names = tuple(node.name for node in ordered)
        self.totals = tuple(padded(node.total, width) for node in ordered)
        self.positions = {number: position for position, number in enumerate(self.numbers)}
        self.positions_by_name = {name: position for position, name in enumerate(self.names)}
        if len(self.positions) != self.size or len(self.positions_by_name) != self.size:
            raise ValueError("two nodes share a number or a name")
        for node in ordered:
            if min(node.total, default=0) < 0:
                raise ValueError(f"node {node.name} has a negative amount: {node.total}")
        self.everything = (1 << self.size) - 1
        self.usable = bits.mask_of((p for p, node in enumerate(ordered) if node.usable), self.size)
        self.groups = grouped(self.totals)
        members: dict[str, list[int]] = {}
        for position, node in enumerate(ordered):
            for partition in node.partitions:
                members.setdefault(partition, []).append(position)
        self.partitions = {name: bits.mask_of(inside, self.size) for name, inside in members.items()}

    def mask_of_numbers(self, numbers: Iterable[int]) -> int:
        """The set of the given node numbers; numbers that no longer exist are left out."""
        found = (self.positions.get(number) for number in numbers)
        return bits.mask_of((position for position in found if position is not None), self.size)

    def mask_of_names(self, names: Iterable[str]) -> int:
        """The set of the given node names; unknown names are left out."""
        found = (self.positions_by_name.get(name) for name in names)
        return bits.mask_of((position for position in found if position is not None), self.size)


def grouped(amounts: Iterable[Vector]) -> dict[int, dict[Vector, int]]:
    """Positions by equal amounts, the amounts again by their number of cores."""
    members: dict[Vector, list[int]] = {}
    size = 0
    for position, vector in enumerate(amounts):
        members.setdefault(vector, []).append(position)
        size = position + 1
    levels: dict[int, dict[Vector, int]] = {}
    for vector, positions in members.items():
        # A set of one is common where memory differs everywhere, and costs no buffer this way.
        mask = bits.mask_of(positions, size) if len(positions) > 1 else 1 << positions[0]
        levels.setdefault(vector[0], {})[vector] = mask
    return levels
