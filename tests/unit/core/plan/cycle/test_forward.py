"""Planning ahead on chosen cases: the waiting room, fixed starts, deadlines, arrays, dependants, slices."""

from __future__ import annotations

import pytest

from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import plan_at_once, plan_cycle
from eslurm.core.plan.cycle.plan import Plan, PlanLimits
from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.cycle.reasons import WhyKind
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import Running, Snapshot
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US
from tests.kits.plan_building import NOW, job, nodes, runs, started

WIDE = Request(nodes_min=2, nodes_max=2, cpus_per_task=4)
NODE = Request(cpus_per_task=4)
"""A whole node of four cores."""


class Bench:
    """Two nodes of four cores and one schedule from snapshot to snapshot."""

    def __init__(self, policy: str = "planned", count: int = 2, **limits: int) -> None:
        self.policy = policy
        self.count = count
        self.topology = Topology(nodes(count))
        self.schedule = Schedule()
        self.limits = PlanLimits(**limits)
        self.running: list[Running] = []

    def plan(self, *jobs: Pending, at_us: int = NOW, out: tuple[int, ...] = (), up: bool = True) -> Plan:
        view = Snapshot.build(
            nodes(self.count, out=out),
            [PartitionView("main", up)],
            self.running,
            [one for one in jobs if not one.after and not one.not_before_us],
            now_us=at_us,
            later=[one for one in jobs if one.after or one.not_before_us],
            topology=self.topology,
        )
        plan = plan_at_once(view, policy=self.policy, limits=self.limits, schedule=self.schedule)
        self.schedule.book.check()
        return plan

    def run(self, plan: Plan) -> None:
        """Run the placed jobs."""
        for placement in plan.placements:
            pairs = tuple((span.node, span.amounts) for span in placement.spans)
            self.running.append(Running(placement.job_id, pairs, placement.until_us))


def starts(plan: Plan) -> dict[int, int]:
    return {booking.job_id: booking.start_us - NOW for booking in plan.promises()}


def later(job_id: int, request: Request = NODE, *, limit_us: int = 100, **more: object) -> Pending:
    return Pending(job_id, request, "main", limit_us, submitted_us=job_id, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["conservative", "planned"])
def test_every_job_has_a_planned_start(policy: str) -> None:
    bench = Bench(policy)
    plan = bench.plan(job(1, WIDE), job(2, WIDE), job(3, NODE, limit_us=50), job(4, WIDE, limit_us=10))
    assert started(plan.placements) == [1]
    assert starts(plan) == {2: 100, 3: 200, 4: 250}
    assert plan.why(2).planned_start_us == NOW + 100
    assert plan.why(2).kind is WhyKind.RESOURCES
    assert plan.next_us == NOW + 100
    bench.run(plan)
    # The first ends early: everybody moves up, in order.
    bench.running.clear()
    plan = bench.plan(job(2, WIDE), job(3, NODE, limit_us=50), job(4, WIDE, limit_us=10), at_us=NOW + 40)
    assert started(plan.placements) == [2]
    assert starts(plan) == {3: 140, 4: 190}


def test_a_late_arrival_fills_a_hole_and_delays_nobody() -> None:
    bench = Bench()
    bench.running = [runs(0, 4, NOW + 50)]
    plan = bench.plan(job(1, WIDE))
    assert starts(plan) == {1: 50}
    plan = bench.plan(
        job(1, WIDE), job(2, NODE, limit_us=50, priority=9), job(3, NODE, limit_us=51, priority=9)
    )
    assert started(plan.placements) == [2]
    assert starts(plan) == {1: 50, 3: 150}


def test_a_planned_start_begins_when_it_is_due_even_a_little_late() -> None:
    bench = Bench()
    bench.running = [runs(0, 4, NOW + 50)]
    jobs = (job(1, WIDE), job(2, WIDE))
    assert starts(bench.plan(*jobs)) == {1: 50, 2: 150}
    bench.running.clear()
    # Three microseconds late: the start moves by that much, and the one behind it too.
    plan = bench.plan(*jobs, at_us=NOW + 53)
    assert started(plan.placements) == [1]
    assert plan.placements[0].until_us == NOW + 153
    assert starts(plan) == {2: 153}


