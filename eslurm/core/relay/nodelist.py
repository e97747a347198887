"""Ordered node lists as runs of consecutive numbers: the form in which lists travel.

Invariant: `decode(*encode(nodes)) == nodes`, order and repetitions included (X-02). A run has stride
one and goes upwards, so a rearranged list costs a few runs more and never loses its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise

NODES_MAX = 1_000_000


def encode(nodes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The list as (starts, lengths) of maximal upward runs, in list order. Linear."""
    if len(nodes) < 2:
        return tuple(nodes), (1,) * len(nodes)
    starts = [nodes[0]]
    breaks = [0]
    expected = nodes[0]
    for position, node in enumerate(nodes):
        if node != expected:
            starts.append(node)
            breaks.append(position)
            expected = node
        expected += 1
    breaks.append(len(nodes))
    lengths = tuple(after - before for before, after in pairwise(breaks))
    return tuple(starts), lengths


def decode(starts: Sequence[int], lengths: Sequence[int], limit: int = NODES_MAX) -> tuple[int, ...]:
    """The list behind (starts, lengths). Linear in the number of nodes. Raises ValueError as `check` does."""
    check(starts, lengths, limit)
    runs = (range(start, start + length) for start, length in zip(starts, lengths, strict=True))
    return tuple(chain.from_iterable(runs))


def check(starts: Sequence[int], lengths: Sequence[int], limit: int = NODES_MAX) -> None:
    """Raise ValueError when the halves do not match, a length is below one, or the list would hold more than
    `limit` nodes: runs come from the network and must not be able to fill the memory.
    """
    if len(starts) != len(lengths):
        raise ValueError(f"{len(starts)} run starts but {len(lengths)} run lengths")
    if lengths and min(lengths) < 1:
        raise ValueError(f"a run of {min(lengths)} nodes")
    if sum(lengths) > limit:
        raise ValueError(f"a list of {sum(lengths)} nodes, more than {limit}")
