"""The FP-Tree constructor: predicted failures go to the leaves of the positional tree.

Owns the order of nodes before a broadcast: the leaf locator (E-23), the rearranger (E-24) and the even shares of several
satellites (E-08). Invariant: every result is a permutation of the given list, healthy nodes keep their order (E-30), and
the same list, prediction and shape always give the same result, so every process derives the same tree (E-21). Each is
O(n) and nothing is ever sorted (X-02).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import chain, repeat
from operator import sub
from typing import Final

import msgspec

from eslurm.core.relay.grouping import POSITIONAL, Grouping, depth, split

CACHED_COUNT_MAX: Final = 1 << 16
CACHED_PATTERNS_MAX: Final = 64
"""Leaf patterns of lists up to `CACHED_COUNT_MAX` are kept, a byte a node: 4 MiB at the most."""

LEAF: Final = b"\x01"
INNER: Final = b"\x00"


class TreeShape(msgspec.Struct, frozen=True):
    """The parameters that decide where the leaves of a list of given length are.

    A root has up to `root_width` children (0: `width`), every node below up to `width` (X-03).
    """

    width: int
    root_width: int = 0
    grouping: Grouping = POSITIONAL

    def root_sizes(self, count: int) -> Sequence[int]:
        """Group sizes of a root's own first level. Raises ValueError when a width is out of range."""
        return self.grouping.sizes(count, self.root_width or self.width, self.width)

    def split_root(self, nodes: Sequence[int]) -> list[list[int]]:
        """A root's own first level. Raises ValueError when a width is out of range."""
        return self.grouping.split(nodes, self.root_width or self.width, self.width)

    def depth(self, count: int) -> int:
        """Levels of nodes below the root. Raises ValueError when a width is out of range."""
        return depth(count, self.width, self.grouping, self.root_width)


class Placement(msgspec.Struct, frozen=True):
    """Positions that `arrange` gives to the nodes of a list of which `predicted` are predicted to fail.

    `arrange` deals leaves and inner positions until one kind of node is used up (the predicted if `leaves_suffice`, else
    the healthy); by then the first `dealt` positions are taken, and the other kind gets all that follow.
    """

    leaves: bytes
    predicted: int
    leaves_suffice: bool
    dealt: int

    def leaf_flags(self, is_predicted: bool) -> bytes:
        """Of every healthy (or predicted) node in list order a byte: it is on a leaf or not."""
        kind = self._count_of(is_predicted)
        flag = LEAF if is_predicted else INNER
        if is_predicted == self.leaves_suffice:
            return flag * kind
        others = len(self.leaves) - kind
        return flag * (self.dealt - others) + self.leaves[self.dealt :]

    def _count_of(self, is_predicted: bool) -> int:
        return self.predicted if is_predicted else len(self.leaves) - self.predicted


def leaf_positions(count: int, shape: TreeShape) -> bytes:
    """For each position of a list of `count` nodes 1 when the node there is a leaf, else 0 (E-23).

    Raises ValueError when a width is out of range.
    """
    return _cached_positions(count, shape) if count <= CACHED_COUNT_MAX else _locate_leaves(count, shape)


def leaves_of(count: int, shape: TreeShape) -> int:
    """The number of leaves; over `count` it is what random placement alone puts on leaves (E-b)."""
    return leaf_positions(count, shape).count(LEAF)


def arrange(nodes: Sequence[int], predicted: Collection[int], shape: TreeShape) -> list[int]:
    """The order of `nodes` that a root builds its tree from (E-22): see `rearrange`.

    Raises ValueError when a width is out of range.
    """
    return rearrange(nodes, leaf_positions(len(nodes), shape), predicted)


def rearrange(nodes: Sequence[int], leaves: bytes, predicted: Collection[int]) -> list[int]:
    """Give leaf positions to predicted nodes first and inner ones to healthy nodes first (E-24).

    Each kind keeps its order; when one is used up, the other takes all that is left. `predicted` may
    name nodes that are not in the list. With nothing predicted the very list is returned (a tuple's as
    a list), so the result is for reading. Raises ValueError when there is not one position a node.
    """
    if len(leaves) != len(nodes):
        raise ValueError(f"{len(leaves)} positions for {len(nodes)} nodes")
    among = _as_set(predicted)
    if among.isdisjoint(nodes):
        return nodes if isinstance(nodes, list) else list(nodes)
    healthy = iter([node for node in nodes if node not in among])
    failing = iter([node for node in nodes if node in among])
    kinds = (healthy, failing)
    arranged: list[int] = []
    for is_leaf in leaves:
        node = next(kinds[is_leaf], None)
        if node is None:
            break
        arranged.append(node)
    arranged.extend(healthy)
    arranged.extend(failing)
    return arranged


