"""The listening end of links: handshakes, and the bulk lanes that belong to them.

Invariant: a stream becomes a link only after the peer's confirmation, a bulk stream joins only the link whose
nonces it proves, and the number of unfinished handshakes and of links is bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import grpc
import grpc.aio

from eslurm.api.interceptor import current_peers
from eslurm.links.hello import Handshake, LocalPeer, busy_text, first_frame, only_item
from eslurm.links.kinds import is_agent
from eslurm.links.link import GrpcLink
from eslurm.links.sealed_stream import SealedStream
from eslurm.ports.link import LinkBusy, LinkClosed, LinkRefused, LinkSink, PeerInfo
from eslurm.security.channel import LinkKeys
from eslurm.security.credentials import Credentials
from eslurm.transport.counters import LinkCounters
from eslurm.transport.options import LinkSettings
from eslurm.transport.peers import HANDSHAKE_FRAME_BYTES_MAX, TooMany
from eslurm.transport.streams import AcceptedStream, StreamLost
from eslurm.v1 import link_pb2

log = logging.getLogger(__name__)

SERVICE = "eslurm.v1.Link"
CELL_LINKS_MAX = 4
"""Links from one other cell: its leader has one, a new leader comes while the former one's is still open."""

_Context = grpc.aio.ServicerContext[bytes, bytes]


