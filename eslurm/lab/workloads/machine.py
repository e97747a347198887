"""The machine a log is replayed on: nodes and partitions as the planner sees them.

It comes from the log's header (processors as nodes of one core), from a shape (`25x4`) or from a cluster's configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.wording import quoted
from eslurm.core.plan.cycle.snapshot import NodeView
from eslurm.core.resources.node_order import arranged
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import CORES
from eslurm.lab.workloads.swf import Header

PROCESSORS_MAX: Final = 1_000_000
PARTITION: Final = "all"
_SHAPE = re.compile(r"(\d{1,7})x(\d{1,7})", re.ASCII)


class MachineError(Exception):
    """No machine can be made of what was given; the text says what to give."""


class Machine(msgspec.Struct, frozen=True):
    """Nodes in their order, partitions, and the partition of a job that names none."""

    topology: Topology
    partitions: dict[str, PartitionView]
    partition: str
    processors: int
    largest: dict[str, int]
    """Processors of each partition: the most that one job can get there."""

    @property
    def shape(self) -> str:
        """In words: `100 nodes, 100 processors`."""
        return f"{self.topology.size} nodes, {self.processors} processors"


def from_header(header: Header) -> Machine:
    """One node of one core for each processor of the log's machine. Raises `MachineError` when it is not given."""
    count = header.find_number("MaxProcs") or header.find_number("MaxNodes") or 0
    if not 0 < count <= PROCESSORS_MAX:
        raise MachineError(
            "the log's header names neither MaxProcs nor MaxNodes: say what the machine is with --nodes 100x1 or --config"
        )
    return uniform(count, 1)


def from_shape(text: str) -> Machine:
    """`NODESxCORES`. Raises `MachineError`."""
    match = _SHAPE.fullmatch(text)
    nodes, cores = (int(match.group(1)), int(match.group(2))) if match is not None else (0, 0)
    if not 0 < nodes * cores <= PROCESSORS_MAX:
        raise MachineError(
            f"--nodes: {quoted(text)} is not a number of nodes and the cores of each: write e.g. --nodes 25x4"
            f" (at most {PROCESSORS_MAX} cores)"
        )
    return uniform(nodes, cores)


def uniform(nodes: int, cores: int) -> Machine:
    """Equal nodes in one partition, memory not counted."""
    width = len(str(nodes - 1))
    views = [
        NodeView(number, f"n{number:0{width}d}", (cores, 0), True, (PARTITION,)) for number in range(nodes)
    ]
    return _machine(Topology(views), [PartitionView(PARTITION)], PARTITION)


def from_config(config: ClusterConfig) -> Machine:
    """The nodes and partitions of a cluster. Raises `MachineError` when it has none of either."""
    if not config.nodes or not config.partitions:
        raise MachineError("the configuration has no [[nodes]] or no [[partition]]: a machine needs both")
    inside: dict[str, list[str]] = {}
    for partition in config.partitions:
        for name in partition.nodes:
            inside.setdefault(name, []).append(partition.name)
    views = [
        NodeView(
            number,
            node.name,
            node.total,
            True,
            tuple(inside.get(node.name, ())),
            node.features,
            node.weight,
            node.cores_for_devices,
            node.device_type,
        )
        for number, node in enumerate(config.nodes)
    ]
    topology = Topology(
        arranged(views, config.switches),
        resources=config.resources,
        switches=config.switches,
        rules=config.node_rules,
    )
    partitions = [
        PartitionView(one.name, one.up, memory_per_cpu_mib=one.memory_per_cpu_default_mib)
        for one in config.partitions
    ]
    default = next((one.name for one in config.partitions if one.default), config.partitions[0].name)
    return _machine(topology, partitions, default)


def _machine(topology: Topology, partitions: Iterable[PartitionView], default: str) -> Machine:
    largest = {
        name: sum(total[CORES] for position, total in enumerate(topology.totals) if (mask >> position) & 1)
        for name, mask in topology.partitions.items()
    }
    return Machine(
        topology,
        {one.name: one for one in partitions},
        default,
        sum(total[CORES] for total in topology.totals),
        largest,
    )