def test_work_past_its_end_displaces_what_was_planned_behind_it() -> None:
    bench = Bench(overdue_grace_us=25)
    bench.running = [runs(0, 4, NOW + 50)]
    assert starts(bench.plan(job(1, WIDE))) == {1: 50}
    assert starts(bench.plan(job(1, WIDE), at_us=NOW + 50)) == {1: 75}


@pytest.mark.parametrize("policy", ["conservative", "planned"])
def test_what_work_past_its_end_costs_is_shared_by_those_behind(policy: str) -> None:
    bench = Bench(policy, overdue_grace_us=25)
    bench.running = [runs(0, 4, NOW + 50), runs(1, 4, NOW + 50)]
    jobs = (job(1, WIDE), job(2, WIDE), job(3, NODE, limit_us=90))
    assert starts(bench.plan(*jobs)) == {1: 50, 2: 150, 3: 250}
    bench.running.pop()
    # The first one keeps its turn: nobody behind it is where it goes.
    assert starts(bench.plan(*jobs, at_us=NOW + 50)) == {1: 75, 2: 175, 3: 275}


def test_no_more_than_a_cycle_may_look_at_give_way() -> None:
    bench = Bench("conservative", overdue_grace_us=25, improved_max=1)
    bench.running = [runs(0, 4, NOW + 50), runs(1, 4, NOW + 50)]
    jobs = tuple(job(number, WIDE) for number in range(1, 5))
    assert starts(bench.plan(*jobs)) == {1: 50, 2: 150, 3: 250, 4: 350}
    bench.running.pop()
    # The next one alone makes room for the first; the others keep what they have.
    assert starts(bench.plan(*jobs, at_us=NOW + 50)) == {1: 75, 2: 450, 3: 250, 4: 350}


def test_the_waiting_room_empties_when_nodes_come_back() -> None:
    bench = Bench()
    plan = bench.plan(job(1, WIDE), job(2), out=(1,))
    assert started(plan.placements) == [2]
    assert plan.why(1).kind is WhyKind.NODES_UNAVAILABLE
    assert plan.why(1).planned_start_us is None
    assert bench.plan(job(1, WIDE), out=(1,)).why(1).kind is WhyKind.NODES_UNAVAILABLE
    assert started(bench.plan(job(1, WIDE)).placements) == [1]


def test_a_lost_node_displaces_its_jobs_only() -> None:
    bench = Bench(count=3)
    bench.running = [runs(0, 4, NOW + 50), runs(1, 4, NOW + 60), runs(2, 4, NOW + 70)]
    jobs = [job(1, NODE), job(2, NODE), job(3, NODE)]
    before = {b.job_id: (b.start_us - NOW, b.spans[0].node) for b in bench.plan(*jobs).promises()}
    assert before == {1: (50, 0), 2: (60, 1), 3: (70, 2)}
    after = {b.job_id: (b.start_us - NOW, b.spans[0].node) for b in bench.plan(*jobs, out=(1,)).promises()}
    assert after == {1: (50, 0), 2: (150, 0), 3: (70, 2)}


def test_a_partition_that_goes_down_keeps_nobody_in_the_plan() -> None:
    bench = Bench()
    bench.running = [runs(0, 4, NOW + 50)]
    bench.plan(job(1, WIDE))
    bench.topology = Topology(nodes(2))
    plan = bench.plan(job(1, WIDE), up=False)
    assert plan.promises() == []
    assert plan.why(1).kind is WhyKind.PARTITION_DOWN


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "planned"])
def test_a_fixed_start_is_an_appointment_for_every_policy(policy: str) -> None:
    bench = Bench(policy)
    fixed = later(1, WIDE, limit_us=20, start_at_us=NOW + 30)
    plan = bench.plan(fixed, job(2, NODE, limit_us=31), job(3, NODE, limit_us=30), job(4, NODE, limit_us=30))
    assert starts(plan)[1] == 30
    assert started(plan.placements) == ([] if policy == "fcfs" else [3, 4])
    assert plan.why(1).planned_start_us == NOW + 30
    plan = bench.plan(fixed, job(2, NODE, limit_us=31), at_us=NOW + 30)
    assert started(plan.placements) == [1]


