"""Feasibility of the parts of one job together: can they ever begin at once?

Each part must fit its partition's empty nodes alone (`feasible`); this asks about all of them beside each other. A refusal
names the parts, the requested amount, the largest that would fit and the way out. Invariant: a refusal is proved; parts of
which neither a place nor its absence is known are accepted and wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.placement import joint, single_nodes
from eslurm.core.plan.placement.compiled_request import CompiledRequest, compile_job, joined
from eslurm.core.plan.placement.feasible import Infeasible, not_wide
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import describe

SHOWN_MAX = 8
"""Parts and partitions that a refusal names."""


def feasible_together(
    requests: Sequence[Request], partitions: Sequence[PartitionView], empty: Ledger, time_limit_us: int = 0
) -> Infeasible | None:
    """None when parts that fit alone fit the empty nodes together, or when that is not known.

    `empty` is an `empty_ledger`; the time limit (0: none) matters where some nodes are for short jobs only.
    """
    need = compile_job(requests, partitions, empty.topology, time_limit_us=time_limit_us)
    if not need.members:
        return None
    wrong = not_wide(need, empty.topology, "all parts together ask for")
    if wrong is not None:
        return wrong
    for group in joint.groups(need.members):
        if len(group) > 1:
            members = [need.members[index] for index in group]
            if choose(empty, joined(members)) is None:
                names = list(dict.fromkeys([partitions[index].name for index in group]))
                wrong = _too_large(members, f"parts {_listed([str(index) for index in group])}", names, empty)
                if wrong is not None:
                    return wrong
    return None


def _too_large(
    members: Sequence[CompiledRequest], who: str, partitions: Sequence[str], empty: Ledger
) -> Infeasible | None:
    topology = empty.topology
    together = joined(members)
    where = f"partition{'' if len(partitions) == 1 else 's'} {_listed(partitions)}"
    asked, nodes = joint.nodes_floor(members), together.allowed.bit_count()
    if asked > nodes:
        text = (
            f"{who}: --exclusive: they need {asked} nodes beside each other; {where} {_have(partitions)} {nodes}:"
            " ask for fewer, or leave it out"
        )
        return Infeasible(text, "nodes", asked, nodes)
    sums = _sums(topology, together.allowed)
    for index, resource in enumerate(topology.resources):
        asked = together.floor[index]
        if asked > sums[index]:
            amounts = describe((0,) * index + (asked,), topology.resources)
            text = (
                f"{who}: they need {amounts} together; the nodes of {where} have {sums[index]}: ask for less,"
                " or submit jobs of their own"
            )
            return Infeasible(text, resource, asked, sums[index])
    is_single = all(single_nodes.is_single(one) for one in members)
    if is_single and single_nodes.search(empty, members).is_proved:
        text = (
            f"{who}: they do not fit the nodes of {where} together: ask for less, or submit jobs of their own"
        )
        return Infeasible(text, "nodes", len(members), len(members) - 1)
    return None


def _sums(topology: Topology, within: int) -> list[int]:
    found = [0] * len(topology.resources)
    for total, mask in topology.classes:
        count = (mask & within).bit_count()
        for index, amount in enumerate(total):
            found[index] += amount * count
    return found


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _listed(words: Sequence[str]) -> str:
    """`0, 1 and 4`; of many the first ones."""
    if len(words) > SHOWN_MAX:
        return f"{', '.join(words[:SHOWN_MAX])} and {len(words) - SHOWN_MAX} more"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
