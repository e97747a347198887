"""The way to the controller that leads, wherever that is by now.

Invariant: a call goes to the door that answered last; when that is silent, the others are asked whether they lead to a
leader before the next call, each for `probe_s` at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from eslurm.ports.door import DoorRefused, DoorUnreachable, Status
from eslurm.rpc.methods import PING, Method, ReplyT, RequestT
from eslurm.v1 import controller_pb2 as pb

PROBE_S = 2.0
_GONE = (Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.CANCELLED)


class Calls(Protocol):
    """One door: `eslurm.rpc.unix_calls.UnixCalls` or `eslurm.rpc.grpc_client.GrpcClient`."""

    async def call(self, method: Method[Any, Any], request: Any, timeout_s: float) -> Any: ...

    async def close(self) -> None: ...


class Away(Exception):
    """No controller answers now. The text says what each door said."""


class LeaderDoor:
    """Calls to whoever leads. Raises `Away`, or `DoorRefused` when it was answered."""

    def __init__(self, doors: Sequence[Calls], probe_s: float = PROBE_S) -> None:
        self._doors = list(doors)
        self._probe_s = probe_s
        self._current: Calls | None = None
        self._looking = asyncio.Lock()

    async def call(self, method: Method[RequestT, ReplyT], request: RequestT, timeout_s: float) -> ReplyT:
        """Make one call at the leader; one that is lost on its way is not repeated."""
        door = self._current or await self._find()
        try:
            reply: ReplyT = await door.call(method, request, timeout_s)
        except DoorUnreachable as error:
            self._forget(door)
            raise Away(str(error)) from None
        except DoorRefused as error:
            if error.status not in _GONE:
                raise
            self._forget(door)
            raise Away(error.text) from None
        return reply

    async def close(self) -> None:
        """Close all doors."""
        for door in self._doors:
            await door.close()

    def _forget(self, door: Calls) -> None:
        if self._current is door:
            self._current = None

    async def _find(self) -> Calls:
        """The first door that answers; they are asked one after the other, by one task at a time."""
        async with self._looking:
            if self._current is not None:
                return self._current
            said = []
            for door in self._doors:
                try:
                    await door.call(PING, pb.PingRequest(), self._probe_s)
                except (DoorUnreachable, DoorRefused) as error:
                    said.append(str(error))
                else:
                    self._current = door
                    return door
            raise Away("; ".join(said))
