"""Strict order and EASY backfill on chosen cases."""

from __future__ import annotations

import pytest

from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.cycle import plan_at_once, plan_cycle
from eslurm.core.plan.cycle.plan import PlanLimits
from eslurm.core.plan.cycle.policies import get_policy
from eslurm.core.plan.cycle.queue import PendingQueue
from eslurm.core.plan.cycle.reasons import WhyKind
from eslurm.core.plan.cycle.schedule import Schedule
from eslurm.core.plan.cycle.snapshot import NodeView, Running, Snapshot
from eslurm.core.resources.timeline import INFINITY_US
from tests.kits.plan_building import NOW, job, ledger, nodes, runs, snapshot, started

WIDE = Request(nodes_min=2, nodes_max=2, cpus_per_task=4)
"""Two whole nodes of four cores."""


def test_fcfs_does_not_pass_the_first_that_waits() -> None:
    view = snapshot(nodes(2), [job(1, WIDE), job(2), job(3)], [runs(0, 4, NOW + 50)])
    plan = plan_at_once(view, policy="fcfs")
    assert plan.placements == ()
    assert plan.why(1).kind is WhyKind.RESOURCES
    assert "2 nodes" in plan.why(1).text
    assert plan.why(2).kind is WhyKind.PRIORITY
    assert "job 1" in plan.why(2).text
    assert plan.generation == 7


def test_easy_fills_the_hole_with_jobs_that_end_in_time() -> None:
    jobs = [job(1, WIDE), job(2, limit_us=51), job(3, limit_us=50), job(4, limit_us=10)]
    plan = plan_at_once(snapshot(nodes(2), jobs, [runs(0, 4, NOW + 50)]))
    assert started(plan.placements) == [3, 4]
    assert [(promise.job_id, promise.start_us) for promise in plan.promises()] == [(1, NOW + 50)]
    assert plan.why(1).planned_start_us == NOW + 50
    assert plan.why(2).kind is WhyKind.PRIORITY
    assert "delay the promised start of job 1" in plan.why(2).text


def test_easy_fills_what_the_promise_leaves_spare_and_no_more() -> None:
    head = job(1, Request(nodes_min=2, nodes_max=2, cpus_per_task=3))
    long = [job(number, limit_us=9_999) for number in (2, 3, 4)]
    plan = plan_at_once(snapshot(nodes(2), [head, *long], [runs(0, 2, NOW + 50)]))
    # Beside the promised three cores one is spare on each node; the third job would eat into them.
    assert started(plan.placements) == [2, 3]
    assert [span.node for placement in plan.placements for span in placement.spans] == [0, 1]
    assert plan.why(4).kind is WhyKind.PRIORITY


def test_a_long_job_may_use_nodes_that_were_not_promised() -> None:
    plan = plan_at_once(
        snapshot(
            nodes(3), [job(1, WIDE), job(2, limit_us=9_999)], [runs(0, 4, NOW + 50), runs(1, 4, NOW + 20)]
        )
    )
    assert [promise.start_us for promise in plan.promises()] == [NOW + 20]
    assert started(plan.placements) == []
    plan = plan_at_once(
        snapshot(
            nodes(4),
            [job(1, Request(nodes_min=3, nodes_max=3, cpus_per_task=4)), job(2, limit_us=9_999)],
            [runs(0, 4, NOW + 50), runs(1, 4, NOW + 50)],
        )
    )
    # All of n0..n2 are promised together with what comes back; n3 is left.
    assert [span.node for promise in plan.promises() for span in promise.spans] == [0, 1, 2]
    assert [span.node for placement in plan.placements for span in placement.spans] == [3]


def test_a_job_without_a_limit_never_ends_in_time() -> None:
    jobs = [job(1, WIDE), job(2, limit_us=0)]
    plan = plan_at_once(snapshot(nodes(2), jobs, [runs(0, 4, NOW + 50)]))
    assert plan.placements == ()


def test_memory_is_protected_like_cores() -> None:
    head = job(1, Request(nodes_min=1, nodes_max=1, memory_per_node_mib=90))
    filler = job(2, Request(memory_per_node_mib=20), limit_us=9_999)
    small = job(3, Request(memory_per_node_mib=10), limit_us=9_999)
    plan = plan_at_once(
        snapshot(nodes(1, memory_mib=100), [head, filler, small], [runs(0, 1, NOW + 50, memory_mib=50)])
    )
    assert started(plan.placements) == [3]


def test_an_array_record_is_planned_as_many_placements() -> None:
    plan = plan_at_once(snapshot(nodes(2), [job(1, startable=100), job(2)]))
    assert started(plan.placements) == [1] * 8
    plan = plan_at_once(snapshot(nodes(2), [job(1, startable=5), job(2)]))
    assert started(plan.placements) == [1] * 5 + [2]


