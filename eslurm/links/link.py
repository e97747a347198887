"""One live link: a control lane that never waits and a bulk lane that pays with credits.

Invariant: the reading tasks never await a write; what `send` accepted goes out in order or the link ends; the
out-queue is bounded in items and bytes, and a full one ends the link, since a peer that does not keep up is a
suspect like any other. Everything queued within one tick of the event loop shares a frame.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine

from google.protobuf.message import DecodeError

from eslurm.links.bulk import BulkLane
from eslurm.links.codec import encode_frame, unknown_field
from eslurm.links.hello import LocalPeer, Session
from eslurm.links.pending_replies import PendingReplies
from eslurm.ports.link import CLOSED_BY_PEER, LinkClosed, LinkSink, PeerInfo
from eslurm.transport.counters import LinkCounters
from eslurm.transport.options import (
    BULK_ITEM_BYTES_MAX,
    CONTROL_ITEM_BYTES_MAX,
    FRAME_BYTES_TARGET,
    LinkSettings,
)
from eslurm.transport.streams import GONE, Stream, StreamLost
from eslurm.v1 import link_pb2

log = logging.getLogger(__name__)

# Kinds the link itself consumes; a Hello after the handshake says nothing new.
_OWN_KINDS = frozenset({"hello", "hello_reply", "credit", "open_bulk", "bye", None})

BulkOpener = Callable[[], Awaitable[Stream]]


class GrpcLink:
    """The `ports.link.Link` over gRPC. Made by `dial` or by the `LinkServer`, after the handshake."""

    def __init__(
        self,
        control: Stream,
        peer: PeerInfo,
        session: Session,
        local: LocalPeer,
        sink: LinkSink,
        settings: LinkSettings,
        counters: LinkCounters,
        open_bulk: BulkOpener | None = None,
        release: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.peer = peer
        self.session = session
        self.dialled = open_bulk is not None
        self.closed = asyncio.Event()
        # Set when the link's own tasks and its connection are gone too.
        self.finished = asyncio.Event()
        self.close_reason = ""
        self.traceparent = ""
        self.peer_book_revision = 0
        self.active_at_s = 0.0
        # The table gives all links of one process the same.
        self.pending = PendingReplies()
        self._control = control
        self._local = local
        self._sink = sink
        self._settings = settings
        self._counters = counters
        self._open_bulk = open_bulk
        self._release = release
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[bytes, str]] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self._farewell: str | None = None
        self._bulk = BulkLane(settings.bulk_window_bytes)
        self._bulk_asked = False
        self._timers: list[asyncio.TimerHandle] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._cleaning: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        way = "to" if self.dialled else "from"
        return f"<link {way} {self.peer.role} {self.peer.process} at {self.peer.endpoint}>"

    def start(self) -> None:
        """Announce the link and begin to read and write."""
        self._counters.links_up += 1
        self._counters.links_now += 1
        self.active_at_s = self._loop.time()
        try:
            self._sink.on_up(self)
        except BaseException:
            self.abort("on_up failed")
            raise
        # At once, not with the lane: the credit tells the peer that the link is accepted.
        self._grant(self._settings.bulk_window_bytes)
        self._spawn(self._read_lane(self._control, bulk=False), "read")
        self._spawn(self._write_control(), "write")
        self._spawn(self._write_bulk(), "bulk")

    # ---- sending ----

    def send(self, item: link_pb2.Item, traceparent: str = "") -> bool:
        """See `ports.link.Link.send`."""
        accepted = self.send_encoded(item.SerializeToString(), traceparent)
        if accepted:
            self.pending.note(item.WhichOneof("kind"), item, self._loop.time())
        return accepted

    def send_encoded(self, item: bytes, traceparent: str = "") -> bool:
        """Like `send` for an encoded `Item`: one encoding serves many links."""
        if not self.is_usable:
            return False
        size_bytes = len(item)
        if size_bytes > CONTROL_ITEM_BYTES_MAX:
            # Refused by value: an exception here would end the sender's whole operation.
            self._counters.items_too_large += 1
            log.error(
                "%r: an item of %d bytes is not sent: a control frame takes at most %d",
                self,
                size_bytes,
                CONTROL_ITEM_BYTES_MAX,
            )
            return False
        if (
            len(self._queue) >= self._settings.queue_items_max
            or self._queued_bytes + size_bytes > self._settings.queue_bytes_max
        ):
            self._counters.queue_full_closes += 1
            self.abort(f"control queue full ({len(self._queue)} items, {self._queued_bytes} bytes)")
            return False
        self._queue.append((item, traceparent))
        self._queued_bytes += size_bytes
        self._wake.set()
        return True

    async def send_bulk(self, item: link_pb2.Item) -> None:
        """See `ports.link.Link.send_bulk`."""
        data = item.SerializeToString()
        if len(data) > BULK_ITEM_BYTES_MAX:
            raise ValueError(
                f"a bulk item of {len(data)} bytes; send it in chunks (at most {BULK_ITEM_BYTES_MAX})"
            )
        self._want_bulk()
        await self._bulk.send(encode_frame([data], book_revision=self._local.book_revision))
        self.pending.note(item.WhichOneof("kind"), item, self._loop.time())
        self._counters.frames_out += 1
        self._counters.items_out += 1
        self._counters.bytes_out += len(data)

    @property
    def is_usable(self) -> bool:
        """Check whether `send` would take an item: false from `close` on, while what is queued still goes out."""
        return self._farewell is None and not self.closed.is_set()

    def is_idle(self, now_s: float) -> bool:
        """Check whether nothing waits to go out and neither end waits for an answer."""
        return not self._queue and self.pending.are_settled(now_s)

    @property
    def queued_bytes(self) -> int:
        """Bytes accepted by the control lane and not yet handed to the transport."""
        return self._queued_bytes

    # ---- ending ----

    def close(self, reason: str) -> None:
        """See `ports.link.Link.close`."""
        if not self.is_usable:
            return
        self._farewell = reason
        self._wake.set()
        self._later(self._settings.close_grace_s, lambda: self.abort(reason))

    def abort(self, reason: str) -> None:
        """End the link now; what is queued is lost."""
        if self.closed.is_set():
            return
        self.close_reason = reason
        self.closed.set()
        self._queue.clear()
        self._queued_bytes = 0
        self._bulk.end(reason)
        for timer in self._timers:
            timer.cancel()
        self._counters.links_down += 1
        self._counters.links_now -= 1
        # Not at once: the caller may be in the midst of sending to many links.
        self._loop.call_soon(self._sink.on_down, self, reason)
        self._cleaning = self._loop.create_task(self._clean_up(), name=f"link end {self.peer.process}")

    async def _clean_up(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._bulk.stream is not None:
            self._bulk.stream.cancel()
        self._control.cancel()
        if self._release is not None:
            await self._release()
        # A holder of the link must not hold its connection: gRPC closes it when the last call is collected.
        self._control = self._bulk.stream = GONE
        self._open_bulk = self._release = None
        self.finished.set()

    # ---- writing ----

    async def _write_control(self) -> None:
        try:
            while self._queue or self._farewell is None:
                if self._queue:
                    await self._control.write(self._next_frame())
                else:
                    self._wake.clear()
                    await self._wake.wait()
            farewell = link_pb2.Item(bye=link_pb2.Bye(reason=self._farewell or ""))
            await self._control.write(encode_frame([farewell.SerializeToString()]))
            if await self._control.end_writing():
                # The peer ends the stream once it has read everything; our reader sees that, or the grace ends.
                return
            self.abort(self._farewell or "")
        except StreamLost as error:
            self._on_lost(str(error))

    def _next_frame(self) -> bytes:
        queue = self._queue
        trace = queue[0][1]
        items: list[bytes] = []
        size_bytes = 0
        while queue and size_bytes < FRAME_BYTES_TARGET and queue[0][1] == trace:
            if items and size_bytes + len(queue[0][0]) > CONTROL_ITEM_BYTES_MAX:
                break
            item = queue.popleft()[0]
            items.append(item)
            size_bytes += len(item)
        self._queued_bytes -= size_bytes
        self._counters.frames_out += 1
        self._counters.items_out += len(items)
        self._counters.bytes_out += size_bytes
        self.active_at_s = self._loop.time()
        return encode_frame(items, trace, self._local.book_revision)

    # ---- reading ----

    async def _read_lane(self, stream: Stream, *, bulk: bool) -> None:
        lane = "bulk lane: " if bulk else ""
        try:
            while (data := await stream.read()) is not None:
                self._on_frame(data, bulk=bulk)
                if self.closed.is_set():
                    return
        except StreamLost as error:
            self._on_lost(lane + str(error))
        except DecodeError:
            self.abort(lane + "a frame that cannot be decoded")
        else:
            self._on_lost(lane + "the peer ended the stream")
        finally:
            # A logged error of the sink holds this frame, and a held stream keeps its connection open.
            del stream

    def _on_lost(self, reason: str) -> None:
        self.abort(reason if self._farewell is None else self._farewell)

    def _on_frame(self, data: bytes, *, bulk: bool) -> None:
        frame = link_pb2.Frame.FromString(data)
        counters = self._counters
        counters.frames_in += 1
        counters.items_in += len(frame.items)
        counters.bytes_in += len(data)
        self.active_at_s = self._loop.time()
        if not bulk:
            self.peer_book_revision = frame.book_revision
        items = []
        for item in frame.items:
            kind = item.WhichOneof("kind")
            if kind not in _OWN_KINDS:
                items.append(item)
                self.pending.note(kind, item, self.active_at_s)
        if items:
            self.traceparent = frame.traceparent
            try:
                self._sink.on_items(self, items)
            except Exception:
                counters.sink_errors += 1
                log.exception("%r: on_items failed; %d items may be lost", self, len(items))
            self.traceparent = ""
        if len(items) != len(frame.items):
            for item in frame.items:
                self._on_own_item(item)
        if bulk and not self.closed.is_set() and (grant := self._bulk.on_consumed(len(data))):
            self._grant(grant)

    def _on_own_item(self, item: link_pb2.Item) -> None:
        kind = item.WhichOneof("kind")
        if kind == "credit":
            self._bulk.on_credit(item.credit.bytes)
        elif kind == "open_bulk":
            self._want_bulk()
        elif kind == "bye":
            self.abort(CLOSED_BY_PEER + item.bye.reason)
        elif kind is None and (field := unknown_field(item)):
            self.send(link_pb2.Item(unsupported=link_pb2.Unsupported(field=field)))

    # ---- bulk ----

    def attach_bulk(self, stream: Stream) -> None:
        """The peer opened the bulk lane (accepted links)."""
        if self._bulk.stream is not None:
            raise LinkClosed("this link has a bulk lane already")
        self._begin_bulk(stream)

    def _begin_bulk(self, stream: Stream) -> None:
        self._bulk.attach(stream)
        self._spawn(self._read_lane(stream, bulk=True), "read bulk")

    def _want_bulk(self) -> None:
        if self._bulk_asked or self._bulk.stream is not None or self.closed.is_set():
            return
        self._bulk_asked = True
        if self._open_bulk is not None:
            self._spawn(self._dial_bulk(self._open_bulk), "open bulk")
        else:
            self.send(link_pb2.Item(open_bulk=link_pb2.OpenBulk()))
        self._later(self._settings.bulk_open_timeout_s, self._check_bulk)

    def _check_bulk(self) -> None:
        if self._bulk.stream is None:
            self.abort(f"the bulk lane did not open within {self._settings.bulk_open_timeout_s} s")

    async def _dial_bulk(self, opener: BulkOpener) -> None:
        try:
            # A lane that overtook our confirmation would be refused.
            await self._bulk.granted.wait()
            self._begin_bulk(await opener())
        except StreamLost as error:
            self._on_lost(f"bulk lane: {error}")

    async def _write_bulk(self) -> None:
        try:
            await self._bulk.write_loop()
        except StreamLost as error:
            self._on_lost(f"bulk lane: {error}")

    def _grant(self, count_bytes: int) -> None:
        self.send(link_pb2.Item(credit=link_pb2.Credit(bytes=count_bytes)))

    # ---- tasks ----

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        task = self._loop.create_task(work, name=f"link {name} {self.peer.process}")
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%r: %s failed", self, task.get_name(), exc_info=error)
            self.abort(f"internal error: {error!r}")

    def _later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._timers.append(self._loop.call_later(delay_s, callback))
