"""Consistency check of the profile's views: nodes, slots, sums and rows.

Derived views are derived again from the nodes and compared. Invariant: nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from eslurm.core.plan.profile.node_profile import Profile, ProfileError, steps
from eslurm.core.plan.profile.rows import at_least, untouched
from eslurm.core.plan.profile.slots import Slots
from eslurm.core.resources.nodes import Topology


def check_views(topology: Topology, profiles: Sequence[Profile], slots: Slots) -> None:
    """Raise `BookError` unless the views agree and every node keeps within its total. Time proportional to everything."""
    _check_instants(slots)
    falls: set[int] = set()
    rises = [[0] * len(slots.at) for _ in slots.rises]
    for name, profile, total in zip(topology.names, profiles, topology.totals, strict=True):
        before = total
        for at_us, free in steps(profile, slots.at[0]):
            index = slots.find(at_us)
            if index is None or profile[2] != total:
                raise ProfileError(f"node {name} changes at {at_us}, where no slot begins")
            if any(not 0 <= entry <= most for entry, most in zip(free, total, strict=True)):
                raise ProfileError(f"node {name} has {free} free of {total} from {at_us} on")
            for resource, (was, entry) in enumerate(zip(before, free, strict=True)):
                rises[resource][index] += was - entry
                if index and entry < was:
                    falls.add(index)
            before = free
    if rises != slots.rises:
        raise ProfileError("the sums disagree with the nodes")
    if any(not slots.starts[index] for index in falls):
        raise ProfileError("less becomes free where nothing starts")
    _check_rows(slots, profiles)


def _check_instants(slots: Slots) -> None:
    if any(left >= right for left, right in pairwise(slots.at)):
        raise ProfileError("the slots are not in order")
    for index, at_us in enumerate(slots.at):
        if index and not slots.starts[index] and not slots.stops[index]:
            raise ProfileError(f"nothing starts or ends at {at_us}")
        if slots.starts[index] < 0 or slots.stops[index] < 0:
            raise ProfileError(f"less than nothing starts or ends at {at_us}")


def _check_rows(slots: Slots, profiles: Sequence[Profile]) -> None:
    for resource, (values, rows) in enumerate(zip(slots.values, slots.rows, strict=True)):
        for value, row in zip(values, rows, strict=True):
            if row != slots.made(at_least(resource, value), profiles):
                raise ProfileError(f"the row of {value} of resource {resource} disagrees with the nodes")
    if slots.idle is not None and slots.idle != slots.made(untouched, profiles):
        raise ProfileError("the row of idle nodes disagrees with the nodes")
