"""Allocation of numbered devices (GPUs): those in use on each node, and those for a new job.

The ledger counts amounts; here the items have numbers. A placement gets the lowest free numbers, so the same state and the
same plan give the same devices. Invariant: no number of a resource is held twice on a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import Vector

Held: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]
"""(index of a resource, numbers): as in `Span.devices`."""


class Devices:
    """The numbers in use, by node number and index of the resource, as bits."""

    __slots__ = ("_used",)

    def __init__(self) -> None:
        self._used: dict[int, dict[int, int]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Devices) and self._used == other._used

    __hash__ = None  # type: ignore[assignment]  # mutable

    def hold(self, node: int, devices: Held) -> None:
        """Mark these numbers as used. Raises `ValueError` when one already is."""
        for index, numbers in devices:
            here = self._used.setdefault(node, {})
            mask = _mask(numbers)
            if here.get(index, 0) & mask:
                raise ValueError(f"node #{node}: devices {numbers} of resource {index} are in use already")
            here[index] = here.get(index, 0) | mask

    def give_back(self, node: int, devices: Held) -> None:
        """Mark these numbers as free."""
        here = self._used.get(node)
        if here is None:
            return
        for index, numbers in devices:
            left = here.get(index, 0) & ~_mask(numbers)
            if left:
                here[index] = left
            else:
                here.pop(index, None)
        if not here:
            del self._used[node]

    def used(self, node: int, index: int) -> int:
        """The used numbers of one resource of a node, as bits."""
        return self._used.get(node, {}).get(index, 0)


class Picker:
    """Chooses devices for the placements of one plan in sequence, without changing `Devices`."""

    __slots__ = ("_devices", "_picked", "_topology")

    def __init__(self, devices: Devices, topology: Topology) -> None:
        self._devices = devices
        self._topology = topology
        self._picked: dict[tuple[int, int], int] = {}

    def take(self, node: int, amounts: Vector) -> Held:
        """The lowest free numbers for these amounts on a node; none for resources that are only counted."""
        found: list[tuple[int, tuple[int, ...]]] = []
        for index in self._topology.devices:
            count = amounts[index] if index < len(amounts) else 0
            if count:
                found.append((index, self._lowest(node, index, count)))
        return tuple(found)

    def _lowest(self, node: int, index: int, count: int) -> tuple[int, ...]:
        used = self._devices.used(node, index) | self._picked.get((node, index), 0)
        numbers: list[int] = []
        number = 0
        while len(numbers) < count:
            if not (used >> number) & 1:
                numbers.append(number)
            number += 1
        self._picked[(node, index)] = self._picked.get((node, index), 0) | _mask(numbers)
        return tuple(numbers)


def _mask(numbers: Iterable[int]) -> int:
    found = 0
    for number in numbers:
        found |= 1 << number
    return found
