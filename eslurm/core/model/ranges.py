"""Sets of task numbers as ascending, disjoint, non-adjacent (first, last) ranges: 100,000 tasks are one pair."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]


def from_numbers(numbers: Iterable[int]) -> Ranges:
    """The canonical ranges of any collection of numbers."""
    merged: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if merged and number == merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], number)
        else:
            merged.append((number, number))
    return tuple(merged)


def count(ranges: Ranges) -> int:
    """Number of elements of the set."""
    return sum(last - first + 1 for first, last in ranges)


def contains(ranges: Ranges, number: int) -> bool:
    """Check whether `number` is in the set."""
    at = bisect_right(ranges, (number, 1 << 62)) - 1
    return at >= 0 and ranges[at][0] <= number <= ranges[at][1]


def iterate(ranges: Ranges) -> Iterator[int]:
    """All numbers, ascending."""
    for first, last in ranges:
        yield from range(first, last + 1)


def add(ranges: Ranges, number: int) -> Ranges:
    """The set with `number` in it."""
    if contains(ranges, number):
        return ranges
    at = bisect_right(ranges, (number, 1 << 62))
    first = last = number
    low, high = at, at
    if at > 0 and ranges[at - 1][1] == number - 1:
        first, low = ranges[at - 1][0], at - 1
    if at < len(ranges) and ranges[at][0] == number + 1:
        last, high = ranges[at][1], at + 1
    return (*ranges[:low], (first, last), *ranges[high:])


def remove(ranges: Ranges, number: int) -> Ranges:
    """The set without `number`."""
    at = bisect_right(ranges, (number, 1 << 62)) - 1
    if at < 0 or not ranges[at][0] <= number <= ranges[at][1]:
        return ranges
    first, last = ranges[at]
    parts = [(low, high) for low, high in ((first, number - 1), (number + 1, last)) if low <= high]
    return (*ranges[:at], *parts, *ranges[at + 1 :])


def union(left: Ranges, right: Ranges) -> Ranges:
    """The numbers in either set."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted((*left, *right)):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def intersection(left: Ranges, right: Ranges) -> Ranges:
    """The numbers in both sets."""
    found: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        low, high = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if low <= high:
            found.append((low, high))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def difference(left: Ranges, right: Ranges) -> Ranges:
    """The numbers in `left` that are not in `right`."""
    found: list[tuple[int, int]] = []
    for first, last in left:
        at = first
        for low, high in right:
            if high < at:
                continue
            if low > last:
                break
            if low > at:
                found.append((at, low - 1))
            at = high + 1
        if at <= last:
            found.append((at, last))
    return tuple(found)
