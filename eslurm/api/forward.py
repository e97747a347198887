"""Calls that go to a leader over a link, and their answers: from a node's or a standby's API socket, or from another cell.

Invariant: such a socket vouches for the caller's uid only: the leader decides about groups and rights. Every call is
answered, or reported as UNAVAILABLE when the link that carried it ends (the command then retries with the same request
id).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from eslurm.api.methods import BY_NAME, Method
from eslurm.core.model.job import Principal
from eslurm.ports.api import Answered, Answerer, ApiError, Caller, Status, status_of
from eslurm.ports.link import Link, LinkClosed
from eslurm.transport.framing import REQUEST_BYTES_MAX
from eslurm.transport.options import BULK_CHUNK_BYTES_MAX
from eslurm.v1 import link_pb2

CONTROL_CALL_BYTES_MAX = 2 * 1024 * 1024
"""Bound of one item, either way; a larger call goes in parts, and only over a link to the controller itself."""
PARTS_PATIENCE_S = 60.0
REPLIES_BYTES_MAX = 1 << 30
"""Of answers that come in parts, as long as their last part has not come."""
REPLY_PARTS_MAX = 16 * 1024
"""Of all these answers together: four times as many as full parts within their bytes."""
CALLS_BEGUN_MAX = 64
"""Calls of one link whose last part has not come: a user's call in parts is one."""
CALL_PARTS_MAX = 1024
"""Of all these calls together."""


