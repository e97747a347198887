"""The relay's messages survive the wire, and the address book its pulls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eslurm.core.relay.messages import Ack, Broadcast, Reply
from eslurm.core.relay.results import OK, failed, from_mapping, unreached
from eslurm.core.relay.trace import NEVER_US, ROOT, SPANS_MAX, Trace, TraceSpan, from_spans
from eslurm.links.endpoint_directory import ENTRIES_PER_ITEM, EndpointDirectory
from eslurm.links.relay_envelopes import (
    EnvelopeError,
    ack_item,
    broadcast_item,
    read_ack,
    read_broadcast,
    read_reply,
    reply_item,
)
from eslurm.v1 import link_pb2

NODES = st.lists(st.integers(0, 1 << 31), max_size=20, unique=True).map(tuple)
OUTCOMES = st.sampled_from([OK, failed("no"), failed("never", 126), unreached("silent")])


def over_the_wire(item: link_pb2.Item) -> link_pb2.Item:
    return link_pb2.Item.FromString(item.SerializeToString())


@given(NODES, st.integers(0, 1 << 62), st.binary(max_size=50))
def test_a_broadcast_keeps_its_order(nodes: tuple[int, ...], number: int, command: bytes) -> None:
    broadcast = Broadcast(number, nodes, 16, 1_000, "prepare", command, 3)
    blob = link_pb2.Blob(sha256=b"h", data=b"d")
    message = over_the_wire(broadcast_item(broadcast, (blob,))).broadcast
    assert read_broadcast(message) == broadcast
    assert message.attachments[0].data == b"d"


@given(NODES, NODES, st.booleans(), st.sampled_from(["positional", "balanced"]))
def test_a_satellite_hears_how_to_make_its_tree(
    predicted: tuple[int, ...], missing: tuple[int, ...], flag: bool, grouping: str
) -> None:
    broadcast = Broadcast(
        1, (5, 4), 16, 9, "heartbeat", b"c", 1, grouping, 32, predicted, flag, missing, not flag
    )
    assert read_broadcast(over_the_wire(broadcast_item(broadcast)).broadcast) == broadcast


def test_a_peer_of_an_earlier_version_is_understood() -> None:
    nodes = link_pb2.NodeList(start=[3, 1], length=[1, 2])
    old = link_pb2.Broadcast(id=1, nodes=nodes, width=2, deadline_us=5, kind="k", command=b"c", hop=1)
    assert read_broadcast(old) == Broadcast(1, (3, 1, 2), 2, 5, "k", b"c", 1, "positional")
    heads = link_pb2.NodeList(start=[3], length=[1])
    failure = link_pb2.Outcome(nodes=nodes, status="failed", text="no")
    reply = read_reply(link_pb2.BroadcastReply(id=1, final=True, heads=heads, outcomes=[failure]))
    assert reply.results.expand() == dict.fromkeys([3, 1, 2], failed("no"))
    assert (reply.as_expected, reply.trace) == (False, None)


@given(NODES, st.dictionaries(st.integers(0, 99), OUTCOMES), st.booleans())
def test_replies_and_acknowledgements_come_through(
    heads: tuple[int, ...], outcomes: dict[int, object], final: bool
) -> None:
    reply = Reply(5, heads, from_mapping(outcomes), final)  # type: ignore[arg-type]
    assert read_reply(over_the_wire(reply_item(reply)).broadcast_reply) == reply
    ack = Ack(5, heads, "busy" if final else "")
    assert read_ack(over_the_wire(ack_item(ack)).broadcast_ack) == ack


SPANS = st.builds(
    TraceSpan,
    st.sampled_from([ROOT, -2, 0, 17]),
    st.integers(0, 1 << 30),
    st.integers(0, 64),
    st.integers(1, 1 << 30),
    st.integers(NEVER_US, 1 << 40),
    st.integers(NEVER_US, 1 << 40),
    st.sampled_from(["done", "local", "adopted: refused", "recheck"]),
)


@given(st.lists(SPANS, max_size=20), st.booleans())
def test_a_trace_comes_through(spans: list[TraceSpan], is_cut: bool) -> None:
    trace = from_spans(spans, 3 if is_cut else SPANS_MAX)
    reply = Reply(5, (1,), final=True, as_expected=True, trace=trace)
    assert read_reply(over_the_wire(reply_item(reply)).broadcast_reply) == reply


def test_a_trace_without_end_is_cut() -> None:
    spans = [link_pb2.Span(child=node) for node in range(SPANS_MAX + 5)]
    reply = read_reply(link_pb2.BroadcastReply(id=1, trace=link_pb2.Trace(spans=spans, omitted=2)))
    assert isinstance(reply.trace, Trace)
    assert (len(reply.trace.spans), reply.trace.omitted) == (SPANS_MAX, 7)


@pytest.mark.parametrize(
    ("start", "length"), [([1, 2], [1]), ([1], [0]), ([0, 0], [900_000, 900_000]), ([0], [2**32 - 1])]
)
def test_runs_that_cannot_be_are_refused(start: list[int], length: list[int]) -> None:
    with pytest.raises(EnvelopeError, match="node list"):
        read_broadcast(link_pb2.Broadcast(nodes=link_pb2.NodeList(start=start, length=length)))


def test_what_means_nothing_is_refused() -> None:
    with pytest.raises(EnvelopeError, match="node list"):
        read_broadcast(link_pb2.Broadcast(nodes=link_pb2.NodeList(start=[1], length=[1, 2])))
    with pytest.raises(EnvelopeError, match="maybe"):
        read_reply(link_pb2.BroadcastReply(outcomes=[link_pb2.Outcome(status="maybe")]))
    with pytest.raises(EnvelopeError, match="run starts"):
        nodes = link_pb2.NodeList(start=[1], length=[])
        read_reply(link_pb2.BroadcastReply(outcomes=[link_pb2.Outcome(status="ok", nodes=nodes)]))
    with pytest.raises(TypeError, match="cannot travel"):
        ack_item(Ack(b"bytes", (1,)))


def entries(numbers: range, port: int = 1) -> list[tuple[int, str, str, int]]:
    return [(number, f"cn{number}", f"127.0.0.1:{port}", 1) for number in numbers]


def test_a_copy_follows_the_book_by_differences() -> None:
    book, copy = EndpointDirectory(), EndpointDirectory()
    book.put(1, entries(range(5)))
    for item in book.since(copy.revision):
        copy.apply(over_the_wire(item).book)
    assert copy.revision == 1 and copy.find_endpoint(4) == "127.0.0.1:1"
    book.put(2, entries(range(2), port=2))
    (difference,) = book.since(copy.revision)
    assert len(difference.book.entries) == 2
    assert copy.apply(difference.book) and not copy.apply(difference.book)
    assert copy.find_endpoint(1) == "127.0.0.1:2" and copy.find_endpoint(9) is None


def test_an_interrupted_pull_leaves_the_revision_as_it_was() -> None:
    book, copy = EndpointDirectory(), EndpointDirectory()
    book.put(7, entries(range(ENTRIES_PER_ITEM + 1)))
    first, last = book.since(0)
    assert not copy.apply(first.book) and copy.revision == 0
    assert copy.apply(last.book) and copy.revision == 7 and len(copy) == ENTRIES_PER_ITEM + 1


def test_a_difference_from_a_later_state_is_not_taken() -> None:
    book, copy = EndpointDirectory(), EndpointDirectory()
    book.put(3, entries(range(1)))
    book.put(4, entries(range(1, 2)))
    (difference,) = book.since(3)
    assert not copy.apply(difference.book) and len(copy) == 0
    empty = next(iter(EndpointDirectory().since(0)))
    assert not copy.apply(empty.book)


def test_a_copy_of_an_old_reign_follows_the_successors_book() -> None:
    old, copy = EndpointDirectory(1), EndpointDirectory()
    for port in range(1, 18):
        old.put(old.revision + 1, entries(range(5), port=port))
    for item in old.since(copy.revision):
        copy.apply(item.book)
    successor = EndpointDirectory(2)
    assert successor.revision > copy.revision == old.revision
    successor.put(successor.revision + 1, entries(range(5), port=99))
    for item in successor.since(copy.revision):
        copy.apply(over_the_wire(item).book)
    assert copy.find_endpoint(3) == "127.0.0.1:99"
    # An answer from a copy that is behind changes nothing.
    for item in old.since(copy.revision):
        assert not copy.apply(item.book)
    assert copy.find_endpoint(3) == "127.0.0.1:99"
