"""A request read against one cluster: unit amounts and sets of nodes instead of words.

`Need` is what mapping works on. It is compiled once per shape of job, not per job.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from eslurm.core.job.request import Request
from eslurm.core.plan.snapshot import PartitionView
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import Vector, add, fits, padded, scale, subtract, times


class Need(msgspec.Struct, frozen=True):
    """`unit` is what one task takes, `per_node` what each node of the job takes once on top.

    `allowed` are the positions the job may use, `include` those it must use. `nodes_min == 0`
    means as few nodes as fit; `nodes_max == 0` then means no bound. `tasks_cap == 0`: none.
    """

    unit: Vector
    per_node: Vector
    tasks: int
    nodes_min: int
    nodes_max: int
    tasks_cap: int
    exclusive: bool
    allowed: int
    include: int

    def amounts(self, tasks: int) -> Vector:
        """What `tasks` tasks on one node take; a node without a task takes the room of one."""
        return add(scale(self.unit, tasks if tasks > 0 else 1), self.per_node)

    def capacity(self, free: Vector) -> int:
        """How many tasks fit on a node with `free` amounts; 0 when not even one does."""
        if not fits(self.per_node, free):
            return 0
        room = times(subtract(free, self.per_node), self.unit)
        return min(room, self.tasks_cap) if self.tasks_cap else room

    @property
    def floor(self) -> Vector:
        """The least the whole job takes on all its nodes together, wherever it runs."""
        nodes = max(self.nodes_min, self.include.bit_count(), 1)
        return add(scale(self.unit, max(self.tasks, nodes)), scale(self.per_node, nodes))


def compile_need(
    request: Request, partition: PartitionView, topology: Topology, avoid: Iterable[int] = ()
) -> Need:
    """Reads a request: memory by node or by core, defaults of the partition, names to positions."""
    cores = max(1, request.cpus_per_task)
    unit_mib = node_mib = 0
    if request.memory_per_node_mib > 0:
        node_mib = request.memory_per_node_mib
    elif request.memory_per_cpu_mib > 0:
        unit_mib = request.memory_per_cpu_mib * cores
    elif partition.memory_per_cpu_mib > 0:
        unit_mib = partition.memory_per_cpu_mib * cores
    else:
        node_mib = partition.memory_per_node_mib
    members = topology.partitions.get(partition.name, 0)
    never = topology.mask_of_names(request.exclude) | topology.mask_of_numbers(avoid)
    include = topology.mask_of_names(request.include)
    if include.bit_count() < len(set(request.include)):
        # A node it must have does not exist: then no other will do either.
        members = 0
    nodes_min = max(0, request.nodes_min)
    width = len(topology.totals[0]) if topology.totals else 2
    return Need(
        unit=padded((cores, unit_mib), width),
        per_node=padded((0, node_mib), width),
        tasks=max(1, request.tasks),
        nodes_min=nodes_min,
        nodes_max=max(nodes_min, request.nodes_max),
        tasks_cap=max(0, request.tasks_per_node),
        exclusive=request.exclusive,
        allowed=members & ~never,
        include=include,
    )