def test_a_fixed_start_that_cannot_be_met_says_so() -> None:
    bench = Bench()
    bench.running = [runs(0, 4, NOW + 50)]
    plan = bench.plan(later(1, WIDE, start_at_us=NOW + 40))
    assert plan.why(1).kind is WhyKind.START_MISSED
    assert "cannot start exactly when asked" in plan.why(1).text
    missed = bench.plan(later(2, NODE, start_at_us=NOW + 1), at_us=NOW + 100_000_000)
    assert "has passed" in missed.why(2).text


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "planned"])
def test_a_fixed_start_that_becomes_possible_is_planned_by_every_policy(policy: str) -> None:
    bench = Bench(policy)
    bench.running = [runs(0, 4, NOW + 50)]
    fixed = later(1, WIDE, start_at_us=NOW + 40)
    assert bench.plan(fixed).promises() == []
    bench.running = []
    assert starts(bench.plan(fixed, at_us=NOW + 10)) == {1: 40}


def test_a_deadline_bounds_the_search() -> None:
    bench = Bench()
    bench.running = [runs(0, 4, NOW + 50)]
    plan = bench.plan(
        later(1, WIDE, limit_us=10, deadline_us=NOW + 60), later(2, WIDE, limit_us=11, deadline_us=NOW + 60)
    )
    assert starts(plan) == {1: 50}
    assert plan.why(2).kind is WhyKind.DEADLINE


def test_dependants_follow_those_they_wait_for() -> None:
    bench = Bench()
    bench.running = [runs(0, 4, NOW + 30)]
    jobs = [
        job(1, WIDE),
        later(2, limit_us=10, after=(1,)),
        later(3, limit_us=10, after=(2, 900)),
        later(4, after=(77,)),
    ]
    plan = bench.plan(*jobs)
    assert starts(plan) == {1: 30, 2: 130, 3: 140}
    assert plan.why(4).kind is WhyKind.DEPENDENCY
    assert "job 77" in plan.why(4).text
    # What they wait for ends early, so they all move up.
    bench.running.clear()
    plan = bench.plan(*jobs, at_us=NOW + 10)
    assert started(plan.placements) == [1]
    bench.run(plan)
    behind = (jobs[1], later(3, limit_us=10, after=(2,)))
    assert starts(bench.plan(*behind, at_us=NOW + 11)) == {2: 110, 3: 120}


ON_0 = Request(cpus_per_task=4, exclude=("n1",))
ON_1 = Request(cpus_per_task=4, exclude=("n0",))
"""A whole node, and which."""


@pytest.mark.parametrize("policy", ["conservative", "planned"])
def test_a_dependent_moves_up_on_nodes_that_its_dependency_never_had(policy: str) -> None:
    """Nothing that it may use has become free: what held it back was the end of the other job alone."""
    bench = Bench(policy)
    bench.run(bench.plan(job(1, ON_0)))
    third = later(3, ON_1, after=(2,))
    assert starts(bench.plan(later(2, ON_1, limit_us=10, after=(1,)), third)) == {2: 100, 3: 110}
    # It ends early.
    bench.running.clear()
    plan = bench.plan(job(2, ON_1, limit_us=10), third, at_us=NOW + 30)
    assert started(plan.placements) == [2] and starts(plan) == {3: 40}


@pytest.mark.parametrize("policy", ["conservative", "planned"])
def test_where_one_of_several_is_enough_the_first_known_end_counts(policy: str) -> None:
    bench = Bench(policy)
    bench.run(bench.plan(job(1, ON_0), job(5, ON_1, limit_us=40)))
    either = later(2, ON_1, limit_us=10, after=(1, 77, 5), after_any=True)
    unknown = later(3, ON_1, limit_us=10, after=(77, 78), after_any=True)
    plan = bench.plan(either, unknown)
    assert starts(plan) == {2: 40}
    assert plan.why(3).kind is WhyKind.DEPENDENCY
    # The one that would have ended first can not meet the condition any more.
    assert starts(bench.plan(later(2, ON_1, limit_us=10, after=(1, 77), after_any=True))) == {2: 100}
    # All of them have to end now, and one of them has no known end.
    assert starts(bench.plan(later(2, ON_1, limit_us=10, after=(1, 77)))) == {}
    assert starts(bench.plan(later(2, ON_1, limit_us=10, after=(1,)))) == {2: 100}


