"""Merged outcomes: an algebra (commutative, associative, idempotent) and a compact form."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.relay.results import (
    EMPTY,
    OK,
    Outcome,
    Results,
    Row,
    Status,
    collect,
    failed,
    from_mapping,
    merge,
    unreached,
)

outcomes = st.builds(
    Outcome,
    st.sampled_from(Status),
    st.integers(0, 3),
    st.sampled_from(["", "disk full", "no such user"]),
    st.sampled_from([b"", b"x", b"y"]),
)
mappings = st.dictionaries(st.integers(0, 40), outcomes, max_size=30)
results = mappings.map(from_mapping)


@given(results, results, results)
def test_merge_is_commutative_associative_and_idempotent(a: Results, b: Results, c: Results) -> None:
    assert merge((a, b)) == merge((b, a))
    assert merge((merge((a, b)), c)) == merge((a, merge((b, c)))) == merge((a, b, c))
    assert merge((a, a)) == a == merge((a, EMPTY))


@given(mappings, mappings)
def test_merge_keeps_the_greater_outcome_of_each_node(a, b) -> None:
    merged = merge((from_mapping(a), from_mapping(b))).expand()
    assert merged.keys() == a.keys() | b.keys()
    for node, outcome in merged.items():
        assert outcome == max(part[node] for part in (a, b) if node in part)


def test_knowledge_beats_ignorance_and_failure_beats_success() -> None:
    assert unreached("refused") < OK < Outcome(Status.OK, payload=b"x") < failed("disk full")


@given(mappings)
def test_expand_inverts_from_mapping(mapping) -> None:
    packed = from_mapping(mapping)
    assert packed.expand() == mapping
    assert packed.count() == len(mapping)
    for status in Status:
        expected = sorted(node for node, outcome in mapping.items() if outcome.status is status)
        assert packed.nodes(status) == expected
        assert packed.count(status) == len(expected)


@given(results)
def test_results_travel(packed: Results) -> None:
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(packed), type=Results)
    assert decoded == packed
    assert merge((decoded, packed)) == packed


def test_a_text_is_stored_once_for_all_nodes_that_share_it() -> None:
    mapping = {node: failed("disk full") if node == 70 else OK for node in range(100)}
    assert from_mapping(mapping).rows == (
        Row(OK, (0, 71), (70, 29)),
        Row(failed("disk full"), (70,), (1,)),
    )


def test_collect_takes_the_given_nodes_in_any_order_and_fills_gaps() -> None:
    packed = collect([3, 1, 2, 9], {1: OK, 2: OK, 3: OK}, unreached("late"))
    assert packed.rows == (Row(unreached("late"), (9,), (1,)), Row(OK, (1,), (3,)))
    assert collect([5], {5: OK}, unreached()).rows == (Row(OK, (5,), (1,)),)