class _Begun:
    """Parts of messages whose last part has not come, with their sum, so that one more part costs the same however many
    there are.
    """

    def __init__(self, bytes_max: int, parts_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts_max = parts_max
        self._parts: dict[int, list[bytes]] = {}
        self._bytes_now = 0
        self._parts_now = 0

    def __len__(self) -> int:
        return len(self._parts)

    def count(self, number: int) -> int:
        """Count the parts of a message that came."""
        return len(self._parts.get(number, ()))

    def add(self, number: int, data: bytes) -> bool:
        """Keep one more part, unless it does not fit."""
        if self._bytes_now + len(data) > self._bytes_max or self._parts_now >= self._parts_max:
            return False
        self._parts.setdefault(number, []).append(data)
        self._bytes_now += len(data)
        self._parts_now += 1
        return True

    def take(self, number: int) -> list[bytes]:
        """Forget a message: its parts."""
        parts = self._parts.pop(number, [])
        self._bytes_now -= sum(map(len, parts))
        self._parts_now -= len(parts)
        return parts


class Forwarder:
    """The `Answerer` of an API socket that is not the leader's. `uplink` gives the present link for calls, `node` the
    node's number (0 on a standby); `unlinked` is the text without a link. With `in_parts` calls of any size may go: its
    links lead to the controller itself. `leader` names the other end; with `is_named` it learns the user's name.
    """

    def __init__(
        self,
        process: str,
        uplink: Callable[[], Link | None],
        node: Callable[[], int],
        unlinked: str = "this node has no link to the controller now",
        *,
        in_parts: bool = False,
        is_login: bool = False,
        leader: str = "the controller",
        is_named: bool = False,
        replies_bytes_max: int = REPLIES_BYTES_MAX,
    ) -> None:
        self._replies_bytes_max = replies_bytes_max
        self._leader = leader
        self._is_named = is_named
        self._process = process
        self._uplink = uplink
        self._node = node
        self._unlinked = unlinked
        self._in_parts = in_parts
        self._is_login = is_login
        self._calls: dict[int, tuple[Link, asyncio.Future[Answered]]] = {}
        self._begun = _Begun(replies_bytes_max, REPLY_PARTS_MAX)
        self._last_call = 0

    async def answer(self, method: Method[Any, Any], payload: bytes, caller: Caller) -> Answered:
        """See `ports.api.Answerer`."""
        if len(payload) > CONTROL_CALL_BYTES_MAX and not self._in_parts:
            return Answered(
                Status.RESOURCE_EXHAUSTED,
                f"the request has {len(payload)} bytes; {_most(self._is_login)}",
                b"",
            )
        link = self._uplink()
        if link is None:
            return Answered(Status.UNAVAILABLE, self._unlinked, b"")
        self._last_call += 1
        number = self._last_call
        call = link_pb2.DoorCall(
            process=self._process,
            call=number,
            method=method.name,
            request=payload,
            request_id=caller.request_id,
            deadline_us=caller.deadline_us or 0,
            uid=caller.principal.uid,
            gid=caller.principal.gid,
            node=self._node(),
            retry=caller.retry,
        )
        if self._is_named:
            call.user = caller.principal.name
        answered: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._calls[number] = (link, answered)
        try:
            if not await _send_call(link, call):
                return Answered(Status.UNAVAILABLE, f"the link to {self._leader} has just ended", b"")
            return await answered
        finally:
            del self._calls[number]
            self._begun.take(number)

    def on_reply(self, reply: link_pb2.DoorReply) -> None:
        """Take the controller's answer; one without a waiter is dropped."""
        if reply.process != self._process:
            return
        _link, answered = self._calls.get(reply.call, (None, None))
        if answered is None or answered.done():
            return
        if reply.more:
            if not reply.reply:
                text = f"an empty part of an answer of {self._leader}"
            elif not self._begun.add(reply.call, reply.reply):
                text = (
                    f"answers of {self._leader} of more than {self._replies_bytes_max} bytes or {REPLY_PARTS_MAX} parts: "
                    "ask for less"
                )
            else:
                return
            answered.set_result(Answered(Status.RESOURCE_EXHAUSTED, text, b""))
            self._begun.take(reply.call)
            return
        whole = b"".join([*self._begun.take(reply.call), reply.reply])
        after_s = reply.retry_after_ms / 1000
        answered.set_result(Answered(status_of(reply.status), reply.text, whole, after_s))

    def on_link_down(self, link: Link) -> None:
        """Calls that went out on this link may or may not have arrived."""
        for carrier, answered in self._calls.values():
            if carrier is link and not answered.done():
                answered.set_result(Answered(Status.UNAVAILABLE, f"the link to {self._leader} ended", b""))


async def _send_call(link: Link, call: link_pb2.DoorCall) -> bool:
    if len(call.request) <= CONTROL_CALL_BYTES_MAX:
        return link.send(link_pb2.Item(door_call=call))
    *before, last = _cut(call.request)
    call.request = last
    call.part = len(before)
    try:
        for at, data in enumerate(before):
            part = link_pb2.DoorCall(
                process=call.process, call=call.call, node=call.node, request=data, more=True, part=at
            )
            await link.send_bulk(link_pb2.Item(door_call=part))
        await link.send_bulk(link_pb2.Item(door_call=call))
    except LinkClosed:
        return False
    return True


def _most(is_login: bool) -> str:
    """The refusal of a large item, with the bound and the way out."""
    way_out = "give its esnoded --controller" if is_login else "use a login host"
    place = "a login host's satellites" if is_login else "a node"
    return f"through {place} at most {CONTROL_CALL_BYTES_MAX} go: ask for less, or {way_out}"


async def send_reply(
    link: Link, reply: link_pb2.DoorReply, *, in_parts: bool, is_login: bool = False
) -> None:
    """The leader's side: send an answer back to the call's origin; one that is too large for that way is refused."""
    if len(reply.reply) <= CONTROL_CALL_BYTES_MAX:
        link.send(link_pb2.Item(door_reply=reply))
        return
    if not in_parts:
        text = f"the answer has {len(reply.reply)} bytes; {_most(is_login)}"
        refusal = link_pb2.DoorReply(
            process=reply.process, call=reply.call, status=Status.RESOURCE_EXHAUSTED, text=text
        )
        link.send(link_pb2.Item(door_reply=refusal))
        return
    *before, last = _cut(reply.reply)
    reply.reply = last
    # A link that has ended answered the call already: as not available.
    with suppress(LinkClosed):
        for data in before:
            part = link_pb2.DoorReply(process=reply.process, call=reply.call, reply=data, more=True)
            await link.send_bulk(link_pb2.Item(door_reply=part))
        await link.send_bulk(link_pb2.Item(door_reply=reply))


def _cut(data: bytes) -> list[bytes]:
    return [data[at : at + BULK_CHUNK_BYTES_MAX] for at in range(0, len(data), BULK_CHUNK_BYTES_MAX)]


class CallParts:
    """The leader's side: calls of one standby or login host that come in parts.

    At most `bytes_max` in `CALL_PARTS_MAX` parts of `CALLS_BEGUN_MAX` calls are kept, of all together. Incomplete calls are
    dropped after `patience_s`.
    """

    def __init__(self, bytes_max: int = REQUEST_BYTES_MAX, patience_s: float = PARTS_PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._begun = _Begun(bytes_max, CALL_PARTS_MAX)
        # The longest unmoved first.
        self._moved_s: dict[int, float] = {}

    def join(self, call: link_pb2.DoorCall, now_s: float) -> link_pb2.DoorCall | None:
        """The whole call with its last part, None before. Raises `ApiError` when it is too large."""
        if not call.part and not call.more:
            return call
        self._expire(now_s)
        if call.part != self._begun.count(call.call):
            self._forget(call.call)
            raise ApiError(Status.UNAVAILABLE, "a part of the request was lost: try again")
        if call.more and not call.request:
            self._forget(call.call)
            raise ApiError(Status.INVALID_ARGUMENT, "a part of the request is empty")
        is_room = call.part or len(self._begun) < CALLS_BEGUN_MAX
        if not is_room or not self._begun.add(call.call, call.request):
            self._forget(call.call)
            raise ApiError(
                Status.RESOURCE_EXHAUSTED, "too many large requests at once: try again in a moment"
            )
        if call.more:
            self._moved_s.pop(call.call, None)
            self._moved_s[call.call] = now_s
            return None
        call.request = b"".join(self._forget(call.call))
        return call

    def _expire(self, now_s: float) -> None:
        while self._moved_s:
            number, at_s = next(iter(self._moved_s.items()))
            if at_s >= now_s - self._patience_s:
                return
            self._forget(number)

    def _forget(self, number: int) -> list[bytes]:
        self._moved_s.pop(number, None)
        return self._begun.take(number)


async def answer_door_call(
    call: link_pb2.DoorCall,
    principal: Principal,
    answerer: Answerer,
    via: str = "agent",
    host: str = "",
    peer: str = "",
    cell: str = "",
) -> link_pb2.DoorReply:
    """The leader's side: answer a forwarded call for the principal of its uid.

    `via` is "agent", "login" or "cell", or "socket" for a standby's API socket, which equals the leader's own; `host` is
    that socket's host, `peer` its name for logs, and `cell` the other cell that has made the link.
    """
    if principal.via != via:
        # Only a user's rights remain with it: later decisions must know.
        principal = msgspec.structs.replace(principal, via=via)
    method = BY_NAME.get(call.method)
    if method is None:
        answered = Answered(Status.UNIMPLEMENTED, f"this controller knows no method {call.method}", b"")
    else:
        caller = Caller(
            principal, call.request_id, call.retry, call.deadline_us or None, via, host, peer=peer, cell=cell
        )
        try:
            async with asyncio.timeout(call.deadline_us / 1e6 if call.deadline_us else None):
                answered = await answerer.answer(method, call.request, caller)
        except TimeoutError:
            answered = Answered(
                Status.DEADLINE_EXCEEDED, "the deadline passed before the answer was known", b""
            )
    return link_pb2.DoorReply(
        process=call.process,
        call=call.call,
        status=answered.status,
        text=answered.text,
        reply=answered.reply,
        retry_after_ms=math.ceil(answered.retry_after_s * 1000),
    )