@pytest.mark.parametrize("policy", ["conservative", "planned"])
def test_a_job_that_is_to_wait_for_another_after_all_gives_its_place_up(policy: str) -> None:
    bench = Bench(policy)
    bench.run(bench.plan(job(1, ON_0)))
    bench.running.append(runs(1, 4, NOW + 20))
    assert starts(bench.plan(job(2, ON_1, limit_us=10))) == {2: 20}
    assert starts(bench.plan(later(2, ON_1, limit_us=10, after=(1,)))) == {2: 100}


@pytest.mark.parametrize("policy", ["conservative", "planned"])
def test_a_dependent_moves_up_when_its_dependency_is_planned_earlier(policy: str) -> None:
    bench = Bench(policy)
    bench.running = [runs(0, 4, NOW + 50)]
    first, second = job(1, ON_0), later(2, ON_1, limit_us=10, after=(1,))
    assert starts(bench.plan(first, second)) == {1: 50, 2: 150}
    bench.running.clear()
    plan = bench.plan(first, second, at_us=NOW + 10)
    assert started(plan.placements) == [1] and starts(plan) == {2: 110}


def test_a_dependent_keeps_its_place_when_its_dependency_starts_in_the_same_cycle() -> None:
    """The ends of what runs were asked for before it started."""
    bench = Bench("conservative")
    bench.running = [runs(0, 4, NOW + 50), runs(1, 4, NOW + 20)]
    early = later(2, ON_1, limit_us=10, after=(901,))
    first, second = job(1, ON_0), later(3, ON_1, limit_us=10, after=(1,))
    assert starts(bench.plan(early, first, second)) == {2: 20, 1: 50, 3: 150}
    bench.running = [runs(1, 4, NOW + 20)]
    plan = bench.plan(early, first, second, at_us=NOW + 10)
    assert started(plan.placements) == [1] and starts(plan) == {2: 20, 3: 110}


def test_a_dependent_that_moves_up_delays_nothing_planned() -> None:
    bench = Bench()
    first, second = job(1, ON_0), later(2, ON_1, limit_us=50, after=(1,))
    between = job(3, ON_1, limit_us=90)
    plan = bench.plan(first, second, between)
    assert started(plan.placements) == [1, 3] and starts(plan) == {2: 100}
    bench.run(plan)
    del bench.running[0]
    assert starts(bench.plan(job(2, ON_1, limit_us=50), at_us=NOW + 30)) == {2: 90}


def test_a_begin_time_is_planned_and_not_started_before_it_is_due() -> None:
    bench = Bench()
    plan = bench.plan(later(1, not_before_us=NOW + 40))
    assert starts(plan) == {1: 40}
    assert not plan.placements
    # Its time has come and its release is on the way: it waits in its place, and so do those behind it.
    for at_us in (NOW + 40, NOW + 42):
        plan = bench.plan(later(1, not_before_us=NOW + 40), at_us=at_us)
        assert not plan.placements
        assert starts(plan) == {1: 40}
    plan = bench.plan(job(1, NODE), at_us=NOW + 43)
    assert [(one.job_id, one.late_us) for one in plan.placements] == [(1, 3)]


def test_tasks_of_an_array_that_fit_together_are_planned_together() -> None:
    bench = Bench()
    plan = bench.plan(job(1, startable=100))
    assert started(plan.placements) == [1] * 8
    # 92 are left, 8 at a time.
    assert [(booking.start_us - NOW, booking.tasks) for booking in plan.promises()] == [
        *((100 * turn, 8) for turn in range(1, 12)),
        (1200, 4),
    ]
    assert plan.why(1).planned_start_us == NOW + 100
    wide = Bench().plan(job(1, WIDE, startable=3))
    assert [(booking.start_us - NOW, booking.tasks) for booking in wide.promises()] == [(100, 1), (200, 1)]


def test_an_array_starts_as_many_as_one_plan_may_place() -> None:
    bench = Bench(placements_max=3)
    plan = bench.plan(job(1, startable=10))
    assert started(plan.placements) == [1] * 3
    assert [(booking.start_us - NOW, booking.tasks) for booking in plan.promises()] == [(0, 5), (100, 2)]
    bench.run(plan)
    plan = bench.plan(job(1, startable=7), at_us=NOW + 1)
    assert started(plan.placements) == [1] * 3
    assert sum(booking.tasks for booking in plan.promises()) == 4


