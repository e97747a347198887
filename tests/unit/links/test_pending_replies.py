"""Open questions between two processes: each is settled by its own answer, or by time."""

from __future__ import annotations

import pytest

from eslurm.links.pending_replies import (
    BLOB_PATIENCE_S,
    BOOK_PATIENCE_S,
    BROADCAST_MARGIN_S,
    DOOR_PATIENCE_S,
    NAME_MAX,
    OPEN_MAX,
    REPORT_PATIENCE_S,
    PendingReplies,
)
from eslurm.v1 import link_pb2

DIGEST = bytes(32)


def broadcast(number: int = 1, deadline_us: int = 2_000_000) -> link_pb2.Item:
    return link_pb2.Item(broadcast=link_pb2.Broadcast(id=number, deadline_us=deadline_us))


def reply(number: int = 1, final: bool = True) -> link_pb2.Item:
    return link_pb2.Item(broadcast_reply=link_pb2.BroadcastReply(id=number, final=final))


def ack(number: int = 1, refused: str = "") -> link_pb2.Item:
    return link_pb2.Item(broadcast_ack=link_pb2.BroadcastAck(id=number, refused=refused))


def report(seq: int = 1, process: str = "p") -> link_pb2.Item:
    return link_pb2.Item(report=link_pb2.Report(process=process, seq=seq))


def report_ack(*seqs: int, process: str = "p") -> link_pb2.Item:
    return link_pb2.Item(report_ack=link_pb2.ReportAck(process=process, seqs=seqs))


def door_call(call: int = 1, deadline_us: int = 0) -> link_pb2.Item:
    return link_pb2.Item(door_call=link_pb2.DoorCall(process="p", call=call, deadline_us=deadline_us))


def door_reply(call: int = 1) -> link_pb2.Item:
    return link_pb2.Item(door_reply=link_pb2.DoorReply(process="p", call=call))


def book_pull() -> link_pb2.Item:
    return link_pb2.Item(book_pull=link_pb2.BookPull(revision=1))


def book(more: bool = False) -> link_pb2.Item:
    return link_pb2.Item(book=link_pb2.Book(revision=2, more=more))


def blob_request() -> link_pb2.Item:
    return link_pb2.Item(blob_request=link_pb2.BlobRequest(sha256=[DIGEST]))


def blob_chunk(offset: int = 0, missing: bool = False) -> link_pb2.Item:
    chunk = link_pb2.BlobChunk(sha256=DIGEST, offset=offset, total=8, data=b"1234", missing=missing)
    return link_pb2.Item(blob_chunk=chunk)


def noted(*items: link_pb2.Item, now_s: float = 100.0) -> PendingReplies:
    pending = PendingReplies()
    for item in items:
        pending.note(item.WhichOneof("kind"), item, now_s)
    return pending


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (broadcast(), reply()),
        (broadcast(), ack(refused="busy")),
        (report(), report_ack(7, 1)),
        (door_call(), door_reply()),
        (book_pull(), book()),
        (blob_request(), blob_chunk(offset=4)),
        (blob_request(), blob_chunk(missing=True)),
    ],
)
def test_an_answer_settles_its_question(question: link_pb2.Item, answer: link_pb2.Item) -> None:
    assert not noted(question).are_settled(100.0)
    assert noted(question, answer).are_settled(100.0)


@pytest.mark.parametrize(
    ("question", "other"),
    [
        (broadcast(), reply(number=2)),
        (broadcast(), reply(final=False)),
        (broadcast(), ack()),
        (report(), report_ack(2)),
        (report(), report_ack(1, process="q")),
        (door_call(), door_reply(call=2)),
        (book_pull(), book(more=True)),
        (blob_request(), blob_chunk()),
        (report(), broadcast()),
    ],
)
def test_other_items_leave_it_open(question: link_pb2.Item, other: link_pb2.Item) -> None:
    assert not noted(question, other).are_settled(100.0)


@pytest.mark.parametrize(
    ("question", "patience_s"),
    [
        (broadcast(deadline_us=2_000_000), 2.0 + BROADCAST_MARGIN_S),
        (report(), REPORT_PATIENCE_S),
        (door_call(), DOOR_PATIENCE_S),
        (door_call(deadline_us=3_000_000), 3.0),
        (door_call(deadline_us=600_000_000), DOOR_PATIENCE_S),
        (book_pull(), BOOK_PATIENCE_S),
        (blob_request(), BLOB_PATIENCE_S),
    ],
)
def test_a_lost_answer_is_not_waited_for_for_ever(question: link_pb2.Item, patience_s: float) -> None:
    assert not noted(question).are_settled(100.0 + patience_s - 0.01)
    assert noted(question).are_settled(100.0 + patience_s + 0.01)


def test_one_that_is_open_is_enough() -> None:
    pending = noted(*(report(seq) for seq in range(10)), report_ack(*range(9)))
    assert not pending.are_settled(100.0)
    pending.note("report_ack", report_ack(9), 100.0)
    assert pending.are_settled(100.0)


def test_what_is_kept_is_bounded_and_the_latest_stays() -> None:
    pending = noted(*(report(seq) for seq in range(OPEN_MAX + 10)))
    assert len(pending) == OPEN_MAX
    pending.note("report_ack", report_ack(*range(OPEN_MAX + 9)), 100.0)
    assert not pending.are_settled(100.0)


def test_items_that_ask_nothing_open_nothing() -> None:
    assert noted(reply(), report_ack(1), link_pb2.Item(bye=link_pb2.Bye())).are_settled(100.0)


def test_nothing_is_kept_under_a_long_name_that_a_peer_chose() -> None:
    pending = PendingReplies()
    name = "x" * (NAME_MAX + 1)
    for item in (
        link_pb2.Item(door_call=link_pb2.DoorCall(process=name, call=1)),
        report(process=name),
        link_pb2.Item(blob_request=link_pb2.BlobRequest(sha256=[name.encode()])),
    ):
        pending.note(item.WhichOneof("kind"), item, 0.0)
    assert not len(pending)
    item = link_pb2.Item(door_call=link_pb2.DoorCall(process=name[1:], call=1))
    pending.note("door_call", item, 0.0)
    assert len(pending) == 1
