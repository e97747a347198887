"""Feasibility of the parts of one job together, or of the jobs of a pack with their delays: is there a place for all?

Each part must fit its partition's empty nodes alone (`feasible`); this asks about all of them beside each other. A refusal
names the parts, the requested amount, the largest that would fit and the way out. Invariant: a refusal of a job is proved;
where neither a place nor its absence is known, it is accepted and waits. A pack is accepted when `beside` finds a place: its
jobs are at last mapped by this same search (`pack_mapping`), and what has no place may hold up what is behind it. Its
refusal says which it is: that there is no place, or that none is found.
"""

from __future__ import annotations

from collections.abc import Sequence

from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.model.wording import counted
from eslurm.core.plan.placement import beside, joint, single_nodes
from eslurm.core.plan.placement.compiled_request import (
    CompiledRequest,
    compile_job,
    compile_request,
    joined,
)
from eslurm.core.plan.placement.feasible import Infeasible, not_wide
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.plan.slices import exhaust
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import describe

SHOWN_MAX = 8
"""Parts and partitions that a refusal names."""


def feasible_together(
    requests: Sequence[Request],
    partitions: Sequence[PartitionView],
    empty: Ledger,
    time_limit_us: int = 0,
) -> Infeasible | None:
    """None when parts that fit alone fit the empty nodes together, or when that is not known.

    `empty` is an `empty_ledger`; the time limit (0: none) matters where some nodes are for short jobs only.
    """
    need = compile_job(requests, partitions, empty.topology, time_limit_us=time_limit_us)
    return _together(need, partitions, empty, range(len(requests))) if need.members else None


def feasible_pack(
    requests: Sequence[Request],
    partitions: Sequence[PartitionView],
    stays_us: Sequence[tuple[int, int]],
    groups: Sequence[Sequence[int]],
    empty: Ledger,
    numbers: Sequence[int],
    steps_max: int = beside.FIRST_MAX,
) -> tuple[Infeasible | None, int]:
    """None when a place is found on the empty nodes for the requests of all jobs of a pack, and the steps of the search.

    Each has the start and the end of its own job (`INFINITY_US`: none), counted from the start of the pack; `groups` are
    those that run at one instant. `numbers` are those by which a refusal names the jobs.
    """
    members = [
        compile_request(
            request,
            partition,
            empty.topology,
            time_limit_us=stop_us - start_us if stop_us < INFINITY_US else 0,
        )
        for request, partition, (start_us, stop_us) in zip(requests, partitions, stays_us, strict=True)
    ]
    for group in groups:
        wide = joined([members[index] for index in group])
        wrong = not_wide(wide, empty.topology, "all parts together ask for")
        if wrong is not None:
            return wrong, len(group)
    stays = [beside.Stay(need, *stay) for need, stay in zip(members, stays_us, strict=True)]
    search_max, first_max = min(steps_max, beside.STEPS_MAX), min(steps_max, beside.FIRST_MAX)
    found = exhaust(beside.search(lambda *_: empty, stays, search_max, first_max))
    if found.chosen is not None:
        return None, found.steps
    for group in groups:
        for meeting in joint.groups([members[index] for index in group]):
            inside = [group[index] for index in meeting]
            wrong = _too_large(inside, members, partitions, empty, numbers) if len(inside) > 1 else None
            if wrong is not None:
                return wrong, found.steps
    everyone = range(len(members))
    never = "they do not fit the" if found.is_proved else "no place beside each other is found on the empty"
    text = f"{_parts(everyone, numbers)}: {never} nodes of {_where(everyone, partitions)}: ask for less"
    return Infeasible(text, "nodes", len(members), len(members) - 1), found.steps


def _together(
    need: CompiledRequest, partitions: Sequence[PartitionView], empty: Ledger, numbers: Sequence[int]
) -> Infeasible | None:
    wrong = not_wide(need, empty.topology, "all parts together ask for")
    if wrong is not None:
        return wrong
    for group in joint.groups(need.members):
        if len(group) > 1 and choose(empty, joined([need.members[index] for index in group])) is None:
            wrong = _too_large(group, need.members, partitions, empty, numbers)
            if wrong is not None:
                return wrong
    return None


