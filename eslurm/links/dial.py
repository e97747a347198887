"""Dialling: from an endpoint to a live link, or a clear reason for the failure.

Invariant: a dial takes no longer than the connect timeout plus the hello timeout (and once in a while
`tls_diagnosis.ASK_S` more), and leaves nothing behind when it fails.
"""

from __future__ import annotations

import asyncio
from functools import partial

import grpc
import grpc.aio

from eslurm.links.channel import Unresolved, open_channel
from eslurm.links.hello import Handshake, LocalPeer, busy_after_s, first_frame, only_item
from eslurm.links.link import GrpcLink
from eslurm.links.sealed_stream import SealedStream
from eslurm.ports.link import (
    LinkBusy,
    LinkError,
    LinkRefused,
    LinkSilent,
    LinkSink,
    LinkUnreachable,
    PeerInfo,
)
from eslurm.security.credentials import Credentials
from eslurm.transport.counters import LinkCounters
from eslurm.transport.options import LinkSettings
from eslurm.transport.streams import DialledStream, Stream, StreamLost
from eslurm.transport.tls import Tls
from eslurm.transport.tls_diagnosis import BROKEN_OFF, TlsDiagnosis
from eslurm.v1 import link_pb2

CONTROL_METHOD = "/eslurm.v1.Link/Control"
BULK_METHOD = "/eslurm.v1.Link/Bulk"
_NOBODY = "onnection refused"


async def dial(
    endpoint: str,
    local: LocalPeer,
    credentials: Credentials,
    sink: LinkSink,
    settings: LinkSettings | None = None,
    counters: LinkCounters | None = None,
    tls: Tls | None = None,
    mismatch: TlsDiagnosis | None = None,
) -> GrpcLink:
    """Open a link to the process that listens at `endpoint`; `sink.on_up` was called when this returns.

    Raises `LinkUnreachable` (no process there, or silent) or `LinkRefused` (wrong cluster, key or protocol, or a TLS
    mismatch that `mismatch` finds).
    """
    settings = settings or LinkSettings()
    counters = counters or LinkCounters()
    counters.dials += 1
    try:
        channel = await open_channel(endpoint, tls, settings.connect_timeout_s)
    except Unresolved as error:
        counters.dials_failed += 1
        raise LinkUnreachable(str(error)) from None
    counters.sockets_now += 1
    try:
        link = await _open(endpoint, channel, local, credentials, sink, settings, counters)
        link.start()
        return link
    except LinkError as error:
        # The frames it came through hold the call, and a call that is held keeps its connection open.
        failure: LinkError = error.with_traceback(None)
        failure.__context__ = None
    except BaseException:
        counters.dials_failed += 1
        await _drop(channel, counters)
        raise
    counters.dials_failed += 1
    await _drop(channel, counters)
    del channel
    if mismatch is not None and isinstance(failure, LinkUnreachable):
        reason = await mismatch.find(endpoint, str(failure))
        if reason:
            failure = LinkRefused(f"{endpoint}: {reason}")
    raise failure


async def _drop(channel: grpc.aio.Channel, counters: LinkCounters) -> None:
    counters.sockets_now -= 1
    await channel.close()


async def _open(
    endpoint: str,
    channel: grpc.aio.Channel,
    local: LocalPeer,
    credentials: Credentials,
    sink: LinkSink,
    settings: LinkSettings,
    counters: LinkCounters,
) -> GrpcLink:
    call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(CONTROL_METHOD)()
    control = DialledStream(call)
    try:
        try:
            async with asyncio.timeout(settings.connect_timeout_s):
                await control.connected()
        except TimeoutError:
            raise LinkSilent(f"{endpoint}: no connection within {settings.connect_timeout_s} s") from None
        handshake = Handshake(local, credentials)
        try:
            async with asyncio.timeout(settings.hello_timeout_s):
                peer = await _shake_hands(control, handshake)
        except TimeoutError:
            raise LinkSilent(
                f"{endpoint}: connected, but no Hello within {settings.hello_timeout_s} s"
            ) from None
    except StreamLost as error:
        text = str(error)
        raise _kind_of(text)(f"{endpoint}: {text}") from None
    except LinkRefused as error:
        raise LinkRefused(f"{endpoint}: {error}") from None

    keys = handshake.finish(dialled=True)
    session = handshake.session

    async def open_bulk() -> Stream:
        bulk_call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(BULK_METHOD)()
        stream = DialledStream(bulk_call)
        hello = link_pb2.Hello(
            process=local.process, nonce=session.nonce, challenge=session.challenge, proof=keys.bulk_proof
        )
        await stream.write(first_frame(link_pb2.Item(hello=hello)))
        return SealedStream(stream, keys.bulk, counters)

    release = partial(_drop, channel, counters)
    sealed = SealedStream(control, keys.control, counters)
    return GrpcLink(sealed, peer, session, local, sink, settings, counters, open_bulk, release)


def _kind_of(text: str) -> type[LinkUnreachable]:
    """The kind of failure, from gRPC's text for a lost stream."""
    if _NOBODY in text:
        return LinkUnreachable
    # Accepted and closed at once: that is how gRPC keeps to its bound on connections.
    return LinkBusy if any(words in text for words in BROKEN_OFF) else LinkSilent


async def _shake_hands(control: Stream, handshake: Handshake) -> PeerInfo:
    await control.write(handshake.open())
    answer = await control.read()
    if answer is None:
        raise StreamLost("the peer ended the stream before its Hello")
    reply = only_item(answer, "hello_reply").hello_reply
    after_s = busy_after_s(reply.refused)
    if after_s is not None:
        raise LinkBusy(reply.refused, retry_after_s=after_s)
    if reply.refused:
        raise LinkRefused(f"refused by the peer: {reply.refused}")
    peer, confirmation = handshake.on_answer(reply, answer)
    await control.write(confirmation)
    return peer
