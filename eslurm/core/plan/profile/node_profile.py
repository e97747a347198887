"""nRS: amounts free on one node from now to infinity, as an immutable step function over vectors (C-26).

Nodes with the same bookings share one `Profile` object: a booking on many of them computes it once, and a copy of the book
shares them all. Invariants: instants strictly ascending, the first not later than the book's now, neighbouring amounts
differ, every entry within [0, total].
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import Vector, add, fits, least, padded, scale

Profile: TypeAlias = tuple[tuple[int, ...], tuple[Vector, ...], Vector]
"""(instants, the amounts free from each on, the node's total)."""

Change: TypeAlias = tuple[int, int, Vector, Vector]
"""(start_us, stop_us, free before, free after): what a booking does to a part of its stay."""


Part: TypeAlias = tuple[list[int], list[Change], Vector]
"""(positions, what changes on each of them, the total of each)."""

Spans: TypeAlias = tuple[tuple[int, Vector], ...]
"""(node number, amounts) of one booking."""


class ProfileError(ValueError):
    """A booking exceeds the total, or a revoked one was not booked. The profile is unchanged."""


def shifted(
    profile: Profile, start_us: int, stop_us: int, delta: Vector, now_us: int
) -> tuple[Profile, list[Change]]:
    """The profile with `delta` (not all zero) added to the free amounts over the interval, and the changes.

    Steps before `now_us` are dropped. Raises `BookError` when an entry would leave [0, total].
    """
    when, free, total = profile
    first = bisect_right(when, start_us) - 1
    last = bisect_left(when, stop_us, first + 1)
    changes: list[Change]
    if last - first == 1:
        new = _sum(free[first], delta)
        after: tuple[Vector, ...] = (new,)
        changes = [(start_us, stop_us, free[first], new)]
        lowest = min(new)
    else:
        after = _sums(free[first:last], delta)
        bounds = (start_us, *when[first + 1 : last], stop_us)
        changes = list(zip(bounds, bounds[1:], free[first:last], after, strict=False))
        lowest = min(map(min, after))
    if lowest < 0 or (max(delta) > 0 and not all(fits(new, total) for new in after)):
        raise ProfileError(f"{least_free(profile, start_us, stop_us)} free of {total}")
    begun: tuple[int, ...] = (start_us,)
    kept = head = first
    if start_us > now_us:
        kept = bisect_right(when, now_us) - 1 if first else 0
        if when[first] < start_us:
            head = first + 1
        if head > kept and free[head - 1] == after[0]:
            begun, after = (), after[1:]
    ended: tuple[int, ...] = ()
    ended_free: tuple[Vector, ...] = ()
    tail = last
    if stop_us < INFINITY_US:
        if last == len(when) or when[last] > stop_us:
            ended, ended_free = (stop_us,), (free[last - 1],)
        elif free[last] == changes[-1][3]:
            tail = last + 1
    instants = when[kept:head] + begun + when[first + 1 : last] + ended + when[tail:]
    return (instants, free[kept:head] + after + ended_free + free[tail:], total), changes


def shifted_all(
    topology: Topology,
    profiles: Sequence[Profile],
    spans: Spans,
    stay: tuple[int, int],
    sign: int,
    now_us: int,
) -> tuple[list[Part], list[tuple[list[int], Profile]], Vector]:
    """Effects of a booking (-1) or its end (1): parts for the rows, new profiles by positions, the sum of amounts.

    Raises `BookError` naming the node on which it is not possible.
    """
    width = len(topology.totals[0]) if topology.totals else 0
    parts: list[Part] = []
    after: list[tuple[list[int], Profile]] = []
    # Nodes that come to the same future share it from now on.
    known: dict[tuple[int, ...], Profile] = {}
    total = (0,) * width
    for asked, groups in _alike(topology, profiles, spans).items():
        amounts = padded(asked, width)
        if len(amounts) > width or min(amounts) < 0:
            (position, *_), *_ = groups.values()
            raise ProfileError(f"node {topology.names[position]}: {amounts} cannot be booked on it")
        total = add(total, scale(amounts, sum(map(len, groups.values()))))
        if not any(amounts):
            continue
        delta = scale(amounts, sign)
        for positions in groups.values():
            profile = profiles[positions[0]]
            try:
                new, changes = shifted(profile, *stay, delta, now_us)
            except ProfileError as error:
                verb = "book" if sign < 0 else "revoke"
                name = topology.names[positions[0]]
                raise ProfileError(f"node {name}: cannot {verb} {amounts} on it: {error}") from None
            if len(spans) > 1:
                like = known.setdefault(new[0], new)
                if like is not new and like == new:
                    new = like
            # Whole nodes that are idle all the time differ before and behind the stay only.
            if parts and parts[-1][1] == changes and parts[-1][2] == profile[2]:
                parts[-1] = (parts[-1][0] + positions, changes, profile[2])
            else:
                parts.append((positions, changes, profile[2]))
            after.append((positions, new))
    return parts, after, total


def _alike(
    topology: Topology, profiles: Sequence[Profile], spans: Spans
) -> dict[Vector, dict[int, list[int]]]:
    """The positions by requested amounts and by profile (its identity: all these objects outlive the call)."""
    try:
        positions = [topology.positions[node] for node, _ in spans]
    except KeyError as error:
        raise ProfileError(f"there is no node number {error}") from None
    if len(positions) == 1:
        ((_, amounts),) = spans
        return {amounts: {id(profiles[positions[0]]): positions}}
    asked = [amounts for _, amounts in spans]
    if len(set(positions)) < len(positions):
        merged: dict[int, Vector] = {}
        for position, amounts in zip(positions, asked, strict=True):
            merged[position] = add(merged.get(position, ()), amounts)
        positions, asked = list(merged), list(merged.values())
    alike: defaultdict[Vector, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    if asked and asked.count(asked[0]) == len(asked):
        groups = alike[asked[0]]
        for position in positions:
            groups[id(profiles[position])].append(position)
        return alike
    for position, amounts in zip(positions, asked, strict=True):
        alike[amounts][id(profiles[position])].append(position)
    return alike


def least_free(profile: Profile, start_us: int, stop_us: int) -> Vector:
    """The amounts free throughout the interval, entry by entry."""
    when, free, _ = profile
    first = bisect_right(when, start_us) - 1
    found = free[first]
    for index in range(first + 1, bisect_left(when, stop_us, first + 1)):
        found = least(found, free[index])
    return found


def taken_us(profile: Profile, amounts: Vector, from_us: int, until_us: int) -> int:
    """The first instant from `from_us` on with less than that free; `until_us` when there is none before."""
    when, free, _ = profile
    first = bisect_right(when, from_us) - 1
    for index in range(first, bisect_left(when, until_us, first + 1)):
        if not fits(amounts, free[index]):
            return max(from_us, when[index])
    return until_us


def steps(profile: Profile, now_us: int) -> Iterator[tuple[int, Vector]]:
    """(instant, free amounts from it on), from `now_us`."""
    when, free, _ = profile
    first = bisect_right(when, now_us) - 1
    yield now_us, free[first]
    for index in range(first + 1, len(when)):
        yield when[index], free[index]


def _sums(amounts: Sequence[Vector], delta: Vector) -> tuple[Vector, ...]:
    if len(delta) == 2:
        by_first, by_second = delta
        return tuple([(first + by_first, second + by_second) for first, second in amounts])
    return tuple([_sum(each, delta) for each in amounts])


def _sum(left: Vector, right: Vector) -> Vector:
    if len(left) == 2:
        return (left[0] + right[0], left[1] + right[1])
    return tuple(map(int.__add__, left, right))