def _too_large(
    group: Sequence[int],
    members: Sequence[CompiledRequest],
    partitions: Sequence[PartitionView],
    empty: Ledger,
    numbers: Sequence[int],
) -> Infeasible | None:
    """The proof that these parts have no place together, if one is found: nodes, amounts, then a complete search."""
    everything = joined([members[index] for index in group]).allowed
    # Parts with fewer nodes to choose from may be too many for these alone.
    scopes = dict.fromkeys([everything, *[members[index].allowed for index in group]])
    for scope in scopes:
        inside = [index for index in group if not members[index].allowed & ~scope]
        wrong = _too_large_for(scope, inside, members, partitions, empty.topology, numbers)
        if wrong is not None:
            return wrong
    parts = [members[index] for index in group]
    if all(single_nodes.is_single(one) for one in parts) and single_nodes.search(empty, parts).is_proved:
        text = (
            f"{_parts(group, numbers)}: they do not fit the nodes of {_where(group, partitions)} together: ask for less,"
            " or submit jobs of their own"
        )
        return Infeasible(text, "nodes", len(parts), len(parts) - 1)
    return None


def _too_large_for(
    scope: int,
    inside: Sequence[int],
    members: Sequence[CompiledRequest],
    partitions: Sequence[PartitionView],
    topology: Topology,
    numbers: Sequence[int],
) -> Infeasible | None:
    """Check the parts that may use these nodes only: whole nodes are for one part, the others have what these leave."""
    whole = sum(members[index].nodes_floor for index in inside if members[index].exclusive)
    others = [members[index] for index in inside if not members[index].exclusive]
    asked = whole + max([one.nodes_floor for one in others], default=0)
    nodes = scope.bit_count()
    names = list(dict.fromkeys([partitions[index].name for index in inside]))
    where = _where(inside, partitions)
    is_narrow = any(topology.partitions.get(name, 0) & ~scope for name in names)
    for_them = " for them" if is_narrow else ""
    if asked > nodes:
        text = (
            f"{_parts(inside, numbers)}: --exclusive: they need {asked} nodes beside each other; {where} {_have(names)} "
            f"{nodes}{for_them}:"
            " ask for fewer, or leave it out"
        )
        return Infeasible(text, "nodes", asked, nodes)
    for index, resource in enumerate(topology.resources):
        asked = sum(one.floor[index] for one in others)
        most = _most_left(topology, scope, whole, index)
        if asked > most:
            amounts = describe((0,) * index + (asked,), topology.resources)
            beside, left = (f" beside {counted(whole, 'whole node')}", " left") if whole else ("", "")
            text = (
                f"{_parts(inside, numbers)}: they need {amounts} together{beside}; the nodes of {where} have {most}{left}"
                f"{for_them}: ask for less, or submit jobs of their own"
            )
            return Infeasible(text, resource, asked, most)
    return None


def _most_left(topology: Topology, scope: int, whole: int, resource: int) -> int:
    """Upper bound of what the nodes have of a resource when so many of them are for other parts."""
    left, found = scope.bit_count() - whole, 0
    for total, mask in sorted(topology.classes, key=lambda one: -one[0][resource]):
        count = min(left, (mask & scope).bit_count())
        found += total[resource] * count
        left -= count
    return found


def _parts(group: Sequence[int], numbers: Sequence[int]) -> str:
    named = list(dict.fromkeys([numbers[index] for index in group]))
    return f"part{'' if len(named) == 1 else 's'} {_listed([str(number) for number in named])}"


def _where(numbers: Sequence[int], partitions: Sequence[PartitionView]) -> str:
    names = list(dict.fromkeys([partitions[number].name for number in numbers]))
    return f"partition{'' if len(names) == 1 else 's'} {_listed(names)}"


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _listed(words: Sequence[str]) -> str:
    """`0, 1 and 4`; of many the first ones."""
    if len(words) > SHOWN_MAX:
        return f"{', '.join(words[:SHOWN_MAX])} and {len(words) - SHOWN_MAX} more"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
