"""Jobs of several parts in the plan (D-02): one booking for all parts, or none, under every policy."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.model.accounts import Amount, Limit
from eslurm.core.model.config import PriorityWeights
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.placement import Placement
from eslurm.core.model.promise import Promise, PromisedStart, Run
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.priority import PriorityInputs, explained
from eslurm.core.plan.cycle.queue import Pending, PendingPart, PendingQueue, Shapes
from eslurm.core.plan.cycle.reasons import WhyKind
from eslurm.core.plan.cycle.restored_bookings import kept_of
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import NodeView, Policies, Running, Snapshot, build_ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import sum_per_node
from tests.kits.plan_building import NOW, runs, started

NODE = Request(cpus_per_task=4)
"""A whole node of four cores."""
ALL = ("conservative", "easy", "fcfs", "planned")
PROMISING = ("conservative", "easy", "planned")
AHEAD = ("conservative", "planned")
GRACE_US = 25


def views(out: tuple[int, ...] = (), more: int = 0) -> list[NodeView]:
    """Nodes 0 and 1 of the cluster, nodes 2 and 3 of the booster; four cores each."""
    names = ["cluster", "cluster", "booster", "booster", *["cluster"] * more]
    return [
        NodeView(number, f"n{number}", (4, 0), number not in out, (name, "any"))
        for number, name in enumerate(names)
    ]


def parted(job_id: int, *parts: tuple[str, Request], limit_us: int = 100, **more: object) -> Pending:
    first = parts[0]
    job = Pending(job_id, first[1], first[0], limit_us, submitted_us=job_id)
    return replace(job, parts=tuple(PendingPart(request, name) for name, request in parts), **more)


def plain(
    job_id: int, partition: str, limit_us: int = 100, request: Request = NODE, **more: object
) -> Pending:
    return replace(Pending(job_id, request, partition, limit_us, submitted_us=job_id), **more)


def both(job_id: int, limit_us: int = 100, **more: object) -> Pending:
    """A node of the cluster and two of the booster."""
    wide = Request(nodes_min=2, nodes_max=2, tasks=2, cpus_per_task=4)
    return parted(job_id, ("cluster", NODE), ("booster", wide), limit_us=limit_us, **more)


class Site:
    """Two partitions of two nodes each, and one schedule from cycle to cycle."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.schedule = Schedule()
        self.running: list[Running] = []
        self.topology = Topology(views())
        self.down: tuple[str, ...] = ()
        self.shapes = Shapes()
        self.policies: Policies = {}

    def snapshot(
        self, *jobs: Pending, at_us: int = NOW, out: tuple[int, ...] = (), more: int = 0
    ) -> Snapshot:
        nodes = views(out, more)
        held = {(one.job_id, number): one for number, one in enumerate(self.running)}
        ledger = build_ledger(Topology(nodes) if more else self.topology, held.values())
        for node in nodes:
            ledger.set_usable(node.number, node.usable)
        return Snapshot.take(
            ledger,
            {name: PartitionView(name, name not in self.down) for name in ("cluster", "booster", "any")},
            PendingQueue([one for one in jobs if not one.after], self.shapes),
            generation=0,
            now_us=at_us,
            running=held,
            later=PendingQueue([one for one in jobs if one.after], self.shapes),
            known=[one.job_id for one in jobs],
            policies=self.policies,
        )

    def plan(self, *jobs: Pending, at_us: int = NOW, out: tuple[int, ...] = (), more: int = 0) -> Plan:
        limits = PlanLimits(overdue_grace_us=GRACE_US, promise_refresh_us=1)
        view = self.snapshot(*jobs, at_us=at_us, out=out, more=more)
        plan = plan_at_once(view, policy=self.policy, limits=limits, schedule=self.schedule)
        self.schedule.book.check()
        for start in (*plan.placements, *plan.promises()):
            job = next(one for one in jobs if one.job_id == start.job_id)
            found = [span.component for span in start.spans]
            assert found == sorted(found)
            assert set(found) == set(range(len(job.parts) or 1))
        return plan

    def run(self, plan: Plan) -> None:
        """Run the placed jobs."""
        for one in plan.placements:
            pairs = sum_per_node((span.node, span.amounts) for span in one.spans)
            self.running.append(Running(one.job_id, pairs, one.until_us))


def starts(plan: Plan) -> dict[int, int]:
    return {booking.job_id: booking.start_us - NOW for booking in plan.promises()}


def nodes_of(placement: Placement) -> list[tuple[int, int]]:
    return [(span.component, span.node) for span in placement.spans]


@pytest.mark.parametrize("policy", ALL)
def test_all_parts_begin_together_on_their_own_partitions(policy: str) -> None:
    plan = Site(policy).plan(both(1))
    (placement,) = plan.placements
    assert nodes_of(placement) == [(0, 0), (1, 2), (1, 3)]
    assert placement.until_us == NOW + 100


