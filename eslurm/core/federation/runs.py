"""Sets of node numbers as runs: (first, how many), ascending, with a gap between each two.

Invariant: what the functions return has that form when what they get has it; `is_proper` checks it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Runs: TypeAlias = tuple[tuple[int, int], ...]


def size(runs: Runs) -> int:
    """Count the nodes."""
    return sum(count for _, count in runs)


def is_proper(runs: Runs) -> bool:
    """Check the form."""
    end = -1
    for first, count in runs:
        if count < 1 or first <= end:
            return False
        end = first + count
    return True


def runs_of(numbers: Iterable[int]) -> Runs:
    """The runs of any numbers."""
    return _joined((number, 1) for number in sorted(set(numbers)))


def numbers_of(runs: Runs) -> list[int]:
    """All numbers, ascending."""
    return [number for first, count in runs for number in range(first, first + count)]


def union(left: Runs, right: Runs) -> Runs:
    """The nodes of either."""
    if not left or not right:
        return left or right
    return _joined(sorted(left + right))


def difference(left: Runs, right: Runs) -> Runs:
    """The nodes of `left` that are not in `right`."""
    if not right:
        return left
    found: list[tuple[int, int]] = []
    place = 0
    for first, count in left:
        end = first + count
        while place < len(right) and right[place][0] + right[place][1] <= first:
            place += 1
        at = place
        while at < len(right) and right[at][0] < end:
            gap_first, gap_count = right[at]
            if gap_first > first:
                found.append((first, gap_first - first))
            first = max(first, gap_first + gap_count)
            at += 1
        if first < end:
            found.append((first, end - first))
    return tuple(found)


def overlap(left: Runs, right: Runs) -> Runs:
    """The nodes of both."""
    return difference(left, difference(left, right))


def taken(runs: Runs, count: int) -> Runs:
    """Some `count` of the nodes: of the shortest run that has so many, else of the longest ones. Splits one run at most."""
    long_enough = [(length, first) for first, length in runs if length >= count]
    if long_enough:
        return ((min(long_enough)[1], count),) if count else ()
    found: list[tuple[int, int]] = []
    for length, first in sorted(((length, first) for first, length in runs), reverse=True):
        found.append((first, min(length, count)))
        count -= min(length, count)
        if count == 0:
            break
    return tuple(sorted(found))


def _joined(runs: Iterable[tuple[int, int]]) -> Runs:
    """Ascending runs that may touch or overlap, as one set."""
    found: list[tuple[int, int]] = []
    for first, count in runs:
        if found and first <= found[-1][0] + found[-1][1]:
            before = found[-1]
            found[-1] = (before[0], max(before[1], first + count - before[0]))
        else:
            found.append((first, count))
    return tuple(found)
