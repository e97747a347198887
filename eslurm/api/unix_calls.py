"""Calls through a Unix door from a program with an event loop.

Invariant: one call is one try, which ends by its deadline; who has several doors, or patience, tries again. A connection
carries one call at a time; one whose call was given up is closed, an idle one is kept for the next call.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from eslurm.api.methods import Method, ReplyT, RequestT
from eslurm.ports.door import DoorRefused, DoorUnreachable, Status, status_of
from eslurm.transport.framing import (
    CONNECTION_STREAM,
    DEADLINE_MS_MAX,
    REPLY_HEADER,
    REQUEST_HEADER,
    VERSION,
    checked_request_id,
)

_REPLY_BYTES_MAX = 1 << 30
_IDLE_MAX = 4

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class UnixCalls:
    """A client of the door at `path`. Use it on the loop that made it; `close` it in the end."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._idle: list[_Connection] = []

    async def call(
        self,
        method: Method[RequestT, ReplyT],
        request: RequestT,
        timeout_s: float,
        request_id: bytes | None = None,
    ) -> ReplyT:
        """Make one call and return its reply. Raises `DoorRefused`, or `DoorUnreachable` with what may have happened."""
        request_id = checked_request_id(request_id, mutating=method.mutating)
        sent = False
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connected()
                try:
                    sent = True
                    payload = request.SerializeToString()
                    stream, status, body = await _exchange(
                        connection, method.number, payload, timeout_s, request_id
                    )
                except BaseException:
                    connection[1].transport.abort()
                    raise
        except TimeoutError:
            raise DoorUnreachable(f"{self.path}: no answer in time", maybe_done=sent) from None
        except (OSError, EOFError) as error:
            text = getattr(error, "strerror", None) or "the door closed the connection"
            raise DoorUnreachable(f"{self.path}: {text}", maybe_done=sent) from None
        if stream == CONNECTION_STREAM or len(self._idle) >= _IDLE_MAX:
            connection[1].close()
        else:
            self._idle.append(connection)
        if status is not Status.OK:
            raise DoorRefused(status, body.decode(errors="replace"))
        return method.reply.FromString(body)

    async def close(self) -> None:
        """Close what is kept."""
        while self._idle:
            _reader, writer = self._idle.pop()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _connected(self) -> _Connection:
        while self._idle:
            reader, writer = self._idle.pop()
            # The door may have closed it meanwhile: nothing of a call was sent, so another one is as good.
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return await asyncio.open_unix_connection(self.path)


async def _exchange(
    connection: _Connection, number: int, payload: bytes, timeout_s: float, request_id: bytes
) -> tuple[int, Status, bytes]:
    """(stream, status, body) of the answer. Raises OSError or EOFError when there is none."""
    reader, writer = connection
    left_ms = min(DEADLINE_MS_MAX, max(1, int(timeout_s * 1000)))
    stream = 1
    writer.write(REQUEST_HEADER.pack(len(payload), VERSION, 0, number, stream, left_ms, request_id) + payload)
    await writer.drain()
    header = REPLY_HEADER.unpack(await reader.readexactly(REPLY_HEADER.size))
    length, version, status, _after, answered = header
    if version != VERSION or answered not in (stream, CONNECTION_STREAM) or length > _REPLY_BYTES_MAX:
        raise OSError(0, "the answer makes no sense to this version")
    return answered, status_of(status), await reader.readexactly(length)
