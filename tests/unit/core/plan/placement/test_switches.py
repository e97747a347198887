"""Nodes in order of cost and neighbourhood; jobs under as few switches as possible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.model.config import Switch
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.snapshot import NodeView
from eslurm.core.plan.placement.compiled_request import compile_request
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.node_order import arranged
from eslurm.core.resources.nodes import Topology

MAIN = PartitionView("main")


def tree(leaves: int, width: int) -> list[Switch]:
    """Leaf switches s0, s1, ... of equal width, in pairs under p0, p1, ... ."""
    found = [
        Switch(f"s{leaf}", tuple(f"n{leaf * width + node}" for node in range(width)))
        for leaf in range(leaves)
    ]
    pairs = [Switch(f"p{p}", (), (f"s{2 * p}", f"s{2 * p + 1}")) for p in range(leaves // 2)]
    return [*found, *pairs]


def cluster(leaves: int, width: int, busy: set[int] = frozenset()) -> Ledger:  # type: ignore[assignment]
    views = [NodeView(n, f"n{n}", (4, 0), n not in busy, ("main",)) for n in range(leaves * width)]
    return Ledger(Topology(views, switches=tree(leaves, width)))


def nodes_of(ledger: Ledger, request: Request) -> list[int] | None:
    chosen = choose(ledger, compile_request(request, MAIN, ledger.topology))
    return None if chosen is None else [position for position, _, _ in chosen]


def test_levels_go_up_from_the_leaves() -> None:
    topology = cluster(4, 2).topology
    assert topology.switches == ((0b11, 0b1100, 0b110000, 0b11000000), (0b1111, 0b11110000))


def test_a_circle_of_switches_is_left_out() -> None:
    views = [NodeView(0, "n0", (1,))]
    switches = [Switch("a", ("n0",)), Switch("b", (), ("c",)), Switch("c", (), ("b",))]
    assert Topology(views, switches=switches).switches == ((1,),)


def test_a_job_that_fits_under_one_switch_is_placed_under_one() -> None:
    assert nodes_of(cluster(4, 3, {0}), Request(nodes_min=3, nodes_max=3)) == [3, 4, 5]
    # Two nodes: the switch with the smallest gap that is large enough.
    assert nodes_of(cluster(4, 3, {4}), Request(nodes_min=2, nodes_max=2)) == [3, 5]


def test_a_job_that_needs_several_switches_stays_under_the_next_level_on_few_of_them() -> None:
    assert nodes_of(cluster(4, 3, {1, 2}), Request(nodes_min=5, nodes_max=5)) == [6, 7, 8, 9, 10]
    # No pair has eight nodes: three leaves, those with the most free ones, and not the broken one.
    assert nodes_of(cluster(4, 3, {4}), Request(nodes_min=8, nodes_max=8)) == [0, 1, 2, 6, 7, 8, 9, 10]


def test_a_range_of_nodes_gets_as_many_as_without_switches() -> None:
    assert nodes_of(cluster(2, 3), Request(nodes_min=2, nodes_max=4)) == [0, 1, 2, 3]
    assert nodes_of(cluster(2, 3), Request(nodes_min=2, nodes_max=3)) == [0, 1, 2]


def test_named_nodes_come_before_neighbourhood() -> None:
    assert nodes_of(cluster(2, 2), Request(nodes_min=2, nodes_max=2, include=("n0", "n3"))) == [0, 3]


@given(
    st.lists(st.integers(0, 4), min_size=12, max_size=12),
    st.integers(0, 8),
    st.integers(1, 20),
    st.booleans(),
)
def test_switches_never_decide_whether_a_job_fits(
    held: list[int], nodes: int, tasks: int, exclusive: bool
) -> None:
    tasks = max(tasks, nodes)
    request = Request(tasks=tasks, nodes_min=nodes, nodes_max=nodes, exclusive=exclusive)
    near, plain = (
        cluster(4, 3),
        Ledger(Topology(NodeView(n, f"n{n}", (4, 0), True, ("main",)) for n in range(12))),
    )
    for number, cores in enumerate(held):
        if cores:
            near.hold(number, (cores, 0))
            plain.hold(number, (cores, 0))
    found, expected = nodes_of(near, request), nodes_of(plain, request)
    assert (found is None) == (expected is None)
    if found is None or expected is None:
        return
    if nodes:
        assert len(found) == nodes
    leaves = {position // 3 for position in found}
    alone = [leaf for leaf in range(4) if _fits_on(plain, request, {n for n in range(12) if n // 3 != leaf})]
    assert len(leaves) == 1 or not alone or len(expected) == 1


def _fits_on(ledger: Ledger, request: Request, without: set[int]) -> bool:
    need = compile_request(request, MAIN, ledger.topology, without)
    return choose(ledger, need) is not None


def test_cheap_nodes_come_first_then_neighbours_then_the_configured_order() -> None:
    views = [
        NodeView(0, "gpu", (16, 100, 4)),
        NodeView(1, "b2", (16, 100)),
        NodeView(2, "fat", (16, 900)),
        NodeView(3, "a1", (16, 100)),
        NodeView(4, "b1", (16, 100)),
        NodeView(5, "free", (16, 100)),
        NodeView(6, "dear", (16, 100), weight=1),
    ]
    switches = [Switch("top", (), ("a", "b")), Switch("b", ("b1", "b2")), Switch("a", ("a1",))]
    names = [view.name for view in arranged(views, switches)]
    assert names == ["a1", "b1", "b2", "free", "fat", "gpu", "dear"]
    assert [view.name for view in arranged(views)] == ["b2", "a1", "b1", "free", "fat", "gpu", "dear"]
