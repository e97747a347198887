"""Features, devices, licences, chunks and node rules: who gets which nodes, and what can never be is told why."""

from __future__ import annotations

from unittest import mock

import pytest

from eslurm.core.model.config import NodeRule, Resource
from eslurm.core.model.job import Span
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.placement import Placement
from eslurm.core.model.request import Chunk, Request
from eslurm.core.plan.cycle.reasons import short_of_resources
from eslurm.core.plan.cycle.snapshot import NodeView
from eslurm.core.plan.placement import chunks, packing
from eslurm.core.plan.placement.avoided import compile_job_avoiding
from eslurm.core.plan.placement.compiled_request import compile_request
from eslurm.core.plan.placement.feasible import empty_ledger, feasible_ever
from eslurm.core.plan.placement.mapping import choose, place, revalidate
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.nodes import Topology

MAIN = PartitionView("main")
HOUR_US = 3_600_000_000
GPU = (("gpu", 1),)


def node(number: int, name: str, total: tuple[int, ...], **more: object) -> NodeView:
    return NodeView(number, name, total, True, ("main",), **more)  # type: ignore[arg-type]


TOPOLOGY = Topology(
    [
        node(0, "c0", (8, 100, 0), features=("ib",)),
        node(1, "c1", (8, 100, 0), features=("ib", "old")),
        node(2, "g0", (16, 200, 4), device_type="a100", cores_for_devices=4),
        node(3, "smp", (64, 1000, 0)),
        NodeView(4, "far", (8, 100, 0), True, ("far",), ("remote",)),
    ],
    resources=[Resource("gpu", devices=True), Resource("matlab", wide_total=5)],
    rules=[NodeRule(("smp",), 17, 0, (), 1800)],
)
EMPTY = empty_ledger(TOPOLOGY)


def given(request: Request, ledger: Ledger = EMPTY, time_limit_us: int = 0) -> list[tuple[str, int]] | None:
    chosen = choose(ledger, compile_request(request, MAIN, TOPOLOGY, time_limit_us=time_limit_us))
    return None if chosen is None else [(TOPOLOGY.names[p], tasks) for p, _, tasks in chosen]


def test_features_choose_nodes() -> None:
    assert given(Request(constraint="old")) == [("c1", 1)]
    assert given(Request(constraint="ib&!old")) == [("c0", 1)]
    assert given(Request(constraint="gpu:a100")) == [("g0", 1)]
    assert given(Request(constraint="host=g0")) == [("g0", 1)]


def test_a_refusal_does_not_call_nodes_small_that_the_job_may_not_use() -> None:
    refused = feasible_ever(Request(memory_per_node_mib=500), MAIN, EMPTY)
    assert refused is not None and refused.largest == 200
    assert "the largest node of those that it may use in main has 200" in refused.reason
    refused = feasible_ever(Request(memory_per_node_mib=5000), PartitionView("far"), EMPTY)
    assert refused is not None and "the largest node of partition far has 100" in refused.reason


def test_a_refusal_is_short_whatever_was_asked() -> None:
    name = "x" * 5_000
    requests = (
        Request(constraint="x" * 1_000),
        Request(constraint="x" * 2_000),
        Request(include=(name,)),
        Request(per_node=((name, 1),)),
        Request(wide=((name, 1),)),
    )
    for request in requests:
        refused = feasible_ever(request, MAIN, EMPTY)
        assert refused is not None and len(refused.reason) < 400


def test_the_kind_of_chunks_that_is_short_is_told() -> None:
    small, large = Chunk(1, 2, 10), Chunk(2, 2, 10, (("gpu", 2),))
    ledger = empty_ledger(TOPOLOGY)
    ledger.hold(2, (1, 0, 3), 10)
    need = compile_request(Request(chunks=(small, large)), MAIN, TOPOLOGY)
    text = short_of_resources(need, ledger).text
    assert text == "needs room for 2 chunks of 2 cores, 10 MiB of memory, 2 gpu; 0 would fit on 0 free nodes"
    need = compile_request(
        Request(chunks=(Chunk(1, 10, 10, GPU), Chunk(1, 11, 10)), place="free"), MAIN, TOPOLOGY
    )
    assert "needs room for all 2 chunks at once" in short_of_resources(need, ledger).text


