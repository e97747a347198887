"""The door for machines that watch a daemon. Goal: pages from memory, health in one line, bounded whoever comes."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from escli import health as command
from eslurm.telemetry import status
from eslurm.telemetry.http import CONNECTIONS_MAX, HEAD_BYTES_MAX
from eslurm.telemetry.status import Health, StatusServer
from tests.support import loops
from tests.support.loops import both_loops

GET = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"


class Watched:
    """A daemon's part: pages are counted, health is set."""

    def __init__(self) -> None:
        self.pages = 0
        self.health = Health(True, "leads")

    def page(self) -> bytes:
        """The next page."""
        self.pages += 1
        return b"page %d\n" % self.pages


@contextlib.asynccontextmanager
async def opened(watched: Watched) -> AsyncIterator[StatusServer]:
    """The door, open at some port."""
    door = StatusServer(watched.page, lambda: watched.health)
    await door.start("127.0.0.1:0")
    try:
        yield door
    finally:
        await door.stop()


async def asked(door: StatusServer, request: bytes) -> bytes:
    """All that is said until the other end closes."""
    reader, writer = await asyncio.open_connection(*door.endpoint.split(":"))
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def run(body: Callable[[Watched, StatusServer], Coroutine[Any, Any, None]]) -> None:
    """`body` with an open door."""

    async def main() -> None:
        watched = Watched()
        async with opened(watched) as door:
            await body(watched, door)

    asyncio.run(main())


def test_a_page_is_made_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(watched: Watched, door: StatusServer) -> None:
        for _ in range(2):
            first = await asked(door, GET % b"metrics")
            assert first.startswith(b"HTTP/1.1 200 OK\r\n") and first.endswith(b"\r\n\r\npage 1\n")
            assert b"Content-Type: text/plain; version=0.0.4" in first and b"Connection: close\r\n" in first
        monkeypatch.setattr(status, "PAGE_KEPT_S", 0.0)
        door._page_until_s = 0.0
        assert b"page 2" in await asked(door, b"GET /metrics HTTP/1.0\r\n\r\n")
        assert b"page 3" in await asked(door, b"GET /metrics?x=1 HTTP/1.0\r\n\r\n")

    run(body)


def test_what_watching_costs_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter((1.0, 1.25, 2.0, 2.5))
    counted = status.StatusCounts()
    monkeypatch.setattr(status, "counts", counted)
    monkeypatch.setattr(status.time, "thread_time", lambda: next(spent))

    async def body(watched: Watched, door: StatusServer) -> None:
        for page in (b"metrics", b"nothing"):
            await asked(door, GET % page)

    run(body)
    assert counted.cpu_s == 0.75


def test_health_is_a_status_and_a_line() -> None:
    async def body(watched: Watched, door: StatusServer) -> None:
        assert (await asked(door, b"GET /health HTTP/1.0\r\n\r\n")).endswith(b"\r\n\r\nleads\n")
        watched.health = Health(False, "the job store takes no commits")
        answer = await asked(door, b"GET /health HTTP/1.0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503 ") and answer.endswith(b"takes no commits\n")
        head = await asked(door, b"HEAD /health HTTP/1.0\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ") and head.endswith(b"\r\n\r\n")

    run(body)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x00\r\n\r\n", b"400"),
        (b"GET /" + b"x" * HEAD_BYTES_MAX, b"431"),
    ],
)
def test_what_is_no_question_is_told_so(request_: bytes, code: bytes) -> None:
    async def body(watched: Watched, door: StatusServer) -> None:
        assert (await asked(door, request_)).startswith(b"HTTP/1.1 " + code)
        assert not watched.pages

    run(body)


def test_silent_connections_keep_nobody_out() -> None:
    async def body(watched: Watched, door: StatusServer) -> None:
        host, port = door.endpoint.split(":")
        streams = [await asyncio.open_connection(host, port) for _ in range(CONNECTIONS_MAX)]
        assert b"leads" in await asked(door, b"GET /health HTTP/1.0\r\n\r\n")
        # The one that has been silent for longest has made room, no other.
        with contextlib.suppress(ConnectionResetError):
            assert await streams[0][0].read() == b""
        streams[1][1].write(GET % b"health")
        await streams[1][0].readuntil(b"leads\n")
        for _, one in streams:
            one.close()
            with contextlib.suppress(ConnectionResetError):
                await one.wait_closed()

    run(body)


