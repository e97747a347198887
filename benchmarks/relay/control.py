"""Messages to a host process: its dead nodes, and questions for the work of its nodes.

MessagePack behind a length, over a Unix socket; one question at a time. Invariant: nothing of this touches the links
that are measured.
"""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import msgspec

_LENGTH = struct.Struct("!I")


class Switch(msgspec.Struct, frozen=True, tag=True):
    """From now on these nodes are dead, and no others."""

    refused: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    vanishing: tuple[int, ...] = ()


class Pull(msgspec.Struct, frozen=True, tag=True):
    """The first `nodes` nodes ask the board every `period_s`; 0: they stop."""

    period_s: float
    nodes: int = 0


class Collect(msgspec.Struct, frozen=True, tag=True):
    """The result of a broadcast here, and messages since the last such question."""

    broadcast_id: int


class Done(msgspec.Struct, frozen=True, tag=True):
    """The answer to an order."""


class Collected(msgspec.Struct, frozen=True, tag=True):
    """`acts[n]`: how often node n was acted on. `lists`: sub-lists that came in, whatever became of them.

    `late_acts` counts what was done for broadcasts that had been collected before. Frames: see `count_frames`.
    """

    acts: bytes
    lists: int
    late_acts: int
    frames_in: int
    frames_out: int
    frames_between: int
    cpu_s: float


Order = Switch | Pull | Collect
Answer = Done | Collected

_ORDERS: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Switch | Pull | Collect)
_ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Done | Collected)
_ENCODER = msgspec.msgpack.Encoder()


async def read_order(reader: asyncio.StreamReader) -> Order:
    """The next order. Raises IncompleteReadError when the benchmark has gone."""
    return _ORDERS.decode(await _read(reader))


async def write_answer(writer: asyncio.StreamWriter, answer: Answer) -> None:
    """Say what came of it."""
    await _write(writer, _ENCODER.encode(answer))


class Wire:
    """The benchmark's end to one host process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, path: Path) -> Wire:
        """Connect to a host that is ready."""
        return cls(*await asyncio.open_unix_connection(path))

    async def ask(self, order: Order) -> Answer:
        """Say it, and wait for the answer."""
        await _write(self._writer, _ENCODER.encode(order))
        return _ANSWERS.decode(await _read(self._reader))

    async def collect(self, broadcast_id: int) -> Collected:
        """See `Collect`."""
        answer = await self.ask(Collect(broadcast_id))
        assert isinstance(answer, Collected)
        return answer

    async def close(self) -> None:
        """Done with it."""
        self._writer.close()
        await self._writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(length)


async def _write(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(_LENGTH.pack(len(body)) + body)
    await writer.drain()
