"""A stream whose frames are encrypted: a lane of a link after the handshake.

Invariant: the result of `read` was sent by the peer that the handshake proved, in this order and on this lane. Any other
frame ends the stream.
"""

from __future__ import annotations

from eslurm.security.channel import BadFrame, LaneKeys
from eslurm.transport.counters import LinkCounters
from eslurm.transport.options import CONTROL_FRAME_BYTES_MAX
from eslurm.transport.streams import Stream, StreamLost


class SealedStream:
    """Implements `streams.Stream` over another one."""

    def __init__(self, stream: Stream, keys: LaneKeys, counters: LinkCounters) -> None:
        self._stream = stream
        self._keys = keys
        self._counters = counters

    async def read(self) -> bytes | None:
        """See `Stream.read`."""
        sealed = await self._stream.read()
        if sealed is None:
            return None
        if len(sealed) > CONTROL_FRAME_BYTES_MAX:
            self._counters.frames_forged += 1
            raise StreamLost(f"a frame of {len(sealed)} bytes")
        try:
            return self._keys.opener.open(sealed)
        except BadFrame as error:
            self._counters.frames_forged += 1
            raise StreamLost(str(error)) from None

    async def write(self, frame: bytes) -> None:
        """See `Stream.write`."""
        await self._stream.write(self._keys.sealer.seal(frame))

    async def end_writing(self) -> bool:
        """See `Stream.end_writing`."""
        return await self._stream.end_writing()

    def cancel(self) -> None:
        """See `Stream.cancel`."""
        self._stream.cancel()
