"""Earlier starts of a booked job: the answer without a change of the book must agree with a trial."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.snapshot import NodeView
from eslurm.core.plan.placement.compiled_request import CompiledRequest, compile_request
from eslurm.core.plan.placement.mapping import spans_of
from eslurm.core.plan.profile.profile import ResourceProfile
from eslurm.core.resources.nodes import Topology
from tests.support.profiles import draws

NODES = 6
jobs = st.tuples(st.integers(1, 8), st.integers(1, 3), st.integers(1, 40), st.integers(0, 30))


def topology(cores: int) -> Topology:
    return Topology(NodeView(i, f"n{i}", (cores, 8), True, ("all",)) for i in range(NODES))


def asked(tasks: int, per_task: int, within: Topology) -> CompiledRequest:
    return compile_request(
        Request(tasks=tasks, cpus_per_task=per_task), PartitionView("all"), within, frozenset(), 0
    )


@settings(max_examples=draws(300), deadline=None)
@given(st.integers(1, 3), st.lists(jobs, min_size=2, max_size=40), st.data())
def test_it_agrees_with_taking_the_place_away_and_searching(
    cores: int, wanted: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    nodes = topology(cores)
    book = ResourceProfile(nodes, now_us=0)
    booked = []
    for tasks, per_task, length_us, from_us in wanted:
        need = asked(min(tasks, NODES), min(per_task, cores), nodes)
        found = book.earliest(need, length_us, from_us)
        assert found is not None
        pairs = tuple([(span.node, span.amounts) for span in spans_of(nodes, need, found[1])])
        book.book(pairs, found[0], found[0] + length_us)
        booked.append((need, pairs, found[0], length_us))
    gone = data.draw(st.sets(st.integers(0, len(booked) - 1)))
    for index in gone:
        _, pairs, start_us, length_us = booked[index]
        book.revoke(pairs, start_us, start_us + length_us)
    for need, pairs, start_us, length_us in [one for index, one in enumerate(booked) if index not in gone]:
        bound_us = book.sooner_us(need, length_us, 0, ((node for node, _ in pairs), start_us))
        book.revoke(pairs, start_us, start_us + length_us)
        found = book.earliest(need, length_us, 0)
        book.book(pairs, start_us, start_us + length_us)
        book.check()
        assert found is not None
        if found[0] < start_us:
            assert bound_us is not None
            assert bound_us <= found[0]
        if cores == 1:
            assert bound_us == (found[0] if found[0] < start_us else None)


def test_a_search_past_the_own_place_comes_to_an_end() -> None:
    """More slots than are looked at at once, and none of them good enough behind the own place: the search ends."""
    nodes = topology(1)
    book = ResourceProfile(nodes, now_us=0)
    for at_us in range(0, 2_000, 10):
        book.book([(0, (1, 0)), (1, (1, 0))], at_us, at_us + (9 if at_us < 100 else 10))
    need = asked(NODES, 1, nodes)
    book.book([(node, (1, 0)) for node in range(NODES)], 3_000, 3_500)
    assert book.sooner_us(need, 500, 0, (range(NODES), 3_000)) == 2_000
    assert book.sooner_us(need, 10, 0, (range(NODES), 150)) is None