def test_a_partition_that_is_down_or_missing_blocks_nobody() -> None:
    partitions = [PartitionView("main"), PartitionView("closed", up=False)]
    jobs = [job(1, partition="closed"), job(2, partition="nowhere"), job(3)]
    for policy in ("fcfs", "easy"):
        plan = plan_at_once(snapshot(nodes(1), jobs, partitions=partitions), policy=policy)
        assert started(plan.placements) == [3]
        assert plan.why(1).kind is WhyKind.PARTITION_DOWN
        assert "is down" in plan.why(1).text
        assert "does not exist" in plan.why(2).text


def test_a_job_that_needs_nodes_out_of_service_blocks_nobody() -> None:
    for policy in ("fcfs", "easy"):
        plan = plan_at_once(snapshot(nodes(2, out=[1]), [job(1, WIDE), job(2)]), policy=policy)
        assert started(plan.placements) == [2]
        assert plan.why(1).kind is WhyKind.NODES_UNAVAILABLE
        assert "1 of the 2" in plan.why(1).text


def chain() -> list[NodeView]:
    """n0 in left, n1 in left and both, n2 in both and right, n3 in right."""
    partitions = [("left",), ("left", "both"), ("both", "right"), ("right",)]
    return [NodeView(i, f"n{i}", (4,), True, inside) for i, inside in enumerate(partitions)]


CHAIN = [PartitionView(name) for name in ("left", "both", "right")]


def test_partitions_without_a_common_node_have_a_promise_each() -> None:
    jobs = [job(1, WIDE, partition="left"), job(2, WIDE, partition="right")]
    view = snapshot(chain(), jobs, [runs(0, 4, NOW + 5), runs(3, 4, NOW + 9)], partitions=CHAIN)
    plan = plan_at_once(view)
    assert [(promise.job_id, promise.start_us) for promise in plan.promises()] == [(1, NOW + 5), (2, NOW + 9)]


def test_no_promise_is_made_past_a_blocked_job_that_could_break_it() -> None:
    jobs = [
        job(1, WIDE, partition="left"),
        job(2, WIDE, partition="both"),
        job(3, WIDE, partition="right"),
    ]
    running = [runs(0, 4, NOW + 5), runs(2, 1, NOW + 7), runs(3, 4, NOW + 9)]
    plan = plan_at_once(snapshot(chain(), jobs, running, partitions=CHAIN))
    assert [promise.job_id for promise in plan.promises()] == [1]
    assert plan.why(3).kind is WhyKind.RESOURCES


def test_fcfs_blocks_along_the_chain_of_partitions() -> None:
    jobs = [job(1, WIDE, partition="left"), job(2, partition="both"), job(3, partition="right")]
    plan = plan_at_once(
        snapshot(chain(), jobs, [runs(0, 4, NOW + 5)], partitions=CHAIN),
        policy="fcfs",
    )
    assert plan.placements == ()
    assert plan.why(2).kind is WhyKind.PRIORITY
    assert plan.why(3).kind is WhyKind.PRIORITY


def test_a_promise_is_kept_while_it_is_fresh_and_can_be_kept() -> None:
    limits = PlanLimits(promise_refresh_us=30)
    view = snapshot(nodes(2), [job(1, WIDE)], [runs(0, 4, NOW + 50), runs(1, 1, NOW + 40)])
    schedule = Schedule()
    first = plan_at_once(view, limits=limits, schedule=schedule)
    assert [promise.made_us for promise in first.promises()] == [NOW]
    # n1 came back early: still the same promise, until it is due for another look.
    sooner = [runs(0, 4, NOW + 30)]
    later = snapshot(nodes(2), [job(1, WIDE)], sooner, now_us=NOW + 20)
    assert plan_at_once(later, limits=limits, schedule=schedule).promises() == first.promises()
    due = snapshot(nodes(2), [job(1, WIDE)], [runs(0, 4, NOW + 40)], now_us=NOW + 30)
    anew = plan_at_once(due, limits=limits, schedule=schedule).promises()
    assert [promise.start_us for promise in anew] == [NOW + 40]


@pytest.mark.parametrize(
    "running",
    [
        pytest.param([runs(0, 4, NOW + 60)], id="something holds longer"),
        pytest.param([runs(1, 1, NOW + 60)], id="someone else came first"),
    ],
)
def test_a_promise_that_cannot_be_kept_is_made_anew(running: list[Running]) -> None:
    view = snapshot(nodes(2), [job(1, WIDE)], [runs(0, 4, NOW + 50)])
    schedule = Schedule()
    plan_at_once(view, schedule=schedule)
    changed = snapshot(nodes(2), [job(1, WIDE)], running, now_us=NOW + 1)
    plan = plan_at_once(changed, schedule=schedule)
    assert [promise.start_us for promise in plan.promises()] == [NOW + 60]


def test_a_promise_on_a_lost_node_moves_to_another() -> None:
    view = snapshot(nodes(3), [job(1, WIDE)], [runs(0, 4, NOW + 50), runs(2, 4, NOW + 70)])
    schedule = Schedule()
    first = plan_at_once(view, schedule=schedule)
    assert [span.node for span in first.promises()[0].spans] == [0, 1]
    lost = snapshot(
        nodes(3, out=[0]), [job(1, WIDE)], [runs(0, 4, NOW + 50), runs(2, 4, NOW + 70)], now_us=NOW + 1
    )
    plan = plan_at_once(lost, schedule=schedule)
    assert [span.node for span in plan.promises()[0].spans] == [1, 2]


