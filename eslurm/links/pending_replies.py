"""Unanswered requests between this process and one peer: a link with pending replies is not idle.

Invariant: a request counts until its answer has passed or its own time-out has ended, whichever comes first, so a lost
answer never keeps a link open for ever; at most `OPEN_MAX` are kept, none under a name of more than `NAME_MAX` characters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from eslurm.v1 import link_pb2

OPEN_MAX: Final = 8192
NAME_MAX: Final = 256
"""Of a process, or of a file's digest: a peer chooses them."""
REPORT_PATIENCE_S: Final = 15.0
DOOR_PATIENCE_S: Final = 60.0
BLOB_PATIENCE_S: Final = 10.0
BOOK_PATIENCE_S: Final = 5.0
BROADCAST_MARGIN_S: Final = 1.0

Key: TypeAlias = tuple[Any, ...]


class PendingReplies:
    """One for all links to a process: a request may go out on one of them and its answer come on another."""

    def __init__(self) -> None:
        self._until_s: dict[Key, float] = {}

    def __len__(self) -> int:
        return len(self._until_s)

    def note(self, kind: str | None, item: link_pb2.Item, now_s: float) -> None:
        """Note an item, in either direction: it may open requests, or answer some."""
        take = _NOTES.get(kind or "")
        if take is not None:
            take(self, getattr(item, kind or ""), now_s)

    def are_settled(self, now_s: float) -> bool:
        """Check whether no reply is pending."""
        if not self._until_s:
            return True
        if any(until_s > now_s for until_s in self._until_s.values()):
            return False
        self._until_s.clear()
        return True

    def _open(self, key: Key, until_s: float) -> None:
        if len(key) > 1 and isinstance(key[1], str | bytes) and len(key[1]) > NAME_MAX:
            return
        if len(self._until_s) >= OPEN_MAX and key not in self._until_s:
            del self._until_s[next(iter(self._until_s))]
        self._until_s[key] = until_s

    def _settle(self, *key: Any) -> None:
        self._until_s.pop(key, None)

    def _broadcast(self, message: link_pb2.Broadcast, now_s: float) -> None:
        self._open(("broadcast", message.id), now_s + message.deadline_us / 1e6 + BROADCAST_MARGIN_S)

    def _broadcast_ack(self, message: link_pb2.BroadcastAck, _now_s: float) -> None:
        if message.refused:
            self._settle("broadcast", message.id)

    def _broadcast_reply(self, message: link_pb2.BroadcastReply, _now_s: float) -> None:
        if message.final:
            self._settle("broadcast", message.id)

    def _report(self, message: link_pb2.Report, now_s: float) -> None:
        self._open(("report", message.process, message.seq), now_s + REPORT_PATIENCE_S)

    def _report_ack(self, message: link_pb2.ReportAck, _now_s: float) -> None:
        for seq in message.seqs:
            self._settle("report", message.process, seq)

    def _door_call(self, message: link_pb2.DoorCall, now_s: float) -> None:
        patience_s = min(message.deadline_us / 1e6 or DOOR_PATIENCE_S, DOOR_PATIENCE_S)
        self._open(("door", message.process, message.call), now_s + patience_s)

    def _door_reply(self, message: link_pb2.DoorReply, _now_s: float) -> None:
        self._settle("door", message.process, message.call)

    def _book_pull(self, _message: link_pb2.BookPull, now_s: float) -> None:
        self._open(("book",), now_s + BOOK_PATIENCE_S)

    def _book(self, message: link_pb2.Book, _now_s: float) -> None:
        if not message.more:
            self._settle("book")

    def _blob_request(self, message: link_pb2.BlobRequest, now_s: float) -> None:
        for digest in message.sha256:
            self._open(("blob", digest), now_s + BLOB_PATIENCE_S)

    def _blob_chunk(self, message: link_pb2.BlobChunk, _now_s: float) -> None:
        if message.missing or message.offset + len(message.data) >= message.total:
            self._settle("blob", message.sha256)


_NOTES: Final[dict[str, Callable[[PendingReplies, Any, float], None]]] = {
    "broadcast": PendingReplies._broadcast,
    "broadcast_ack": PendingReplies._broadcast_ack,
    "broadcast_reply": PendingReplies._broadcast_reply,
    "report": PendingReplies._report,
    "report_ack": PendingReplies._report_ack,
    "door_call": PendingReplies._door_call,
    "door_reply": PendingReplies._door_reply,
    "book_pull": PendingReplies._book_pull,
    "book": PendingReplies._book,
    "blob_request": PendingReplies._blob_request,
    "blob_chunk": PendingReplies._blob_chunk,
}
