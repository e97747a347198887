"""A host's request to join a controller: one conversation, and the check of its answer."""

from __future__ import annotations

import asyncio
import secrets

import msgspec
from google.protobuf.message import DecodeError

from eslurm.links.channel import Unresolved, open_channel
from eslurm.links.join_server import ISSUED, METHOD
from eslurm.security.joining import NONCE_BYTES, CannotTrust, Conversation, Trust, check_issued
from eslurm.security.membership import Identity, Role
from eslurm.security.site_keys import Ring
from eslurm.telemetry.clocks import wall_us
from eslurm.transport.streams import DialledStream, StreamLost
from eslurm.transport.tls import Tls
from eslurm.v1 import join_pb2

CONNECT_S = 5.0
CONVERSATION_S = 30.0
"""An answer waits for the store of the cluster."""


class Unreachable(Exception):
    """No controller answers there; the text has the reason."""


class JoinWish(msgspec.Struct, frozen=True):
    """A host's request, and the trusted authors of the answer."""

    identity: Identity
    role: Role
    names: str
    trust: Trust


class JoinAnswer(msgspec.Struct, frozen=True):
    """An answer. `ring` and `membership` are present, and proven, when the state is `issued`; `text` is unproven."""

    state: str
    text: str
    again_s: float
    ring: Ring | None = None
    membership: bytes = b""


async def ask(endpoint: str, wish: JoinWish, tls: Tls | None = None) -> JoinAnswer:
    """One conversation. Raises `Unreachable`, `CannotTrust`."""
    try:
        channel = await open_channel(endpoint, tls, CONNECT_S)
    except Unresolved as error:
        raise Unreachable(str(error)) from None
    try:
        stream = DialledStream(channel.stream_stream(METHOD)())
        async with asyncio.timeout(CONNECT_S):
            await stream.connected()
        async with asyncio.timeout(CONVERSATION_S):
            return await _converse(stream, wish)
    except TimeoutError:
        raise Unreachable(f"{endpoint}: no answer in time") from None
    except StreamLost as error:
        raise Unreachable(f"{endpoint}: {error}") from None
    finally:
        await channel.close()


async def _converse(stream: DialledStream, wish: JoinWish) -> JoinAnswer:
    token = wish.trust.token
    request = join_pb2.JoinRequest(
        role=wish.role,
        names=wish.names,
        public=wish.identity.public,
        nonce=secrets.token_bytes(NONCE_BYTES),
        token_id=token.id if token is not None else b"",
    )
    asked = join_pb2.JoinFrame(request=request).SerializeToString()
    await stream.write(asked)
    challenge = await _read(stream)
    if _frame(challenge).WhichOneof("kind") == "reply":
        return _unproven(_frame(challenge).reply.answer)
    conversation = Conversation(asked, challenge)
    proof = join_pb2.JoinProof(
        signature=conversation.sign(wish.identity),
        token_proof=conversation.prove(token.hash) if token is not None else b"",
    )
    proof_frame = join_pb2.JoinFrame(proof=proof).SerializeToString()
    await stream.write(proof_frame)
    reply = _frame(await _read(stream)).reply
    said = _unproven(reply.answer)
    if said.state != ISSUED:
        return said
    answer = join_pb2.JoinAnswer.FromString(reply.answer)
    answered = conversation.answered(proof_frame, reply.answer)
    ring = wish.trust.check(answered, answer.ring, reply.token_proof, reply.seals)
    check_issued(ring, answer.membership, wish.identity, wish.role, wish.names, wall_us())
    return msgspec.structs.replace(said, ring=ring, membership=answer.membership)


def _unproven(encoded: bytes) -> JoinAnswer:
    try:
        answer = join_pb2.JoinAnswer.FromString(encoded)
    except DecodeError:
        raise CannotTrust("the answer cannot be decoded") from None
    return JoinAnswer(answer.state, answer.text, answer.again_ms / 1000)


def _frame(data: bytes) -> join_pb2.JoinFrame:
    try:
        return join_pb2.JoinFrame.FromString(data)
    except DecodeError:
        raise CannotTrust("the answer cannot be decoded") from None


async def _read(stream: DialledStream) -> bytes:
    frame = await stream.read()
    if frame is None:
        raise StreamLost("the controller ended the conversation")
    return frame