def test_an_overdue_end_is_expected_after_the_grace() -> None:
    limits = PlanLimits(overdue_grace_us=25)
    view = snapshot(nodes(2), [job(1, WIDE), job(2, limit_us=25)], [runs(0, 4, NOW - 5)])
    plan = plan_at_once(view, limits=limits)
    assert [promise.start_us for promise in plan.promises()] == [NOW + 25]
    assert started(plan.placements) == [2]


def test_what_holds_for_ever_allows_no_promise_but_blocks_no_backfill() -> None:
    view = snapshot(nodes(2), [job(1, WIDE), job(2, limit_us=9_999)], [runs(0, 4, INFINITY_US)])
    plan = plan_at_once(view)
    assert plan.promises() == []
    assert started(plan.placements) == [2]
    assert plan.why(1).planned_start_us is None


def test_a_full_cluster_costs_a_look_at_the_first_job() -> None:
    jobs = [job(number) for number in range(1, 500)]
    plan = plan_at_once(snapshot(nodes(2), jobs, [runs(0, 4, NOW + 5), runs(1, 4, NOW + 5)]))
    assert plan.examined == 0
    assert plan.why(1).kind is WhyKind.RESOURCES
    assert plan.why(400).kind is WhyKind.PRIORITY
    assert plan.promises() == []


def test_a_promise_outlives_a_full_cluster() -> None:
    view = snapshot(nodes(2), [job(1, WIDE), job(2)], [runs(0, 4, NOW + 50)])
    schedule = Schedule()
    kept = plan_at_once(view, schedule=schedule).promises()
    full = snapshot(nodes(2), [job(1, WIDE)], [runs(0, 4, NOW + 50), runs(1, 4, NOW + 40)])
    plan = plan_at_once(full, schedule=schedule)
    assert plan.promises() == kept
    assert plan.why(1).planned_start_us == NOW + 50


def test_nothing_in_service_is_said_to_everyone() -> None:
    plan = plan_at_once(snapshot(nodes(2, out=[0, 1]), [job(1), job(2)]))
    assert plan.why(2).kind is WhyKind.NODES_UNAVAILABLE


def test_bounds_of_a_cycle() -> None:
    jobs = [job(number) for number in range(1, 9)]
    plan = plan_at_once(snapshot(nodes(4), jobs), limits=PlanLimits(placements_max=3))
    assert started(plan.placements) == [1, 2, 3]
    assert plan.why(4).kind is WhyKind.NOT_EXAMINED
    plan = plan_at_once(snapshot(nodes(4), jobs), limits=PlanLimits(examined_max=2))
    assert started(plan.placements) == [1, 2]
    array = [job(1, startable=9)]
    plan = plan_at_once(snapshot(nodes(4), array), limits=PlanLimits(placements_max=3))
    assert len(plan.placements) == 3
    assert plan.promises() == []
    blocked = [job(1, WIDE), *(job(number, WIDE, limit_us=number) for number in range(2, 20))]
    plan = plan_at_once(snapshot(nodes(2), blocked, [runs(0, 4, NOW + 9)]), limits=PlanLimits(tries_max=4))
    assert plan.examined == 6


def test_the_snapshot_stays_as_it_was_while_the_cluster_goes_on() -> None:
    living, queue = ledger(nodes(2)), PendingQueue([job(1), job(2)])
    partitions = {"main": PartitionView("main")}
    view = Snapshot.take(living, partitions, queue, generation=3, now_us=NOW)
    slices = plan_cycle(view, limits=PlanLimits(slice_steps=1))
    next(slices)
    living.hold(0, (4, 0))
    queue.remove(2)
    with pytest.raises(StopIteration) as finished:
        while True:
            next(slices)
    assert started(finished.value.value.placements) == [1, 2]
    assert living.free(0) == (0, 0)


def test_unknown_policies_name_the_known_ones() -> None:
    with pytest.raises(ValueError, match="fcfs, easy"):
        get_policy("lottery")
    with pytest.raises(ValueError, match="lottery"):
        plan_at_once(snapshot(nodes(1), []), policy="lottery")


def test_a_promise_is_kept_when_no_more_may_be_looked_for() -> None:
    jobs = [job(1, WIDE, partition="left"), job(2, WIDE, partition="right")]
    running = [runs(0, 4, NOW + 50), runs(3, 4, NOW + 90)]
    schedule = Schedule()
    plan_at_once(snapshot(chain(), jobs, running, partitions=CHAIN), schedule=schedule)
    later = snapshot(chain(), jobs, running, partitions=CHAIN, now_us=NOW + 10)
    limits = PlanLimits(searches_max=1, promise_refresh_us=5)
    plan = plan_at_once(later, limits=limits, schedule=schedule)
    assert [(promise.job_id, promise.start_us) for promise in plan.promises()] == [
        (1, NOW + 50),
        (2, NOW + 90),
    ]
