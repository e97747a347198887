"""The request of one component of a job, before any node is chosen.

A `Request` is immutable and its form is already checked by the API; the planner decides whether it can ever be satisfied
(`insufficient now` is not `infeasible ever`).
"""

from __future__ import annotations

import msgspec


class Chunk(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """`count` times a set of resources that one node must give as a unit (C-16).

    `resources` are (name, items) of configured resources, gpu among them; `constraint` as in `Request`.
    """

    count: int = 1
    cores: int = 1
    memory_mib: int = 0
    resources: tuple[tuple[str, int], ...] = ()
    constraint: str = ""


class PartSpec(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Properties of one part of a job of several parts besides its `Request` (D-02).

    `partition` empty: the job's. `role` is that of a part which users do not name: `gateway` (`model.gateways`).
    """

    partition: str = ""
    role: str = ""


class Request(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The resources of one component. Fields are only ever appended.

    `nodes_min == 0` leaves the number of nodes to the planner (as few as fit the tasks). `memory_per_node_mib` and
    `memory_per_cpu_mib` exclude each other; 0 means "the partition's default". `include` nodes must all be part of the
    allocation; `exclude` nodes never are. `per_node` and `per_task` are (resource, items) of configured resources (GRES),
    `wide` the cluster-wide ones (licences). `constraint` is an expression over node features: `a&b|!c`, as in `-C`.
    `chunks`, when given, replace tasks, cores and memory; `tasks` is then their number. `place` is free, pack (all on one
    node) or scatter (one chunk or task a node) (C-17).
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
