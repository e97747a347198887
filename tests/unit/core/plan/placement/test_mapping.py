"""Mapping on chosen cases: shares, memory, whole nodes, names, order."""

from __future__ import annotations

import pytest

from eslurm.core.model.job import Span
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.placement import Placement
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.snapshot import NodeView
from eslurm.core.plan.placement.compiled_request import compile_request
from eslurm.core.plan.placement.mapping import end_of, place, revalidate
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US
from tests.kits.plan_building import ledger, nodes

MAIN = PartitionView("main")


def shares(
    cluster: Ledger, request: Request, partition: PartitionView = MAIN
) -> list[tuple[int, int]] | None:
    spans = place(cluster, compile_request(request, partition, cluster.topology))
    return None if spans is None else [(span.node, span.tasks) for span in spans]


def test_one_task_takes_the_first_node_that_fits() -> None:
    cluster = ledger(nodes(3))
    cluster.hold(0, (4, 0))
    assert shares(cluster, Request()) == [(1, 1)]


def test_tasks_stay_on_one_node_when_one_has_room() -> None:
    cluster = ledger(nodes(3))
    cluster.hold(0, (1, 0))
    assert shares(cluster, Request(tasks=4)) == [(1, 4)]
    assert shares(cluster, Request(tasks=6)) == [(1, 4), (2, 2)]
    assert shares(cluster, Request(tasks=11)) == [(0, 3), (1, 4), (2, 4)]
    assert shares(cluster, Request(tasks=12)) is None


def test_block_distribution_gives_the_first_nodes_one_more() -> None:
    cluster = ledger(nodes(4))
    assert shares(cluster, Request(tasks=8, nodes_min=3, nodes_max=3)) == [(0, 3), (1, 3), (2, 2)]
    assert shares(cluster, Request(tasks=8, nodes_min=2, nodes_max=4)) == [(0, 2), (1, 2), (2, 2), (3, 2)]
    # More nodes than tasks are not wanted.
    assert shares(cluster, Request(tasks=2, nodes_min=1, nodes_max=4)) == [(0, 1), (1, 1)]


def test_a_small_node_moves_behind_the_first_shares_or_lowers_its_own() -> None:
    cluster = ledger(nodes(3))
    cluster.hold(0, (2, 0))
    # n0 has room for 2 only: the two larger shares start behind it.
    assert shares(cluster, Request(tasks=5, nodes_min=2, nodes_max=2)) == [(1, 3), (2, 2)]
    assert shares(cluster, Request(tasks=8, nodes_min=3, nodes_max=3)) == [(0, 2), (1, 3), (2, 3)]
    assert shares(cluster, Request(tasks=10, nodes_min=3, nodes_max=3)) == [(0, 2), (1, 4), (2, 4)]
    assert shares(cluster, Request(tasks=11, nodes_min=3, nodes_max=3)) is None


def test_nodes_without_tasks_still_take_the_room_of_one() -> None:
    cluster = ledger(nodes(3))
    need = compile_request(Request(nodes_min=3, cpus_per_task=2), MAIN, cluster.topology)
    assert place(cluster, need) == (Span(0, (2, 0), 1), Span(1, (2, 0), 0), Span(2, (2, 0), 0))


def test_the_width_alone_takes_as_many_as_are_free() -> None:
    cluster = ledger(nodes(4))
    cluster.hold(2, (4, 0))
    request = Request(nodes_min=2, nodes_max=4)
    assert shares(cluster, request) == [(0, 1), (1, 0), (3, 0)]
    cluster.hold(0, (4, 0))
    cluster.hold(1, (4, 0))
    assert shares(cluster, request) is None


def test_tasks_per_node_is_a_cap() -> None:
    cluster = ledger(nodes(3))
    assert shares(cluster, Request(tasks=3, tasks_per_node=1)) == [(0, 1), (1, 1), (2, 1)]
    assert shares(cluster, Request(tasks=4, tasks_per_node=1)) is None
    assert shares(cluster, Request(tasks=3, tasks_per_node=1, nodes_max=2)) is None


