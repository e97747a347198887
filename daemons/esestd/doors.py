"""The way to the controller that leads, wherever that is by now.

Invariant: a call goes to the door that answered last; when that is silent, the others are asked whether they lead to a
leader before the next call, each for `probe_s` at most.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from eslurm.api.methods import PING, Method, ReplyT, RequestT
from eslurm.ports.door import DoorRefused, DoorUnreachable, Status
from eslurm.security.files import UnsafeFile, read_private
from eslurm.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from eslurm.api.grpc_client import GrpcClient

PROBE_S = 2.0
_GONE = (Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.CANCELLED)


class Calls(Protocol):
    """One door: `eslurm.api.unix_calls.UnixCalls` or a `RemoteDoor`."""

    async def call(self, method: Method[Any, Any], request: Any, timeout_s: float) -> Any: ...

    async def close(self) -> None: ...


class TokenFile:
    """The token in a file that this user alone can read; read again when the file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._token = ""  # nosec B105 # none yet

    def read(self) -> str:
        """The token. Raises `DoorUnreachable` when there is none that can be used."""
        try:
            status = os.stat(self._path)
            seen = status.st_ino, status.st_mtime_ns
            if seen != self._seen:
                self._token = self._read()
                self._seen = seen
        except (UnsafeFile, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise DoorUnreachable(
                f"no token to call the controllers with (--token-file {self._path}: {why}): have one made with "
                "esctl token create USER --scope estimator --output FILE"
            ) from None
        return self._token

    def _read(self) -> str:
        text = read_private(self._path).decode(errors="replace").strip()
        if not text or not text.isascii() or len(text.split()) != 1:
            raise UnsafeFile("it holds no token")
        return text


class RemoteDoor:
    """Calls to a controller over gRPC, with the token as it is in its file at that moment."""

    def __init__(self, client: GrpcClient, token: TokenFile) -> None:
        self._client = client
        self._token = token

    async def call(self, method: Method[Any, Any], request: Any, timeout_s: float) -> Any:
        """See `Calls`."""
        self._client.token = self._token.read()
        return await self._client.call(method, request, timeout_s)

    async def close(self) -> None:
        """Close the channel."""
        await self._client.close()


class Away(Exception):
    """No controller answers now. The text says what each door said."""


class LeaderDoor:
    """Calls to the leading controller. Raises `Away`, or `DoorRefused` when it was answered."""

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
