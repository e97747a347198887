"""Placement of a job's nodes near each other in the switch tree.

A job that fits under one switch is placed under one: on the lowest possible level, the switch with the fewest free nodes,
so that large gaps stay for large jobs. A job that needs several takes those with the most free nodes of the level below,
so that it spreads over as few as possible. Invariant: switches affect neither whether a job fits nor, for a range of
nodes, the number of its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from eslurm.core.plan.placement.protocols import Assignment
from eslurm.core.resources.nodes import Topology


def gathered(
    topology: Topology,
    candidates: int,
    chosen: Assignment,
    keeps_width: bool,
    choose: Callable[[int], Assignment | None],
) -> Assignment:
    """An assignment as good as `chosen` on nearer nodes. `choose(within)` maps the job on some of the candidates."""
    fewest = len(chosen)

    def is_wide_enough(found: Assignment | None) -> bool:
        return found is not None and (not keeps_width or len(found) >= fewest)

    below: tuple[tuple[int, ...], ...] = ()
    for level in topology.switches:
        for mask in sorted(_roomy(level, candidates, fewest), key=int.bit_count):
            found = choose(mask)
            if found is not None and is_wide_enough(found):
                return _over_few(mask, below, fewest, choose, is_wide_enough) or found
        below = (*below, level)
    return _over_few(candidates, below, fewest, choose, is_wide_enough) or chosen


def _roomy(level: Iterable[int], candidates: int, least: int) -> list[int]:
    insides = (mask & candidates for mask in level)
    return [inside for inside in insides if inside.bit_count() >= least]


def _over_few(
    within: int,
    below: tuple[tuple[int, ...], ...],
    fewest: int,
    choose: Callable[[int], Assignment | None],
    is_wide_enough: Callable[[Assignment | None], bool],
) -> Assignment | None:
    """Spread over as few switches as possible, those with the most free nodes first; level by level downwards."""
    best: Assignment | None = None
    for level in reversed(below):
        together = 0
        for inside in sorted(_roomy(level, within, 1), key=int.bit_count, reverse=True):
            together |= inside
            if together.bit_count() >= fewest:
                found = choose(together)
                if is_wide_enough(found):
                    best, within = found, together
                    break
        else:
            break
    return best
