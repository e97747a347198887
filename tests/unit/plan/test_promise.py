"""The search for a promised start: large clusters, coarse instants, pauses."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from eslurm.core.job.request import Request
from eslurm.core.plan.explain import short_of_resources
from eslurm.core.plan.need import compile_need
from eslurm.core.plan.promise import INSTANTS_MAX, Promise, earliest_start, spare_beside
from eslurm.core.plan.snapshot import PartitionView
from eslurm.core.resources.ledger import Overdue
from eslurm.core.resources.vector import fits
from tests.unit.plan.building import ledger, nodes

T = TypeVar("T")


def drained(slices: Generator[None, None, T]) -> tuple[T, int]:
    pauses = 0
    while True:
        try:
            next(slices)
            pauses += 1
        except StopIteration as finished:
            result: T = finished.value
            return result, pauses


def test_the_earliest_of_many_instants_is_found_exactly() -> None:
    cluster = ledger(nodes(64, cores=16))
    ends: dict[int, int] = {}
    for number in range(64):
        for core in range(16):
            until_us = 100 + (number * 37 + core * 101) % 997
            cluster.hold(number, (1, 0), until_us)
            ends[number] = max(ends.get(number, 0), until_us)
    for count in (1, 5, 33, 64):
        request = Request(nodes_min=count, nodes_max=count, exclusive=True)
        need = compile_need(request, PartitionView("main"), cluster.topology)
        promise, _ = drained(earliest_start(cluster, need, 1, 50, Overdue(0, 10)))
        assert promise is not None
        assert promise.start_us == sorted(ends.values())[count - 1]
        assert len(promise.spans) == count


def test_with_very_many_ends_the_promise_is_late_by_less_than_a_grain_and_can_be_kept() -> None:
    cluster = ledger(nodes(1100))
    last_us = 0
    for number in range(1100):
        for core in range(4):
            until_us = 1 + (number * 7919 + core * 104_729) % 1_000_003
            cluster.hold(number, (1, 0), until_us)
            last_us = max(last_us, until_us)
    request = Request(nodes_min=1100, nodes_max=1100, cpus_per_task=4)
    need = compile_need(request, PartitionView("main"), cluster.topology)
    overdue = Overdue(0, 10)
    promise, pauses = drained(earliest_start(cluster, need, 1, 50, overdue))
    assert promise is not None
    assert last_us <= promise.start_us <= last_us + last_us // INSTANTS_MAX + 1
    assert pauses > 4
    spare, pauses = drained(spare_beside(promise, cluster, overdue))
    assert spare is not None
    assert pauses == 2
    assert all(fits((0, 0), left) for left in spare.values())


def test_counts_alone_can_say_never() -> None:
    cluster = ledger(nodes(2))
    cluster.hold(0, (3, 0))
    need = compile_need(Request(tasks=6), PartitionView("main"), cluster.topology)
    assert drained(earliest_start(cluster, need, 1, 50, Overdue(0, 10)))[0] is None


def test_enough_in_sum_but_never_on_one_node() -> None:
    cluster = ledger(nodes(2))
    cluster.hold(0, (1, 0))
    cluster.hold(1, (1, 0))
    need = compile_need(Request(cpus_per_task=4), PartitionView("main"), cluster.topology)
    assert drained(earliest_start(cluster, need, 1, 50, Overdue(0, 10)))[0] is None


def test_a_promise_in_the_past_or_on_an_unknown_node_is_not_kept() -> None:
    cluster = ledger(nodes(1))
    need = compile_need(Request(), PartitionView("main"), cluster.topology)
    cluster.hold(0, (4, 0), 20)
    promise, _ = drained(earliest_start(cluster, need, 1, 50, Overdue(0, 10)))
    assert isinstance(promise, Promise)
    assert drained(spare_beside(promise, cluster, Overdue(20, 10)))[0] is None
    elsewhere = ledger(nodes(0))
    assert drained(spare_beside(promise, elsewhere, Overdue(0, 10)))[0] is None


def test_sentences_say_what_is_short() -> None:
    cluster = ledger(nodes(3, memory_mib=100))
    cluster.hold(0, (4, 0))
    main = PartitionView("main")
    cases = {
        Request(nodes_min=3, cpus_per_task=2): "needs 3 nodes with 2 cores each; 2 are free",
        Request(nodes_min=3, exclusive=True): "needs 3 idle nodes with 1 core each; 2 are free",
        Request(tasks=9): "needs room for 9 tasks of 1 core; 8 fit on 2 free nodes",
    }
    for request, text in cases.items():
        need = compile_need(request, main, cluster.topology)
        assert short_of_resources(need, cluster).text == text
    cluster.set_usable(1, False)
    need = compile_need(Request(include=("n1",)), main, cluster.topology)
    assert "must run on" in short_of_resources(need, cluster).text