@pytest.mark.parametrize("policy", ALL)
def test_no_part_begins_before_the_last_one_can(policy: str) -> None:
    site = Site(policy)
    site.running = [runs(2, 4, NOW + 30), runs(3, 1, NOW + 50)]
    plan = site.plan(both(1))
    assert not plan.placements
    assert plan.why(1).kind is WhyKind.RESOURCES
    assert plan.why(1).text == "part 1: needs 2 nodes with 4 cores each; 0 are free"
    if policy in PROMISING:
        assert starts(plan) == {1: 50}
    site.running = [runs(3, 1, NOW + 50)]
    assert not site.plan(both(1), at_us=NOW + 30).placements
    site.running = []
    assert started(site.plan(both(1), at_us=NOW + 50).placements) == [1]


@pytest.mark.parametrize("policy", PROMISING)
def test_a_later_job_fills_what_the_parts_leave_and_delays_none_of_them(policy: str) -> None:
    """The promise of one job holds on the nodes of both partitions."""
    site = Site(policy)
    site.running = [runs(2, 4, NOW + 50), runs(3, 4, NOW + 50)]
    # The third has the second node of the cluster; the fourth would hold the first one too long.
    jobs = (both(1), plain(2, "cluster", 50), plain(3, "cluster", 90), plain(4, "cluster", 51))
    plan = site.plan(*jobs)
    assert started(plan.placements) == [2, 3]
    assert starts(plan)[1] == 50
    if policy in AHEAD:
        assert starts(plan)[4] == 90


def test_in_strict_order_nothing_passes_a_job_of_two_partitions_on_either() -> None:
    site = Site("fcfs")
    site.running = [runs(2, 4, NOW + 50)]
    plan = site.plan(both(1), plain(2, "cluster", 1), plain(3, "booster", 1))
    assert not plan.placements


@pytest.mark.parametrize("policy", ALL)
def test_parts_that_share_a_node_need_room_for_both(policy: str) -> None:
    site = Site(policy)
    three, two = Request(cpus_per_task=3), Request(cpus_per_task=2)
    site.running = [runs(1, 4, NOW + 200), runs(0, 0, NOW + 200)]
    apart = parted(1, ("cluster", three), ("cluster", two))
    plan = site.plan(apart)
    assert not plan.placements
    if policy in PROMISING:
        assert starts(plan) == {1: 200}
    together = parted(1, ("cluster", two), ("cluster", two))
    (placement,) = site.plan(together).placements
    assert nodes_of(placement) == [(0, 0), (1, 0)]
    assert placement.spans[0].amounts[0] == placement.spans[1].amounts[0] == 2


@pytest.mark.parametrize("policy", ALL)
def test_a_job_whose_parts_share_a_node_is_known_when_it_runs(policy: str) -> None:
    site = Site(policy)
    two = Request(cpus_per_task=2)
    shared = parted(1, ("cluster", two), ("cluster", two))
    plan = site.plan(shared, plain(2, "cluster"))
    assert started(plan.placements) == [1, 2]
    site.run(plan)
    plan = site.plan(plain(3, "cluster"), at_us=NOW + 1)
    assert not plan.placements
    assert len(site.schedule.held) == 2
    assert not site.schedule.starting


@pytest.mark.parametrize("policy", ALL)
def test_each_task_of_an_array_of_such_jobs_gets_all_parts(policy: str) -> None:
    site = Site(policy)
    half = Request(cpus_per_task=2)
    tasks = parted(1, ("cluster", half), ("booster", half), startable=6)
    plan = site.plan(tasks)
    assert started(plan.placements) == [1, 1, 1, 1]
    for placement in plan.placements:
        assert [span.component for span in placement.spans] == [0, 1]
    if policy in AHEAD:
        assert [one.start_us - NOW for one in plan.promises()] == [100, 100]
        assert all(one.tasks == 1 for one in plan.promises())


@pytest.mark.parametrize("policy", AHEAD)
def test_a_lost_node_of_one_part_displaces_the_whole_job(policy: str) -> None:
    site = Site(policy)
    site.running = [runs(number, 4, NOW + 50) for number in range(4)]
    one = parted(1, ("cluster", NODE), ("booster", NODE))
    assert starts(site.plan(one)) == {1: 50}
    (booking,) = site.schedule.bookings[1]
    lost = booking.spans[1].node
    plan = site.plan(one, at_us=NOW + 1, out=(lost,))
    assert starts(plan) == {1: 50}
    assert {span.node for span in plan.promises()[0].spans} == {0, 5 - lost}
    # Without the other one it has no place, and keeps no part of one.
    plan = site.plan(one, at_us=NOW + 2, out=(2, 3))
    assert not plan.bookings
    assert (
        plan.why(1).text == "part 1: needs nodes that are not in service; 2 of the 2 nodes it may use are out"
    )
    assert starts(site.plan(one, at_us=NOW + 3)) == {1: 50}


