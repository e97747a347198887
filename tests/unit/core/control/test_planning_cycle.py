"""The planner's cycles: events in, one action out. Goal: one cycle at a time, after all that the one before asked for."""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.control.planning import REPLAN_US
from eslurm.core.control.planning_cycle import REST_MAX_US, Begin, PlanningCycle, Post, Rest, Wait
from eslurm.core.control.promises import waiting_plan
from eslurm.core.model.promise import Promise
from eslurm.core.plan.cycle.plan import Plan
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state.cluster import State


class Bench:
    """A planner's machine and the state that asks for plans."""

    def __init__(self) -> None:
        self.state = State("ctl")
        self.cycle = PlanningCycle()
        self.action = self.cycle.rested(self.state, 0)

    def wait(self) -> Wait:
        assert isinstance(self.action, Wait)
        return self.action

    def plan(self, moved: int = 0, next_us: int = INFINITY_US) -> Plan:
        plan = waiting_plan(self.state, 0, next_us)
        self.state.plan_wanted = False
        return replace(plan, moved=tuple(Promise(job_id, ()) for job_id in range(1, moved + 1)))


def test_it_waits_for_a_reason_to_plan() -> None:
    bench = Bench()
    assert bench.wait() == Wait(REPLAN_US) and bench.cycle.is_idle
    assert bench.cycle.looked(bench.state) is None
    bench.state.want_plan()
    assert bench.cycle.looked(bench.state) == Begin() and not bench.cycle.is_idle
    assert bench.cycle.looked(bench.state) is None, "one cycle at a time"


def test_a_wait_that_another_reason_ended_is_not_due_any_more() -> None:
    bench = Bench()
    wait = bench.wait()
    bench.state.want_plan()
    bench.cycle.looked(bench.state)
    assert bench.cycle.due(wait, bench.state) is None
    bench.cycle.planned(bench.plan(), 0)
    later = bench.cycle.rested(bench.state, 0)
    assert isinstance(later, Wait) and bench.cycle.due(wait, bench.state) is None
    assert bench.cycle.due(later, bench.state) == Begin() and bench.state.plan_wanted


def test_a_plan_is_decided_part_by_part_before_the_next_cycle() -> None:
    bench = Bench()
    bench.state.want_plan()
    bench.cycle.looked(bench.state)
    plan = bench.plan(moved=1)
    post = bench.cycle.planned(plan, 3_000)
    assert isinstance(post, Post) and bench.cycle.plan is plan
    bench.state.want_plan()
    assert bench.cycle.looked(bench.state) is None
    assert bench.cycle.decided() == Rest(6_000)
    assert bench.cycle.rested(bench.state, 0) == Begin()


def test_a_long_cycle_leaves_the_loop_to_others_for_a_bounded_time() -> None:
    bench = Bench()
    bench.cycle.due(bench.wait(), bench.state)
    assert bench.cycle.planned(bench.plan(), 10**9) == Rest(REST_MAX_US)


def test_an_unfinished_plan_is_gone_on_with_and_a_planned_start_is_waited_for() -> None:
    bench = Bench()
    bench.cycle.due(bench.wait(), bench.state)
    bench.cycle.planned(replace(bench.plan(), is_unfinished=True), 0)
    assert bench.cycle.rested(bench.state, 0) == Begin()
    bench.cycle.planned(bench.plan(next_us=7_000_000), 0)
    assert bench.cycle.rested(bench.state, 5_000_000) == Wait(2_000_000)
