"""Admission of a job's gateways: the part that they are, and what makes a request for them sensible (X-50, X-54).

Gateways are whole nodes of the hidden partition, in a part behind all those that the user named: they are planned, held,
lost and given back with the job.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from eslurm.core.model.config import Partition
from eslurm.core.model.gateways import GATEWAY, PARTITION
from eslurm.core.model.job import JobSpec
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.parts import user_parts
from eslurm.core.model.request import PartSpec, Request
from eslurm.core.model.request_limits import GATEWAYS_MAX, GATEWAYS_PER_NODE_MAX
from eslurm.core.model.wording import counted
from eslurm.core.state.cluster import State


def without_gateways(spec: JobSpec) -> JobSpec:
    """The spec with the parts that its user named only."""
    if not spec.parts:
        return spec
    count = user_parts(spec)
    if count == len(spec.components):
        return spec
    return replace(spec, components=spec.components[:count], parts=spec.parts[:count] if count > 1 else ())


def with_gateways(state: State, spec: JobSpec) -> JobSpec:
    """The spec with its gateways as the last part. Raises `Refused` if the cluster has not as many."""
    asked = spec.gateway
    if asked is None:
        return spec
    hidden = state.partitions.get(PARTITION)
    if hidden is None or not hidden.role:
        raise Refused(
            RefusalCode.INFEASIBLE,
            f"--gateways: {asked.count}: this cluster has no gateways, no [[module]] is of the kind gateway: leave it out",
        )
    has = len(hidden.nodes)
    if not 1 <= asked.count <= min(has, GATEWAYS_MAX):
        why = "is none" if asked.count < 1 else f"are more than the {has} of this cluster"
        raise Refused(
            RefusalCode.INFEASIBLE,
            f"--gateways: {asked.count} {why}: ask for {f'1 to {has}' if has > 1 else 'one'}",
        )
    if not 1 <= asked.per_node <= GATEWAYS_PER_NODE_MAX:
        raise Refused(
            RefusalCode.INVALID,
            f"--gateways-per-node: {asked.per_node} is not within 1..{GATEWAYS_PER_NODE_MAX}: ask for fewer",
        )
    request = Request(
        tasks=asked.count * asked.per_node,
        nodes_min=asked.count,
        nodes_max=asked.count,
        tasks_per_node=asked.per_node,
        exclusive=True,
    )
    own = spec.parts or (PartSpec(),) * len(spec.components)
    parts = (*own, PartSpec(PARTITION, GATEWAY))
    return replace(spec, components=(*spec.components, request), parts=parts)


def check_modules(state: State, spec: JobSpec, partitions: Sequence[Partition]) -> None:
    """Raise `Refused` for gateways of a job that is within one module: it has no use for them."""
    topology = state.ledger.topology
    allowed = 0
    for request, partition in zip(spec.components, partitions, strict=True):
        if not partition.role:
            members = topology.partitions.get(partition.name, 0)
            allowed |= members & topology.mask_of_constraint(request.constraint)
    found = []
    for module in state.config.modules:
        members = topology.features.get(module.name, 0)
        if members & allowed:
            found.append(module.name)
        allowed &= ~members
    if len(found) + bool(allowed) < 2:
        where = f"in the module {found[0]}" if found else "in no module"
        raise Refused(
            RefusalCode.INVALID,
            f"--gateways: all nodes of the job are {where}, and gateways connect modules: leave it out, or ask for "
            f"nodes of {counted(2, 'module')}, like --module A : --module B",
        )