class LinkServer:
    """Makes links of incoming streams. `handler()` goes into an `RpcServer`."""

    def __init__(
        self,
        local: LocalPeer,
        credentials: Credentials,
        sink: LinkSink,
        settings: LinkSettings | None = None,
        counters: LinkCounters | None = None,
        on_refused: Callable[[str, str], None] = lambda _peer, _reason: None,
    ) -> None:
        """`on_refused` gets refused handshakes: (peer, reason)."""
        self._on_refused = on_refused
        self._local = local
        self._credentials = credentials
        self._sink = sink
        self._settings = settings or LinkSettings()
        self.counters = counters or LinkCounters()
        # By the nonces of both ends, as a bulk lane names them.
        self._links: dict[tuple[str, bytes, bytes], GrpcLink] = {}
        self._joining = 0
        # The time of the last retry that was assigned to a refused agent.
        self._line_ends_s = 0.0
        self._stopping = ""

    def handler(self) -> grpc.GenericRpcHandler:
        """The generic handlers of both lanes, frames raw."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Control": grpc.stream_stream_rpc_method_handler(self._control),
                "Bulk": grpc.stream_stream_rpc_method_handler(self._bulk),
            },
        )

    @property
    def links(self) -> list[GrpcLink]:
        """The accepted links that live."""
        return [link for link in self._links.values() if not link.closed.is_set()]

    def stop_admitting(self, reason: str) -> None:
        """Refuse new links from now on."""
        self._stopping = reason

    async def close_links(self, reason: str) -> None:
        """End all accepted links in good order and wait for their end (bounded by the close grace)."""
        self.stop_admitting(reason)
        links = list(self._links.values())
        for link in links:
            link.close(reason)
        for link in links:
            await link.finished.wait()

    async def _control(self, _requests: object, context: _Context) -> None:
        stream = AcceptedStream(context)
        self.counters.sockets_now += 1
        try:
            await self._serve(stream, context)
        finally:
            self.counters.sockets_now -= 1

    async def _serve(self, stream: AcceptedStream, context: _Context) -> None:
        peers = current_peers()
        try:
            async with asyncio.timeout(self._settings.hello_timeout_s), peers.handshake(stream.peer):
                link = await self._shake_hands(stream)
        except TooMany as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except TimeoutError:
            self.counters.hellos_refused += 1
            await _turn_away(context, grpc.StatusCode.DEADLINE_EXCEEDED, "no Hello in time")
            return
        except StreamLost:
            return
        if link is not None:
            peers.prove(stream.peer)
            await self._live(link)

    async def _live(self, link: GrpcLink) -> None:
        key = (link.session.process, link.session.challenge, link.session.nonce)
        self._links[key] = link
        try:
            link.start()
            await link.finished.wait()
        finally:
            del self._links[key]
            # gRPC cancels the handler when the connection is lost.
            link.abort("the peer is gone")

    async def _shake_hands(self, stream: AcceptedStream) -> GrpcLink | None:
        handshake = Handshake(self._local, self._credentials)
        try:
            peer = await self._meet(stream, handshake)
        except LinkBusy as busy:
            self.counters.links_put_off += 1
            await stream.write(_refusal(str(busy)))
            return None
        except LinkRefused as error:
            self.counters.hellos_refused += 1
            reason = str(error)
            log.warning("link refused: %s", reason)
            self._on_refused(stream.peer, reason)
            await stream.write(_refusal(reason))
            return None
        sealed = SealedStream(stream, handshake.finish(dialled=False).control, self.counters)
        settings = self._settings
        return GrpcLink(sealed, peer, handshake.session, self._local, self._sink, settings, self.counters)

    async def _meet(self, stream: AcceptedStream, handshake: Handshake) -> PeerInfo:
        """Handle Hello, HelloReply, confirmation."""
        frame = await self._frame(stream)
        if self._stopping:
            raise LinkRefused(self._stopping)
        if len(self._links) >= self._settings.links_max:
            raise LinkRefused(f"this process has {len(self._links)} links and takes no more")
        self._admit(handshake.on_open(frame))
        self._joining += 1
        try:
            await stream.write(handshake.answer())
            return handshake.on_confirmation(await self._frame(stream))
        finally:
            self._joining -= 1

    def _admit(self, peer: PeerInfo) -> None:
        """Raise `LinkBusy` for an agent that must wait; each gets another time, so that they do not return together.
        `LinkRefused` for one cell too many links.
        """
        if peer.cell and sum(link.peer.cell == peer.cell for link in self._links.values()) >= CELL_LINKS_MAX:
            raise LinkRefused(f"cell {peer.cell} has {CELL_LINKS_MAX} links here and gets no more")
        agents_max = self._settings.agents_max
        if not agents_max or not is_agent(peer.role):
            return
        agents = sum(is_agent(link.peer.role) for link in self._links.values())
        if agents + self._joining < agents_max:
            return
        now_s = asyncio.get_running_loop().time()
        self._line_ends_s = max(self._line_ends_s, now_s) + self._settings.line_pace_s
        after_s = min(self._line_ends_s - now_s, self._settings.line_max_s)
        raise LinkBusy(busy_text(after_s), retry_after_s=after_s)

    @staticmethod
    async def _frame(stream: AcceptedStream) -> bytes:
        async with current_peers().first_frame(stream.peer):
            frame = await stream.read()
        if frame is None:
            raise StreamLost("the peer ended the stream during the handshake")
        if len(frame) > HANDSHAKE_FRAME_BYTES_MAX:
            raise LinkRefused(
                f"a first frame of {len(frame)} bytes; at most {HANDSHAKE_FRAME_BYTES_MAX} are taken"
            )
        return frame

    async def _bulk(self, _requests: object, context: _Context) -> None:
        stream = AcceptedStream(context)
        try:
            async with asyncio.timeout(self._settings.hello_timeout_s):
                link, keys = self._owner_of(await self._frame(stream))
            link.attach_bulk(SealedStream(stream, keys.bulk, self.counters))
        except TimeoutError:
            await _turn_away(context, grpc.StatusCode.DEADLINE_EXCEEDED, "no Hello in time")
            return
        except (LinkRefused, LinkClosed) as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        except StreamLost:
            return
        await link.finished.wait()

    def _owner_of(self, frame: bytes) -> tuple[GrpcLink, LinkKeys]:
        hello = only_item(frame, "hello").hello
        link = self._links.get((hello.process, hello.nonce, hello.challenge))
        keys = link.session.keys if link is not None and not link.closed.is_set() else None
        if link is None or keys is None or not keys.is_bulk_proof(hello.proof):
            raise LinkRefused("there is no such control lane")
        return link, keys


def _refusal(reason: str) -> bytes:
    return first_frame(link_pb2.Item(hello_reply=link_pb2.HelloReply(refused=reason)))


async def _turn_away(context: _Context, code: grpc.StatusCode, text: str) -> None:
    """End the call with a status, unless a cancelled operation has ended it already."""
    try:
        await context.abort(code, text)
    except grpc.aio.InternalError:
        log.debug("a handshake was over before it could be turned away")
