"""Whether a request could ever be satisfied, and if not, which part of it is too much.

*Insufficient now* is the planner's matter; this answers at the door, against all nodes of the
partition, in service or not, with nothing running on them.
"""

from __future__ import annotations

import msgspec

from eslurm.core.job.request import Request
from eslurm.core.plan.mapping import capacities, choose
from eslurm.core.plan.need import Need, compile_need
from eslurm.core.plan.snapshot import PartitionView
from eslurm.core.resources import bits
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import RESOURCES, Vector, describe

OPTIONS = {"cores": "--cpus-per-task", "memory_mib": "--mem"}
"""The option that asks for a resource on one node."""


class Infeasible(msgspec.Struct, frozen=True):
    """Why a request can never start: the resource, what was asked, and the largest that would fit.

    `reason` names the option and the way out.
    """

    reason: str
    resource: str
    asked: int
    largest: int


def empty_ledger(topology: Topology) -> Ledger:
    """Every node in service and nothing held; keep it as long as the topology."""
    ledger = Ledger(topology)
    for number in topology.numbers:
        ledger.set_usable(number, True)
    return ledger


def feasible_ever(request: Request, partition: PartitionView, empty: Ledger) -> Infeasible | None:
    """None when the request fits the partition's nodes at their best; `empty` is an `empty_ledger`."""
    topology = empty.topology
    need = compile_need(request, partition, topology)
    named = _bad_names(request, partition, topology)
    if named is not None:
        return named
    if not need.allowed:
        text = f"--exclude: leaves no node of partition {partition.name}: exclude fewer"
        return Infeasible(text, "nodes", 1, 0)
    if choose(empty, need) is not None:
        return None
    return _too_large(need, partition.name, empty)


def _bad_names(request: Request, partition: PartitionView, topology: Topology) -> Infeasible | None:
    members = topology.partitions.get(partition.name, 0)
    if not members:
        return Infeasible(f"--partition: {partition.name} has no nodes: use another one", "nodes", 1, 0)
    for name in request.include:
        position = topology.positions_by_name.get(name)
        if position is None:
            return Infeasible(f"--nodelist: there is no node {name}: see esinfo -N", "nodes", 1, 0)
        if not (members >> position) & 1:
            text = f"--nodelist: node {name} is not in partition {partition.name}: use another partition"
            return Infeasible(text, "nodes", 1, 0)
        if name in request.exclude:
            text = f"--exclude: node {name} is also in --nodelist: name it in one of them"
            return Infeasible(text, "nodes", 1, 0)
    return None


def _too_large(need: Need, partition: str, empty: Ledger) -> Infeasible:
    """Names the first bound that is broken, from one task over one node to the whole job."""
    where = f"of partition {partition}"
    nodes_allowed = need.allowed.bit_count()
    for index, resource in enumerate(RESOURCES):
        asked = need.amounts(1)[index]
        largest = max((free[index] for free, _ in empty.groups(0, need.allowed)), default=0)
        if asked > largest:
            amount = describe(_only(asked, index))
            text = f"{OPTIONS[resource]}: one task needs {amount} on one node; the largest node {where} has {largest}"
            return Infeasible(text, resource, asked, largest)
    for position in bits.all_positions(need.include):
        too_small = _too_small(need, position, empty)
        if too_small is not None:
            return too_small
    by_capacity = capacities(empty, need, need.allowed)
    roomy = sum(mask.bit_count() for mask in by_capacity.values())
    width = max(need.nodes_min, need.include.bit_count())
    if width > roomy:
        text = (
            f"--nodes: needs {width} nodes with {describe(need.amounts(1))} each;"
            f" {where[3:]} has {roomy} such nodes"
        )
        return Infeasible(text, "nodes", width, roomy)
    if need.nodes_max and need.include.bit_count() > need.nodes_max:
        text = (
            f"--nodelist: {need.include.bit_count()} nodes are required by name,"
            f" at most {need.nodes_max} are asked for: name fewer"
        )
        return Infeasible(text, "nodes", need.include.bit_count(), need.nodes_max)
    room = _most_tasks(need, by_capacity, need.nodes_max or nodes_allowed)
    text = f"--ntasks: needs {need.tasks} tasks of {describe(need.amounts(1))}; at most {room} fit the nodes {where}"
    return Infeasible(text, "tasks", need.tasks, room)


def _too_small(need: Need, position: int, empty: Ledger) -> Infeasible | None:
    """A node required by name that cannot take one task."""
    total = empty.free_on(position)
    for index, resource in enumerate(RESOURCES):
        asked = need.amounts(1)[index]
        if asked > total[index]:
            text = (
                f"{OPTIONS[resource]}: one task needs {describe(_only(asked, index))}; the required node "
                f"{empty.topology.names[position]} has {total[index]}"
            )
            return Infeasible(text, resource, asked, total[index])
    return None


def _most_tasks(need: Need, by_capacity: dict[int, int], nodes: int) -> int:
    """Tasks that fit on the required nodes and the largest others, `nodes` in all."""
    room, left = 0, nodes
    for capacity, mask in by_capacity.items():
        named = (mask & need.include).bit_count()
        room, left = room + capacity * named, left - named
    for capacity in sorted(by_capacity, reverse=True):
        taken = min(left, (by_capacity[capacity] & ~need.include).bit_count())
        room, left = room + capacity * taken, left - taken
    return room


def _only(amount: int, index: int) -> Vector:
    return (0,) * index + (amount,)
