"""The nodes as the planner sees them: a fixed order, each node's resources, and every named set of nodes.

A `Topology` is immutable and built once per configuration. A node's *position* in its order is what the sets of `bits`
hold, its *number* is its identity everywhere else. The order is the one in which nodes are allocated:
`node_order.arranged` puts cheap nodes first, then neighbours in the switch tree beside each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from eslurm.core.model import features
from eslurm.core.model.config import NodeRule, Resource, Switch
from eslurm.core.resources import bits
from eslurm.core.resources.vector import RESOURCES, WIDTH, Vector, padded

CLASSES_MAX: Final = 64
"""Number of kinds of nodes that a request's compilation distinguishes; beyond, the largest of each resource stands for
all.
"""


class NodeView(msgspec.Struct, frozen=True):
    """One node: identity, total amounts, and whether new work may be placed on it now.

    The ledger alone knows the free amounts. `device_type` is also the feature `gpu:TYPE`; `cores_for_devices` of `cores`
    are only for jobs with a device (C-44).
    """

    number: int
    name: str
    total: Vector
    usable: bool = True
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    weight: int = 0
    cores_for_devices: int = 0
    device_type: str = ""


class Topology:
    """Looks up nodes by position, number, name, partition, feature and switch. Raises `ValueError` on duplicates.

    `resources` are the names of the vectors' entries, `devices` the indexes of the numbered ones; `wide` names the
    cluster-wide resources, `wide_totals` their amounts. `switches` are sets of positions, level by level, the lowest
    first. `kept` are (cores, positions) reserved for jobs with devices, `rules` the restrictions of nodes. `classes` are
    (total, positions) of equal nodes, `weights` the administrator's addition to a position's cost.
    """

    def __init__(
        self,
        nodes: Iterable[NodeView],
        *,
        resources: Iterable[Resource] = (),
        switches: Iterable[Switch] = (),
        rules: Iterable[NodeRule] = (),
    ) -> None:
        ordered = tuple(nodes)
        self._read_resources(tuple(resources))
        width = max((len(node.total) for node in ordered), default=WIDTH)
        width = max(width, len(self.resources))
        self.size = len(ordered)
        self.numbers = tuple(node.number for node in ordered)
        self.names = tuple(node.name for node in ordered)
        self.totals = tuple(padded(node.total, width) for node in ordered)
        self.positions = {number: position for position, number in enumerate(self.numbers)}
        self.positions_by_name = {name: position for position, name in enumerate(self.names)}
        if len(self.positions) != self.size or len(self.positions_by_name) != self.size:
            raise ValueError("two nodes share a number or a name")
        for node in ordered:
            if min(node.total, default=0) < 0:
                raise ValueError(f"node {node.name} has a negative amount: {node.total}")
        self.everything = (1 << self.size) - 1
        self.usable = bits.mask_of((p for p, node in enumerate(ordered) if node.usable), self.size)
        self.groups = grouped(self.totals)
        self.classes = self._classes(width)
        self.partitions = self._masks(node.partitions for node in ordered)
        self.features = self._masks(_features_of(node) for node in ordered)
        by_cores = self._masks(
            (str(node.cores_for_devices),) if node.cores_for_devices else () for node in ordered
        )
        self.kept = tuple((int(cores), mask) for cores, mask in by_cores.items())
        self.weights = {position: node.weight for position, node in enumerate(ordered) if node.weight}
        self.rules = tuple((self.mask_of_names(rule.nodes), rule) for rule in rules)
        self.switches = self._levels(tuple(switches))

    def _read_resources(self, resources: tuple[Resource, ...]) -> None:
        of_nodes = tuple(resource for resource in resources if not resource.wide_total)
        wide = tuple(resource for resource in resources if resource.wide_total)
        self.resources = (*RESOURCES, *(resource.name for resource in of_nodes))
        self.devices = tuple(WIDTH + index for index, resource in enumerate(of_nodes) if resource.devices)
        self.wide = tuple(resource.name for resource in wide)
        self.wide_totals = tuple(resource.wide_total for resource in wide)

    def _classes(self, width: int) -> tuple[tuple[Vector, int], ...]:
        found = tuple((total, mask) for group in self.groups.values() for total, mask in group.items())
        if len(found) <= CLASSES_MAX:
            return found
        largest = tuple(max(total[index] for total, _ in found) for index in range(width))
        return ((largest, self.everything),)

    def _masks(self, names: Iterable[Iterable[str]]) -> dict[str, int]:
        members: dict[str, list[int]] = {}
        for position, inside in enumerate(names):
            for name in inside:
                members.setdefault(name, []).append(position)
        return {name: bits.mask_of(inside, self.size) for name, inside in members.items()}

    def _levels(self, switches: tuple[Switch, ...]) -> tuple[tuple[int, ...], ...]:
        """Switches by height; one with unknown parts waits for them, so a cycle is left out."""
        known: dict[str, tuple[int, int]] = {}
        waiting = list(switches)
        while True:
            ready = [switch for switch in waiting if all(name in known for name in switch.switches)]
            if not ready:
                break
            waiting = [switch for switch in waiting if switch not in ready]
            for switch in ready:
                below = [known[name] for name in switch.switches]
                mask = self.mask_of_names(switch.nodes)
                for _, inside in below:
                    mask |= inside
                known[switch.name] = (1 + max((height for height, _ in below), default=-1), mask)
        levels: dict[int, list[int]] = {}
        for height, mask in known.values():
            if mask:
                levels.setdefault(height, []).append(mask)
        return tuple(tuple(levels[height]) for height in sorted(levels))

    def features_on(self, position: int) -> tuple[str, ...]:
        """The features of a node."""
        return tuple(word for word, mask in self.features.items() if (mask >> position) & 1)

    def mask_of_feature(self, word: str) -> int:
        """The nodes with a feature; `host=NAME` is the node of that name."""
        found = self.features.get(word, 0)
        if not found and word.startswith("host="):
            return self.mask_of_names((word.removeprefix("host="),))
        return found

    def mask_of_constraint(self, text: str) -> int:
        """The nodes on which a feature expression is true; all for an empty one, none for an invalid one."""
        if not text:
            return self.everything
        try:
            return features.evaluate(text, self.mask_of_feature, self.everything)
        except features.FeatureError:
            return 0

    def mask_of_numbers(self, numbers: Iterable[int]) -> int:
        """The set of the given node numbers; numbers that no longer exist are left out."""
        found = (self.positions.get(number) for number in numbers)
        return bits.mask_of((position for position in found if position is not None), self.size)

    def mask_of_names(self, names: Iterable[str]) -> int:
        """The set of the given node names; unknown names are left out."""
        found = (self.positions_by_name.get(name) for name in names)
        return bits.mask_of((position for position in found if position is not None), self.size)


def grouped(amounts: Iterable[Vector]) -> dict[int, dict[Vector, int]]:
    """Positions by equal amounts, these again by their number of cores."""
    members: dict[Vector, list[int]] = {}
    size = 0
    for position, vector in enumerate(amounts):
        members.setdefault(vector, []).append(position)
        size = position + 1
    levels: dict[int, dict[Vector, int]] = {}
    for vector, positions in members.items():
        # A set of one is common where memory differs everywhere, and costs no buffer this way.
        mask = bits.mask_of(positions, size) if len(positions) > 1 else 1 << positions[0]
        levels.setdefault(vector[0], {})[vector] = mask
    return levels


def _features_of(node: NodeView) -> tuple[str, ...]:
    typed = f"gpu:{node.device_type}"
    return (*node.features, typed) if node.device_type and typed not in node.features else node.features
