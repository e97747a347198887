"""Segments of a run against a naive model: each node's time, whatever grew and shrank when."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.model.growth import Joined
from eslurm.core.model.job import Attempt, AttemptMore, Span
from eslurm.core.model.job_states import AttemptPhase
from eslurm.core.state.segments import segments_of

BEGIN_US, END_US = 100, 200
CHANGES = st.lists(st.tuples(st.integers(BEGIN_US - 5, END_US + 5), st.integers(0, 3)), max_size=8)


@given(CHANGES, CHANGES, st.integers(1, 5))
def test_segments_sum_up_to_the_time_of_each_node(
    grown: list[tuple[int, int]], shrunk: list[tuple[int, int]], first: int
) -> None:
    """Goal: without gap or overlap, and each node is in them exactly for the time for which it was held."""
    spans = [Span(node, (node + 1, 0)) for node in range(first)]
    since = dict.fromkeys(range(first), BEGIN_US)
    joined = []
    for at_us, count in sorted(grown):
        nodes = tuple(range(len(spans), len(spans) + count))
        joined.append(Joined(at_us, 0, nodes))
        since.update(dict.fromkeys(nodes, at_us))
        spans += [Span(node, (node + 1, 0)) for node in nodes]
    until = dict.fromkeys(since, END_US)
    gone: list[tuple[int, tuple[int, ...]]] = []
    for at_us, count in sorted(shrunk):
        nodes = tuple(
            [node for node in since if node and since[node] <= at_us and until[node] == END_US][:count]
        )
        gone.append((at_us, nodes))
        until.update(dict.fromkeys(nodes, min(at_us, END_US)))
    more = AttemptMore(grown=tuple(joined), shrunk=tuple(gone))
    attempt = Attempt(
        1, AttemptPhase.RUNNING, tuple(spans), 90, 1, 1_000, frozenset(since), started_us=BEGIN_US, more=more
    )
    found = segments_of(attempt, END_US)
    if not found:
        assert not (more.grown or more.shrunk)
        return
    assert (found[0].from_us, found[-1].until_us) == (BEGIN_US, END_US)
    assert all(one.until_us == after.from_us for one, after in itertools.pairwise(found))
    for node in since:
        begin_us, end_us = min(max(since[node], BEGIN_US), END_US), max(until[node], BEGIN_US)
        held_us = sum(one.until_us - one.from_us for one in found if node in one.nodes)
        assert held_us == max(0, end_us - begin_us), node
    assert all(one.cores == sum(node + 1 for node in one.nodes) for one in found)
