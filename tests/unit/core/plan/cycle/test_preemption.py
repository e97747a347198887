"""Preemptors and victims: decided in the cycle, held until the room is there, and never in vain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from msgspec.structs import replace

from eslurm.core.model.accounts import KINDS, Amount, Limit, Policy, Qos, Reservation, Validity, kind_of
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import exhaust, plan_cycle
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.queue import Pending, PendingQueue
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import Running, RunningKey, Snapshot
from eslurm.core.plan.cycle.victims import Preemptable
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from tests.kits.plan_building import NOW, nodes

POLICIES = ("fcfs", "easy", "conservative", "planned")
LOW, HIGH = Qos("low"), Qos("high", preempts=("low",))
PARTITIONS = {
    "main": PartitionView("main", preempt_mode="requeue"),
    "urgent": PartitionView("urgent", tier=1),
}
SECOND, MINUTE = 1_000_000, 60_000_000


class Site:
    """Nodes of four cores; what runs is told to end, and ends, when the test says so."""

    def __init__(self, policy: str, *policies: Policy, count: int = 2) -> None:
        self.policy = policy
        views = [replace(node, partitions=("main", "urgent")) for node in nodes(count)]
        self.ledger = Ledger(Topology(views))
        self.schedule = Schedule()
        self.live: dict[RunningKey, Running] = {}
        self.going: set[int] = set()
        self.waiting: dict[int, Pending] = {}
        self.policies = {
            kind: {one.name: one for one in (LOW, HIGH, *policies) if kind_of(one) == kind} for kind in KINDS
        }

    def submit(self, job_id: int, qos: str = "low", count: int = 1, minutes: int = 60, **more: object) -> int:
        request = Request(tasks=count, cpus_per_task=4, nodes_min=count, nodes_max=count)
        self.waiting[job_id] = Pending(
            job_id,
            request,
            str(more.pop("partition", "main")),
            minutes * MINUTE,
            submitted_us=job_id,
            qos=qos,
            **more,  # type: ignore[arg-type]
        )
        return job_id

    def plan(self, at_us: int = NOW) -> Plan:
        queue = PendingQueue(self.waiting.values())
        snapshot = Snapshot.take(
            self.ledger,
            PARTITIONS,
            queue,
            generation=0,
            now_us=at_us,
            running=self.live,
            known=self.schedule.known_jobs(),
            policies=self.policies,
        )
        plan = exhaust(
            plan_cycle(
                snapshot, policy=self.policy, limits=PlanLimits(), schedule=self.schedule, work=self.work
            )
        )
        self.schedule.book.check()
        for placement in plan.placements:
            job = self.waiting.pop(placement.job_id)
            self._run(job, [span.node for span in placement.spans], placement.until_us)
        return plan

    def _run(self, job: Pending, numbers: Iterable[int], until_us: int) -> None:
        pairs = tuple((number, (4, 0)) for number in numbers)
        for number, amounts in pairs:
            self.ledger.hold(number, amounts, until_us)
        self.live[job.job_id, 1] = Running(job.job_id, pairs, until_us, (), job)

    def work(self) -> Sequence[Preemptable]:
        found = []
        for (job_id, attempt), one in self.live.items():
            assert one.job is not None
            qos, partition = self.policies["qos"].get(one.job.qos), PARTITIONS[one.job.partition]
            found.append(
                Preemptable(
                    job_id,
                    attempt,
                    one.job.priority,
                    job_id,
                    one.spans,
                    qos=one.job.qos,
                    tier=partition.tier,
                    by_qos=qos.preempt_mode if isinstance(qos, Qos) else "off",
                    by_tier=partition.preempt_mode,
                    is_going=job_id in self.going,
                )
            )
        return found

    def tell(self, job_id: int, until_us: int) -> None:
        """It has been told to end, by then."""
        self.going.add(job_id)
        old = self.live[job_id, 1]
        self._give_back(old)
        for number, amounts in old.spans:
            self.ledger.hold(number, amounts, until_us)
        self.live[job_id, 1] = Running(job_id, old.spans, until_us, (), old.job)

    def end(self, job_id: int, number: int | None = None) -> None:
        """It has left a node, or all."""
        old = self.live.pop((job_id, 1))
        self._give_back(old)
        left = tuple(span for span in old.spans if number is not None and span[0] != number)
        for one, amounts in left:
            self.ledger.hold(one, amounts, old.until_us)
        if left:
            self.live[job_id, 1] = Running(job_id, left, old.until_us, (), old.job)

    def _give_back(self, one: Running) -> None:
        for number, amounts in one.spans:
            self.ledger.give_back(number, amounts, one.until_us)


def gone(plan: Plan) -> list[tuple[int, str]]:
    return [(one.work.job_id, one.mode) for one in plan.victims]


def started(plan: Plan) -> list[int]:
    return [placement.job_id for placement in plan.placements]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_room_is_made_held_and_taken(policy: str) -> None:
    site = Site(policy)
    site.submit(1, count=2)
    assert started(site.plan()) == [1]
    # Older than the preemptor, and just as glad to have a node.
    site.submit(2)
    site.submit(3)
    site.submit(4, "high", count=2)
    plan = site.plan(NOW + 1)
    assert (plan.preemptor, gone(plan)) == (4, [(1, "requeue")])
    assert plan.why(4).text == "job 1 makes room for it"
    site.tell(1, NOW + 30)
    plan = site.plan(NOW + 2)
    assert not plan.placements and not plan.victims, "it is on its way"
    assert plan.start_us(4) == plan.why(4).planned_start_us == NOW + 30
    site.end(1, 0)
    assert started(site.plan(NOW + 10)) == [], "what is free already is not for the others"
    site.end(1)
    assert started(site.plan(NOW + 20)) == [4]
    assert not site.schedule.preemptors
    site.end(4)
    assert started(site.plan(NOW + 40)) == [2, 3]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_victim_that_stays_beyond_its_grace_is_waited_for(policy: str) -> None:
    site = Site(policy, count=1)
    site.submit(1)
    site.plan()
    site.submit(2)
    site.submit(3, "high")
    site.plan(NOW + 1)
    site.tell(1, NOW + 30)
    site.plan(NOW + 2)
    plan = site.plan(NOW + 31)
    assert not plan.placements
    start_us = plan.start_us(3)
    assert start_us is not None and start_us > NOW + 31
    site.end(1)
    assert started(site.plan(NOW + 32)) == [3]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_claimant_that_is_cancelled_leaves_the_room_to_the_others(policy: str) -> None:
    site = Site(policy, count=1)
    site.submit(1)
    site.plan()
    site.submit(2)
    site.submit(3, "high")
    site.plan(NOW + 1)
    site.tell(1, NOW + 30)
    site.plan(NOW + 2)
    del site.waiting[3]
    site.end(1)
    assert started(site.plan(NOW + 3)) == [2]


@pytest.mark.parametrize("policy", POLICIES)
def test_who_is_refused_by_the_cluster_is_planned_as_before(policy: str) -> None:
    """Nobody was told to end after all: the plan was out of date."""
    site = Site(policy, count=1)
    site.submit(1)
    site.plan()
    site.submit(2, "high")
    site.plan(NOW + 1)
    assert (2 in site.schedule.preemptors) and gone(site.plan(NOW + 2)) == [(1, "requeue")], "asked again"
    site.end(1)
    assert started(site.plan(NOW + 3)) == [2]


@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_is_pushed_out_in_vain(policy: str) -> None:
    window = Validity(from_us=NOW + 30 * MINUTE, until_us=NOW + 300 * MINUTE)
    reserved = Reservation("course", window, ("n0", "n1"), users=("eve",))
    at_limit = Limit("ada4", "user", "ada", "cores", Amount(4))
    site = Site(policy, reserved, at_limit)
    site.submit(1, "", minutes=20, user="ada")
    site.submit(2, minutes=20)
    site.plan()
    site.submit(3, "high", minutes=60)
    assert gone(site.plan(NOW + 1)) == [], "it would run into the reservation"
    del site.waiting[3]
    site.submit(4, "high", minutes=20, user="ada")
    assert gone(site.plan(NOW + 2)) == [], "with the other one gone, it would still be at its limit"
    del site.waiting[4]
    site.submit(5, "high", minutes=20)
    assert gone(site.plan(NOW + 3)) == [(2, "requeue")]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_victim_uses_of_a_limit_is_free_once_it_is_gone(policy: str) -> None:
    site = Site(policy, Limit("ada4", "user", "ada", "cores", Amount(4)), count=1)
    site.submit(1, user="ada")
    site.plan()
    site.submit(2, "high", user="ada")
    assert gone(site.plan(NOW + 1)) == [(1, "requeue")]


@pytest.mark.parametrize("policy", POLICIES)
def test_by_the_tier_of_the_partition(policy: str) -> None:
    site = Site(policy, count=1)
    site.submit(1, "")
    site.plan()
    site.submit(2, "", partition="urgent")
    assert gone(site.plan(NOW + 1)) == [(1, "requeue")]


@pytest.mark.parametrize("policy", POLICIES)
def test_one_claimant_at_a_time_and_each_its_own_victims(policy: str) -> None:
    site = Site(policy)
    site.submit(1)
    site.submit(2)
    site.plan()
    site.submit(3, "high")
    site.submit(4, "high")
    first = site.plan(NOW + 1)
    (chosen,) = first.victims
    assert first.preemptor == 3
    site.tell(chosen.work.job_id, NOW + 30)
    second = site.plan(NOW + 2)
    assert (second.preemptor, gone(second)) == (4, [(3 - chosen.work.job_id, "requeue")])
    site.tell(3 - chosen.work.job_id, NOW + 30)
    assert not site.plan(NOW + 3).victims
    site.end(1)
    site.end(2)
    assert started(site.plan(NOW + 4)) == [3, 4]


@pytest.mark.parametrize("policy", ("conservative", "planned"))
def test_plans_of_those_it_may_push_out_give_way_and_fixed_starts_do_not(policy: str) -> None:
    site = Site(policy, count=1)
    site.submit(1, minutes=10)
    site.plan()
    site.submit(2, minutes=60)
    assert site.plan(NOW + 1).start_us(2) == NOW + 10 * MINUTE
    site.submit(3, "high", minutes=60)
    assert gone(site.plan(NOW + 2)) == [(1, "requeue")], (
        "it overlaps the plan of a job that it might push out"
    )
    site.tell(1, NOW + 30)
    plan = site.plan(NOW + 3)
    assert plan.start_us(3) == NOW + 30
    assert plan.start_us(2) == NOW + 30 + 60 * MINUTE
    other = Site(policy, count=1)
    other.submit(1, minutes=10)
    other.plan()
    other.submit(2, minutes=60, start_at_us=NOW + 10 * MINUTE)
    other.plan(NOW + 1)
    other.submit(3, "high", minutes=60)
    assert gone(other.plan(NOW + 2)) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_a_new_planner_finds_who_makes_room_already(policy: str) -> None:
    site = Site(policy)
    site.submit(1, count=2)
    site.plan()
    site.submit(2)
    site.submit(3, "high", count=2)
    site.plan(NOW + 1)
    site.tell(1, NOW + 30)
    site.schedule = Schedule()
    plan = site.plan(NOW + 2)
    assert not plan.victims, "nobody is told twice"
    assert plan.start_us(3) == NOW + 30
    site.end(1, 1)
    assert not site.plan(NOW + 3).placements


@pytest.mark.parametrize("policy", POLICIES)
def test_who_has_room_already_waits_for_the_limit_that_those_who_go_still_use(policy: str) -> None:
    eight = Limit("eight", "user", "ada", "cores", Amount(8))
    site = Site(policy, eight, count=3)
    site.submit(1, "high", user="bob")
    site.submit(2, user="ada")
    site.submit(3, "high", user="ada")
    assert started(site.plan()) == [1, 2, 3]
    site.submit(4, "high", user="ada")
    plan = site.plan(NOW + 1)
    assert (plan.preemptor, gone(plan)) == (4, [(2, "requeue")])
    site.tell(2, NOW + 30)
    # A node is free, but both of ada's jobs count until one of them is gone: nothing happens before.
    site.end(1)
    plan = site.plan(NOW + 2)
    assert started(plan) == []
    assert plan.next_us == plan.start_us(4) == NOW + 30
    assert plan.why(4).text == "job 2 makes room for it"
    site.end(2)
    assert started(site.plan(NOW + 20)) == [4]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_more_often_it_was_in_vain_the_longer_until_it_is_tried_again(policy: str) -> None:
    """Nobody ever ends for it."""
    site = Site(policy, count=1)
    site.submit(1)
    site.plan()
    site.submit(2, "high")
    asked, nexts = [], []
    for second in range(600):
        plan = site.plan(NOW + second * SECOND)
        nexts.append((plan.next_us - NOW) // SECOND)
        if plan.victims:
            asked.append(second)
    assert asked == [0, 1, 61, 181, 421]
    assert nexts[2] == 61 and nexts[61] == 181, "that is when there is something to do"
    site.schedule.preemptors.clear()
    site.end(1)
    assert started(site.plan(NOW + 600 * SECOND)) == [2]
    site.plan(NOW + 601 * SECOND)
    assert not site.schedule.pushes
