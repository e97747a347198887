"""The order in which nodes are allocated, fixed when a configuration comes into force.

Cheap nodes first (C-35), so that jobs without special needs leave the expensive ones free; among equally cheap ones in the
order of the switch tree, depth first, so that neighbours are near; then as configured. A node's cost is the largest share
it has of any resource of the machine, plus the administrator's `weight`. FP-Trees are built over node lists in this order
and keep it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eslurm.core.model.config import Switch
from eslurm.core.resources.nodes import NodeView
from eslurm.core.resources.vector import CORES


def arranged(nodes: Sequence[NodeView], switches: Iterable[Switch] = ()) -> list[NodeView]:
    """The nodes, given in configured order, in allocation order."""
    width = max((len(node.total) for node in nodes), default=0)
    sums = [sum(node.total[index] for node in nodes if index < len(node.total)) for index in range(width)]
    along = _along_switches(tuple(switches))
    far = len(along)
    costs = {node.total: _share(node.total, sums) for node in nodes}
    cores = sums[CORES] if sums else 0
    return sorted(
        nodes, key=lambda node: ((costs[node.total] + node.weight) * cores, along.get(node.name, far))
    )


def _share(total: tuple[int, ...], sums: list[int]) -> float:
    """The largest share of any resource (C-35)."""
    return max((amount / system for amount, system in zip(total, sums, strict=False) if system), default=0.0)


def _along_switches(switches: tuple[Switch, ...]) -> dict[str, int]:
    """Node name -> index in the switch tree, depth first."""
    by_name = {switch.name: switch for switch in switches}
    inner = {name for switch in switches for name in switch.switches}
    found: dict[str, int] = {}
    seen: set[str] = set()
    stack = [switch.name for switch in reversed(switches) if switch.name not in inner]
    while stack:
        switch = by_name.get(stack.pop())
        if switch is None or switch.name in seen:
            continue
        seen.add(switch.name)
        for name in switch.nodes:
            found.setdefault(name, len(found))
        stack += reversed(switch.switches)
    return found