@pytest.mark.parametrize("policy", ["easy", "fcfs"])
def test_a_job_ahead_takes_the_place_of_one_part_and_all_of_them_wait(policy: str) -> None:
    site = Site(policy)
    site.running = [runs(2, 4, NOW + 50), runs(3, 4, NOW + 60)]
    if policy == "easy":
        assert starts(site.plan(both(1))) == {1: 60}
    ahead = plain(2, "booster", 70, Request(nodes_min=2, nodes_max=2, tasks=2, cpus_per_task=4), priority=9)
    plan = site.plan(both(1), ahead, at_us=NOW + 1)
    assert not plan.placements
    site.running = []
    plan = site.plan(both(1), ahead, at_us=NOW + 60)
    assert started(plan.placements) == [2]
    site.run(plan)
    others = (plain(3, "cluster", 500), plain(4, "cluster", 70), plain(5, "cluster", 69))
    plan = site.plan(both(1), *others, at_us=NOW + 61)
    # One node of the cluster is left to others, the other one until all parts can begin.
    assert started(plan.placements) == ([3, 5] if policy == "easy" else [])
    if policy == "easy":
        assert starts(plan) == {1: 130}


@pytest.mark.parametrize("policy", AHEAD)
def test_a_loss_is_shared_with_whole_jobs(policy: str) -> None:
    """A job that runs past its end on a node of one part moves all parts."""
    site = Site(policy)
    site.running = [runs(2, 4, NOW + 50), runs(3, 4, NOW + 50)]
    assert starts(site.plan(both(1), both(2, 10))) == {1: 50, 2: 150}
    site.running.pop()
    plan = site.plan(both(1), both(2, 10), at_us=NOW + 50)
    assert starts(plan) == {1: 75, 2: 175}


@pytest.mark.parametrize("policy", AHEAD)
def test_what_ends_early_moves_all_parts_forward(policy: str) -> None:
    site = Site(policy)
    site.running = [runs(0, 4, NOW + 80), runs(1, 4, NOW + 60), runs(2, 4, NOW + 50), runs(3, 4, NOW + 20)]
    assert starts(site.plan(both(1))) == {1: 60}
    del site.running[2]
    assert starts(site.plan(both(1), at_us=NOW + 5)) == {1: 60}
    del site.running[1]
    assert starts(site.plan(both(1), at_us=NOW + 6)) == {1: 20}


@pytest.mark.parametrize("policy", AHEAD)
def test_a_smaller_part_keeps_the_start_of_the_job(policy: str) -> None:
    site = Site(policy)
    site.running = [runs(number, 4, NOW + 50) for number in range(4)]
    behind = parted(2, ("cluster", NODE), ("booster", NODE))
    assert starts(site.plan(both(1), behind)) == {1: 50, 2: 150}
    small = parted(1, ("cluster", NODE), ("booster", NODE))
    plan = site.plan(small, behind, at_us=NOW + 1)
    assert starts(plan) == {1: 50, 2: 50}


@pytest.mark.parametrize("policy", AHEAD)
def test_parts_that_change_partitions_are_planned_anew(policy: str) -> None:
    site = Site(policy)
    site.running = [runs(2, 4, NOW + 50), runs(3, 4, NOW + 50)]
    assert starts(site.plan(parted(1, ("cluster", NODE), ("booster", NODE)))) == {1: 50}
    plan = site.plan(parted(1, ("cluster", NODE), ("cluster", NODE)), at_us=NOW + 1)
    assert started(plan.placements) == [1]


@pytest.mark.parametrize("policy", AHEAD)
def test_a_part_that_moves_to_another_partition_is_under_the_limits_there(policy: str) -> None:
    """Even where it asks for no more than it was promised, on the same node."""
    site = Site(policy)
    site.policies = {"limit": {"b": Limit("b", "partition", "booster", "cores", Amount(4))}}
    site.running = [runs(number, 4, NOW + 50) for number in range(3)]
    site.running.append(Running(9, ((3, (4, 0)),), NOW + 80, job=plain(9, "booster")))
    there = replace(NODE, include=("n2",))
    assert starts(site.plan(parted(1, ("cluster", NODE), ("any", there)))) == {1: 50}
    plan = site.plan(parted(1, ("cluster", NODE), ("booster", there)), at_us=NOW + 1)
    assert starts(plan) == {1: 80}
    assert plan.why(1).kind is WhyKind.LIMIT


