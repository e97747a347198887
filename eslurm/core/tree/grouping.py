"""The positional tree: a node's place in an ordered list *is* its place in the tree.

Owns the one grouping rule that every hop applies (E-20, E-21). Invariant: the rule depends on the
list and the width only, so a relay that adopts the sub-list of a suspect computes exactly the
groups the suspect would have made, and the order of the list is never changed (X-02).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol


class Grouping(Protocol):
    """How a relay cuts the list it was delegated into one group per child."""

    def split(self, nodes: Sequence[int], width: int) -> list[list[int]]:
        """Groups in list order; the first node of each is the child, the rest is delegated to it."""
        ...


class PositionalGrouping:
    """The grouping of the paper: `width` consecutive groups of nearly equal size (E-20)."""

    def split(self, nodes: Sequence[int], width: int) -> list[list[int]]:
        """See `split`."""
        return split(nodes, width)


POSITIONAL: Final = PositionalGrouping()


def split(nodes: Sequence[int], width: int) -> list[list[int]]:
    """Cut `nodes` into at most `width` consecutive groups whose sizes differ by at most one (E-20).

    Larger groups come first. A list no longer than `width` gives one group per node: all leaves.
    Raises ValueError when `width` is below one.
    """
    if width < 1:
        raise ValueError(f"tree width must be at least 1, not {width}")
    total = len(nodes)
    if total <= width:
        return [[node] for node in nodes]
    size, larger = divmod(total, width)
    groups: list[list[int]] = []
    start = 0
    for index in range(width):
        end = start + size + (index < larger)
        groups.append(list(nodes[start:end]))
        start = end
    return groups


def depth(count: int, width: int) -> int:
    """Levels of nodes below the root in the tree of a list of `count` nodes; 0 for an empty list.

    The first group is never smaller than its siblings, so following it finds the deepest leaf.
    """
    if width < 1:
        raise ValueError(f"tree width must be at least 1, not {width}")
    levels = 0
    while count > 0:
        levels += 1
        count = -(-count // width) - 1
    return levels


def shape(
    nodes: Sequence[int], width: int, grouping: Grouping = POSITIONAL
) -> Iterator[tuple[int | None, int]]:
    """Yield every edge (parent, child) of the tree, parents before children; the root is None (E-21)."""
    pending: list[tuple[int | None, Sequence[int]]] = [(None, nodes)]
    while pending:
        parent, delegated = pending.pop()
        for group in grouping.split(delegated, width):
            yield parent, group[0]
            if len(group) > 1:
                pending.append((group[0], group[1:]))
