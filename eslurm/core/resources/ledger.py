"""Free amounts on each node now, and the expected ends of what is held.

The cluster keeps one `Ledger` and changes it with every allocation (`hold`) and every end (`give_back`); a planner works
on a `fork`. Nodes with equal free amounts share one set, so "which nodes fit this" looks at the few different amounts, not
at the nodes. Invariant: per node, free + held = total and no entry of either is below zero; a change that would break this
raises `LedgerError` and leaves the ledger as it was. Cluster-wide resources (licences) are counted beside the nodes; their
total may fall below the held amount: then none is free.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from eslurm.core.resources import bits
from eslurm.core.resources.nodes import Topology, grouped
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import CORES, Vector, add, aligned, fits, is_negative, subtract

Hold: TypeAlias = tuple[int, Vector]
"""(until_us, amounts) on one node."""

NODES_PER_SLICE: Final = 512


class LedgerError(ValueError):
    """A hold exceeds a node's free amounts, or a release has no matching hold."""


class Ledger:
    """Free amounts per node, indexed for "first node that fits"."""

    __slots__ = ("_free", "_full", "_holds", "_idle", "_levels", "_older", "_usable", "_wide", "topology")

    def __init__(self, topology: Topology) -> None:
        """All nodes of the topology, nothing held."""
        self.topology = topology
        self._free: list[Vector] = list(topology.totals)
        # Tuples are replaced, never changed, so a fork may share them.
        self._holds: list[tuple[Hold, ...]] = [()] * topology.size
        self._levels = {cores: dict(group) for cores, group in topology.groups.items()}
        self._usable = topology.usable
        self._older = 0
        self._full = _union(self._levels.get(0, {}))
        self._idle = topology.everything
        self._wide = topology.wide_totals

    def fork(self) -> Ledger:
        """An independent ledger with the same contents; costs copying two lists of pointers."""
        other = Ledger.__new__(Ledger)
        other.topology = self.topology
        other._free = self._free.copy()
        other._holds = self._holds.copy()
        other._levels = {cores: group.copy() for cores, group in self._levels.items()}
        other._usable = self._usable
        other._older = self._older
        other._full = self._full
        other._idle = self._idle
        other._wide = self._wide
        return other

    def emptied(self) -> Ledger:
        """The same nodes, usable or not as now, with nothing held."""
        other = Ledger(self.topology)
        other._usable = self._usable
        other._older = self._older
        return other

    # Changing

    def hold(self, node: int, amounts: Vector, until_us: int = INFINITY_US) -> None:
        """Hold `amounts` on node number `node` until `until_us` at the latest."""
        position = self._position(node)
        old = self._free[position]
        amounts = aligned(amounts, len(old))
        new = subtract(old, amounts)
        if is_negative(new) or is_negative(amounts):
            name = self.topology.names[position]
            raise LedgerError(f"node {name} has {old} free, {amounts} cannot be held on it")
        holds = list(self._holds[position])
        insort(holds, (until_us, amounts))
        self._holds[position] = tuple(holds)
        self._move(position, new)

    def give_back(self, node: int, amounts: Vector, until_us: int = INFINITY_US) -> None:
        """End a hold that was made with the same arguments."""
        position = self._position(node)
        old = self._free[position]
        amounts = aligned(amounts, len(old))
        holds = self._holds[position]
        index = bisect_left(holds, (until_us, amounts))
        if index == len(holds) or holds[index] != (until_us, amounts):
            name = self.topology.names[position]
            raise LedgerError(f"node {name} holds no {amounts} until {until_us}")
        self._holds[position] = holds[:index] + holds[index + 1 :]
        self._move(position, add(old, amounts))

    def rehold(self, changes: Iterable[tuple[int, Vector, Vector]], until_us: int, new_until_us: int) -> None:
        """Replace holds: (node number, old amounts, new amounts), with another expected end.

        Equal to giving back and holding again one by one, but fast for thousands of nodes.
        """
        width = len(self._free[0]) if self._free else 0
        known: dict[Vector, Vector] = {}
        holds_of: dict[int, tuple[Hold, ...]] = {}
        free_of: dict[int, Vector] = {}
        becoming: dict[tuple[Vector, Vector, Vector], Vector] = {}
        for node, before, after in changes:
            position = self._position(node)
            for amounts in (before, after):
                if amounts not in known:
                    known[amounts] = aligned(amounts, width)
            before, after = known[before], known[after]
            holds = holds_of.get(position, self._holds[position])
            index = bisect_left(holds, (until_us, before))
            if index == len(holds) or holds[index] != (until_us, before):
                raise LedgerError(f"node {self.topology.names[position]} holds no {before} until {until_us}")
            others = [*holds[:index], *holds[index + 1 :]]
            insort(others, (new_until_us, after))
            holds_of[position] = tuple(others)
            if before == after:
                continue
            old = free_of.get(position, self._free[position])
            new = becoming.get((old, before, after))
            if new is None:
                new = becoming[old, before, after] = subtract(add(old, before), after)
            free_of[position] = new
        if any(map(is_negative, known.values())):
            raise LedgerError(f"less than nothing cannot be held: {list(known.values())}")
        for position, new in free_of.items():
            if is_negative(new):
                name, free = self.topology.names[position], self._free[position]
                raise LedgerError(f"node {name} has {free} free: what it holds cannot become that much")
        for position, holds in holds_of.items():
            self._holds[position] = holds
        self._move_all(free_of)

    def hold_wide(self, amounts: Vector) -> None:
        """Hold cluster-wide resources."""
        self._wide = subtract(self._wide, aligned(amounts, len(self._wide)))

    def give_back_wide(self, amounts: Vector) -> None:
        """End a hold of cluster-wide resources that was made with the same amounts."""
        self._wide = add(self._wide, aligned(amounts, len(self._wide)))

    def set_usable(self, node: int, usable: bool) -> None:
        """Allow or forbid new work on the node; its holds stay."""
        bit = 1 << self._position(node)
        self._usable = self._usable | bit if usable else self._usable & ~bit

    def set_older(self, node: int, older: bool) -> None:
        """Note whether the node's agent is of an earlier release: no job of several parts is placed there."""
        bit = 1 << self._position(node)
        self._older = self._older | bit if older else self._older & ~bit

    # Reading

    @property
    def usable(self) -> int:
        """Positions on which new work may be placed."""
        return self._usable

    @property
    def older(self) -> int:
        """Positions whose agents know no jobs of several parts."""
        return self._older

    @property
    def open(self) -> int:
        """Usable positions with at least one free core."""
        return self._usable & ~self._full

    @property
    def idle(self) -> int:
        """Positions on which nothing is held, usable or not."""
        return self._idle

    @property
    def wide_free(self) -> Vector:
        """Free cluster-wide resources; 0 where more is held than the total."""
        wide = self._wide
        return tuple([max(0, free) for free in wide]) if is_negative(wide) else wide

    def free(self, node: int) -> Vector:
        """Free amounts of node number `node`."""
        return self._free[self._position(node)]

    def free_on(self, position: int) -> Vector:
        """Free amounts at a position."""
        return self._free[position]

    def holds_on(self, position: int) -> tuple[Hold, ...]:
        """The holds at a position, ordered by their ends."""
        return self._holds[position]

    def fits_on(self, node: int, amounts: Vector) -> bool:
        """Check whether the node exists, is usable and has `amounts` free."""
        position = self.topology.positions.get(node)
        if position is None or not (self._usable >> position) & 1:
            return False
        return fits(amounts, self._free[position])

    def fitting(self, amounts: Vector) -> int:
        """The set of positions, usable or not, with `amounts` free."""
        found = 0
        cores = amounts[CORES]
        for level, group in self._levels.items():
            if level >= cores:
                for free, mask in group.items():
                    if fits(amounts, free):
                        found |= mask
        return found

    def groups(self, cores: int, within: int) -> Iterator[tuple[Vector, int]]:
        """(free amounts, positions inside `within`) for each amount with at least `cores` free cores."""
        for level, group in self._levels.items():
            if level >= cores:
                for free, mask in group.items():
                    inside = mask & within
                    if inside:
                        yield free, inside

    def check(self) -> None:
        """Raise `LedgerError` unless free + held = total everywhere and the index agrees."""
        for position, total in enumerate(self.topology.totals):
            free = self._free[position]
            together = free
            for _, amounts in self._holds[position]:
                together = add(together, amounts)
            if together != total or is_negative(free):
                name = self.topology.names[position]
                raise LedgerError(f"node {name}: {free} free and {self._holds[position]} held of {total}")
        if self._levels != grouped(self._free):
            raise LedgerError("the index of free amounts disagrees with the nodes")
        idle = (free == total for free, total in zip(self._free, self.topology.totals, strict=True))
        if self._idle != sum(1 << position for position, is_idle in enumerate(idle) if is_idle):
            raise LedgerError("the set of idle nodes disagrees with the nodes")
        if self._full != _union(self._levels.get(0, {})):
            raise LedgerError("the set of full nodes disagrees with the nodes")

    # Inside

    def _position(self, node: int) -> int:
        position = self.topology.positions.get(node)
        if position is None:
            raise LedgerError(f"there is no node number {node}")
        return position

    def _move(self, position: int, new: Vector) -> None:
        old = self._free[position]
        if new == old:
            return
        self._shift(1 << position, old, new)
        self._free[position] = new
        total = self.topology.totals[position]
        if new == total or old == total:
            self._idle ^= 1 << position

    def _move_all(self, free_of: dict[int, Vector]) -> None:
        """Like `_move` for many positions; those with the same change move in one step."""
        alike: dict[tuple[Vector, Vector], list[int]] = {}
        idle: list[int] = []
        for position, new in free_of.items():
            old = self._free[position]
            if new == old:
                continue
            alike.setdefault((old, new), []).append(position)
            self._free[position] = new
            total = self.topology.totals[position]
            if new == total or old == total:
                idle.append(position)
        for (old, new), positions in alike.items():
            self._shift(bits.mask_of(positions, self.topology.size), old, new)
        self._idle ^= bits.mask_of(idle, self.topology.size)

    def _shift(self, moving: int, old: Vector, new: Vector) -> None:
        """Move a set of positions from one amount to another in the index."""
        levels = self._levels
        group = levels[old[CORES]]
        left = group[old] ^ moving
        if left:
            group[old] = left
        else:
            del group[old]
            if not group:
                del levels[old[CORES]]
        target = levels.get(new[CORES])
        if target is None:
            levels[new[CORES]] = {new: moving}
        else:
            target[new] = target.get(new, 0) | moving
        if (old[CORES] == 0) != (new[CORES] == 0):
            self._full ^= moving


def _union(group: dict[Vector, int]) -> int:
    together = 0
    for mask in group.values():
        together |= mask
    return together
