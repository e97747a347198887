"""The server of hosts that ask to join: the only method open to strangers.

Invariant: a stranger's cost is bounded: concurrent conversations and frames by `peers`, decoding and verification by
`Attempts`, a conversation by a deadline.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from eslurm.api.interceptor import current_peers
from eslurm.api.limits import Budget
from eslurm.core.control.waiting_members import network_of
from eslurm.security.joining import NONCE_BYTES, Conversation
from eslurm.transport.peers import TooMany, address_of
from eslurm.transport.streams import AcceptedStream, StreamLost
from eslurm.v1 import join_pb2

log = logging.getLogger(__name__)

SERVICE = "eslurm.v1.Join"
METHOD = f"/{SERVICE}/Ask"
FRAME_BYTES_MAX = 4 * 1024
CONVERSATION_S = 5.0
ATTEMPTS_PER_S = 50.0
"""Of all addresses: about a twentieth of a core."""
ATTEMPTS_ADDRESS_PER_S = 2.0
ADDRESSES_MAX = 4096
PENDING, REFUSED, ISSUED, BUSY = "pending", "refused", "issued", "busy"

_Context = grpc.aio.ServicerContext[bytes, bytes]


class Attempts:
    """Rate limit of hosts' requests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all = Budget(ATTEMPTS_PER_S, 1.0, clock())
        self._by_address: OrderedDict[str, Budget] = OrderedDict()

    def charge(self, address: str) -> float:
        """0 when the address may ask now, else the seconds to wait."""
        now_s = self._clock()
        mine = self._by_address.get(address)
        if mine is None:
            if len(self._by_address) >= ADDRESSES_MAX:
                self._by_address.popitem(last=False)
            mine = self._by_address[address] = Budget(ATTEMPTS_ADDRESS_PER_S, 1.0, now_s)
        self._by_address.move_to_end(address)
        # The address first: what it asks for too often is taken from no other.
        for budget in (mine, self._all):
            if budget.left_share(now_s) <= 0:
                return budget.retry_after_s(now_s)
        for budget in (mine, self._all):
            budget.take(1.0)
        return 0.0


class JoinAnswerer(Protocol):
    """Decides about requests."""

    async def answer(
        self,
        request: join_pb2.JoinRequest,
        conversation: Conversation,
        proof: join_pb2.JoinProof,
        proof_frame: bytes,
        address: str,
    ) -> join_pb2.JoinReply:
        """The reply to a host; never raises but when cancelled."""
        ...


class JoinServer:
    """`handler()` goes into an `RpcServer`."""

    def __init__(self, answerer: JoinAnswerer) -> None:
        self._answerer = answerer
        self._attempts = Attempts()

    def handler(self) -> grpc.GenericRpcHandler:
        """The generic handler, frames raw."""
        return grpc.method_handlers_generic_handler(
            SERVICE, {"Ask": grpc.stream_stream_rpc_method_handler(self._ask)}
        )

    async def _ask(self, _requests: object, context: _Context) -> None:
        stream = AcceptedStream(context)
        try:
            async with asyncio.timeout(CONVERSATION_S), current_peers().handshake(stream.peer):
                await self._converse(stream)
        except TooMany as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except (StreamLost, TimeoutError):
            return

    async def _converse(self, stream: AcceptedStream) -> None:
        address = address_of(stream.peer)[0]
        asked = await self._frame(stream)
        wait_s = self._attempts.charge(network_of(address))
        if wait_s:
            text = "too many hosts ask to join at once"
            await _say(stream, reply=plain_reply(BUSY, text, wait_s))
            return
        try:
            request = _of_kind(asked, "request").request
            challenge = await _say(
                stream, challenge=join_pb2.JoinChallenge(nonce=secrets.token_bytes(NONCE_BYTES))
            )
            proof_frame = await self._frame(stream)
            proof = _of_kind(proof_frame, "proof").proof
        except DecodeError as error:
            await _say(stream, reply=plain_reply(REFUSED, str(error)))
            return
        conversation = Conversation(asked, challenge)
        reply = await self._answerer.answer(request, conversation, proof, proof_frame, address)
        await _say(stream, reply=reply)

    @staticmethod
    async def _frame(stream: AcceptedStream) -> bytes:
        async with current_peers().first_frame(stream.peer):
            frame = await stream.read()
        if frame is None:
            raise StreamLost("the host went away")
        return frame


def plain_reply(state: str, text: str, again_s: float = 0.0) -> join_pb2.JoinReply:
    """A reply without proofs."""
    answer = join_pb2.JoinAnswer(state=state, text=text, again_ms=math.ceil(again_s * 1000))
    return join_pb2.JoinReply(answer=answer.SerializeToString())


def _of_kind(frame: bytes, kind: str) -> join_pb2.JoinFrame:
    if len(frame) > FRAME_BYTES_MAX:
        raise DecodeError(f"a frame of {len(frame)} bytes; at most {FRAME_BYTES_MAX} are taken")
    try:
        found = join_pb2.JoinFrame.FromString(frame)
    except DecodeError:
        raise DecodeError("the frame cannot be decoded") from None
    if found.WhichOneof("kind") != kind:
        raise DecodeError(f"the frame is not a {kind}")
    return found


async def _say(
    stream: AcceptedStream,
    *,
    challenge: join_pb2.JoinChallenge | None = None,
    reply: join_pb2.JoinReply | None = None,
) -> bytes:
    """Send a frame; the bytes that were sent."""
    frame = join_pb2.JoinFrame(challenge=challenge, reply=reply).SerializeToString()
    await stream.write(frame)
    return frame
