"""A new configuration under a plan: what was planned is kept only where it is still what the job would get."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from eslurm.core.model.config import Resource
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Chunk, Request
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.plan import Plan
from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import NodeView, Running, Snapshot
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import Vector

POLICIES = ("easy", "conservative", "planned")
GPU, FPGA = Resource("gpu"), Resource("fpga")


def view(number: int, total: Vector = (4, 0), *partitions: str) -> NodeView:
    return NodeView(number, f"n{number}", total, True, partitions or ("main",))


class Site:
    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.schedule = Schedule()

    def plan(
        self,
        at_us: int,
        views: list[NodeView],
        running: Iterable[Running],
        *jobs: Pending,
        resources: tuple[Resource, ...] = (),
    ) -> Plan:
        snapshot = Snapshot.build(
            views,
            [PartitionView("main"), PartitionView("other")],
            running,
            jobs,
            now_us=at_us,
            topology=Topology(views, resources=resources),
        )
        plan = plan_at_once(snapshot, policy=self.policy, schedule=self.schedule)
        self.schedule.book.check()
        return plan


def planned(plan: Plan) -> list[tuple[int, list[tuple[int, Vector]]]]:
    return [(one.start_us, [(span.node, span.amounts) for span in one.spans]) for one in plan.promises()]


def busy(*until_us: int, width: int = 2) -> list[Running]:
    amounts = (4, *(0,) * (width - 1))
    return [Running(100 + node, ((node, amounts),), at_us) for node, at_us in enumerate(until_us)]


def job(request: Request) -> Pending:
    return Pending(1, request, "main", 10)


@pytest.mark.parametrize("policy", POLICIES)
def test_fewer_licences_than_are_held_stop_nobody_but_those_that_want_one(policy: str) -> None:
    site = Site(policy)
    views = [view(0), view(1)]
    running = [Running(7, ((0, (1, 0)),), 100, (3,))]
    site.plan(1, views, running, resources=(Resource("matlab", wide_total=3),))
    fewer = (Resource("matlab", wide_total=2),)
    jobs = (Pending(1, Request(wide=(("matlab", 1),)), "main", 10), Pending(2, Request(), "main", 10))
    plan = site.plan(2, views, running, *jobs, resources=fewer)
    assert [placement.job_id for placement in plan.placements] == [2]
    assert planned(plan) == [(100, [(0, (1, 0))])]
    plan = site.plan(20, views, [], jobs[0], resources=fewer)
    assert [placement.job_id for placement in plan.placements] == [1]
    # The same right after a restart.
    assert planned(Site(policy).plan(2, views, running, jobs[0], resources=fewer)) == [(100, [(0, (1, 0))])]


@pytest.mark.parametrize("policy", ["conservative", "planned"])
def test_a_node_that_has_left_the_partition_is_nobodys_any_more(policy: str) -> None:
    site = Site(policy)
    wanted = job(Request(cpus_per_task=4))
    plan = site.plan(1, [view(0), view(1)], busy(100, 50), wanted)
    assert planned(plan) == [(50, [(1, (4, 0))])]
    moved = [view(0), view(1, (4, 0), "other")]
    assert planned(site.plan(2, moved, busy(100, 50), wanted)) == [(100, [(0, (4, 0))])]
    assert not site.plan(50, moved, busy(100), wanted).placements


@pytest.mark.parametrize("policy", ["conservative", "planned"])
def test_who_wants_a_whole_node_gets_all_that_it_has_become(policy: str) -> None:
    site = Site(policy)
    wanted = job(Request(exclusive=True))
    assert planned(site.plan(1, [view(0)], busy(50), wanted)) == [(50, [(0, (4, 0))])]
    assert planned(site.plan(2, [view(0, (8, 0))], busy(50), wanted)) == [(50, [(0, (8, 0))])]


@pytest.mark.parametrize("policy", ["conservative", "planned"])
@pytest.mark.parametrize(
    "request_",
    [
        Request(per_node=(("gpu", 1),)),
        Request(tasks=2, chunks=(Chunk(1, 1, 0, (("gpu", 1),)), Chunk(1, 2))),
    ],
)
def test_amounts_follow_the_order_of_the_resources(policy: str, request_: Request) -> None:
    site = Site(policy)
    wanted = job(request_)
    views = [view(0, (4, 0, 2, 2))]
    running = [Running(9, ((0, (4, 0, 0, 0)),), 50)]
    ((_, [(_, before)]),) = planned(site.plan(1, views, running, wanted, resources=(GPU, FPGA)))
    assert before[2:] == (1, 0)
    ((start_us, [(_, after)]),) = planned(site.plan(2, views, running, wanted, resources=(FPGA, GPU)))
    assert (start_us, after) == (50, (*before[:2], 0, 1))


@pytest.mark.parametrize("policy", ["conservative", "planned"])
def test_what_does_not_touch_a_plan_leaves_it_where_it_is(policy: str) -> None:
    site = Site(policy)
    wanted = job(Request(tasks=3, nodes_min=2, nodes_max=2, cpus_per_task=2))
    before = site.plan(1, [view(0), view(1)], busy(50, 60), wanted)
    views = [view(0, (4, 0, 1)), view(1, (4, 0, 1))]
    after = site.plan(2, views, busy(50, 60), wanted, resources=(GPU,))
    assert [one.made_us for one in after.promises()] == [one.made_us for one in before.promises()] == [1]
    array = Pending(2, Request(), "main", 10, startable=5)
    first = site.plan(3, views, busy(50, 60), wanted, array, resources=(GPU,))
    again = site.plan(4, [*views, view(2, (4, 0, 1), "other")], busy(50, 60), wanted, array, resources=(GPU,))
    assert planned(again) == planned(first)