@pytest.mark.parametrize(
    ("request_", "partition", "expected"),
    [
        (Request(tasks=2, memory_per_node_mib=50), MAIN, ((2, 50),)),
        (Request(tasks=2, cpus_per_task=2, memory_per_cpu_mib=10), MAIN, ((4, 40),)),
        (Request(tasks=2, memory_per_cpu_mib=60), MAIN, ((1, 60), (1, 60))),
        (Request(), PartitionView("main", memory_per_cpu_mib=7), ((1, 7),)),
        (Request(), PartitionView("main", memory_per_node_mib=30), ((1, 30),)),
        (Request(memory_per_node_mib=1), PartitionView("main", memory_per_cpu_mib=7), ((1, 1),)),
        (Request(), MAIN, ((1, 0),)),
        (Request(exclusive=True), MAIN, ((4, 100),)),
    ],
)
def test_amounts(request_: Request, partition: PartitionView, expected: tuple[tuple[int, int], ...]) -> None:
    cluster = ledger(nodes(2, memory_mib=100))
    spans = place(cluster, compile_request(request_, partition, cluster.topology))
    assert spans is not None
    assert tuple(span.amounts for span in spans) == expected


def test_exclusive_waits_for_a_node_on_which_nothing_runs() -> None:
    cluster = ledger(nodes(2))
    cluster.hold(0, (1, 0))
    assert shares(cluster, Request(exclusive=True)) == [(1, 1)]
    cluster.hold(1, (1, 0))
    assert shares(cluster, Request(exclusive=True)) is None


def test_named_nodes() -> None:
    cluster = ledger(nodes(4))
    assert shares(cluster, Request(include=("n2",))) == [(2, 1)]
    assert shares(cluster, Request(tasks=6, include=("n2",))) == [(0, 4), (2, 2)]
    assert shares(cluster, Request(include=("n3", "n1"))) == [(1, 1), (3, 0)]
    assert shares(cluster, Request(tasks=4, nodes_min=2, nodes_max=2, include=("n3",))) == [(0, 2), (3, 2)]
    assert shares(cluster, Request(exclude=("n0", "n1"))) == [(2, 1)]
    assert shares(cluster, Request(nodes_min=1, nodes_max=1, include=("n0", "n1"))) is None
    cluster.set_usable(2, False)
    assert shares(cluster, Request(include=("n2",))) is None


def test_a_required_node_that_does_not_exist_is_not_replaced() -> None:
    assert shares(ledger(nodes(4)), Request(include=("n0", "n9"))) is None


def test_spans_follow_the_node_order_given_not_the_numbers() -> None:
    views = [NodeView(number, f"n{number}", (4,), True, ("main",)) for number in (5, 1, 9, 3)]
    cluster = Ledger(Topology(views))
    assert shares(cluster, Request(tasks=4, nodes_min=4)) == [(5, 1), (1, 1), (9, 1), (3, 1)]


def test_only_nodes_of_the_partition() -> None:
    cluster = ledger(nodes(4))
    assert shares(cluster, Request(), PartitionView("other")) is None


def test_a_placement_is_checked_again_against_a_newer_ledger() -> None:
    cluster = ledger(nodes(2))
    spans = place(cluster, compile_request(Request(tasks=2, nodes_min=2), MAIN, cluster.topology))
    assert spans is not None
    placement = Placement(1, spans, 50)
    assert revalidate(placement, cluster)
    cluster.hold(1, (4, 0), 9)
    assert not revalidate(placement, cluster)
    cluster.give_back(1, (4, 0), 9)
    cluster.set_usable(0, False)
    assert not revalidate(placement, cluster)
    assert not revalidate(placement, ledger(nodes(1)))


def test_no_limit_never_ends() -> None:
    assert end_of(10, 5) == 15
    assert end_of(10, 0) == INFINITY_US
