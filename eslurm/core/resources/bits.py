"""Sets of node positions as integers: bit `p` set means position `p` is a member.

Set algebra over a thousand nodes is one machine-level loop over 128 bytes, and the lowest bit is
the first node in the cluster's order; that is what makes "first node that fits" cheap.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

FEW: Final = 256
_NEAR: Final = (1 << 2 * FEW) - 1


def mask_of(positions: Iterable[int], size: int) -> int:
    """The set of the given positions, each below `size`."""
    buffer = bytearray((size + 7) >> 3)
    for position in positions:
        buffer[position >> 3] |= 1 << (position & 7)
    return int.from_bytes(buffer, "little")


def lowest(mask: int) -> int:
    """The first position of a set that is not empty."""
    return (mask & -mask).bit_length() - 1


def first_positions(mask: int, count: int) -> list[int]:
    """The first `count` positions in ascending order, or all of them when there are fewer."""
    # Clearing the lowest bit again and again copies the whole integer each time; searching the
    # text of the part that has enough is linear.
    offset = 0
    if count <= FEW and mask:
        offset = lowest(mask)
        mask >>= offset
        near = mask & _NEAR
        if near.bit_count() >= count:
            mask = near
    text = bin(mask)[:1:-1]
    found: list[int] = []
    position = -1
    for _ in range(count):
        position = text.find("1", position + 1)
        if position < 0:
            break
        found.append(position + offset)
    return found


def all_positions(mask: int) -> list[int]:
    """Every position in ascending order."""
    return first_positions(mask, mask.bit_length())


def lowest_part(mask: int, count: int) -> int:
    """The subset made of the first `count` positions."""
    size = mask.bit_count()
    if count >= size:
        return mask
    if count <= 0:
        return 0
    last = first_positions(mask, count)[-1]
    return mask & ((2 << last) - 1)
