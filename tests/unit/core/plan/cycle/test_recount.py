"""Limits once a mapping is known, the beginning of a planned start, and that nothing begins twice in a cycle."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.model.accounts import KINDS, Amount, Limit, kind_of
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.queue import Pending, PendingQueue
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import NodeView, Running, RunningKey, Snapshot
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from tests.kits.plan_building import NOW, nodes

POLICIES = ("fcfs", "easy", "conservative", "planned")


class Site:
    """Nodes under limits; what was placed runs until the test says otherwise."""

    def __init__(self, policy: str, views: list[NodeView], *limits: Limit) -> None:
        self.policy = policy
        self.ledger = Ledger(Topology(views))
        self.schedule = Schedule()
        self.live: dict[RunningKey, Running] = {}
        self.policies = {kind: {one.name: one for one in limits if kind_of(one) == kind} for kind in KINDS}

    def hold(self, number: int, node: int, cores: int, until_us: int) -> None:
        """Somebody else runs there."""
        self.ledger.hold(node, (cores, 0), until_us)
        self.live[number, 1] = Running(number, ((node, (cores, 0)),), until_us)

    def plan(self, *jobs: Pending, at_us: int = NOW) -> Plan:
        queue = PendingQueue(jobs)
        snapshot = Snapshot.take(
            self.ledger,
            {"main": PartitionView("main")},
            queue,
            generation=0,
            now_us=at_us,
            running=self.live,
            known=queue.ids(),
            policies=self.policies,
        )
        plan = plan_at_once(snapshot, policy=self.policy, limits=PlanLimits(), schedule=self.schedule)
        for placement in plan.placements:
            pairs = tuple((span.node, span.amounts) for span in placement.spans)
            for node, amounts in pairs:
                self.ledger.hold(node, amounts, placement.until_us)
            key = (placement.job_id, 1)
            waiting = queue.find(placement.job_id)
            self.live[key] = Running(placement.job_id, pairs, placement.until_us, (), waiting)
        return plan


def adas(job_id: int, request: Request, **more: int) -> Pending:
    return replace(Pending(job_id, request, "main", 100, submitted_us=job_id, user="ada"), **more)


def placed(plan: Plan) -> list[list[int]]:
    return [[span.node for span in placement.spans] for placement in plan.placements]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_limit_on_nodes_counts_those_that_the_mapping_takes(policy: str) -> None:
    site = Site(policy, nodes(3), Limit("one", "user", "ada", "nodes", Amount(1)))
    for node in range(3):
        site.hold(900 + node, node, 3, NOW + 1_000)
    two = Request(tasks=2)
    plan = site.plan(adas(1, two))
    assert placed(plan) == [], "one core is free on each of three nodes: two of them are too many"
    site.ledger.give_back(2, (3, 0), NOW + 1_000)
    del site.live[902, 1]
    assert placed(site.plan(adas(1, two), at_us=NOW + 1)) == [[2]]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_limit_on_nodes_lets_chunks_share_one(policy: str) -> None:
    site = Site(policy, nodes(2), Limit("one", "user", "ada", "nodes", Amount(1)))
    site.hold(900, 0, 3, NOW + 1_000)
    assert placed(site.plan(adas(1, Request(tasks=2)))) == [[1]]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_alone_on_its_nodes_takes_those_that_its_limit_lets_it_have(policy: str) -> None:
    large, small = nodes(2)
    views = [replace(large, total=(8, 0)), small]
    site = Site(policy, views, Limit("six", "user", "ada", "cores", Amount(6)))
    assert placed(site.plan(adas(1, Request(exclusive=True)))) == [[1]]


@pytest.mark.parametrize("policy", ["conservative", "planned"])
def test_tasks_of_an_array_count_a_node_each(policy: str) -> None:
    site = Site(policy, nodes(2), Limit("two", "user", "ada", "nodes", Amount(2)))
    plan = site.plan(adas(1, Request(), startable=4))
    assert len(plan.placements) == 2


@pytest.mark.parametrize("policy", ["conservative", "planned"])
def test_a_planned_start_waits_while_what_should_have_ended_still_counts(policy: str) -> None:
    site = Site(policy, nodes(2), Limit("four", "user", "ada", "cores", Amount(4)))
    node = Request(cpus_per_task=4)
    first, second = adas(1, node), adas(2, node)
    plan = site.plan(first, second)
    assert placed(plan) == [[0]]
    due_us = plan.start_us(2)
    assert due_us == NOW + 100
    assert placed(site.plan(second, at_us=due_us)) == [], (
        "the other node is free, but the first job is still there"
    )
    site.ledger.give_back(0, (4, 0), due_us)
    del site.live[1, 1]
    assert len(placed(site.plan(second, at_us=due_us + 1))) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_a_fixed_start_begins_once(policy: str) -> None:
    site = Site(policy, nodes(2))
    job = adas(1, Request(), start_at_us=NOW + 50)
    assert placed(site.plan(job)) == []
    assert len(placed(site.plan(job, at_us=NOW + 50))) == 1
