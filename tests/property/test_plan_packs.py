"""Packs in the plan (D-04), against a planner that tries every instant and every choice of nodes.

On small clusters: the plan of a pack is never worse than right (all places are free, delays are exact), seldom later than
the first possible start, and there is one whenever one exists. In walks of arrivals, early ends and lost nodes no planned
start gets later without a loss, no member starts before its time, and each delay holds unless its member has lost its place.
"""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest
from msgspec.structs import replace

from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.placement.feasible import empty_ledger, feasible_ever
from eslurm.core.plan.placement.feasible_parts import feasible_pack
from eslurm.core.resources.nodes import NodeView
from eslurm.core.resources.timeline import INFINITY_US
from tests.kits.plan_building import NOW
from tests.kits.planned_packs import PackSite, node_jobs, pack, single

HORIZON = 260
SPAN = 40
"""Most time from the start of a pack to its last end."""
POLICIES = ("conservative", "easy", "fcfs", "planned")


class Line:
    """Free cores of each node at each instant."""

    def __init__(self, nodes: int, cores: int) -> None:
        self.free = [[cores] * HORIZON for _ in range(nodes)]

    def take(self, node: int, cores: int, start: int, stop: int) -> None:
        for at in range(max(start, 0), min(stop, HORIZON)):
            self.free[node][at] -= cores
            assert self.free[node][at] >= 0

    def give(self, node: int, cores: int, start: int, stop: int) -> None:
        for at in range(max(start, 0), min(stop, HORIZON)):
            self.free[node][at] += cores

    def first_start(self, job: Pending) -> int | None:
        """The first instant at which all members have nodes, each from its delay on."""
        for at in range(HORIZON - SPAN):
            if self._fit(job, at, 0):
                return at
        return None

    def _fit(self, job: Pending, at: int, index: int) -> bool:
        members = job.members
        if index == len(members):
            return True
        member, start = members[index], at + job.delays_us[index]
        stop, cores = start + member.time_limit_us, member.request.cpus_per_task
        fitting = [
            node
            for node, row in enumerate(self.free)
            if all(free >= cores for free in row[start : min(stop, HORIZON)])
        ]
        for chosen in combinations(fitting, member.request.nodes_min):
            for node in chosen:
                self.take(node, cores, start, stop)
            found = self._fit(job, at, index + 1)
            for node in chosen:
                self.give(node, cores, start, stop)
            if found:
                return True
        return False


def draw_pack(rng: random.Random, first_id: int, nodes: int, cores: int) -> Pending:
    members = []
    for at in range(rng.randint(2, 3)):
        request = node_jobs(rng.randint(1, max(1, nodes - 1)), rng.randint(1, cores))
        members.append((0 if at == 0 else rng.choice((0, 3, 5, 10, 20)), request, rng.randint(2, 20)))
    return pack(first_id, *members)


def draw_single(rng: random.Random, job_id: int, nodes: int, cores: int) -> Pending:
    return single(job_id, node_jobs(rng.randint(1, nodes), rng.randint(1, cores)), rng.randint(2, 20))


@pytest.mark.parametrize("seed", range(12))
def test_a_pack_starts_as_early_as_trying_everything_finds(seed: int) -> None:
    rng = random.Random(seed)
    later = asked = 0
    for _ in range(25):
        nodes, cores = rng.randint(2, 4), rng.choice((2, 4))
        site, line = PackSite("conservative", nodes, cores=cores), Line(nodes, cores)
        for node in range(nodes):
            if rng.random() < 0.6:
                held, until = rng.randint(1, cores), rng.randint(1, 30)
                site.hold(900 + node, node, held, NOW + until)
                line.take(node, held, 0, until)
        jobs = [
            draw_pack(rng, 10 * at + 1, nodes, cores)
            if rng.random() < 0.5
            else draw_single(rng, 10 * at + 1, nodes, cores)
            for at in range(5)
        ]
        site.submit(*jobs)
        site.plan()
        placed = site.starting()
        for job in jobs:
            want = line.first_start(job)
            places = placed.get(job.job_id, ())
            assert bool(places) == (want is not None), (seed, job)
            if want is None:
                continue
            got = places[0].start_us - NOW
            assert got >= want
            asked += 1
            later += got > want
            assert [one.start_us - places[0].start_us for one in places] == list(job.delays_us)
            for member, one in zip(job.members, places, strict=True):
                start = one.start_us - NOW
                assert one.stop_us - one.start_us == member.time_limit_us
                assert len(one.spans) == member.request.nodes_min
                for span in one.spans:
                    line.take(span.node, span.amounts[0], start, start + member.time_limit_us)
    assert asked > 60
    assert later <= asked * 0.02


def draw_nodes(rng: random.Random) -> list[NodeView]:
    """Unequal nodes: few or many cores, with or without a GPU, features and weight."""
    return [
        NodeView(
            number,
            f"n{number}",
            (rng.choice((2, 4)), 4096, rng.choice((0, 1))),
            partitions=("main",),
            features=rng.choice(((), ("fast",), ("slow",), ("fast", "slow"))),
            weight=rng.choice((0, 0, 10)),
        )
        for number in range(rng.randint(2, 6))
    ]