def test_devices_are_counted_on_each_node_or_with_each_task() -> None:
    assert given(Request(tasks=2, per_task=(("gpu", 2),))) == [("g0", 2)]
    assert given(Request(tasks=3, per_task=(("gpu", 2),))) is None
    assert place(EMPTY, compile_request(Request(tasks=3, per_node=(("gpu", 2),)), MAIN, TOPOLOGY)) == (
        Span(2, (3, 0, 2), 3),
    )


def test_cores_are_kept_for_jobs_with_devices() -> None:
    # 12 of 16 cores for everybody, and the node never for one job alone without a device (C-44).
    assert given(Request(tasks=12, constraint="gpu:a100")) == [("g0", 12)]
    assert given(Request(tasks=13, constraint="gpu:a100")) is None
    assert given(Request(tasks=16, per_node=GPU)) == [("g0", 16)]
    assert given(Request(constraint="gpu:a100", exclusive=True)) is None
    assert given(Request(per_node=GPU, exclusive=True)) == [("g0", 1)]


@pytest.mark.parametrize(
    ("request_", "avoid", "allowed"),
    [
        pytest.param(Request(per_node=GPU), {2}, 0b00111, id="the only one with the device"),
        pytest.param(Request(constraint="ib"), {0}, 0b00010, id="one of two with the feature"),
        pytest.param(Request(constraint="ib"), {0, 1}, 0b00011, id="all with the feature"),
        pytest.param(Request(memory_per_node_mib=150), {2}, 0b00111, id="the only one with the memory"),
        pytest.param(
            Request(cpus_per_task=12, constraint="gpu:a100"), {2}, 0b00100, id="the only one with the cores"
        ),
        pytest.param(Request(tasks=32), {1}, 0b00111, id="too few cores on all others together"),
        pytest.param(Request(nodes_min=3, tasks=3), {0}, 0b00111, id="too few others"),
        pytest.param(Request(include=("c1",)), {1}, 0b00111, id="named"),
        pytest.param(Request(tasks=8), {0, 1}, 0b00100, id="one other is enough"),
    ],
)
def test_a_node_that_no_others_can_replace_is_not_avoided(
    request_: Request, avoid: set[int], allowed: int
) -> None:
    need = compile_job_avoiding((request_,), (MAIN,), TOPOLOGY, avoid, 0, lambda: EMPTY)
    assert need.allowed == allowed
    assert bool(need.avoided) is (not allowed & sum(1 << number for number in avoid))


