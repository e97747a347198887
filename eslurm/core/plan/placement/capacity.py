"""Number of tasks of one part that fit on each node.

All answers come from `Room.fitting`, which is exact; what fits shrinks as amounts rise. Invariant: cores that are kept for
jobs with devices never count for a part without devices (C-44).
"""

from __future__ import annotations

from eslurm.core.plan.placement.compiled_request import Part
from eslurm.core.plan.placement.protocols import Availability
from eslurm.core.resources.vector import CORES, Vector


def fitting(room: Availability, part: Part, amounts: Vector, candidates: int) -> int:
    """The candidates on which the part may use `amounts`, apart from cores kept for others (C-44)."""
    found = room.fitting(amounts) & candidates
    for cores, mask in part.kept:
        inside = found & mask
        if inside:
            roomy = room.fitting((amounts[CORES] + cores, *amounts[1:]))
            found = (found & ~mask) | (inside & roomy)
    return found


def capacities(room: Availability, part: Part, candidates: int) -> dict[int, int]:
    """Sets of candidate positions by the number of tasks that they can hold; 0 is left out.

    What fits shrinks as the number of tasks rises, so equal sets at both ends of a range decide all between.
    """
    least = fitting(room, part, part.amounts(1), candidates)
    if not least:
        return {}
    top = max(part.most, 1)
    most = fitting(room, part, part.amounts(top), least) if top > 1 else least
    found: dict[int, int] = {}
    if most:
        found[top] = most
    ranges = [(1, least, top, most)] if top > 1 else []
    while ranges:
        low, low_mask, high, high_mask = ranges.pop()
        if low_mask == high_mask:
            continue
        if high == low + 1:
            found[low] = low_mask & ~high_mask
            continue
        middle = (low + high) // 2
        mask = fitting(room, part, part.amounts(middle), low_mask)
        ranges.append((low, low_mask, middle, mask))
        ranges.append((middle, mask, high, high_mask))
    return found