def test_an_array_of_ten_thousand_tasks_needs_few_searches() -> None:
    bench = Bench(count=100)
    plan = bench.plan(job(1, startable=10_000, limit_us=1_000))
    assert len(plan.placements) == 400
    assert sum(booking.tasks for booking in plan.promises()) == 9_600
    assert len(plan.promises()) == 24


def test_ten_thousand_dependants_in_a_row_are_planned_in_one_pass() -> None:
    bench = Bench()
    chain = [later(number, limit_us=10, after=(number - 1,)) for number in range(2, 1_001)]
    view = Snapshot.build(
        nodes(2), [PartitionView("main")], [], [job(1, NODE, limit_us=10)], now_us=NOW, later=chain
    )
    slices = plan_cycle(view, policy="planned", schedule=bench.schedule, limits=PlanLimits(slice_steps=1_000))
    pauses = 0
    while True:
        try:
            next(slices)
            pauses += 1
        except StopIteration as finished:
            plan: Plan = finished.value
            break
    assert plan.start_us(1_000) == NOW + 10 * 999
    # About a hundred steps for each of them, and no more for those at the end.
    assert pauses < 300


def test_a_pass_over_the_plan_goes_on_in_the_next_cycle() -> None:
    bench = Bench(improved_max=1)
    bench.running = [runs(0, 4, NOW + 50), runs(1, 4, NOW + 50)]
    jobs = [job(number, WIDE, limit_us=10) for number in (1, 2, 3)]
    assert starts(bench.plan(*jobs)) == {1: 50, 2: 60, 3: 70}
    bench.running.clear()
    plan = bench.plan(*jobs, at_us=NOW + 1)
    assert plan.is_unfinished
    assert started(plan.placements) == [1]
    bench.run(plan)
    plan = bench.plan(*jobs[1:], job(4, NODE), at_us=NOW + 1)
    assert plan.is_unfinished
    assert starts(plan) == {2: 11, 3: 70}
    assert plan.why(4).text
    plan = bench.plan(*jobs[1:], job(4, NODE), at_us=NOW + 1)
    plan = bench.plan(*jobs[1:], job(4, NODE), at_us=NOW + 1)
    assert starts(plan) == {2: 11, 3: 21, 4: 31}


def test_a_job_behind_one_without_an_end_stays_in_the_waiting_room() -> None:
    bench = Bench()
    bench.running = [runs(0, 4, INFINITY_US)]
    plan = bench.plan(job(1, WIDE))
    assert plan.promises() == []
    assert "without a time limit" in plan.why(1).text


@pytest.mark.parametrize("start_at_us", [0, NOW])
def test_nothing_begins_on_what_is_not_free_though_it_should_be(start_at_us: int) -> None:
    bench = Bench("planned", count=1, overdue_grace_us=30)
    one = later(1, start_at_us=start_at_us)
    view = Snapshot.build(nodes(1), [PartitionView("main")], [], [one], now_us=NOW, topology=bench.topology)
    view.ledger.hold(0, (4, 0), NOW + 10)
    plan = plan_at_once(view, policy="planned", limits=bench.limits, schedule=bench.schedule)
    assert plan.placements == ()
    if start_at_us:
        assert plan.why(1).kind is WhyKind.START_MISSED
    else:
        assert starts(plan) == {1: 30}
        assert plan.why(1).kind is WhyKind.RESOURCES
        assert plan.next_us == NOW + 30
    assert bench.schedule.displaced == {}


def test_of_a_job_that_vanishes_nothing_is_remembered() -> None:
    bench = Bench("planned", improved_max=1)
    never = Request(cpus_per_task=9)
    bench.running = [runs(0, 4, NOW + 50), runs(1, 4, NOW + 60)]
    bench.plan(job(1, never), job(2, NODE), job(3, NODE))
    assert bench.schedule.whys.keys() == {1, 2, 3}
    # What ends early clears the waiting room; the pass over those who may gain by it goes on in the next cycle.
    bench.running.clear()
    plan = bench.plan(job(1, never), job(2, NODE), job(3, NODE), at_us=NOW + 1)
    assert plan.is_unfinished
    assert bench.schedule.stuck == {}
    bench.plan(at_us=NOW + 2)
    assert bench.schedule.whys == {}
