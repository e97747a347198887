"""Alertmanager's webhook over real sockets: what is taken, what is refused with which status, and what callers may cost.

A real Alertmanager is in `test_prometheus.py`. Here also: what the configuration of alert sources may not say.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from eslurm.alerts import webhook
from eslurm.alerts.feeds import AlertSources
from eslurm.alerts.updates import AlertUpdate, Changed
from eslurm.alerts.webhook import Webhook, WebhookOptions
from eslurm.config.problems import ConfigError
from eslurm.config.sections import FailureSection
from eslurm.core.prediction.alerts import FiringAlerts
from eslurm.telemetry import http
from tests.kits.monitoring import free_endpoint
from tests.support.loops import both_loops, run

WAIT_S = 20.0
NOW_US = 1_000_000
TOKEN = "let me in, please"
ANONYMOUS: dict[str, dict[str, Any]] = {"alerts": {"webhook_allow_anonymous": True}}


def message(*alerts: tuple[str, str, str], **fields: object) -> bytes:
    """A message of Alertmanager 0.25 with (status, fingerprint, node) alerts."""
    rows = [
        {
            "status": status,
            "labels": {"alertname": "NodeHot", "node": node, "severity": "critical"},
            "annotations": {},
            "startsAt": "2024-02-13T08:29:18.115Z",
            "endsAt": "0001-01-01T00:00:00Z" if status == "firing" else "2024-02-13T09:00:00.115Z",
            "generatorURL": "http://mon:9090/graph?g0.expr=node_temperature_celsius+%3E+90&g0.tab=1",
            "fingerprint": fingerprint,
        }
        for status, fingerprint, node in alerts
    ]
    whole = {
        "receiver": "eslurm",
        "status": "firing",
        "alerts": rows,
        "groupLabels": {"alertname": "NodeHot"},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://mon:9093",
        "version": "4",
        "groupKey": '{}:{alertname="NodeHot"}',
        "truncatedAlerts": 0,
    }
    return json.dumps(whole | fields).encode()


def post(body: bytes, path: str = "/alerts", method: str = "POST", **fields: str) -> bytes:
    named = {"Host": "x", "Content-Length": str(len(body))} | {
        name.replace("_", "-"): value for name, value in fields.items()
    }
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items() if value)]
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def listening(**options: Any) -> AsyncIterator[tuple[Webhook, str, list[AlertUpdate]]]:
    updates: list[AlertUpdate] = []
    server = Webhook(
        WebhookOptions("127.0.0.1:0", allow_anonymous=True, **options), updates.append, lambda: NOW_US
    )
    endpoint = await server.start()
    try:
        yield server, endpoint, updates
    finally:
        await server.close()


async def exchange(endpoint: str, request: bytes, end: bool = False) -> bytes:
    """The reply to these bytes; empty when the connection was hung up on."""
    host, _, port = endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        async with asyncio.timeout(WAIT_S):
            writer.write(request)
            if end:
                writer.write_eof()
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


def status_of(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1])


@both_loops
def test_what_begins_and_what_is_over_is_delivered_with_an_expiry(uvloop: bool) -> None:
    async def scenario() -> None:
        async with listening(expires_after_s=60.0) as (server, endpoint, updates):
            body = message(
                ("firing", "f1", "cn0001"),
                ("firing", "f1", "cn0001"),
                ("resolved", "f2", "cn0002:9100"),
                ("firing", "f3", ""),
                ("suppressed", "f4", "cn0004"),
            )
            assert status_of(await exchange(endpoint, post(body))) == 200
            assert updates == [Changed("alertmanager", (("f1", "cn0001", NOW_US + 60_000_000),), ("f2",))]
            assert server.messages == 1

    run(scenario(), uvloop=uvloop)


def test_an_alert_without_fingerprint_is_known_again_by_its_labels() -> None:
    async def scenario() -> None:
        async with listening() as (_, endpoint, updates):
            for status in ("firing", "resolved"):
                await exchange(endpoint, post(message((status, "", "cn0001"), (status, "", "cn0002"))))
            first, second = updates
            assert isinstance(first, Changed)
            assert isinstance(second, Changed)
            assert tuple(key for key, _, _ in first.firing) == second.resolved
            assert len(set(second.resolved)) == 2

    run(scenario())


@both_loops
@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (post(message(), path="/other"), 404),
        (post(message(), path="/alerts/x"), 404),
        (post(b"", method="GET"), 405),
        (post(b"", method="DELETE"), 405),
        (post(message(), Content_Length=""), 411),
        (post(b"0\r\n\r\n", Content_Length="", Transfer_Encoding="chunked"), 411),
        (post(message(), Content_Length="x"), 400),
        (post(b"", Content_Length=str(10**12)), 413),
        (post(b"{"), 400),
        (post(b"[]"), 400),
        (post(b'{"version":"4","alerts":[{"status":7}]}'), 400),
        (post(b'{"version":"4","alerts":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), 400),
        (post(message(version="3")), 400),
        (b"\x00\xff\r\n\r\n", 400),
        (b"POST /alerts\r\n\r\n", 400),
        (b"POST /alerts HTTP/1.1\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", 431),
    ],
)
def test_what_is_no_message_gets_its_status_and_changes_nothing(
    request_bytes: bytes, status: int, uvloop: bool
) -> None:
    async def scenario() -> None:
        async with listening() as (server, endpoint, updates):
            reply = await exchange(endpoint, request_bytes)
            assert status_of(reply) == status
            assert (b"Allow: POST" in reply) == (status == 405)
            assert server.refused == {status: 1}
            assert updates == []
            assert status_of(await exchange(endpoint, post(message(("firing", "f1", "cn0001"))))) == 200

    run(scenario(), uvloop=uvloop)


@both_loops
def test_half_a_request_is_no_message(uvloop: bool) -> None:
    async def scenario() -> None:
        async with listening() as (server, endpoint, updates):
            whole = post(message(("firing", "f1", "cn0001")))
            assert status_of(await exchange(endpoint, whole[:-1], end=True)) == 400
            assert status_of(await exchange(endpoint, b"", end=True)) == 400
            assert server.refused == {400: 2}
            assert updates == []

    run(scenario(), uvloop=uvloop)


@both_loops
def test_a_slow_caller_is_hung_up_on(uvloop: bool) -> None:
    async def scenario() -> None:
        async with listening(request_timeout_s=0.2) as (_, endpoint, updates):
            assert await exchange(endpoint, b"POST /alerts HTTP/1.1\r\n") == b""
            assert updates == []

    run(scenario(), uvloop=uvloop)


@both_loops
def test_callers_beyond_the_bound_are_hung_up_on_until_others_are_gone(
    uvloop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 2)

    async def scenario() -> None:
        async with listening() as (server, endpoint, updates):
            host, _, port = endpoint.rpartition(":")
            good = post(message(("firing", "f1", "cn0001")))
            slow = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
            for _, writer in slow:
                writer.write(good[:-1])
            async with asyncio.timeout(WAIT_S):
                while len(server._server.callers) < 2 or server._server._unproven:  # noqa: ASYNC110 - the server tells nobody
                    await asyncio.sleep(0)
            assert await exchange(endpoint, good) == b""
            assert server.refused == {503: 1}
            for _, writer in slow:
                writer.transport.abort()
            async with asyncio.timeout(WAIT_S):
                while not await exchange(endpoint, good):  # noqa: ASYNC110 - the server's side is seen from outside
                    await asyncio.sleep(0)
            assert len(updates) == 1

    run(scenario(), uvloop=uvloop)


def test_bodies_beyond_the_common_bound_are_asked_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    body = message(("firing", "f1", "cn0001"))
    monkeypatch.setattr(webhook, "BODIES_BYTES_MAX", len(body) + 10)

    async def scenario() -> None:
        async with listening() as (server, endpoint, updates):
            host, _, port = endpoint.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(post(body)[:-1])
            async with asyncio.timeout(WAIT_S):
                while status_of(await exchange(endpoint, post(body))) == 200:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0)
                writer.write(body[-1:])
                assert status_of(await reader.read()) == 200
            writer.transport.abort()
            assert server.refused[503] == 1
            assert status_of(await exchange(endpoint, post(body))) == 200
            assert len(updates) >= 2

    run(scenario())


def test_the_token_is_asked_for(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o600)
    failure = FailureSection(
        webhook_listen="127.0.0.1:0", settings={"alerts": {"webhook_token_file": str(token)}}
    )

    async def scenario() -> None:
        book = FiringAlerts()
        book.set_nodes({1: "cn0001"})
        feeds = AlertSources(failure, book, lambda: NOW_US)
        await feeds.start()
        try:
            body = message(("firing", "f1", "cn0001"))
            for given in ("", "Bearer", "Bearer let me", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN):
                assert (
                    status_of(await exchange(feeds.webhook_endpoint, post(body, Authorization=given))) == 401
                )
            assert book.nodes(NOW_US) == frozenset()
            good = post(body, Authorization=f"Bearer {TOKEN}")
            assert status_of(await exchange(feeds.webhook_endpoint, good)) == 200
            assert book.nodes(NOW_US) == {1}
        finally:
            await feeds.close()

    run(scenario(), uvloop=True)


def test_one_line_per_kind_of_refusal(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with listening() as (server, endpoint, _):
            for _ in range(3):
                await exchange(endpoint, post(b"{"))
                await exchange(endpoint, post(b"", path="/"))
                await exchange(endpoint, post(message(truncatedAlerts=5)))
            assert server.refused == {400: 3, 404: 3}
            assert server.left_out == 15

    run(scenario())
    ours = [record for record in caplog.records if record.name.startswith("eslurm.")]
    assert len([record for record in ours if record.levelno == logging.WARNING]) == 3


def test_a_receiver_that_raises_is_a_500_and_the_next_message_is_taken() -> None:
    async def scenario() -> None:
        given: list[AlertUpdate] = []

        def receive(update: AlertUpdate) -> None:
            given.append(update)
            if len(given) == 1:
                raise RuntimeError("planted")

        server = Webhook(WebhookOptions("127.0.0.1:0", allow_anonymous=True), receive, lambda: NOW_US)
        endpoint = await server.start()
        try:
            assert status_of(await exchange(endpoint, post(message()))) == 500
            assert status_of(await exchange(endpoint, post(message()))) == 200
        finally:
            await server.close()

    run(scenario())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (WebhookOptions("127.0.0.1:0"), "takes alerts only with a token"),
        (WebhookOptions("0.0.0.0:0"), "takes alerts only with a token"),
        (WebhookOptions("0.0.0.0:0", allow_anonymous=True), "is no loopback address"),
        (WebhookOptions("192.0.2.1:0", allow_anonymous=True), "is no loopback address"),
        (WebhookOptions("localhost:0", allow_anonymous=True), "is no loopback address"),
        (WebhookOptions("0.0.0.0:0", token="short"), "the token has 5 characters"),
    ],
)
def test_an_open_webhook_is_refused(options: WebhookOptions, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Webhook(options, lambda update: None, lambda: NOW_US)


def test_callers_without_the_token_keep_no_other_out() -> None:
    async def scenario() -> None:
        updates: list[AlertUpdate] = []
        server = Webhook(WebhookOptions("127.0.0.1:0", token=TOKEN), updates.append, lambda: NOW_US)
        endpoint = await server.start()
        host, _, port = endpoint.rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(2 * http.CONNECTIONS_MAX)]
        try:
            for _ in range(3):
                reply = await exchange(endpoint, post(message(), Authorization=f"Bearer {TOKEN}"))
                assert status_of(reply) == 200
            assert len(server._server.callers) <= http.CONNECTIONS_MAX
        finally:
            for _, writer in silent:
                writer.transport.abort()
            await server.close()

    run(scenario())


def test_an_address_in_use_ends_the_start() -> None:
    async def scenario() -> None:
        async with listening() as (_, endpoint, _):
            second = Webhook(WebhookOptions(endpoint, token=TOKEN), lambda update: None, lambda: NOW_US)
            with pytest.raises(OSError, match="in use"):
                await second.start()
            await second.close()

    run(scenario())


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (FailureSection(prometheus_url="mon:9090"), "failure.prometheus_url: 'mon:9090' is no URL"),
        (FailureSection(webhook_listen="127.0.0.1:9095"), "failure.webhook_listen: .*only with a token"),
        (
            FailureSection(webhook_listen="0.0.0.0:9095", settings=ANONYMOUS),
            "failure.webhook_listen: .*is no loopback address",
        ),
        (FailureSection(webhook_listen="9095"), "failure.webhook_listen: '9095' is no address"),
        (FailureSection(webhook_listen="127.0.0.1:99999"), "failure.webhook_listen: '127.0.0.1:99999'"),
        (FailureSection(settings={"alerts": {"qery": "up"}}), "failure.settings.alerts: .*qery"),
        (
            FailureSection(settings={"alerts": {"stale_after_s": -1}}),
            "failure.settings.alerts: .*stale_after_s",
        ),
        (
            FailureSection(
                webhook_listen="127.0.0.1:1", settings={"alerts": {"webhook_token_file": "/nowhere"}}
            ),
            "webhook_token_file: /nowhere cannot be read",
        ),
    ],
)
def test_a_wrong_setting_is_refused_by_its_key(failure: FailureSection, text: str) -> None:
    with pytest.raises(ConfigError, match=f"^eslurm.toml: .*{text}"):
        AlertSources(failure, FiringAlerts(), lambda: NOW_US, "eslurm.toml")


def test_nothing_is_asked_and_nobody_heard_unless_configured() -> None:
    async def scenario() -> None:
        feeds = AlertSources(FailureSection(), FiringAlerts(), lambda: NOW_US)
        await feeds.start()
        assert feeds.prometheus is None
        assert feeds.webhook is None
        await feeds.close()

    run(scenario())


def test_a_webhook_that_cannot_listen_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        async with listening() as (_, endpoint, _):
            feeds = AlertSources(
                FailureSection(
                    prometheus_url=f"http://{free_endpoint()}", webhook_listen=endpoint, settings=ANONYMOUS
                ),
                FiringAlerts(),
                lambda: NOW_US,
            )
            with pytest.raises(OSError, match="in use"):
                await feeds.start()
            await feeds.close()

    run(scenario())
