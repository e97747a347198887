"""Alert sources that misbehave, over real sockets: wrong, slow, huge or hostile, the loop goes on and says why.

The real Prometheus and Alertmanager are in `test_prometheus.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from eslurm.alerts import prometheus
from eslurm.alerts.prometheus import PrometheusOptions, PrometheusPoller
from eslurm.alerts.updates import AlertUpdate, Firing
from tests.support.loops import both_loops, run

WAIT_S = 20.0
ANSWER = b'{"status":"success","data":{"alerts":[{"labels":{"node":"cn0007"},"state":"firing"}]}}'
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """The URL of a server whose connections `handler` serves; they end with it."""
    callers: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await reader.readuntil(b"\r\n\r\n")
                await handler(reader, writer)
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = asyncio.get_running_loop().create_task(serve(reader, writer))
        callers.add(caller)
        caller.add_done_callback(callers.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        waiting = list(callers)
        for caller in waiting:
            caller.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await server.wait_closed()


def replying(data: bytes) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.write_eof()
        await reader.read()

    return handler


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def trickling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for byte in GOOD:
        writer.write(bytes([byte]))
        await asyncio.sleep(0.05)


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def ask(handler: Handler, **options: Any) -> tuple[PrometheusPoller, list[AlertUpdate]]:
    """One question to a server with that handler."""
    updates: list[AlertUpdate] = []
    async with serving(handler) as url:
        poller = PrometheusPoller(PrometheusOptions(url, **options), updates.append)
        await poller.ask()
    return poller, updates


@both_loops
@pytest.mark.parametrize(
    "data",
    [
        GOOD,
        b"HTTP/1.0 200 OK\r\n\r\n" + ANSWER,
        b"HTTP/1.1 103 Early Hints\r\n\r\n" + GOOD,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(ANSWER), ANSWER),
    ],
    ids=["length", "to-the-end", "interim", "chunked"],
)
def test_an_answer_is_read_however_it_is_sent(data: bytes, uvloop: bool) -> None:
    poller, updates = run(ask(replying(data)), uvloop=uvloop)
    assert updates == [Firing("prometheus", (("prometheus/cn0007", "cn0007"),))]
    assert poller.status.state == "answering"


@both_loops
@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (replying(b""), "0 bytes into the head"),
        (replying(b"\x16\x03\x01\x00\x00\r\n\r\n"), "not HTTP"),
        (replying(b"HTTP/1.1 500 Internal Server Error\r\n\r\n"), "answers 500 Internal Server Error"),
        (replying(b"HTTP/1.1 401 Unauthorized\r\n\r\n"), "answers 401"),
        (
            replying(b"HTTP/1.1 302 Found\r\nLocation: http://u:secret@mon2/\r\n\r\n"),
            "redirects (302) to http://mon2/",
        ),
        (replying(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"), "encoding that was not requested"),
        (replying(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"), "99999999999 bytes"),
        (replying(GOOD[:-5]), "ended before the body did"),
        (replying(b"HTTP/1.1 100 Continue\r\n\r\n" * 9), "nothing but interim replies"),
        (endless, "bytes"),
        (silent, "no answer within 0.3 s"),
        (trickling, "no answer within 0.3 s"),
    ],
)
def test_a_bad_answer_is_a_reason_and_no_prediction(handler: Handler, why: str, uvloop: bool) -> None:
    patience_s = 0.3 if "within" in why else WAIT_S
    poller, updates = run(ask(handler, timeout_s=patience_s), uvloop=uvloop)
    assert updates == []
    assert poller.status.state == "failing"
    assert why in poller.status.why
    assert "secret" not in poller.status.why


@pytest.mark.parametrize(
    ("host", "why"),
    [("127.0.0.1:1", "onnect"), ("a..b", "cannot be a host's name")],
)
def test_a_host_that_is_not_there_is_a_reason(host: str, why: str) -> None:
    async def scenario() -> None:
        poller = PrometheusPoller(PrometheusOptions(f"http://{host}"), lambda update: None)
        await poller.ask()
        assert poller.status.state == "failing"
        assert why in poller.status.why

    run(scenario(), uvloop=True)


@both_loops
def test_closing_drops_a_question_under_way(uvloop: bool) -> None:
    asked = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()

    async def scenario() -> None:
        async with serving(handler) as url:
            poller = PrometheusPoller(PrometheusOptions(url), lambda update: None)
            poller.start()
            await asked.wait()
            await poller.close()
            assert poller.status.failures == 0

    run(scenario(), uvloop=uvloop)


def test_a_large_answer_leaves_the_loop_its_turns() -> None:
    rows = [{"labels": {"alertname": "Hot", "node": f"cn{n:05}"}, "state": "firing"} for n in range(20_480)]
    body = json.dumps({"status": "success", "data": {"alerts": rows}}).encode()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def scenario() -> None:
        poller = PrometheusPoller(PrometheusOptions("http://mon"), lambda update: None)
        counter = asyncio.create_task(count())
        alerts, _ = await poller._read(body)
        counter.cancel()
        await asyncio.gather(counter, return_exceptions=True)
        assert len(alerts) == 20_480
        assert turns >= 20_480 // prometheus.ALERTS_PER_SLICE

    run(scenario(), uvloop=True)
