"""Packs with delays at the door and in the plan (D-04), against a search that tries every choice of nodes and tasks.

On small clusters: what is accepted is placed as soon as all nodes are idle, what is refused as impossible has no place, and
hardly any pack is refused without a proof.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from eslurm.core.control.jobs.pack_submission import overlapping
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Chunk, Request
from eslurm.core.plan.placement.feasible import empty_ledger, feasible_ever
from eslurm.core.plan.placement.feasible_parts import feasible_pack
from eslurm.core.resources.nodes import NodeView
from tests.kits.naive_joint import is_possible_in_time
from tests.kits.planned_packs import PackSite, node_jobs, pack

MAIN = PartitionView("main")
POLICIES = ("conservative", "easy", "fcfs", "planned")


def draw_nodes(rng: random.Random) -> list[NodeView]:
    return [
        NodeView(
            number,
            f"n{number}",
            (rng.choice((2, 4)), 4096, rng.choice((0, 1, 2))),
            partitions=("main",),
            features=rng.choice(((), ("fast",))),
            weight=rng.choice((0, 0, 10)),
            cores_for_devices=rng.choice((0, 0, 0, 1)),
        )
        for number in range(rng.randint(2, 4))
    ]


def draw_request(rng: random.Random, nodes: int) -> Request:
    """Equal shares, tasks wherever they fit, a range of nodes, or chunks of one or two kinds."""
    kind, count, cores = rng.random(), rng.randint(1, max(1, nodes - 1)), rng.randint(1, 3)
    constraint = "fast" if rng.random() < 0.15 else ""
    if kind < 0.45:
        gpu = (("gpu", 1),) if rng.random() < 0.3 else ()
        exclusive = rng.random() < 0.2
        return replace(node_jobs(count, cores), per_node=gpu, exclusive=exclusive, constraint=constraint)
    if kind < 0.7:
        gpu = (("gpu", 1),) if rng.random() < 0.3 else ()
        return Request(tasks=rng.randint(1, 4), cpus_per_task=cores, per_task=gpu, constraint=constraint)
    if kind < 0.85:
        return Request(nodes_min=1, nodes_max=count, tasks=count, cpus_per_task=cores, constraint=constraint)
    chunks = [Chunk(rng.randint(1, 2), rng.randint(1, 2)) for _ in range(rng.randint(1, 2))]
    return Request(chunks=tuple(chunks), place=rng.choice(("free", "scatter", "pack")))


def draw_members(rng: random.Random, nodes: int) -> list[tuple[int, Request, int]]:
    """(delay, request, limit): stays that overlap in chains, so that no one instant holds them all."""
    return [
        (0 if at == 0 else rng.choice((0, 4, 8, 12)), draw_request(rng, nodes), rng.choice((4, 6, 10, 20)))
        for at in range(rng.randint(2, 4))
    ]


def asked_for(requests: Sequence[Request], stays: Sequence[tuple[int, int]], site: PackSite) -> str:
    """The refusal of a pack; empty: it is accepted."""
    groups = overlapping([(start, stop - start) for start, stop in stays])
    numbers = range(len(requests))
    views = [MAIN for _ in numbers]
    problem, _ = feasible_pack(requests, views, stays, groups, empty_ledger(site.topology), numbers)
    return problem.reason if problem is not None else ""


@pytest.mark.parametrize("seed", range(8))
def test_a_pack_is_accepted_if_and_only_if_it_is_placed_on_idle_nodes(seed: int) -> None:
    rng = random.Random(7000 + seed)
    accepted = refused = unknown = 0
    for _ in range(250):
        views = draw_nodes(rng)
        members = draw_members(rng, len(views))
        requests = [request for _, request, _ in members]
        stays = [(delay, delay + limit) for delay, _, limit in members]
        site = PackSite(rng.choice(POLICIES), views=views)
        empty = empty_ledger(site.topology)
        if any(feasible_ever(request, MAIN, empty) for request in requests):
            continue
        problem = asked_for(requests, stays, site)
        possible = is_possible_in_time([(request, "main") for request in requests], stays, empty)
        if not problem:
            accepted += 1
            assert possible, (seed, views, members)
            site.submit(pack(1, *members))
            site.plan()
            assert len(site.starting().get(1, ())) == len(members), (seed, views, members)
        elif "is found" in problem:
            unknown += possible
        else:
            refused += 1
            assert not possible, (seed, views, members, problem)
    assert accepted > 40 and refused > 10
    assert unknown <= 1
