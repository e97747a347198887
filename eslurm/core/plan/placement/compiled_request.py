"""A request compiled against one cluster: unit amounts and sets of nodes instead of words.

Mapping and the resource profile work on a `Need`. It is compiled once per shape of job: `compile_need(request, partition,
topology, avoid, time_limit_us)`. A job of tasks has one part; a job of chunks (C-16) has one for each kind of chunk, the
most expensive first (C-34). Invariant: `floor` and `filters` are necessary, never sufficient: every result of
`mapping.choose` satisfies them.

A job of several parts (D-02) is compiled by `compile_job`: one need for the whole job with a member for each of its parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from eslurm.core.model import ranges
from eslurm.core.model.config import NodeRule
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Chunk, Request
from eslurm.core.model.units import SECOND_US
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import (
    CORES,
    MEMORY_MIB,
    WIDTH,
    Vector,
    add,
    is_negative,
    padded,
    scale,
    subtract,
    times,
)


class Part(msgspec.Struct, frozen=True):
    """`tasks` times `unit`, each on one node, and `per_node` once on each used node.

    `nodes_min == 0` means as few nodes as fit; `nodes_max == 0` then means no bound. `tasks_cap == 0`: none. `most` is the
    upper bound of tasks on one node. `allowed` are the positions the part may use; of `kept` (cores, positions) it sees
    this many cores less (C-44).
    """

    unit: Vector
    per_node: Vector
    tasks: int
    nodes_min: int
    nodes_max: int
    tasks_cap: int
    most: int
    allowed: int
    kept: tuple[tuple[int, int], ...] = ()

    def amounts(self, tasks: int) -> Vector:
        """Amounts of `tasks` tasks on one node; a node without a task takes those of one."""
        return add(scale(self.unit, tasks), self.per_node) if tasks > 1 else add(self.unit, self.per_node)

    @property
    def nodes_floor(self) -> int:
        """Lower bound of its nodes."""
        return max(self.nodes_min, -(-self.tasks // self.most) if self.most else self.tasks, 1)


class CompiledRequest(msgspec.Struct, frozen=True):
    """`include` are positions the job must use; `exclusive`: no other job beside it; `pack`: everything on one node, which
    then takes `packed`; `scatter`: one chunk a node. `wide` are its cluster-wide resources.

    `allowed` is the union over the parts. `floor` is the lower bound of the job's sum over all its nodes (jRS); `expected`
    is the amount that limits count before there is a mapping: the same, with exclusive nodes as average ones (C-42).
    `filters`: within `allowed` at least this many positions must have these amounts free. `avoided` are positions left out
    because a launch of the job has just failed there.

    `members` are the needs of the parts of a job of several parts, each with its own partition's nodes; empty: one part.
    With members, `parts`, `allowed`, `include`, `wide`, `floor` and `expected` describe all of them together; `exclusive`,
    `pack`, `scatter` and `filters` are each member's own.
    """

    parts: tuple[Part, ...]
    exclusive: bool
    allowed: int
    include: int
    pack: bool
    scatter: bool
    wide: Vector
    packed: Vector
    floor: Vector
    expected: Vector
    filters: tuple[tuple[Vector, int], ...]
    avoided: int = 0
    members: tuple[CompiledRequest, ...] = ()
    role: str = ""
    """That of its partition."""

    @property
    def tasks(self) -> int:
        """Tasks, or chunks, of the whole job."""
        return sum(part.tasks for part in self.parts)

    @property
    def nodes_floor(self) -> int:
        """Lower bound of the nodes of a job of one part."""
        floors = [part.nodes_floor for part in self.parts]
        nodes = 1 if self.pack else sum(floors) if self.scatter else max(floors, default=1)
        return max(nodes, self.include.bit_count())


def compile_request(
    request: Request,
    partition: PartitionView,
    topology: Topology,
    avoid: Iterable[int] = (),
    time_limit_us: int = 0,
) -> CompiledRequest:
    """Compile a request: memory by node or by core, defaults of the partition, names and features to positions.

    `time_limit_us` (0: none) matters on nodes for short jobs only (C-45). A missing node, resource or feature leaves no
    node allowed. Nodes to `avoid` are never allowed (see `avoided`).
    """
    avoided = topology.mask_of_numbers(avoid) & topology.partitions.get(partition.name, 0)
    members = _members(request, partition, topology) & ~avoided
    include = topology.mask_of_names(request.include)
    if request.chunks:
        drafts = [_of_chunk(chunk, request, partition, topology) for chunk in request.chunks]
    else:
        drafts = [_of_tasks(request, partition, topology)]
    wide = amounts_of(request.wide, topology.wide)
    if wide is None:
        members = 0
    pack = request.place == "pack" and len(drafts) > 1
    parts = [
        _restricted(part, constraint, members, request.exclusive, topology, time_limit_us)
        for part, constraint in drafts
    ]
    if pack:
        together = 0 if not parts else parts[0].allowed
        for part in parts:
            together &= part.allowed
        parts = [msgspec.structs.replace(part, allowed=together) for part in parts]
    elif len(parts) > 1:
        parts.sort(key=lambda part: -worth(part.unit, topology))
    return _completed(tuple(parts), request, include, pack, wide or (), avoided, topology)


def compile_job(
    requests: Sequence[Request],
    partitions: Sequence[PartitionView],
    topology: Topology,
    avoid: Iterable[int] = (),
    time_limit_us: int = 0,
) -> CompiledRequest:
    """Compile a job: the request of each of its parts in that part's partition, as one need. A job of one part is plain.

    Equal parts share one compiled request.
    """
    avoid = tuple(avoid)
    known: dict[tuple[Request, str], CompiledRequest] = {}
    members: list[CompiledRequest] = []
    for request, partition in zip(requests, partitions, strict=True):
        key = request, partition.name
        if key not in known:
            compiled = compile_request(request, partition, topology, avoid, time_limit_us)
            known[key] = (
                msgspec.structs.replace(compiled, role=partition.role) if partition.role else compiled
            )
        members.append(known[key])
    return members[0] if len(members) == 1 else joined(members)


def part_words(numbers: Sequence[int], members: Sequence[CompiledRequest]) -> str:
    """`part 2`, `parts 0-3, 5 and 7`, of a job with gateways also `its nodes` and `its gateways`; `numbers` ascend."""
    named = [number for number in numbers if not members[number].role]
    found: list[str] = []
    if named and sum(not one.role for one in members) == 1:
        found.append("its nodes")
    elif named:
        words: list[str] = []
        for first, last in ranges.from_numbers(named):
            words += [f"{first}-{last}"] if last - first > 1 else map(str, range(first, last + 1))
        listed = f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]
        found.append(f"part{'s' if len(named) > 1 else ''} {listed}")
    if len(named) < len(numbers):
        found.append("its gateways")
    return " and ".join(found)


def joined(members: Sequence[CompiledRequest]) -> CompiledRequest:
    """One need for several parts that begin together."""
    allowed = include = avoided = 0
    wide: Vector = ()
    floor: Vector = ()
    expected: Vector = ()
    for one in members:
        allowed |= one.allowed
        include |= one.include
        avoided |= one.avoided
        wide = add(wide, one.wide)
        floor = add(floor, one.floor)
        expected = add(expected, one.expected)
    return CompiledRequest(
        parts=tuple([part for one in members for part in one.parts]),
        exclusive=False,
        allowed=allowed,
        include=include,
        pack=False,
        scatter=False,
        wide=wide,
        packed=(),
        floor=floor,
        expected=expected,
        filters=(),
        avoided=avoided,
        members=tuple(members),
    )


def amounts_of(named: Iterable[tuple[str, int]], names: tuple[str, ...]) -> Vector | None:
    """Named amounts as a vector aligned to `names`; None when a name is not among them."""
    found = [0] * len(names)
    for name, items in named:
        if name not in names:
            return None
        found[names.index(name)] += items
    return tuple(found)


def worth(amounts: Vector, topology: Topology) -> float:
    """The largest share of the whole machine in any resource (C-35)."""
    most = 0.0
    for index, amount in enumerate(amounts):
        if amount:
            system = sum(total[index] * mask.bit_count() for total, mask in topology.classes)
            most = max(most, amount / system if system else 1.0)
    return most


def _members(request: Request, partition: PartitionView, topology: Topology) -> int:
    members = topology.partitions.get(partition.name, 0) & ~topology.mask_of_names(request.exclude)
    if request.constraint:
        members &= topology.mask_of_constraint(request.constraint)
    if any(name not in topology.positions_by_name for name in request.include):
        # A node it must have does not exist: then no other will do either.
        return 0
    return members


def _of_tasks(request: Request, partition: PartitionView, topology: Topology) -> tuple[Part, str]:
    cores = max(1, request.cpus_per_task)
    unit_mib = node_mib = 0
    if request.memory_per_node_mib > 0:
        node_mib = request.memory_per_node_mib
    elif request.memory_per_cpu_mib > 0:
        unit_mib = request.memory_per_cpu_mib * cores
    else:
        unit_mib, node_mib = _memory_default(partition, cores)
    nodes_min = max(0, request.nodes_min)
    nodes_max = max(nodes_min, request.nodes_max)
    tasks_cap = max(0, request.tasks_per_node)
    if request.place == "pack":
        nodes_max = 1
    elif request.place == "scatter":
        tasks_cap = 1
    unit = amounts_of(request.per_task, topology.resources)
    per_node = amounts_of(request.per_node, topology.resources)
    known = unit is not None and per_node is not None
    width = len(topology.totals[0]) if topology.totals else WIDTH
    part = Part(
        unit=add(padded((cores, unit_mib), width), padded(unit or (), width)),
        per_node=add(padded((0, node_mib), width), padded(per_node or (), width)),
        tasks=max(1, request.tasks),
        nodes_min=nodes_min,
        nodes_max=nodes_max,
        tasks_cap=tasks_cap,
        most=0,
        allowed=topology.everything if known else 0,
    )
    return part, ""


def _of_chunk(
    chunk: Chunk, request: Request, partition: PartitionView, topology: Topology
) -> tuple[Part, str]:
    cores = max(1, chunk.cores)
    memory_mib = chunk.memory_mib or sum(_memory_default(partition, cores))
    more = amounts_of(chunk.resources, topology.resources)
    width = len(topology.totals[0]) if topology.totals else WIDTH
    part = Part(
        unit=add(padded((cores, memory_mib), width), padded(more or (), width)),
        per_node=padded((), width),
        tasks=max(1, chunk.count),
        nodes_min=0,
        nodes_max=1 if request.place == "pack" else 0,
        tasks_cap=1 if request.place == "scatter" else 0,
        most=0,
        allowed=topology.everything if more is not None else 0,
    )
    return part, chunk.constraint


def _memory_default(partition: PartitionView, cores: int) -> tuple[int, int]:
    """(memory with each task, memory once on each node), MiB."""
    if partition.memory_per_cpu_mib > 0:
        return partition.memory_per_cpu_mib * cores, 0
    return 0, partition.memory_per_node_mib


def _restricted(
    part: Part, constraint: str, members: int, exclusive: bool, topology: Topology, time_limit_us: int
) -> Part:
    """The part under the restrictions of single nodes: features, node rules (C-45), cores kept for devices (C-44)."""
    allowed = part.allowed & members
    if constraint:
        allowed &= topology.mask_of_constraint(constraint)
    # What one node has to give at least, with the tasks spread as widely as they may be.
    asked = part.amounts(-(-part.tasks // (part.nodes_max or part.tasks)))
    for mask, rule in topology.rules:
        if mask & allowed and not lets_in(rule, asked, time_limit_us, topology):
            allowed &= ~mask
    kept: tuple[tuple[int, int], ...] = ()
    if topology.kept and not any(asked[index] for index in topology.devices):
        kept = tuple((cores, mask & allowed) for cores, mask in topology.kept if mask & allowed)
        if exclusive:
            for _, mask in kept:
                allowed &= ~mask
            kept = ()
    most = _most(part, allowed, topology)
    return msgspec.structs.replace(part, allowed=allowed, kept=kept, most=most)


def lets_in(rule: NodeRule, asked: Vector, time_limit_us: int, topology: Topology) -> bool:
    """Check whether a job that asks for these amounts of one node meets one of the rule's conditions (C-45)."""
    if rule.cores_min and asked[CORES] >= rule.cores_min:
        return True
    if rule.memory_min_mib and asked[MEMORY_MIB] >= rule.memory_min_mib:
        return True
    if rule.time_max_s and 0 < time_limit_us <= rule.time_max_s * SECOND_US:
        return True
    names = topology.resources
    return any(name in names and asked[names.index(name)] >= items for name, items in rule.resources_min)


