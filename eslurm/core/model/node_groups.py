"""The nodes of launches, read from their groups: places, ranks, and nodes that several parts of a job share.

A node is in the groups once for each part that has tasks there. Its *place* is its index among the distinct nodes, in the
order in which they occur first: that is the order of a launch's `node_names`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eslurm.core.model.protocol import NodeGroup


def has_parts(groups: Sequence[NodeGroup]) -> bool:
    """Check whether they are of more than one part of a job."""
    return bool(groups) and groups[0].component != groups[-1].component


def node_numbers(groups: Iterable[NodeGroup]) -> Iterator[int]:
    """The numbers of the nodes, once for each part."""
    for group in groups:
        for first, length in group.runs:
            yield from range(first, first + length)


def distinct_nodes(groups: Iterable[NodeGroup]) -> list[int]:
    """The numbers of the nodes in the order of their places."""
    return list(dict.fromkeys(node_numbers(groups)))


def group_size(group: NodeGroup) -> int:
    """The number of its nodes."""
    return sum(length for _, length in group.runs)


def count_nodes(groups: Sequence[NodeGroup]) -> int:
    """The number of distinct nodes."""
    return len(distinct_nodes(groups)) if has_parts(groups) else sum(map(group_size, groups))


def find_share(groups: Iterable[NodeGroup], number: int) -> tuple[int, int, NodeGroup] | None:
    """(index, rank of its first task, group) of a node's first occurrence; None when it is not among them."""
    index = first_task = 0
    for group in groups:
        for first, length in group.runs:
            if first <= number < first + length:
                return index + number - first, first_task + (number - first) * group.tasks, group
            index += length
            first_task += length * group.tasks
    return None


def find_place(groups: Sequence[NodeGroup], number: int) -> int | None:
    """The place of a node; None when it is not among them."""
    if not has_parts(groups):
        found = find_share(groups, number)
        return None if found is None else found[0]
    seen: set[int] = set()
    for one in node_numbers(groups):
        if one == number:
            return len(seen)
        seen.add(one)
    return None
