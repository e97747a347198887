"""One bidirectional gRPC stream of raw frames, the same from both ends.

Invariant: `read` and `write` either work, raise `StreamLost`, or are cancelled by their own task; gRPC's many
ways to say that a stream is over, a leaked CancelledError among them, end here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio

_T = TypeVar("_T")


class StreamLost(Exception):
    """The stream is over; the text says how it ended."""


class Stream(Protocol):
    """Frames in and out. At most one read and one write at a time."""

    async def read(self) -> bytes | None:
        """The next frame; None when the peer ended the stream in good order. Raises `StreamLost`."""
        ...

    async def write(self, frame: bytes) -> None:
        """Hand a frame to the transport. Raises `StreamLost`."""
        ...

    async def end_writing(self) -> bool:
        """End the sending side. True when the peer must still be waited for, so that it reads all frames."""
        ...

    def cancel(self) -> None:
        """Drop the stream at once."""
        ...


def being_cancelled() -> bool:
    """Check whether the running task itself was cancelled, as opposed to a call it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _guarded(operation: Awaitable[_T]) -> _T:
    try:
        return await operation
    except asyncio.CancelledError:
        if being_cancelled():
            raise
        raise StreamLost("the stream was cancelled") from None
    except grpc.aio.AioRpcError as error:
        raise StreamLost(f"{error.code().name}: {error.details() or 'no details'}") from None
    except Exception as error:
        # gRPC reports a dead stream with UsageError, InternalError, InvalidStateError and others.
        raise StreamLost(f"{type(error).__name__}: {error}") from error


class DialledStream:
    """The end that made the call."""

    def __init__(self, call: grpc.aio.StreamStreamCall[bytes, bytes]) -> None:
        self._call = call

    async def connected(self) -> None:
        """Wait until the call's headers went out on a live connection. Raises `StreamLost` when it cannot be made."""
        await _guarded(self._call.wait_for_connection())

    async def read(self) -> bytes | None:
        data: Any = await _guarded(self._call.read())
        return None if data is grpc.aio.EOF else bytes(data)

    async def write(self, frame: bytes) -> None:
        await _guarded(self._call.write(frame))

    async def end_writing(self) -> bool:
        await _guarded(self._call.done_writing())
        return True

    def cancel(self) -> None:
        self._call.cancel()


class AcceptedStream:
    """The end that answers the call. Its stream ends when the handler returns."""

    def __init__(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        self._context = context
        self.peer: str = context.peer()

    async def read(self) -> bytes | None:
        data: Any = await _guarded(self._context.read())
        return None if data is grpc.aio.EOF else bytes(data)

    async def write(self, frame: bytes) -> None:
        await _guarded(self._context.write(frame))

    async def end_writing(self) -> bool:
        return False

    def cancel(self) -> None:
        return


class _GoneStream:
    """Takes the place of an ended stream, so that the stream can be collected."""

    async def read(self) -> bytes | None:
        raise StreamLost("the link has ended")

    async def write(self, frame: bytes) -> None:
        raise StreamLost("the link has ended")

    async def end_writing(self) -> bool:
        return False

    def cancel(self) -> None:
        return


GONE: Stream = _GoneStream()
