"""EASY where run times are forecast: holes go to the shortest first, and promises are made as before."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import plan_at_once
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.cycle.reasons import NO_HOLE, WhyKind
from tests.kits.plan_building import NOW, job, nodes, runs, snapshot, started
from tests.unit.core.plan.cycle.test_policies import CHAIN, WIDE, chain

SHORT_US = 2


def expected(
    number: int, estimate_us: int, *, partition: str = "main", request: Request | None = None
) -> Pending:
    """Submitted a moment ago."""
    one = job(number, request, limit_us=100, partition=partition)
    return replace(one, estimate_us=estimate_us, submitted_us=NOW + number - 100)


def test_partitions_without_a_common_node_have_a_promise_each() -> None:
    jobs = [
        expected(1, 50, request=WIDE, partition="left"),
        expected(2, 40, request=WIDE, partition="left"),
        expected(3, 30, request=WIDE, partition="right"),
    ]
    view = snapshot(chain(), jobs, [runs(0, 4, NOW + 5), runs(3, 4, NOW + 9)], partitions=CHAIN)
    promises = plan_at_once(view).promises()
    assert [(promise.job_id, promise.start_us) for promise in promises] == [(1, NOW + 5), (3, NOW + 9)]


def test_no_promise_is_made_past_a_job_that_could_break_it() -> None:
    jobs = [
        expected(1, 50, request=WIDE, partition="left"),
        expected(2, 40, request=WIDE, partition="both"),
        expected(3, 30, request=WIDE, partition="right"),
    ]
    running = [runs(0, 4, NOW + 5), runs(2, 1, NOW + 7), runs(3, 4, NOW + 9)]
    plan = plan_at_once(snapshot(chain(), jobs, running, partitions=CHAIN))
    assert [promise.job_id for promise in plan.promises()] == [1]
    assert plan.why(3).kind is WhyKind.RESOURCES


def test_who_begins_keeps_no_promise_from_those_behind() -> None:
    jobs = [
        expected(1, 50, request=WIDE, partition="left"),
        expected(2, 40, partition="both"),
        expected(3, 30, request=WIDE, partition="right"),
    ]
    running = [runs(0, 4, NOW + 5), runs(3, 4, NOW + 9)]
    plan = plan_at_once(snapshot(chain(), jobs, running, partitions=CHAIN))
    assert started(plan.placements) == [2]
    assert [(promise.job_id, promise.start_us) for promise in plan.promises()] == [
        (1, NOW + 5),
        (3, NOW + 40),
    ]


def test_who_comes_first_has_the_hole_before_jobs_of_another_partition() -> None:
    jobs = [
        expected(1, 50, request=WIDE, partition="left"),
        expected(2, 4, partition="left", request=Request(cpus_per_task=3)),
        expected(3, 3, partition="both", request=Request(cpus_per_task=3)),
    ]
    running = [runs(0, 4, NOW + 5), runs(2, 2, NOW + 9)]
    plan = plan_at_once(snapshot(chain(), jobs, running, partitions=CHAIN))
    assert started(plan.placements) == [2]


@pytest.mark.parametrize("policy", ["easy", "planned"])
def test_holes_that_are_gone_are_a_reason(policy: str) -> None:
    whole = Request(cpus_per_task=4)
    jobs = [
        expected(1, 50, request=WIDE),
        *(expected(number, SHORT_US + 9 - number, request=whole) for number in range(2, 8)),
    ]
    plan = plan_at_once(snapshot(nodes(2), jobs, [runs(0, 4, NOW + 50)]), policy=policy)
    if policy == "easy":
        assert started(plan.placements) == [7], "the shortest"
        assert {plan.why(number) for number in range(2, 7)} == {NO_HOLE}
    else:
        assert started(plan.placements) == [2], "who comes first has the first place, and keeps it"
        assert {plan.why(number).kind for number in range(3, 8)} == {WhyKind.RESOURCES}


def test_bounds_of_a_cycle_hold_where_holes_are_filled() -> None:
    jobs = [expected(1, 50, request=WIDE), *(expected(number, number) for number in range(2, 9))]
    view = snapshot(nodes(3), jobs, [runs(0, 4, NOW + 50), runs(1, 4, NOW + 50)])
    plan = plan_at_once(view, limits=PlanLimits(placements_max=2))
    assert started(plan.placements) == [2, 3]
    assert plan.why(5).kind is WhyKind.NOT_EXAMINED
    blocked = [expected(1, 60, request=WIDE), *(expected(number, 70 + number) for number in range(2, 20))]
    view = snapshot(nodes(2), blocked, [runs(0, 4, NOW + 9)])
    plan = plan_at_once(view, limits=PlanLimits(tries_max=4))
    assert plan.examined == len(blocked)
    waiting = [number for number in range(2, 20) if plan.why(number).kind is not WhyKind.NOT_EXAMINED]
    assert waiting == [2, 3, 4, 5]