def place(count: int, predicted: int, shape: TreeShape) -> Placement:
    """The effect of `arrange` on a list of `count` nodes with `predicted` of them predicted, as look-ups.

    Raises ValueError when a width is out of range, or with more predicted nodes than nodes.
    """
    if not 0 <= predicted <= count:
        raise ValueError(f"{predicted} of {count} nodes cannot be predicted")
    leaves = leaf_positions(count, shape)
    suffice = predicted <= leaves.count(LEAF)
    dealt = _end_of(leaves, LEAF, predicted) if suffice else _end_of(leaves, INNER, count - predicted)
    return Placement(leaves, predicted, suffice, dealt)


def share_out(nodes: Sequence[int], predicted: Collection[int], shares: int) -> list[list[int]]:
    """Cut a list into at most `shares` lists, one per satellite (E-08), with an even part of the predicted.

    Sizes differ by at most one, larger first, and so do the numbers of predicted nodes in them. Each
    list has the order of `nodes`; its healthy nodes are neighbours there, disregarding predicted ones.
    With nothing predicted this is `split`. Raises ValueError when `shares` is below one.
    """
    among = _as_set(predicted)
    if among.isdisjoint(nodes):
        return split(nodes, shares)
    sizes = POSITIONAL.sizes(len(nodes), shares)
    each, more = divmod(sum(node in among for node in nodes), len(sizes))
    failing = [each + (index < more) for index in range(len(sizes))]
    healthy = list(map(sub, sizes, failing))
    shared: list[list[int]] = [[] for _ in sizes]
    next_failing = chain.from_iterable(map(repeat, shared, failing))
    next_healthy = chain.from_iterable(map(repeat, shared, healthy))
    for node in nodes:
        next(next_failing if node in among else next_healthy).append(node)
    return shared


@lru_cache(maxsize=CACHED_PATTERNS_MAX)
def _cached_positions(count: int, shape: TreeShape) -> bytes:
    return _locate_leaves(count, shape)


def _locate_leaves(count: int, shape: TreeShape) -> bytes:
    """Simulate the construction from the root down, each size of group once.

    The tree below a child depends on the size of its group only, and a level has at most two sizes
    (positional) or three (balanced). So the way down notes how each size is cut, and the way up, from
    the smallest, strings the patterns of sub-groups together: the bytes written at one level are a
    `width`-th of those above, Theta(count) in all.
    """
    root_sizes = shape.root_sizes(count)
    if shape.width == 1:
        return b"".join([INNER * (size - 1) + LEAF for size in root_sizes])
    cuts: dict[int, Sequence[int]] = {}
    pending = set(root_sizes)
    while pending:
        size = pending.pop()
        if size not in cuts:
            cuts[size] = shape.grouping.sizes(size - 1, shape.width)
            pending.update(cuts[size])
    patterns: dict[int, bytes] = {}
    for size in sorted(cuts):
        head = INNER if cuts[size] else LEAF
        patterns[size] = head + b"".join([patterns[part] for part in cuts[size]])
    return b"".join([patterns[size] for size in root_sizes])


def _end_of(pattern: bytes, kind: bytes, wanted: int) -> int:
    """The length of the shortest start of `pattern` that holds `wanted` of `kind`. O(n), in few steps."""
    low, high = 0, len(pattern)
    while low < high:
        middle = (low + high) // 2
        found = pattern.count(kind, low, middle)
        if found >= wanted:
            high = middle
        else:
            wanted -= pattern.count(kind, low, middle + 1)
            low = middle + 1
    return low


def _as_set(numbers: Collection[int]) -> AbstractSet[int]:
    return numbers if isinstance(numbers, AbstractSet) else frozenset(numbers)