def draw_request(rng: random.Random, nodes: int) -> Request:
    """Equal shares on some nodes, tasks wherever they fit, or a range of nodes."""
    more: dict[str, Any] = {"constraint": rng.choice(("fast", "slow"))} if rng.random() < 0.3 else {}
    kind = rng.random()
    count, cores = rng.randint(1, max(1, nodes - 1)), rng.randint(1, 2)
    if kind < 0.5:
        more["exclusive"] = rng.random() < 0.2
        more["per_node"] = (("gpu", 1),) if rng.random() < 0.3 else ()
        return replace(node_jobs(count, cores), tasks=count * rng.randint(1, 2), **more)
    if kind < 0.8:
        return Request(tasks=rng.randint(1, 6), cpus_per_task=cores, **more)
    return Request(nodes_min=1, nodes_max=count, tasks=count, **more)


@pytest.mark.parametrize("seed", range(8))
def test_a_pack_that_is_accepted_has_places_on_empty_nodes(seed: int) -> None:
    rng = random.Random(2000 + seed)
    main = PartitionView("main")
    accepted = 0
    for _ in range(400):
        views = draw_nodes(rng)
        requests = [draw_request(rng, len(views)) for _ in range(rng.randint(2, 4))]
        site = PackSite(rng.choice(POLICIES), views=views)
        empty = empty_ledger(site.topology)
        numbers = range(len(requests))
        never = [feasible_ever(request, main, empty) for request in requests]
        stays = [(0, INFINITY_US) for _ in numbers]
        if (
            any(never)
            or feasible_pack(requests, [main for _ in numbers], stays, [numbers], empty, numbers)[0]
        ):
            continue
        accepted += 1
        site.submit(pack(1, *[(0, request, 20) for request in requests]))
        assert len(site.plan().placements) == len(requests), (seed, views, requests)
    assert accepted > 80


@pytest.mark.parametrize("seed", range(8))
def test_a_pack_moves_up_to_the_first_start_when_something_ends_early(seed: int) -> None:
    rng = random.Random(1000 + seed)
    moved = 0
    for _ in range(40):
        nodes = rng.randint(2, 4)
        site, line = PackSite("conservative", nodes), Line(nodes, 4)
        for node in range(nodes):
            for at in range(rng.randint(0, 2)):
                held, until = rng.randint(1, 2), rng.randint(1, 60)
                site.hold(900 + 10 * at + node, node, held, NOW + until)
                line.take(node, held, 0, until)
        job = draw_pack(rng, 1, nodes, 4)
        site.submit(job)
        site.plan()
        before = site.starts().get(1)
        if not before or not site.running:
            continue
        (key, ended) = rng.choice(sorted(site.running.items()))
        del site.running[key]
        ((node, amounts),) = ended.spans
        line.give(node, amounts[0], 0, ended.until_us - NOW)
        site.plan()
        want = line.first_start(job)
        got = site.starts().get(1, 0)
        assert got == want, (seed, job)
        moved += got < before
    assert moved > 3


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("forecasts", [False, True])
def test_delays_hold_and_nothing_gets_later_in_a_walk(policy: str, seed: int, forecasts: bool) -> None:
    """With forecasts plans reserve less than limits, and jobs run on to these: starts slip, and delays still hold."""
    rng = random.Random(seed * 7 + 1)
    nodes = rng.randint(3, 5)
    site = PackSite(policy, nodes)
    jobs: dict[int, Pending] = {}
    lost: set[int] = set()
    is_quiet = rng.random() < 0.5
    before: dict[int, int] = {}
    for step in range(120):
        if rng.random() < 0.35 and step < 90:
            first_id = 10 * step + 1
            draw = draw_pack if rng.random() < 0.5 else draw_single
            job = draw(rng, first_id, nodes - 1, 4)
            if forecasts and not job.followers:
                job = replace(job, estimate_us=rng.randint(1, job.time_limit_us))
            jobs |= {member.job_id: member for member in job.members}
            site.submit(job)
        ended = [
            key for key, one in site.running.items() if one.until_us <= site.now_us or rng.random() < 0.03
        ]
        for key in ended:
            del site.running[key]
        if not is_quiet and rng.random() < 0.05:
            node = rng.randrange(nodes)
            site.out ^= {node}
            for key in [key for key, one in site.running.items() if any(at == node for at, _ in one.spans)]:
                del site.running[key]
            # What was planned there, or behind it, may be lost.
            lost |= jobs.keys() - site.begun.keys()
        plan = site.plan()
        if rng.random() < 0.05:
            # The placements come to nothing.
            lost |= {one.job_id for one in plan.placements}
            lost |= {member for one in plan.placements for member in _members_of(site, one.job_id)}
        else:
            site.place(plan.placements)
        starts = site.starts()
        if policy in ("conservative", "planned") and not forecasts:
            for job_id, start in starts.items():
                assert job_id in lost or start <= before.get(job_id, start), (seed, step, job_id)
        before = starts
        # The planner is asked at each planned start and each end.
        instants = [one.until_us for one in site.running.values()] + [plan.next_us]
        site.now_us = min([at for at in instants if at > site.now_us] + [site.now_us + rng.randint(1, 8)])
    assert len(site.anchors) > (1 if forecasts else 3)
    for first_id, anchor_us in site.anchors.items():
        assert site.begun[first_id] == anchor_us
        for member in range(first_id + 1, first_id + 3):
            if member in site.begun and member not in lost:
                assert site.begun[member] - anchor_us == site.delays[member], (seed, first_id, member)
            elif member in site.begun:
                assert site.begun[member] - anchor_us >= site.delays[member]


def _members_of(site: PackSite, job_id: int) -> list[int]:
    job = site.queue.find(job_id)
    return [member.job_id for member in job.members] if job is not None else []
