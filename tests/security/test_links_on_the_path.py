"""Somebody on the path between two daemons without TLS: reads, changes, repeats, drops and adds frames of a link.

Method: a proxy that understands HTTP/2 as far as DATA frames go. Goal: what it adds never becomes an item, what it touches
ends the link and is counted, and it reads nothing.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from eslurm.links.codec import encode_frame
from tests.kits.api import process, report, until
from tests.support.loops import run

PREFACE_BYTES = 24
HEADER = struct.Struct("!BHBBL")
DATA = 0
SECRET = b"the text of a script that nobody else may read"

Attack = Callable[[bytes], list[bytes]]


class Proxy:
    """Passes bytes on both ways; `attack`, once set, turns the next DATA payload of the dialler into others."""

    def __init__(self, to: str) -> None:
        host, _, port = to.rpartition(":")
        self._to = host, int(port)
        self.attack: Attack | None = None
        self.seen = bytearray()
        self.endpoint = ""

    async def serve(self) -> asyncio.Server:
        server = await asyncio.start_server(self._on_connection, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        self.endpoint = f"{host}:{port}"
        return server

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward = await asyncio.open_connection(*self._to)
        back = asyncio.create_task(self._pass_on(onward_reader, writer))
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            onward.write(await reader.readexactly(PREFACE_BYTES))
            while True:
                header = await reader.readexactly(HEADER.size)
                high, low, kind, flags, stream = HEADER.unpack(header)
                payload = await reader.readexactly(high << 16 | low)
                self.seen += payload
                parts = [payload]
                if kind == DATA and payload and self.attack is not None:
                    attack, self.attack = self.attack, None
                    parts = attack(payload)
                for part in parts:
                    onward.write(HEADER.pack(len(part) >> 16, len(part) & 0xFFFF, kind, flags, stream) + part)
        onward.close()
        writer.close()
        back.cancel()
        await asyncio.gather(back, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            self.seen += data
            writer.write(data)


@asynccontextmanager
async def proxied(to: str) -> AsyncIterator[Proxy]:
    proxy = Proxy(to)
    server = await proxy.serve()
    try:
        yield proxy
    finally:
        server.close()


def message(frame: bytes) -> bytes:
    """As gRPC writes it: not compressed, its length, itself."""
    return b"\0" + len(frame).to_bytes(4, "big") + frame


FORGED = message(encode_frame([report(666).SerializeToString()]))
ATTACKS: dict[str, Attack] = {
    "flip": lambda data: [data[:-1] + bytes([data[-1] ^ 1])],
    "repeat": lambda data: [data, data],
    "add": lambda data: [FORGED, data],
    "replace": lambda _data: [FORGED],
    "add an empty one": lambda data: [message(b""), data],
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_somebody_on_the_path_touches_ends_the_link(attack: str) -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b") as b, proxied(a.endpoint) as proxy:
            link = await b.table.get(proxy.endpoint)
            link.send(report(1))
            await until(lambda: a.sink.numbers == [1])
            proxy.attack = ATTACKS[attack]
            link.send(report(2))
            await until(lambda: bool(a.sink.downs))
            assert a.sink.downs[0][1] == "a frame that does not decrypt"
            assert a.table.counters.frames_forged == 1
            assert a.sink.numbers in ([1], [1, 2])
            await until(lambda: bool(b.sink.downs))

    run(scenario())


def test_a_frame_that_is_dropped_is_missed_at_the_next_one() -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b") as b, proxied(a.endpoint) as proxy:
            link = await b.table.get(proxy.endpoint)
            link.send(report(1))
            await until(lambda: a.sink.numbers == [1])
            proxy.attack = lambda _data: []
            link.send(report(2))
            await until(lambda: proxy.attack is None)
            link.send(report(3))
            await until(lambda: bool(a.sink.downs))
            assert a.sink.downs[0][1] == "a frame that does not decrypt" and a.sink.numbers == [1]
            await until(lambda: bool(b.sink.downs))

    run(scenario())


def test_nothing_of_what_is_said_can_be_read_on_the_path() -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b") as b, proxied(a.endpoint) as proxy:
            link = await b.table.get(proxy.endpoint)
            item = report(1)
            item.report.body = SECRET
            link.send(item)
            await link.send_bulk(item)
            a.sink.ups[0].send(item)
            await until(lambda: len(a.sink.items) == 2 and len(b.sink.items) == 1)
            assert len(proxy.seen) > 3 * len(SECRET) and SECRET not in proxy.seen
            link.close("done")
            await until(lambda: bool(a.sink.downs and b.sink.downs))

    run(scenario())