def test_node_rules_let_in_whoever_meets_one_condition() -> None:
    big = Request(cpus_per_task=17)
    assert given(big) == [("smp", 1)]
    assert given(Request(constraint="host=smp")) is None
    assert given(Request(constraint="host=smp"), time_limit_us=HOUR_US // 2) == [("smp", 1)]
    assert given(Request(constraint="host=smp"), time_limit_us=HOUR_US) is None
    # Spread as it may be, no node has to give 17 cores.
    assert given(Request(tasks=17, constraint="host=smp")) is None
    assert given(Request(tasks=17, nodes_min=1, nodes_max=1, constraint="host=smp")) == [("smp", 17)]


def test_licences_are_held_beside_the_nodes() -> None:
    request = Request(wide=(("matlab", 3),))
    ledger = EMPTY.fork()
    need = compile_request(request, MAIN, TOPOLOGY)
    spans = place(ledger, need)
    assert spans is not None
    placement = Placement(1, spans, 50, need.wide)
    assert revalidate(placement, ledger)
    ledger.hold_wide(need.wide)
    assert ledger.wide_free == (2,)
    assert place(ledger, need) is None
    assert not revalidate(placement, ledger)
    ledger.give_back_wide(need.wide)
    assert place(ledger, need) == spans
    assert EMPTY.wide_free == (5,)


def test_more_licences_held_than_there_are_hinder_only_those_that_ask_for_one() -> None:
    """The site was given fewer while jobs had them."""
    ledger = EMPTY.fork()
    ledger.hold_wide((7,))
    assert ledger.wide_free == (0,)
    one, none = (compile_request(Request(wide=wide), MAIN, TOPOLOGY) for wide in ((("matlab", 1),), ()))
    assert place(ledger, one) is None
    spans = place(ledger, none)
    assert spans is not None
    assert revalidate(Placement(1, spans, 50, none.wide), ledger)
    ledger.give_back_wide((4,))
    assert ledger.wide_free == (2,)


def test_expensive_chunks_take_cheap_nodes_first_and_share_them() -> None:
    small, large = Chunk(3, 2, 10), Chunk(1, 6, 10)
    request = Request(tasks=4, chunks=(small, large))
    assert given(request) == [("c0", 2), ("c1", 2)]
    # The large one and one small one share the first node.
    need = compile_request(request, MAIN, TOPOLOGY)
    assert [amounts for _, amounts, _ in choose(EMPTY, need) or ()] == [(8, 20, 0), (4, 20, 0)]
    assert given(Request(tasks=3, chunks=(Chunk(2, 2), large), place="pack")) == [("g0", 3)]
    assert given(Request(tasks=3, chunks=(Chunk(2, 2), large), place="scatter")) == [
        ("c0", 1),
        ("c1", 1),
        ("g0", 1),
    ]
    assert given(Request(tasks=2, chunks=(Chunk(2, 1, 0, GPU),))) == [("g0", 2)]


def test_an_exclusive_job_counts_as_the_average_node() -> None:
    need = compile_request(Request(nodes_min=2, nodes_max=2, exclusive=True, constraint="ib"), MAIN, TOPOLOGY)
    assert (need.floor, need.expected) == ((2, 0, 0), (16, 200, 0))


@pytest.mark.parametrize(
    ("request_", "resource", "asked", "largest", "words"),
    [
        (
            Request(per_node=(("gpu", 5),)),
            "gpu",
            5,
            4,
            "--gpus: one task needs 5 gpu on one node; the largest",
        ),
        (Request(per_node=(("fpga", 1),)), "fpga", 1, 0, "no node has the resource 'fpga': use one of gpu"),
        (Request(wide=(("matlab", 6),)), "matlab", 6, 5, "--licenses: asks for 6 matlab; there are 5"),
        (Request(wide=(("ansys", 1),)), "ansys", 1, 0, "there is no licence 'ansys': use one of matlab"),
        (Request(constraint="ghost"), "nodes", 1, 0, "'ghost' names the feature ghost, which no node has"),
        (Request(constraint="remote"), "nodes", 1, 0, "fits no node of partition main (0 remote)"),
        (Request(constraint="old&gpu:a100"), "nodes", 1, 0, "(1 old, 1 gpu:a100)"),
        (Request(constraint="a&&b"), "nodes", 1, 0, "a feature is missing in column 3"),
        (Request(constraint="host=smp"), "nodes", 1, 0, "for 17 cores a node or at most 1800 s"),
        (
            Request(constraint="gpu:a100", exclusive=True),
            "nodes",
            1,
            0,
            "--exclusive: the nodes of partition main",
        ),
        (Request(tasks=16, nodes_min=1, nodes_max=1, constraint="gpu:a100"), "tasks", 16, 12, "at most 12"),
        (Request(cpus_per_task=13, constraint="gpu:a100"), "cores", 13, 12, "needs 13 cores"),
        (Request(chunks=(Chunk(1, 99),)), "cores", 99, 64, "--rset: a chunk needs 99 cores"),
        (Request(chunks=(Chunk(5, 1, 0, GPU),)), "chunks", 5, 4, "--rset: needs 5 chunks of 1 core, 1 gpu"),
        (Request(chunks=(Chunk(5, 1, 0, GPU), Chunk(1, 1))), "chunks", 5, 4, "--rset: needs 5 chunks"),
        (Request(chunks=(Chunk(1, 1), Chunk(1, 1, 0, (("x", 1),)))), "x", 1, 0, "--rset: no node has"),
        (Request(chunks=(Chunk(1, 1, 0, (), "ghost"),)), "nodes", 1, 0, "--rset: 'ghost' names the feature"),
        (
            Request(tasks=70, chunks=(Chunk(69, 1), Chunk(1, 2)), place="pack"),
            "cores",
            71,
            16,
            "place=pack needs 71",
        ),
        (
            Request(tasks=5, chunks=(Chunk(4, 1), Chunk(1, 2)), place="scatter"),
            "chunks",
            4,
            3,
            "needs 4 chunks",
        ),
        (
            Request(tasks=4, chunks=(Chunk(3, 1), Chunk(1, 2)), place="scatter"),
            "nodes",
            4,
            3,
            "place=scatter needs 4",
        ),
    ],
)
def test_infeasible(request_: Request, resource: str, asked: int, largest: int, words: str) -> None:
    verdict = feasible_ever(request_, MAIN, EMPTY)
    assert verdict is not None
    assert (verdict.resource, verdict.asked, verdict.largest) == (resource, asked, largest), verdict.reason
    assert words in verdict.reason


def test_a_short_job_is_feasible_where_a_long_one_is_not() -> None:
    assert feasible_ever(Request(constraint="host=smp"), MAIN, EMPTY, HOUR_US // 2) is None


def two_nodes(*totals: tuple[int, int]) -> Ledger:
    return empty_ledger(Topology([node(number, f"n{number}", total) for number, total in enumerate(totals)]))


@pytest.mark.parametrize(
    ("totals", "asked"),
    [
        pytest.param(((16, 16), (4, 16)), ((1, 4, 15), (2, 6, 6)), id="the cheap kind needs the large node"),
        pytest.param(((8, 8), (8, 8)), ((2, 5, 3), (2, 3, 5)), id="one of each on a node"),
    ],
)
def test_chunks_that_first_fit_misplaces_are_accepted_and_placed(
    totals: tuple[tuple[int, int], ...], asked: tuple[tuple[int, int, int], ...]
) -> None:
    ledger = two_nodes(*totals)
    request = Request(tasks=sum(one[0] for one in asked), chunks=tuple([Chunk(*one) for one in asked]))
    assert feasible_ever(request, MAIN, ledger) is None
    spans = place(ledger, compile_request(request, MAIN, ledger.topology))
    assert spans is not None and sum(span.tasks for span in spans) == request.tasks


def test_chunks_are_refused_only_when_it_is_proved_that_they_never_fit() -> None:
    ledger = two_nodes((8, 8), (8, 8))
    request = Request(tasks=3, chunks=(Chunk(2, 5, 5), Chunk(1, 4, 1)))
    need = compile_request(request, MAIN, ledger.topology)
    assert packing.search(ledger, need, need.allowed) == packing.Packing(None, is_proved=True)
    assert packing.search(ledger, need, need.allowed, steps_max=1) == packing.Packing(None)
    refused = feasible_ever(request, MAIN, ledger)
    assert refused is not None and "chunks" in refused.reason
    # Not known is no reason to refuse.
    with mock.patch.object(chunks, "search", lambda *_: packing.Packing(None)):
        assert feasible_ever(request, MAIN, ledger) is None


def test_nodes_that_are_named_in_vain_are_told() -> None:
    several = (Chunk(1, 1, 1, (), "ib"), Chunk(1, 2, 1, (), "ib"))
    refused = feasible_ever(Request(tasks=2, chunks=several, include=("smp",)), MAIN, EMPTY)
    assert refused is not None and "node smp takes none of the chunks" in refused.reason
    few = feasible_ever(Request(tasks=2, chunks=several, include=("c0", "c1", "g0")), MAIN, EMPTY)
    assert few is not None and few.reason.startswith("--nodelist: node g0")
