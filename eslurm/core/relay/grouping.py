"""The positional tree: a node's place in an ordered list *is* its place in the tree.

Owns the grouping rules that every hop applies (E-20, E-21, E-c). Invariant: a rule depends on the
length of the list and the widths only, so a relay that adopts the sub-list of a suspect computes
exactly the groups the suspect would have made, and the order of the list is never changed (X-02).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from eslurm.core.model.wording import quoted


class Grouping(Protocol):
    """The rule by which a relay cuts its list into one group per child.

    `width` counts the children of the relay itself, `below` those of every relay further down (0: as `width`); they differ
    at a root only (X-03). Sizes are positive and never grow from one group to the next. Both methods raise ValueError when
    a width is out of range.
    """

    @property
    def name(self) -> str:
        """Its name in the configuration and on the wire."""
        ...

    def sizes(self, count: int, width: int, below: int = 0) -> Sequence[int]:
        """The group sizes for a list of `count` nodes: at most `width` of them, `count` in sum."""
        ...

    def split(self, nodes: Sequence[int], width: int, below: int = 0) -> list[list[int]]:
        """Groups in list order; the first node of each is the child, the rest is delegated to it."""
        ...


class PositionalGrouping:
    """The grouping of the paper: `width` consecutive groups of nearly equal size (E-20)."""

    name: Final = "positional"

    def sizes(self, count: int, width: int, below: int = 0) -> Sequence[int]:
        """Sizes that differ by at most one; what lies further down plays no part."""
        _check_widths(width, below)
        if count <= width:
            return [1] * count
        size, larger = divmod(count, width)
        return [size + 1] * larger + [size] * (width - larger)

    def split(self, nodes: Sequence[int], width: int, below: int = 0) -> list[list[int]]:
        """See `Grouping.split`."""
        return _cut(nodes, self.sizes(len(nodes), width, below))


class BalancedGrouping:
    """A complete tree (E-c): every level is full but the last, which is filled from the left.

    So the depth is the least possible, and all inner nodes but one have all their children, which
    makes the inner nodes as few as possible: about 1 in `width`.
    """

    name: Final = "balanced"

    def sizes(self, count: int, width: int, below: int = 0) -> Sequence[int]:
        """Subtrees with a full last level first, at most one with a part of it, then those with none of it."""
        _check_widths(width, below)
        if count <= width:
            return [1] * count
        if width == 1:
            return [count]
        children = below or width
        subtree, last_level = 1, children
        while width * (subtree + last_level) <= count:
            subtree += last_level
            last_level *= children
        full, part = divmod(count - width * subtree, last_level)
        return [subtree + last_level] * full + [subtree + part] + [subtree] * (width - full - 1)

    def split(self, nodes: Sequence[int], width: int, below: int = 0) -> list[list[int]]:
        """See `Grouping.split`."""
        return _cut(nodes, self.sizes(len(nodes), width, below))


POSITIONAL: Final = PositionalGrouping()
BALANCED: Final = BalancedGrouping()
GROUPINGS: Final[dict[str, Grouping]] = {POSITIONAL.name: POSITIONAL, BALANCED.name: BALANCED}


def find_grouping(name: str) -> Grouping:
    """The grouping of that name. Raises ValueError with the known names when there is none."""
    grouping = GROUPINGS.get(name)
    if grouping is None:
        raise ValueError(f"grouping {quoted(name)} is unknown: use {' or '.join(sorted(GROUPINGS))}")
    return grouping


def split(nodes: Sequence[int], width: int) -> list[list[int]]:
    """Cut `nodes` into at most `width` consecutive groups whose sizes differ by at most one (E-20).

    Larger groups come first. A list no longer than `width` gives one group per node: all leaves.
    Raises ValueError when `width` is below one.
    """
    return POSITIONAL.split(nodes, width)


def depth(count: int, width: int, grouping: Grouping = POSITIONAL, root_width: int = 0) -> int:
    """Levels of nodes below the root in the tree of a list of `count` nodes; 0 for an empty list.

    `root_width` (0: `width`) is that of the first level. Raises ValueError as the grouping does.
    """
    sizes = grouping.sizes(count, root_width or width, width)
    levels = 0
    while sizes:
        levels += 1
        # The first group is never smaller than its siblings, so it holds a deepest leaf.
        sizes = grouping.sizes(sizes[0] - 1, width)
    return levels


def shape(
    nodes: Sequence[int], width: int, grouping: Grouping = POSITIONAL, root_width: int = 0
) -> Iterator[tuple[int | None, int]]:
    """Yield every edge (parent, child) of the tree, parents before children; the root is None (E-21).

    `root_width` (0: `width`) is that of the first level. Raises ValueError as the grouping does.
    """
    pending: list[tuple[int | None, list[list[int]]]] = [
        (None, grouping.split(nodes, root_width or width, width))
    ]
    while pending:
        parent, groups = pending.pop()
        for group in groups:
            yield parent, group[0]
            if len(group) > 1:
                pending.append((group[0], grouping.split(group[1:], width)))


def _cut(nodes: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    groups: list[list[int]] = []
    start = 0
    for size in sizes:
        groups.append(list(nodes[start : start + size]))
        start += size
    return groups


def _check_widths(width: int, below: int) -> None:
    if width < 1:
        raise ValueError(f"tree width must be at least 1, not {width}")
    if below < 0:
        raise ValueError(f"tree width further down must be at least 1, or 0 for the same, not {below}")
