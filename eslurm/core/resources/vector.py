"""Amounts of several resources, and their arithmetic.

The entries are cores, memory in MiB, then the node resources of the configuration in its order (C-08); missing entries are
zero, so a new resource is appended without touching stored vectors. Nothing here clips: the caller looks for negative
entries (`is_negative`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from operator import add as _plus
from operator import le as _at_most
from operator import sub as _minus
from typing import Final

from eslurm.core.model.amounts import Vector as Vector

RESOURCES: Final[tuple[str, ...]] = ("cores", "memory_mib")
"""The first entries of every vector."""
WIDTH: Final = len(RESOURCES)
CORES: Final = 0
MEMORY_MIB: Final = 1

# (one, many)
_UNITS: Final[dict[str, tuple[str, str]]] = {
    "cores": ("core", "cores"),
    "memory_mib": ("MiB of memory", "MiB of memory"),
}


def padded(amounts: Vector, width: int = WIDTH) -> Vector:
    """The same amounts with at least `width` entries."""
    missing = width - len(amounts)
    return amounts + (0,) * missing if missing > 0 else amounts


def aligned(amounts: Vector, width: int) -> Vector:
    """With exactly `width` entries: resources come and go at the end with the configuration, never while they are held."""
    return amounts if len(amounts) == width else padded(amounts, width)[:width]


def add(left: Vector, right: Vector) -> Vector:
    """Entry by entry sum."""
    if len(left) == 2 == len(right):
        return (left[0] + right[0], left[1] + right[1])
    if len(left) == len(right):
        return tuple(map(_plus, left, right))
    return tuple(a + b for a, b in zip_longest(left, right, fillvalue=0))


def sum_per_node(pairs: Iterable[tuple[int, Vector]]) -> tuple[tuple[int, Vector], ...]:
    """One pair (node number, amounts) for each node, in the order of their first mention: parts of a job share nodes."""
    sums: dict[int, Vector] = {}
    for node, amounts in pairs:
        sums[node] = add(sums[node], amounts) if node in sums else amounts
    return tuple(sums.items())


def subtract(left: Vector, right: Vector) -> Vector:
    """Entry by entry difference; entries may come out negative."""
    if len(left) == 2 == len(right):
        return (left[0] - right[0], left[1] - right[1])
    if len(left) == len(right):
        return tuple(map(_minus, left, right))
    return tuple(a - b for a, b in zip_longest(left, right, fillvalue=0))


def scale(amounts: Vector, times: int) -> Vector:
    """`times` times the amounts."""
    if len(amounts) == 2:
        return (amounts[0] * times, amounts[1] * times)
    return tuple(amount * times for amount in amounts)


def least(left: Vector, right: Vector) -> Vector:
    """Entry by entry minimum."""
    if len(left) == 2 == len(right):
        return (
            left[0] if left[0] < right[0] else right[0],
            left[1] if left[1] < right[1] else right[1],
        )
    return tuple(min(a, b) for a, b in zip_longest(left, right, fillvalue=0))


def fits(asked: Vector, free: Vector) -> bool:
    """Check whether `free` covers `asked` in every entry."""
    if len(asked) == 2 == len(free):
        return asked[0] <= free[0] and asked[1] <= free[1]
    if len(asked) == len(free):
        return all(map(_at_most, asked, free))
    return all(a <= b for a, b in zip_longest(asked, free, fillvalue=0))


def is_negative(amounts: Vector) -> bool:
    """Check whether any entry is below zero."""
    return min(amounts, default=0) < 0


def times(free: Vector, unit: Vector) -> int:
    """Number of times `unit` fits into `free`; 0 when an entry of `free` is negative where `unit` asks for it.

    Raises `ValueError` for an empty unit, which would fit without bound.
    """
    if len(free) == 2 == len(unit) and unit[0] > 0:
        by_first = free[0] // unit[0]
        if unit[1] > 0:
            by_second = free[1] // unit[1]
            by_first = by_second if by_second < by_first else by_first
        return by_first if by_first > 0 else 0
    bounds = [have // one for one, have in zip_longest(unit, free, fillvalue=0) if one > 0]
    if not bounds:
        raise ValueError("a unit of nothing fits without bound")
    return max(0, min(bounds))


def describe(amounts: Vector, names: Sequence[str] = RESOURCES) -> str:
    """The amounts in words for a user, zero entries left out: `8 cores, 1024 MiB of memory, 2 gpu`.

    `names` are those of the entries, as in `Topology.resources`.
    """
    words = [
        f"{amount} {_UNITS[name][amount != 1] if name in _UNITS else name}"
        for name, amount in zip(names, amounts, strict=False)
        if amount != 0
    ]
    return ", ".join(words) if words else "nothing"