@pytest.mark.parametrize("begun", [b"", GET[:5]])
def test_a_request_that_does_not_end_ends_its_connection(
    begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(watched: Watched, door: StatusServer) -> None:
        monkeypatch.setattr(door._server, "_timeout_s", 0.01)
        with contextlib.suppress(ConnectionResetError):
            assert await asked(door, begun) == b""

    run(body)


@both_loops
def test_answers_that_are_not_read_are_not_made(uvloop: bool) -> None:
    page_bytes = 50_000_000

    async def main() -> None:
        watched = Watched()
        pages: list[bytes] = []

        def page() -> bytes:
            pages.append(b"x" * page_bytes)
            return pages[-1]

        watched.page = page  # type: ignore[method-assign]
        async with opened(watched) as door:
            reader, writer = await asyncio.open_connection(*door.endpoint.split(":"))
            # However many are asked for at once.
            writer.write(GET % b"metrics" * 2_000)
            await reader.readuntil(b"\r\n\r\n")
            # A second connection is served meanwhile.
            assert b"leads" in await asked(door, b"GET /health HTTP/1.0\r\n\r\n")
            assert len(await reader.read()) == page_bytes and len(pages) == 1
            writer.close()
            await writer.wait_closed()

    loops.run(main(), uvloop=uvloop)


def test_a_reader_that_stops_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(watched: Watched, door: StatusServer) -> None:
        monkeypatch.setattr(door._server, "_timeout_s", 0.2)
        door._make_page = lambda: b"x" * 50_000_000
        reader, writer = await asyncio.open_connection(*door.endpoint.split(":"))
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        async with asyncio.timeout(30):
            while door._server.callers:  # noqa: ASYNC110 - the door tells nobody
                await asyncio.sleep(0.01)
        writer.transport.abort()

    run(body)


def test_an_address_that_is_taken_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "BIND_AGAIN_S", 0.01)

    async def body(watched: Watched, door: StatusServer) -> None:
        other = StatusServer(watched.page, lambda: watched.health)
        with pytest.raises(OSError, match="--metrics-listen: cannot listen at"):
            await other.start(door.endpoint)
        trying = asyncio.create_task(other.keep_trying(door.endpoint))
        assert not (await asyncio.wait({trying}, timeout=0.05))[0]
        await door.stop()
        await asyncio.wait_for(trying, 30)
        assert b"leads" in await asked(other, b"GET /health HTTP/1.0\r\n\r\n")
        await other.stop()

    run(body)


def test_the_command_says_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    endpoint = ""

    async def body(watched: Watched, door: StatusServer) -> None:
        nonlocal endpoint
        endpoint = door.endpoint
        for url in (door.endpoint, f"http://{door.endpoint}/health", f"http://{door.endpoint}"):
            assert await asyncio.to_thread(command.run, [url]) == 0
            assert capsys.readouterr().out == "leads\n"
        watched.health = Health(False, "starts")
        assert await asyncio.to_thread(command.run, [door.endpoint]) == 1
        assert capsys.readouterr().out == "starts\n"

    run(body)
    assert command.run([endpoint]) == 1
    assert "does not answer: Connection refused" in capsys.readouterr().err
    for words in ([], ["a", "b"], ["--what"], ["https://x/"], ["http://"], ["http://x:y/"]):
        assert command.run(words) == 2, words
    assert command.run(["--help"]) == 0
    assert "eslurm health URL" in capsys.readouterr().out


def test_the_command_imports_next_to_nothing() -> None:
    code = (
        "import sys; from escli.local.eslurm import main; main(['health', '--help'])\n"
        "heavy = {'click', 'grpc', 'google', 'msgspec', 'asyncio', 'sqlalchemy', 'numpy'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
