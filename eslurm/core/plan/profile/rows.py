"""Building a row of the profile from the nodes' own profiles, in slices.

A row is, per slot, the set of positions for which a condition holds. Nodes with the same profile are examined once, and
those that the neighbouring rows decide not at all. Invariant: only results are kept between slices; a row is right if the
profile does not change from the first slice to the last.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from functools import reduce
from itertools import accumulate
from operator import or_, xor
from typing import Final, TypeAlias

from eslurm.core.plan.profile.node_profile import Profile
from eslurm.core.resources import bits

Row: TypeAlias = list[int]
"""Per slot the set of positions for which something holds."""

Holds: TypeAlias = Callable[[Profile], list[bool]]
"""Per step of a node's future whether it holds."""

NODES_PER_SLICE: Final = 1_024
FLIPS_PER_SLICE: Final = 5_000


def at_least(resource: int, amount: int) -> Holds:
    """The condition "this much of a resource is free"."""
    return lambda profile: [free[resource] >= amount for free in profile[1]]


def untouched(profile: Profile) -> list[bool]:
    """The condition "nothing is held"."""
    _, steps, total = profile
    return [free == total for free in steps]


def making(
    holds: Holds, at: Sequence[int], profiles: Sequence[Profile], below: Row | None, above: Row | None
) -> Generator[None, None, Row]:
    """The row of `holds` over the slots that begin at `at`.

    `below` is a row that has all its members and perhaps more, `above` one that has only members (None: all, none).
    """
    size = len(profiles)
    everybody = (1 << size) - 1
    sure: Row = above if above is not None else [0] * len(at)
    most: Row = below if below is not None else [everybody] * len(at)
    doubtful = reduce(or_, (more & ~less for more, less in zip(most, sure, strict=True)), 0)
    positions = bits.all_positions(doubtful)
    yield
    flips = yield from _flips(holds, at[0], profiles, positions)
    marks = [0] * len(at)
    seen = 0
    for at_us, positions in flips.items():
        marks[bisect_left(at, at_us)] = bits.mask_of(positions, size)
        seen += len(positions)
        if seen > FLIPS_PER_SLICE:
            seen = 0
            yield
    if doubtful == everybody:
        return list(accumulate(marks, xor))
    known = everybody & ~doubtful
    return [less & known | found for less, found in zip(sure, accumulate(marks, xor), strict=True)]


def _flips(
    holds: Holds, now_us: int, profiles: Sequence[Profile], positions: Sequence[int]
) -> Generator[None, None, dict[int, list[int]]]:
    """By instant the positions for which the condition begins or ceases to hold."""
    flips: defaultdict[int, list[int]] = defaultdict(list)
    for start in range(0, len(positions), NODES_PER_SLICE):
        shared: defaultdict[int, list[int]] = defaultdict(list)
        for position in positions[start : start + NODES_PER_SLICE]:
            shared[id(profiles[position])].append(position)
        for group in shared.values():
            profile = profiles[group[0]]
            when = profile[0]
            states = holds(profile)
            first = bisect_right(when, now_us) - 1
            before = states[first]
            if before:
                flips[now_us] += group
            if (not before) in states:
                for at_us, state in zip(when[first + 1 :], states[first + 1 :], strict=True):
                    if state is not before:
                        before = state
                        flips[at_us] += group
        yield
    return flips
