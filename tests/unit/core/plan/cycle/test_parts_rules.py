"""Rules and preemption for jobs of several parts: each partition's limit counts its parts, while they wait and run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from eslurm.core.model.accounts import KINDS, Amount, FreePool, Limit, Policy, Reservation, Validity, kind_of
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import exhaust, plan_cycle
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.queue import Pending, PendingPart, PendingQueue
from eslurm.core.plan.cycle.reasons import WhyKind
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import NodeView, Running, RunningKey, Snapshot
from eslurm.core.plan.cycle.victims import Preemptable, Standing
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.vector import sum_per_node
from tests.kits.plan_building import NOW

PLANNING = ("conservative", "planned")
POLICIES = ("fcfs", "easy", *PLANNING)
NODE = Request(cpus_per_task=4)
HALF = Request(cpus_per_task=2)
LIMIT_US = 100
PARTITIONS = {
    "cluster": PartitionView("cluster", preempt_mode="requeue"),
    "booster": PartitionView("booster", preempt_mode="cancel"),
    "all": PartitionView("all", preempt_mode="requeue"),
    "urgent": PartitionView("urgent", tier=1),
}


def view(number: int) -> NodeView:
    return NodeView(
        number, f"n{number}", (4, 0), True, ("cluster" if number < 2 else "booster", "all", "urgent")
    )


class Site:
    """Nodes 0 and 1 of the cluster, 2 and 3 of the booster; four cores each. What is placed runs."""

    def __init__(self, policy: str, *policies: Policy) -> None:
        self.policy = policy
        self.ledger = Ledger(Topology([view(number) for number in range(4)]))
        self.schedule = Schedule()
        self.live: dict[RunningKey, Running] = {}
        self.policies = {kind: {one.name: one for one in policies if kind_of(one) == kind} for kind in KINDS}

    def plan(self, *jobs: Pending, at_us: int = NOW) -> Plan:
        queue = PendingQueue(jobs)
        snapshot = Snapshot.take(
            self.ledger,
            PARTITIONS,
            queue,
            generation=0,
            now_us=at_us,
            running=self.live,
            known=queue.ids(),
            policies=self.policies,
        )
        plan = exhaust(
            plan_cycle(
                snapshot, policy=self.policy, limits=PlanLimits(), schedule=self.schedule, work=self.work
            )
        )
        self.schedule.book.check()
        for placement in plan.placements:
            job = next(one for one in jobs if one.job_id == placement.job_id)
            pairs = sum_per_node([(span.node, span.amounts) for span in placement.spans])
            for node, amounts in pairs:
                self.ledger.hold(node, amounts, placement.until_us)
            parts = tuple([(span.component, span.node, span.amounts) for span in placement.spans])
            self.live[job.job_id, 1] = Running(
                job.job_id, pairs, placement.until_us, (), job, parts=parts if job.parts else ()
            )
        return plan

    def end(self, job_id: int) -> None:
        gone = self.live.pop((job_id, 1))
        for node, amounts in gone.spans:
            self.ledger.give_back(node, amounts, gone.until_us)

    def work(self) -> Sequence[Preemptable]:
        found = []
        for (job_id, attempt), one in self.live.items():
            assert one.job is not None
            standing = Standing.of([PARTITIONS[name] for name in one.job.partitions])
            found.append(
                Preemptable(
                    job_id, attempt, 0, job_id, one.spans, tier=standing.tier, by_tier=standing.by_tier
                )
            )
        return found


def job(job_id: int, *parts: tuple[str, Request], limit_us: int = LIMIT_US, **more: object) -> Pending:
    (name, request), several = parts[0], len(parts) > 1
    made = Pending(job_id, request, name, limit_us, submitted_us=job_id, user="ada", groups=("100",))
    asked = tuple([PendingPart(request, name) for name, request in parts]) if several else ()
    return replace(made, parts=asked, **more)


def started(plan: Plan) -> list[int]:
    return [placement.job_id for placement in plan.placements]


def starts(plan: Plan) -> dict[int, int]:
    return {booking.job_id: booking.start_us - NOW for booking in plan.promises()}


@pytest.mark.parametrize("policy", PLANNING)
def test_a_partitions_limit_counts_the_parts_in_it_and_no_others(policy: str) -> None:
    site = Site(policy, Limit("b", "partition", "booster", "cores", Amount(4)))
    both = job(1, ("cluster", NODE), ("booster", HALF))
    plan = site.plan(both, job(2, ("booster", HALF)), job(3, ("booster", HALF)), job(4, ("cluster", NODE)))
    assert started(plan) == [1, 2, 4]
    assert starts(plan) == {3: LIMIT_US}
    assert plan.why(3).kind is WhyKind.LIMIT
    # What runs counts part by part, too.
    plan = site.plan(job(3, ("booster", HALF)), job(5, ("cluster", HALF), ("booster", HALF)), at_us=NOW + 10)
    assert not started(plan) and starts(plan) == {3: LIMIT_US, 5: LIMIT_US}
    site.end(1)
    plan = site.plan(job(3, ("booster", HALF)), job(5, ("cluster", HALF), ("booster", HALF)), at_us=NOW + 20)
    assert started(plan) == [3]
    assert starts(plan) == {5: LIMIT_US}


@pytest.mark.parametrize("policy", PLANNING)
def test_a_limit_on_nodes_counts_a_node_once_whatever_parts_share_it(policy: str) -> None:
    site = Site(
        policy,
        Limit("u", "user", "ada", "nodes", Amount(2)),
        Limit("c", "partition", "cluster", "nodes", Amount(1)),
    )
    together = job(1, ("cluster", HALF), ("cluster", HALF), ("booster", HALF))
    plan = site.plan(together, job(2, ("booster", HALF)))
    assert started(plan) == [1]
    assert {span.node for span in plan.placements[0].spans} == {0, 2}
    assert plan.why(2).kind is WhyKind.LIMIT and "limit u" in plan.why(2).text
    site.end(1)
    apart = job(3, ("cluster", NODE), ("cluster", NODE))
    assert not started(site.plan(apart, at_us=NOW + 20))
    assert "limit c" in site.plan(apart, at_us=NOW + 21).why(3).text


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pool_sees_the_sum_of_the_parts(policy: str) -> None:
    site = Site(policy, FreePool("kept", "cores", Amount(8)))
    small = job(1, ("cluster", NODE), ("booster", NODE))
    large = job(2, ("cluster", NODE), ("booster", NODE), ("booster", HALF))
    plan = site.plan(large)
    assert not started(plan) and "pool kept" in plan.why(2).text
    assert started(site.plan(small, large, at_us=NOW + 1)) == [1]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_part_keeps_to_the_hosts_of_the_reservation(policy: str) -> None:
    site = Site(policy, Reservation("r", Validity(NOW - 10, NOW + 500), ("n1", "n3")))
    inside = job(1, ("cluster", NODE), ("booster", NODE), reservation="r")
    (placement,) = site.plan(inside, job(2, ("all", NODE), ("all", NODE))).placements[:1]
    assert [(span.component, span.node) for span in placement.spans] == [(0, 1), (1, 3)]


@pytest.mark.parametrize("policy", POLICIES)
def test_victims_are_chosen_for_all_parts_at_once(policy: str) -> None:
    site = Site(policy)
    running = [job(number, ("all", NODE), limit_us=10**6) for number in (1, 2, 3, 4)]
    assert started(site.plan(*running)) == [1, 2, 3, 4]
    urgent = job(5, ("urgent", NODE), ("urgent", NODE))
    plan = site.plan(urgent, at_us=NOW + 1)
    assert plan.preemptor == 5
    gone = [one.work.job_id for one in plan.victims]
    assert len(gone) == 2
    for job_id in gone:
        site.end(job_id)
    plan = site.plan(urgent, at_us=NOW + 2)
    assert started(plan) == [5]
    assert len({span.node for span in plan.placements[0].spans}) == 2


@pytest.mark.parametrize("policy", POLICIES)
def test_a_part_of_low_tier_keeps_the_job_from_preempting(policy: str) -> None:
    site = Site(policy)
    assert started(site.plan(*[job(number, ("all", NODE), limit_us=10**6) for number in (1, 2, 3, 4)]))
    mixed = job(5, ("urgent", HALF), ("all", HALF))
    plan = site.plan(mixed, at_us=NOW + 1)
    assert plan.preemptor == 0 and not plan.victims


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_with_a_part_that_is_never_preempted_stays(policy: str) -> None:
    site = Site(policy)
    whole = Request(nodes_min=3, nodes_max=3, tasks=3, cpus_per_task=4)
    assert started(site.plan(job(1, ("all", whole), ("urgent", NODE), limit_us=10**6))) == [1]
    plan = site.plan(job(2, ("urgent", NODE)), at_us=NOW + 1)
    assert plan.preemptor == 0 and not plan.victims


@pytest.mark.parametrize("policy", POLICIES)
def test_room_that_is_free_already_is_kept_once_for_parts_on_one_node(policy: str) -> None:
    """Goal: the free half of a node is kept for both parts together until the victim has gone."""
    site = Site(policy)
    large = Request(nodes_min=3, nodes_max=3, tasks=3, cpus_per_task=4)
    assert started(site.plan(job(1, ("all", large), limit_us=10**6), job(2, ("all", HALF), limit_us=10**6)))
    urgent = job(3, ("urgent", Request(cpus_per_task=3)), ("urgent", Request()))
    plan = site.plan(urgent, at_us=NOW + 1)
    assert plan.preemptor == 3 and [one.work.job_id for one in plan.victims] == [2]
    plan = site.plan(urgent, job(4, ("all", HALF)), at_us=NOW + 2)
    assert not started(plan), "the free half is kept for the parts"
    site.end(2)
    assert started(site.plan(urgent, job(4, ("all", HALF)), at_us=NOW + 3)) == [3]