def _most(part: Part, allowed: int, topology: Topology) -> int:
    most = 0
    for total, mask in topology.classes:
        if mask & allowed:
            free = subtract(total, part.per_node)
            if not is_negative(free):
                most = max(most, times(free, part.unit))
    most = min(most, part.tasks)
    return min(most, part.tasks_cap) if part.tasks_cap else most


def _completed(
    parts: tuple[Part, ...],
    request: Request,
    include: int,
    pack: bool,
    wide: Vector,
    avoided: int,
    topology: Topology,
) -> CompiledRequest:
    scatter = request.place == "scatter"
    allowed = 0
    floor: Vector = padded((), len(parts[0].unit))
    packed = floor
    nodes = 0
    for part in parts:
        allowed |= part.allowed
        if len(parts) == 1:
            nodes = max(part.nodes_min, include.bit_count(), 1)
            floor = add(scale(part.unit, max(part.tasks, nodes)), scale(part.per_node, nodes))
            nodes = max(nodes, part.nodes_floor)
        else:
            nodes = nodes + part.tasks if scatter else max(nodes, part.nodes_floor)
            floor = add(floor, scale(part.unit, part.tasks))
        packed = add(packed, part.amounts(part.tasks))
    if pack:
        nodes = 1
    expected = scale(_average(allowed, topology), nodes) if request.exclusive else floor
    filters = ((packed, 1),) if pack else _filters(parts, nodes)
    return CompiledRequest(
        parts=parts,
        exclusive=request.exclusive,
        allowed=allowed,
        include=include,
        pack=pack,
        scatter=scatter,
        wide=wide,
        packed=packed if pack else (),
        floor=floor,
        expected=expected,
        filters=filters,
        avoided=avoided,
    )


def _average(allowed: int, topology: Topology) -> Vector:
    """The average amounts of these nodes, rounded up (C-42)."""
    count = 0
    sums = padded((), len(topology.totals[0]) if topology.totals else WIDTH)
    for total, mask in topology.classes:
        inside = (mask & allowed).bit_count()
        count += inside
        sums = add(sums, scale(total, inside))
    return tuple(-(-amount // count) for amount in sums) if count else sums


def _filters(parts: tuple[Part, ...], nodes: int) -> tuple[tuple[Vector, int], ...]:
    if len(parts) > 1:
        return tuple((part.unit, part.tasks if part.tasks_cap == 1 else part.nodes_floor) for part in parts)
    part = parts[0]
    found = [(part.amounts(1), nodes)]
    if part.nodes_max:
        # Of the most nodes it may use so many carry at least their even share, or the tasks would not all be placed.
        even = -(-part.tasks // part.nodes_max)
        if 1 < even <= part.most:
            above = part.most - even + 1
            short = part.tasks - part.nodes_max * (even - 1)
            carrying = max(1, -(-short // above))
            if carrying >= nodes:
                # A search that finds these has found those with room for one task as well.
                found.clear()
            found.append((part.amounts(even), carrying))
    return tuple(found)