@pytest.mark.parametrize("policy", ALL)
def test_a_part_in_a_partition_that_is_down_keeps_the_job_waiting(policy: str) -> None:
    site = Site(policy)
    site.down = ("booster",)
    plan = site.plan(both(1), plain(2, "cluster"))
    assert started(plan.placements) == [2]
    assert plan.why(1).text == "partition booster is down"


@pytest.mark.parametrize("policy", ALL)
def test_parts_that_fit_the_nodes_in_service_singly_only_say_so(policy: str) -> None:
    plan = Site(policy).plan(parted(1, ("cluster", NODE), ("cluster", NODE)), out=(0,))
    assert not plan.placements
    assert plan.why(1).kind is WhyKind.NODES_UNAVAILABLE
    text = "its 2 parts do not fit the nodes in service together; 1 of the 2 nodes it may use is out"
    assert plan.why(1).text == text


@pytest.mark.parametrize("policy", AHEAD)
def test_a_dependent_job_is_planned_with_all_its_parts(policy: str) -> None:
    site = Site(policy)
    plan = site.plan(plain(1, "cluster", 40), both(2, after=(1,)), plain(3, "booster", 40))
    assert started(plan.placements) == [1, 3]
    assert starts(plan) == {2: 40}


@pytest.mark.parametrize("policy", ALL)
def test_a_fixed_start_is_one_of_all_parts(policy: str) -> None:
    site = Site(policy)
    site.running = [runs(3, 4, NOW + 50)]
    early, then = both(1, start_at_us=NOW + 49), both(2, start_at_us=NOW + 60)
    plan = site.plan(early, then, plain(3, "cluster", 60), plain(4, "cluster", 90), plain(5, "booster", 61))
    assert starts(plan)[2] == 60
    assert plan.why(1).kind is WhyKind.START_MISSED
    # Two nodes are left until then, and one of the cluster's for longer.
    assert started(plan.placements) == [3, 4]
    site.running = []
    assert 2 in started(site.plan(then, at_us=NOW + 60).placements)


@pytest.mark.parametrize("policy", AHEAD)
def test_a_plan_survives_nodes_that_come(policy: str) -> None:
    site = Site(policy)
    site.running = [runs(2, 4, NOW + 50), runs(3, 4, NOW + 50)]
    assert starts(site.plan(both(1), both(2))) == {1: 50, 2: 150}
    before = dict(site.schedule.bookings)
    plan = site.plan(both(1), both(2), at_us=NOW + 1, more=1)
    assert starts(plan) == {1: 50, 2: 150}
    assert plan.bookings == before


@pytest.mark.parametrize("policy", PROMISING)
def test_a_new_planner_keeps_the_promised_place_of_each_part(policy: str) -> None:
    site = Site(policy)
    site.running = [runs(number, 4 - (number == 1), NOW + 50) for number in range(4)]
    # Of equal nodes it has others than a new search would find: the first of each was out then.
    plan = site.plan(parted(1, ("any", NODE), ("booster", NODE)), out=(0, 2))
    assert starts(plan) == {1: 50}
    (booking,) = plan.bookings[1]
    assert [(span.component, span.node) for span in booking.spans] == [(0, 1), (1, 3)]
    promise = kept_of(1, plan.bookings[1])
    assert promise.starts[0].parts == (1, 1)
    site.schedule = Schedule()
    view = site.snapshot(parted(1, ("any", NODE), ("booster", NODE)), at_us=NOW + 5)
    view = replace(view, promises={1: promise})
    plan = plan_at_once(view, policy=site.policy, schedule=site.schedule)
    assert [replace(one, made_us=0) for one in plan.bookings[1]] == [replace(booking, made_us=0)]
    assert not site.schedule.unkept


def test_the_log_keeps_the_runs_of_each_part() -> None:
    site = Site("planned")
    site.running = [runs(2, 4, NOW + 50), runs(3, 4, NOW + 50)]
    plan = site.plan(both(1), plain(2, "any", request=Request(nodes_min=3, nodes_max=3, cpus_per_task=4)))
    assert kept_of(1, plan.bookings[1]) == Promise(
        1, (PromisedStart(NOW + 50, (Run(0, 1, 1, (4, 0)), Run(2, 2, 1, (4, 0))), parts=(1, 1)),)
    )
    assert kept_of(2, plan.bookings[2]).starts[0].parts == ()


def test_the_size_of_a_job_is_that_of_its_parts_together() -> None:
    weights = PriorityWeights(size=1_000)
    inputs = PriorityInputs(weights=weights, nodes=4, cores=16)
    alone = explained(inputs, plain(1, "cluster"), NOW)
    assert alone.size == 250
    assert explained(inputs, both(2), NOW).size == 750
    assert explained(inputs, parted(3, *[("any", NODE)] * 5), NOW).size == 1_000
