"""Feasibility of a request: can it ever run, and if not, which part of it is too large.

*Insufficient now* is the planner's matter; this answers at submission, against all empty nodes of the partition, in
service or not. Each refusal names the option, the requested value, the largest that would fit and the way out.
"""

from __future__ import annotations

import msgspec

from eslurm.core.model import features
from eslurm.core.model.config import NodeRule
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.model.wording import are, counted
from eslurm.core.plan.placement import chunks
from eslurm.core.plan.placement.capacity import capacities
from eslurm.core.plan.placement.compiled_request import CompiledRequest, Part, compile_request
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.resources import bits
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import WIDTH, describe

OPTIONS = {"cores": "--cpus-per-task", "memory_mib": "--mem", "gpu": "--gpus"}
"""The option that asks for a resource on one node; others are asked for by --gres."""
SHOWN_MAX = 120
"""Characters of a text of the user's that a refusal repeats."""


class Infeasible(msgspec.Struct, frozen=True):
    """The reason why a request can never start: the resource, the requested amount, and the largest that would fit.

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


def feasible_ever(
    request: Request, partition: PartitionView, empty: Ledger, time_limit_us: int = 0
) -> Infeasible | None:
    """None when the request fits the partition's empty nodes; `empty` is an `empty_ledger`.

    The time limit (0: none) matters where some nodes are for short jobs only (`Topology.rules`).
    """
    topology = empty.topology
    wrong = _bad_names(request, partition, topology) or _bad_words(request, partition, topology)
    if wrong is not None:
        return wrong
    need = compile_request(request, partition, topology, time_limit_us=time_limit_us)
    if choose(empty, need) is not None:
        return None
    wrong = not_wide(need, topology)
    if wrong is None and len(need.parts) > 1 and not _is_proved(need, empty):
        # Not known: it waits for a place like any other.
        return None
    return wrong or _too_large(request, need, partition, empty)


def _is_proved(need: CompiledRequest, empty: Ledger) -> bool:
    """Check whether several kinds of chunks certainly never fit together."""
    if not need.allowed or need.include & ~need.allowed:
        return True
    return chunks.is_impossible(empty, need, need.allowed)


def _bad_names(request: Request, partition: PartitionView, topology: Topology) -> Infeasible | None:
    members = topology.partitions.get(partition.name, 0)
    if not members:
        return Infeasible(f"--partition: {partition.name} has no nodes: use another one", "nodes", 1, 0)
    for name in request.include:
        position = topology.positions_by_name.get(name)
        if position is None:
            return Infeasible(f"--nodelist: there is no node {_cut(name)}: see esinfo -N", "nodes", 1, 0)
        if not (members >> position) & 1:
            text = f"--nodelist: node {name} is not in partition {partition.name}: use another partition"
            return Infeasible(text, "nodes", 1, 0)
        if name in request.exclude:
            text = f"--exclude: node {name} is also in --nodelist: name it in one of them"
            return Infeasible(text, "nodes", 1, 0)
    if not members & ~topology.mask_of_names(request.exclude):
        text = f"--exclude: leaves no node of partition {partition.name}: exclude fewer"
        return Infeasible(text, "nodes", 1, 0)
    return None


def _bad_words(request: Request, partition: PartitionView, topology: Topology) -> Infeasible | None:
    """Features, resources and licences that the cluster does not have."""
    members = topology.partitions.get(partition.name, 0) & ~topology.mask_of_names(request.exclude)
    constraints = [("--constraint", request.constraint)]
    constraints += [("--rset", chunk.constraint) for chunk in request.chunks]
    for option, constraint in constraints:
        wrong = _bad_constraint(option, constraint, members, partition.name, topology)
        if wrong is not None:
            return wrong
    asked = [("--gres", named) for named in (*request.per_node, *request.per_task)]
    asked += [("--rset", named) for chunk in request.chunks for named in chunk.resources]
    for option, (name, items) in asked:
        if name not in topology.resources:
            return Infeasible(
                f"{option}: no node has the resource '{_cut(name)}': {_known(topology.resources[WIDTH:])}",
                name,
                items,
                0,
            )
    for name, items in request.wide:
        if name not in topology.wide:
            return Infeasible(
                f"--licenses: there is no licence '{_cut(name)}': {_known(topology.wide)}", name, items, 0
            )
    return None


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 3]}..."


def _known(names: tuple[str, ...]) -> str:
    return f"use one of {', '.join(names)}" if names else "this cluster has none"


def _bad_constraint(
    option: str, constraint: str, members: int, partition: str, topology: Topology
) -> Infeasible | None:
    if not constraint:
        return None
    try:
        words = features.words(constraint)
    except features.FeatureError as error:
        return Infeasible(
            f"{option}: '{_cut(constraint)}' {error.why} in column {error.column}: {error.way_out}",
            "nodes",
            1,
            0,
        )
    if topology.mask_of_constraint(constraint) & members:
        return None
    counts = [(word, (topology.mask_of_feature(word) & members).bit_count()) for word in words]
    for word, count in counts:
        if not count and not topology.mask_of_feature(word):
            text = f"{option}: '{_cut(constraint)}' names the feature {_cut(word)}, which no node has: see esinfo -N -l"
            return Infeasible(text, "nodes", 1, 0)
    shown = ", ".join(f"{count} {word}" for word, count in counts)
    text = (
        f"{option}: '{_cut(constraint)}' fits no node of partition {partition} ({_cut(shown)}):"
        " ask for less, or use another partition"
    )
    return Infeasible(text, "nodes", 1, 0)


def not_wide(need: CompiledRequest, topology: Topology, asks: str = "asks for") -> Infeasible | None:
    """The first licence of which more are asked for than there are."""
    for name, asked, total in zip(topology.wide, need.wide, topology.wide_totals, strict=False):
        if asked > total:
            text = f"--licenses: {asks} {asked} {name}; there are {total}: ask for at most {total}"
            return Infeasible(text, name, asked, total)
    return None


def _too_large(
    request: Request, need: CompiledRequest, partition: PartitionView, empty: Ledger
) -> Infeasible:
    """Name the first broken bound, from one task over one node to the whole job."""
    topology = empty.topology
    for part in need.parts:
        wrong = _closed(request, part, need.exclusive, partition.name, topology) or _too_large_for_one(
            request, part, need.include, partition.name, empty
        )
        if wrong is not None:
            return wrong
    if request.chunks and (unfit := _named_in_vain(need, topology)) is not None:
        return unfit
    if need.pack:
        return _too_large_together(need, partition.name, topology)
    if len(need.parts) > 1:
        return _too_many_chunks(need, partition.name, empty)
    return _too_many(request, need, partition.name, empty)


def _closed(
    request: Request, part: Part, exclusive: bool, partition: str, topology: Topology
) -> Infeasible | None:
    """Nodes exist, but rules of the site let this job onto none of them."""
    if part.allowed:
        return None
    members = topology.partitions.get(partition, 0) & ~topology.mask_of_names(request.exclude)
    if exclusive and any(mask & members for _, mask in topology.kept):
        text = (
            f"--exclusive: the nodes of partition {partition} keep cores for jobs with devices:"
            " leave it out, or ask for a device"
        )
        return Infeasible(text, "nodes", 1, 0)
    ways = [_conditions(rule) for mask, rule in topology.rules if mask & members]
    text = f"--partition: the nodes of {partition} are for other jobs: ask there for {' or '.join(ways) or 'other nodes'}"
    return Infeasible(text, "nodes", 1, 0)


def _conditions(rule: NodeRule) -> str:
    ways = [f"{counted(rule.cores_min, 'core')} a node"] if rule.cores_min else []
    ways += [f"{rule.memory_min_mib} MiB a node"] if rule.memory_min_mib else []
    ways += [f"{items} {name} a node" for name, items in rule.resources_min]
    ways += [f"at most {rule.time_max_s} s"] if rule.time_max_s else []
    return " or ".join(ways)


def _too_large_for_one(
    request: Request, part: Part, include: int, partition: str, empty: Ledger
) -> Infeasible | None:
    """One task or chunk that is more than the largest node, or than a node required by name."""
    topology = empty.topology
    what = "a chunk" if request.chunks else "one task"
    amounts = part.amounts(1)
    members = topology.partitions.get(partition, 0) & ~topology.mask_of_names(request.exclude)
    whose = f"partition {partition}" if part.allowed == members else f"those that it may use in {partition}"
    for index, resource in enumerate(topology.resources):
        asked = amounts[index]
        spare = _kept_on_all(part) if resource == "cores" else 0
        largest = max((free[index] for free, _ in empty.groups(0, part.allowed)), default=0) - spare
        if asked > largest:
            text = (
                f"{_option(request, resource)}: {what} needs {_one(asked, index, topology)} on one node; "
                f"the largest node of {whose} has {largest}"
            )
            return Infeasible(text, resource, asked, largest)
    for position in bits.all_positions(include):
        total = empty.free_on(position)
        for index, resource in enumerate(topology.resources):
            if amounts[index] > total[index]:
                text = (
                    f"{_option(request, resource)}: {what} needs {_one(amounts[index], index, topology)}; "
                    f"the required node {topology.names[position]} has {total[index]}"
                )
                return Infeasible(text, resource, amounts[index], total[index])
    return None


def _named_in_vain(need: CompiledRequest, topology: Topology) -> Infeasible | None:
    """A node required by name that can hold no chunk, or more such nodes than chunks."""
    unfit = bits.first_positions(need.include & ~need.allowed, 1)
    if unfit:
        name = topology.names[unfit[0]]
        text = f"--nodelist: node {name} takes none of the chunks, by its features or rules: leave it out"
        return Infeasible(text, "nodes", 1, 0)
    named, most = need.include.bit_count(), 1 if need.pack else need.tasks
    if named > most:
        text = f"--nodelist: {counted(named, 'node')} {are(named)} required by name, chunks use at most {most}: name fewer"
        return Infeasible(text, "nodes", named, most)
    return None


def _kept_on_all(part: Part) -> int:
    """Cores kept for jobs with devices on every node that it may use."""
    covered = 0
    for _, mask in part.kept:
        covered |= mask
    return min(cores for cores, _ in part.kept) if part.kept and not part.allowed & ~covered else 0


def _too_many(request: Request, need: CompiledRequest, partition: str, empty: Ledger) -> Infeasible:
    """Too many nodes or tasks of one kind."""
    topology, part = empty.topology, need.parts[0]
    one = describe(part.amounts(1), topology.resources)
    by_capacity = capacities(empty, part, part.allowed)
    roomy = sum(mask.bit_count() for mask in by_capacity.values())
    width = max(part.nodes_min, need.include.bit_count())
    if width > roomy:
        text = (
            f"--nodes: needs {counted(width, 'node')} with {one} each; "
            f"partition {partition} has {counted(roomy, 'such node')}"
        )
        return Infeasible(text, "nodes", width, roomy)
    if part.nodes_max and need.include.bit_count() > part.nodes_max:
        text = (
            f"--nodelist: {counted(need.include.bit_count(), 'node')} {are(need.include.bit_count())} required by name,"
            f" at most {part.nodes_max} are asked for: name fewer"
        )
        return Infeasible(text, "nodes", need.include.bit_count(), part.nodes_max)
    room = _most_tasks(need.include, by_capacity, part.nodes_max or part.allowed.bit_count())
    if request.chunks:
        text = (
            f"--rset: needs {counted(part.tasks, 'chunk')} of {one}; "
            f"at most {room} fit the nodes of partition {partition}"
        )
        return Infeasible(text, "chunks", part.tasks, room)
    text = f"--ntasks: needs {counted(part.tasks, 'task')} of {one}; at most {room} fit the nodes of partition {partition}"
    return Infeasible(text, "tasks", part.tasks, room)


def _too_large_together(need: CompiledRequest, partition: str, topology: Topology) -> Infeasible:
    """Too much for one node with place=pack."""
    for index, resource in enumerate(topology.resources):
        largest = max((total[index] for total, mask in topology.classes if mask & need.allowed), default=0)
        if need.packed[index] > largest:
            text = (
                f"--rset: place=pack needs {_one(need.packed[index], index, topology)} on one node; "
                f"the largest node of partition {partition} has {largest}: use place=free"
            )
            return Infeasible(text, resource, need.packed[index], largest)
    text = (
        f"--rset: place=pack needs {describe(need.packed, topology.resources)} on one node; partition {partition} has"
        " no such node: use place=free"
    )
    return Infeasible(text, "nodes", 1, 0)


def _too_many_chunks(need: CompiledRequest, partition: str, empty: Ledger) -> Infeasible:
    """Several kinds of chunks: the kind that does not even fit alone, or all of them together."""
    topology = empty.topology
    for part in need.parts:
        room = _most_tasks(0, capacities(empty, part, part.allowed), part.allowed.bit_count())
        if part.tasks > room:
            text = (
                f"--rset: needs {counted(part.tasks, 'chunk')} of {describe(part.unit, topology.resources)};"
                f" at most {room} fit the nodes of partition {partition}"
            )
            return Infeasible(text, "chunks", part.tasks, room)
    nodes = need.allowed.bit_count()
    if need.scatter and need.tasks > nodes:
        text = f"--rset: place=scatter needs {need.tasks} nodes; {nodes} could take a chunk: use place=free"
        return Infeasible(text, "nodes", need.tasks, nodes)
    text = f"--rset: the {need.tasks} chunks together do not fit the nodes of partition {partition}: ask for fewer"
    return Infeasible(text, "chunks", need.tasks, need.tasks - 1)


def _most_tasks(include: int, by_capacity: dict[int, int], nodes: int) -> int:
    """Tasks that fit on the required nodes and the largest others, `nodes` in all."""
    room, left = 0, nodes
    for capacity, mask in by_capacity.items():
        named = (mask & include).bit_count()
        room, left = room + capacity * named, left - named
    for capacity in sorted(by_capacity, reverse=True):
        taken = min(left, (by_capacity[capacity] & ~include).bit_count())
        room, left = room + capacity * taken, left - taken
    return room


def _option(request: Request, resource: str) -> str:
    return "--rset" if request.chunks else OPTIONS.get(resource, "--gres")


def _one(amount: int, index: int, topology: Topology) -> str:
    return describe((0,) * index + (amount,), topology.resources)
