"""What one component of a job asks for, before any node is chosen.

A `Request` is immutable and comes from the doors already validated in form; whether it can ever
be satisfied is the planner's question (`insufficient now` is not `infeasible ever`).
"""

from __future__ import annotations

import msgspec


class Chunk(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """`count` times a set of resources that one node gives as a unit (C-16): never split over nodes.

    `resources` are (name, items) of configured resources, gpu among them; `constraint` as in `Request`.
    """

    count: int = 1
    cores: int = 1
    memory_mib: int = 0
    resources: tuple[tuple[str, int], ...] = ()
    constraint: str = ""


class Request(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The resources of one component. Fields are only ever appended.

    `nodes_min == 0` leaves the number of nodes to the planner (as few as fit the tasks).
    `memory_per_node_mib` and `memory_per_cpu_mib` exclude each other; 0 means "the partition's
    default". `include` nodes must all be part of the allocation; `exclude` nodes never are.
    `per_node` and `per_task` are (resource, items) of configured resources (GRES), `wide` those that belong to no node
    (licences). `constraint` is an expression over node features: `a&b|!c`, as in `-C`.
    With `chunks` these say what is asked for instead of tasks, cores and memory; `tasks` is then their number.
    `place` is free, pack (all on one node) or scatter (one chunk or task a node) (C-17).
    """

    tasks: int = 1
    cpus_per_task: int = 1
    nodes_min: int = 0
    nodes_max: int = 0
    tasks_per_node: int = 0
    memory_per_node_mib: int = 0
    memory_per_cpu_mib: int = 0
    exclusive: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    per_node: tuple[tuple[str, int], ...] = ()
    per_task: tuple[tuple[str, int], ...] = ()
    wide: tuple[tuple[str, int], ...] = ()
    constraint: str = ""
    chunks: tuple[Chunk, ...] = ()
    place: str = "free"
