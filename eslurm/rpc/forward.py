"""A node's door: calls of commands on the node go to the controller over the agent's link, and the answers back.

Invariant: the node vouches for the caller's uid and gid only; rights are the controller's business. Every call is
answered, or reported as UNAVAILABLE when the link that carried it ends (the command then tries again with the same
request id).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from eslurm.core.job.model import Principal
from eslurm.ports.door import Answered, Answerer, Caller, Status, status_of
from eslurm.ports.link import Link
from eslurm.rpc.methods import BY_NAME, Method
from eslurm.v1 import link_pb2

_CONTROL_CALL_BYTES_MAX = 2 * 1024 * 1024


class Forwarder:
    """The `Answerer` of a node's door. `uplink` gives the link calls go out on now, `node` the node's number."""

    def __init__(self, process: str, uplink: Callable[[], Link | None], node: Callable[[], int]) -> None:
        self._process = process
        self._uplink = uplink
        self._node = node
        self._calls: dict[int, tuple[Link, asyncio.Future[Answered]]] = {}
        self._last_call = 0

    async def answer(self, method: Method[Any, Any], payload: bytes, caller: Caller) -> Answered:
        """See `ports.door.Answerer`."""
        if len(payload) > _CONTROL_CALL_BYTES_MAX:
            return Answered(
                Status.RESOURCE_EXHAUSTED,
                f"a request of {len(payload)} bytes; through a node at most {_CONTROL_CALL_BYTES_MAX} go",
                b"",
            )
        link = self._uplink()
        if link is None:
            return Answered(Status.UNAVAILABLE, "this node has no link to the controller now", b"")
        self._last_call += 1
        number = self._last_call
        item = link_pb2.Item(
            door_call=link_pb2.DoorCall(
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
        )
        answered: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._calls[number] = (link, answered)
        try:
            if not link.send(item):
                return Answered(Status.UNAVAILABLE, "the link to the controller has just ended", b"")
            return await answered
        finally:
            del self._calls[number]

    def on_reply(self, reply: link_pb2.DoorReply) -> None:
        """The controller's answer; one that nobody waits for any more is dropped."""
        if reply.process != self._process:
            return
        _link, answered = self._calls.get(reply.call, (None, None))
        if answered is not None and not answered.done():
            answered.set_result(Answered(status_of(reply.status), reply.text, reply.reply))

    def on_link_down(self, link: Link) -> None:
        """Calls that went out on this link may or may not have arrived."""
        for carrier, answered in self._calls.values():
            if carrier is link and not answered.done():
                answered.set_result(Answered(Status.UNAVAILABLE, "the link to the controller ended", b""))


async def answer_door_call(
    call: link_pb2.DoorCall, principal: Principal, answerer: Answerer
) -> link_pb2.DoorReply:
    """The controller's side: answer a call a node forwarded, for the principal its uid and gid stand for."""
    method = BY_NAME.get(call.method)
    if method is None:
        answered = Answered(Status.UNIMPLEMENTED, f"this controller knows no method {call.method}", b"")
    else:
        caller = Caller(principal, call.request_id, call.retry, call.deadline_us or None, "agent")
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
    )
