"""Limits, pools and reservations move jobs in the plan, are counted for what runs and is planned, and say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from eslurm.core.model.accounts import (
    KINDS,
    Access,
    Amount,
    FreePool,
    Limit,
    Policy,
    Reservation,
    Validity,
    kind_of,
)
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.queue import Pending, PendingQueue
from eslurm.core.plan.cycle.reasons import WhyKind
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import Running, RunningKey, Snapshot
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from tests.kits.plan_building import NOW, nodes, started

NODE = Request(cpus_per_task=4)
FOUR_CORES = Limit("ada4", "user", "ada", "cores", Amount(4))


def job(
    job_id: int, user: str = "ada", *, limit_us: int = 100, startable: int = 1, reservation: str = ""
) -> Pending:
    return Pending(
        job_id,
        NODE,
        "main",
        limit_us,
        submitted_us=job_id,
        user=user,
        startable=startable,
        reservation=reservation,
    )


class Site:
    """Three nodes of four cores under policies."""

    def __init__(self, policy: str, *policies: Policy) -> None:
        self.policy = policy
        self.ledger = Ledger(Topology(nodes(3)))
        self.schedule = Schedule()
        self.live: dict[RunningKey, Running] = {}
        self.changes = 0
        self.policies: Mapping[str, Mapping[str, Policy]] = {}
        self.rule(*policies)

    def rule(self, *policies: Policy) -> None:
        self.changes += 1
        self.policies = {kind: {one.name: one for one in policies if kind_of(one) == kind} for kind in KINDS}

    def plan(self, *jobs: Pending, at_us: int = NOW, later: Sequence[Pending] = ()) -> Plan:
        queue = PendingQueue(jobs)
        waiting_room = PendingQueue(later, queue.shapes)
        snapshot = Snapshot.take(
            self.ledger,
            {"main": PartitionView("main")},
            queue,
            generation=0,
            now_us=at_us,
            running=self.live,
            later=waiting_room,
            known=[*queue.ids(), *waiting_room.ids()],
            policies=self.policies,
            policies_changed=self.changes,
            lenders=[one for one in self.live.values() if one.lent],
        )
        plan = plan_at_once(snapshot, policy=self.policy, limits=PlanLimits(), schedule=self.schedule)
        for number, placement in enumerate(plan.placements):
            waiting = queue.find(placement.job_id)
            pairs = tuple((span.node, span.amounts) for span in placement.spans)
            for node, amounts in pairs:
                self.ledger.hold(node, amounts, placement.until_us)
            key = (placement.job_id, number)
            self.live[key] = Running(placement.job_id, pairs, placement.until_us, (), waiting)
        return plan

    def lend(self, job_id: int, *, left_us: int) -> None:
        """Suspend a job for another one that is gone already: its memory stays, its cores come back at once."""
        for key in [key for key in self.live if key[0] == job_id]:
            running = self.live[key]
            kept = tuple((node, (0, *amounts[1:])) for node, amounts in running.spans)
            lent = tuple((node, amounts[:1]) for node, amounts in running.spans)
            for (node, amounts), (_, left) in zip(running.spans, kept, strict=True):
                self.ledger.give_back(node, amounts, running.until_us)
                self.ledger.hold(node, left, running.until_us)
            self.live[key] = replace(running, spans=kept, lent=lent, room_for=9, left_us=left_us)

    def end(self, job_id: int) -> None:
        for key in [key for key in self.live if key[0] == job_id]:
            running = self.live.pop(key)
            for node, amounts in running.spans:
                self.ledger.give_back(node, amounts, running.until_us)


def starts(plan: Plan) -> list[tuple[int, int]]:
    return [(booking.job_id, booking.start_us - NOW) for booking in plan.promises()]


def test_a_limit_moves_jobs_and_names_itself() -> None:
    site = Site("planned", FOUR_CORES)
    plan = site.plan(job(1), job(2), job(3), job(4, "bob"))
    assert started(plan.placements) == [1, 4]
    assert starts(plan) == [(2, 100), (3, 200)]
    assert plan.why(2).kind is WhyKind.LIMIT
    assert "limit ada4" in plan.why(2).text
    assert [move.kind for move in plan.moves[2]] == ["limit"]
    # What runs counts as long as it runs.
    assert starts(site.plan(job(2), job(3), at_us=NOW + 10)) == [(2, 100), (3, 200)]
    site.end(1)
    plan = site.plan(job(2), job(3), at_us=NOW + 20)
    assert started(plan.placements) == [2]
    assert starts(plan) == [(3, 120)]


def test_who_is_at_a_limit_blocks_nobody_and_is_promised_nothing_by_easy() -> None:
    site = Site("easy", FOUR_CORES)
    plan = site.plan(job(1), job(2), job(3, "bob"))
    assert started(plan.placements) == [1, 3]
    assert plan.promises() == []
    assert plan.why(2).kind is WhyKind.LIMIT


def test_a_limit_that_is_lifted_is_made_use_of_at_once() -> None:
    site = Site("conservative", FOUR_CORES)
    assert starts(site.plan(job(1), job(2), job(3))) == [(2, 100), (3, 200)]
    site.rule(Limit("ada8", "user", "ada", "cores", Amount(8)))
    plan = site.plan(job(2), job(3), at_us=NOW + 1)
    assert started(plan.placements) == [2]
    assert starts(plan) == [(3, 100)]
    site.rule()
    assert started(site.plan(job(3), at_us=NOW + 2).placements) == [3]


def test_tasks_of_an_array_keep_to_a_limit_together() -> None:
    site = Site("planned", Limit("ada8", "user", "ada", "cores", Amount(8)))
    plan = site.plan(job(1, startable=6))
    assert len(plan.placements) == 2
    assert [(booking.start_us - NOW, booking.tasks) for booking in plan.promises()] == [(100, 2), (200, 2)]


def test_nodes_of_a_reservation_are_for_those_inside() -> None:
    window = Validity(from_us=NOW + 50, until_us=NOW + 250)
    site = Site("planned", Reservation("course", window, ("n0", "n1"), users=("ada",)))
    plan = site.plan(
        job(1, "bob"),
        job(2, "bob"),
        job(3, "bob", limit_us=50),
        job(4, reservation="course"),
        job(5, reservation="course"),
        job(6, reservation="course", limit_us=150),
        job(7, "bob", reservation="course"),
        job(8, reservation="gone"),
    )
    assert started(plan.placements) == [1, 3]
    assert {booking.job_id: booking.start_us - NOW for booking in plan.promises()} == {
        2: 100,
        4: 50,
        5: 50,
    }
    assert {span.node for booking in plan.promises() if booking.job_id != 2 for span in booking.spans} == {
        0,
        1,
    }
    assert plan.why(6).kind in (WhyKind.RESERVATION, WhyKind.DEADLINE)
    assert "not open to user bob" in plan.why(7).text
    assert "does not exist" in plan.why(8).text


def test_a_reservation_that_begins_soon_keeps_long_jobs_off_its_nodes_now() -> None:
    window = Validity(from_us=NOW + 50, until_us=NOW + 250)
    site = Site("easy", Reservation("upkeep", window, ("n0", "n1", "n2"), maintenance=True))
    plan = site.plan(job(1), job(2, limit_us=50))
    assert started(plan.placements) == [2]
    assert plan.why(1).kind is WhyKind.RESERVATION
    assert "upkeep" in plan.why(1).text


def test_what_ends_on_a_node_that_is_out_leaves_a_pool_as_large_as_it_was() -> None:
    pool = FreePool("eight", "cores", Amount(8))
    site = Site("planned", pool)
    site.ledger.hold(2, (4, 0), NOW + 50)
    site.live[9, 1] = Running(9, ((2, (4, 0)),), NOW + 50)
    site.plan()
    site.ledger.set_usable(2, False)
    assert site.plan(job(1)).placements == ()
    del site.live[9, 1]
    site.ledger.give_back(2, (4, 0), NOW + 50)
    assert site.plan(job(1), at_us=NOW + 1).placements == ()
    site.rule(pool, Limit("none", "user", "bob", "cores", Amount(1)))
    assert site.plan(job(1), at_us=NOW + 2).placements == ()
    site.ledger.set_usable(2, True)
    assert started(site.plan(job(1), at_us=NOW + 3).placements) == [1]


def test_other_limits_leave_alone_what_they_do_not_forbid() -> None:
    site = Site("planned")
    blocked = [job(number, limit_us=100) for number in (1, 2, 3)]
    assert started(site.plan(*blocked).placements) == [1, 2, 3]
    waiting = [job(4), job(5, "bob"), job(6), job(7, "bob"), job(8, "bob")]
    assert dict(starts(site.plan(*waiting))) == {4: 100, 5: 100, 6: 100, 7: 200, 8: 200}
    site.rule(FOUR_CORES)
    plan = site.plan(*waiting, at_us=NOW + 1)
    # One of ada's two keeps its place; the room of the other goes to the first who can use it.
    assert dict(starts(plan)) == {4: 100, 5: 100, 6: 200, 7: 100, 8: 200}
    assert plan.why(6).kind is WhyKind.LIMIT
    site.rule()
    assert dict(starts(site.plan(*waiting, at_us=NOW + 2))) == {4: 100, 5: 100, 6: 200, 7: 100, 8: 200}


def test_of_an_array_as_many_tasks_stay_as_another_limit_lets() -> None:
    site = Site("planned", Limit("bob8", "user", "bob", "cores", Amount(8)))
    site.plan(*(job(number) for number in (1, 2, 3)))
    array = job(4, startable=3)
    assert [(one.start_us - NOW, one.tasks) for one in site.plan(array).promises()] == [(100, 3)]
    site.rule(Limit("ada8", "user", "ada", "cores", Amount(8)))
    plan = site.plan(array, at_us=NOW + 1)
    assert [(one.start_us - NOW, one.tasks) for one in plan.promises()] == [(100, 2), (200, 1)]


@pytest.mark.parametrize(
    "limit",
    [Limit("two", "user", "ada", "nodes", Amount(2)), Limit("two", "user", "ada", "nodes", area_s=200)],
)
def test_tasks_of_an_array_that_share_a_node_count_it_once_each(limit: Limit) -> None:
    second = 1_000_000
    site = Site("planned")
    site.plan(*[job(number, "bob", limit_us=100 * second) for number in (1, 2, 3)])
    array = replace(job(4, limit_us=100 * second, startable=3), request=Request(cpus_per_task=2))
    promised = site.plan(array).promises()
    assert [(one.start_us - NOW, one.tasks, len(one.spans)) for one in promised] == [(100 * second, 3, 2)]
    # They begin as jobs of their own.
    site.rule(limit)
    plan = site.plan(array, at_us=NOW + 1)
    assert next((one.start_us - NOW, one.tasks) for one in plan.promises()) == (100 * second, 2)
    for number in (1, 2, 3):
        site.end(number)
    assert started(site.plan(array, at_us=NOW + 100 * second).placements) == [4, 4]


def test_a_reservation_displaces_those_in_its_way_and_a_pool_what_it_leaves_no_room_for() -> None:
    site = Site("planned")
    site.plan(*(job(number) for number in (1, 2, 3)))
    waiting = [job(number) for number in (4, 5, 6)]
    plan = site.plan(*waiting)
    where = {booking.job_id: booking.spans[0].node for booking in plan.promises()}
    course = Reservation("course", Validity(from_us=NOW + 150, until_us=NOW + 170), ("n1",), users=("bob",))
    site.rule(course)
    plan = site.plan(*waiting, at_us=NOW + 1)
    moved = next(job_id for job_id, node in where.items() if node == 1)
    assert dict(starts(plan)) == {number: 170 if number == moved else 100 for number in (4, 5, 6)}
    site.rule(FreePool("eight", "cores", Amount(8)))
    assert sorted(start for _, start in starts(site.plan(*waiting, at_us=NOW + 2))) == [100, 200, 300]


def test_a_job_that_just_fits_its_window_begins_though_its_start_is_noticed_late() -> None:
    window = Validity(from_us=NOW + 50, until_us=NOW + 150)
    site = Site("planned", Reservation("course", window, ("n0",), users=("ada",)))
    inside = job(1, reservation="course")
    assert starts(site.plan(inside)) == [(1, 50)]
    assert started(site.plan(inside, at_us=NOW + 53).placements) == [1]


def test_a_start_noticed_when_its_whole_place_is_over_is_held_against_the_limits_as_they_are() -> None:
    site = Site("planned", Limit("one", "user", "ada", "cores", Amount(1)))
    one, other = (replace(job(number), request=Request()) for number in (1, 2))
    held = replace(one, not_before_us=NOW + 50)
    assert starts(site.plan(later=[held])) == [(1, 50)]
    # Its begin time has come and its place is over before it is released; meanwhile another one begins.
    assert started(site.plan(other, at_us=NOW + 170, later=[held]).placements) == [2]
    plan = site.plan(one, at_us=NOW + 171)
    assert started(plan.placements) == []
    assert starts(plan) == [(1, 270)]


def wide(job_id: int, count: int, *, limit_us: int = 100) -> Pending:
    request = Request(nodes_min=count, nodes_max=count, cpus_per_task=4)
    return Pending(job_id, request, "main", limit_us, submitted_us=job_id, user="ada")


CLOSED = Validity(NOW + 60, NOW + 150)
EARLY = (
    pytest.param(Reservation("r", CLOSED, ("n0",), maintenance=True), id="maintenance"),
    pytest.param(Reservation("r", CLOSED, ("n0",), users=("eve",)), id="somebody's reservation"),
    pytest.param(FreePool("p", "cores", Amount(4), validity=CLOSED), id="pool"),
)


@pytest.mark.parametrize("rule", EARLY)
@pytest.mark.parametrize("policy", ["easy", "conservative", "planned"])
def test_a_promise_holds_when_a_rule_blocks_the_job_instead_of_what_runs(policy: str, rule: Policy) -> None:
    site = Site(policy, rule)
    head = wide(2, 3)
    assert started(site.plan(wide(1, 1, limit_us=200), head).placements) == [1]
    assert starts(site.plan(head, at_us=NOW + 5)) == [(2, 200)]
    # Job 1 ends early: from now on only the rule keeps the head from starting, until 150.
    site.end(1)
    plan = site.plan(head, job(3, "bob", limit_us=9_999), at_us=NOW + 10)
    assert started(plan.placements) == []
    # EASY looks for a better place only when the promise is older than a second.
    assert plan.start_us(2) == NOW + (200 if policy == "easy" else 150)
    plan = site.plan(head, job(3, "bob", limit_us=9_999), at_us=NOW + 2_000_010)
    assert started(plan.placements) == [2]


@pytest.mark.parametrize("rule", EARLY)
def test_easy_promises_the_first_job_that_a_rule_blocks_and_the_first_that_waits_for_nodes(
    rule: Policy,
) -> None:
    site = Site("easy", rule)
    jobs = [wide(1, 3), wide(2, 3, limit_us=101), wide(3, 1, limit_us=50), wide(4, 3, limit_us=40)]
    plan = site.plan(*jobs)
    # Job 2 asks for what job 1 does, and is behind it.
    assert started(plan.placements) == [3]
    assert starts(plan) == [(1, 150), (4, 250)]


def test_a_job_that_waits_for_its_own_reservation_is_in_nobodys_way() -> None:
    later = Validity(NOW + 1_000, NOW + 2_000)
    site = Site("easy", Reservation("r", later, ("n0",), users=("ada",)))
    inside = job(1, reservation="r")
    plan = site.plan(inside, job(2, "bob", limit_us=50), wide(3, 3))
    assert started(plan.placements) == [2]
    assert starts(plan) == [(3, 50)]


@pytest.mark.parametrize("policy", ["easy", "conservative", "planned"])
def test_a_job_that_a_pool_lets_in_delays_no_promise_outside(policy: str) -> None:
    site = Site(policy, FreePool("urgent", "cores", Amount(4), (Access(users=("ada",)),)))
    wide = replace(job(3, "bob"), request=Request(tasks=2, cpus_per_task=4))
    plan = site.plan(job(1, "bob"), job(2, "bob"), wide)
    assert started(plan.placements) == [1, 2] and starts(plan) == [(3, 100)]
    # What the pool keeps is used by a job that it is kept for: it starts at once, and is in nobody's way.
    plan = site.plan(wide, job(4, "ada", limit_us=300), at_us=NOW + 50)
    assert started(plan.placements) == [4] and starts(plan) == [(3, 100)]
    site.rule(*site.policies["pool"].values(), Limit("other", "user", "eve", "cores", Amount(1)))
    site.end(1)
    site.end(2)
    assert started(site.plan(wide, job(5, "bob"), at_us=NOW + 100).placements) == [3]
    # Others outside find no more than the pool leaves them beside all that runs.
    plan = site.plan(job(5, "bob"), at_us=NOW + 101)
    assert not plan.placements and plan.why(5).kind in (WhyKind.POOL, WhyKind.RESOURCES)


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "planned"])
def test_cores_that_come_back_to_a_suspended_job_count_for_its_owner(policy: str) -> None:
    site = Site(policy, FOUR_CORES)
    assert started(site.plan(job(1)).placements) == [1]
    site.lend(1, left_us=70)
    plan = site.plan(job(2), job(3, "bob"), at_us=NOW + 10)
    assert started(plan.placements) == [3], "it may go on while this plan is under way"
    assert "limit ada4" in plan.why(2).text
    # What was booked for its return is not counted a second time when it is booked anew.
    plan = site.plan(job(2), at_us=NOW + 20)
    assert not plan.placements and "limit ada4" in plan.why(2).text
    site.end(1)
    assert started(site.plan(job(2), at_us=NOW + 30).placements) == [2]


def test_cores_that_come_back_count_no_node_twice() -> None:
    site = Site("planned", Limit("two", "user", "ada", "nodes", Amount(2)))
    assert started(site.plan(job(1)).placements) == [1]
    site.lend(1, left_us=70)
    assert started(site.plan(job(2), job(3), at_us=NOW + 10).placements) == [2]


def test_outsiders_keep_no_place_in_what_a_pool_keeps() -> None:
    site = Site("planned")
    plan = site.plan(*[job(number, "bob") for number in range(1, 4)], *[job(4, "bob"), job(5, "bob")])
    assert starts(plan) == [(4, 100), (5, 100)]
    site.rule(FreePool("urgent", "cores", Amount(8), (Access(users=("ada",)),)))
    assert starts(site.plan(job(4, "bob"), job(5, "bob"), at_us=NOW + 1)) == [(4, 100), (5, 200)]
