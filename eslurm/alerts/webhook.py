"""Server for Alertmanager's webhook (version 4 of its messages): alerts that began and that ended (E-28).

Invariants: no body is read before the caller has shown the token. A caller costs at most one connection of
`CONNECTIONS_MAX`, `REQUEST_TIMEOUT_S` seconds and, all callers together, `BODIES_BYTES_MAX` of memory; beyond that it gets
503 or is disconnected, after which Alertmanager tries again. Connections that have not shown the token make room for new
ones. A message is delivered whole or not at all. One line is logged per kind of refusal, not per refusal.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from ipaddress import ip_address

import msgspec

from eslurm.alerts.updates import Changed, OnAlerts, PushedAlert, find_node
from eslurm.core.model.endpoint import split_endpoint
from eslurm.telemetry.http import Head, HttpError, HttpServer, Reply, Request, body_length, read_body

log = logging.getLogger(__name__)

SOURCE = "alertmanager"
PATH = "/alerts"
REQUEST_TIMEOUT_S = 10.0
BODIES_BYTES_MAX = 16 * 1024 * 1024
ALERTS_PER_SLICE = 500
KEY_CHARS_MAX = 200
TOKEN_CHARS_MIN = 16
VERSION = "4"


class WebhookOptions(msgspec.Struct, frozen=True):
    """`listen` is host:port (port 0: any). Only requests with the token as `Bearer` are read.

    `allow_anonymous` needs no token, for a numeric loopback address only.
    """

    listen: str
    node_label: str = "node"
    token: str = ""
    allow_anonymous: bool = False
    expires_after_s: float = 5 * 3600.0
    """An alert that is not told again is over after this: longer than Alertmanager's `repeat_interval` (4 h)."""
    request_timeout_s: float = REQUEST_TIMEOUT_S


class _Alert(msgspec.Struct):
    status: str
    labels: dict[str, str]
    fingerprint: str = ""


class _Message(msgspec.Struct):
    version: str
    alerts: list[msgspec.Raw]
    truncated: int = msgspec.field(name="truncatedAlerts", default=0)


_ALERT = msgspec.json.Decoder(_Alert)


class Webhook:
    """A server on the running loop between `start` and `close`. `now_us` is the controller's clock (UTC).

    Raises ValueError for an invalid address, and for one that is open without a token.
    """

    def __init__(self, options: WebhookOptions, on_alerts: OnAlerts, now_us: Callable[[], int]) -> None:
        self._host, self._port = split_endpoint(options.listen)
        _check_access(options, self._host)
        self._options = options
        self._on_alerts = on_alerts
        self._now_us = now_us
        # Those that have not shown the token make room for others.
        self._server = HttpServer(self._answer, self._note, options.request_timeout_s)
        self._bodies_bytes = 0
        self.messages = 0
        """Messages delivered."""
        self.left_out = 0
        """Alerts that Alertmanager itself left out of messages, by its `max_alerts`."""
        self.refused: Counter[int] = Counter()
        """Requests refused, by HTTP status."""

    async def start(self) -> str:
        """Listen; returns host:port. Raises OSError."""
        endpoint = await self._server.start(self._host, self._port)
        log.info("alerts are taken at http://%s%s", endpoint, PATH)
        return endpoint

    async def close(self) -> None:
        """Stop listening and end the connections."""
        await self._server.close()

    # ---- one connection ----

    async def _answer(self, request: Request) -> Reply:
        self._check(request.head)
        request.proved()
        await self._take(request.reader, request.head.fields)
        self.messages += 1
        return Reply(200, b"taken\n")

    def _check(self, head: Head) -> None:
        method, path, _protocol = head.line
        if path.partition("?")[0] != PATH:
            raise HttpError(404, f"alerts are taken at {PATH}")
        if method != "POST":
            raise HttpError(405, "alerts are posted", "Allow: POST\r\n")
        if not self._options.token:
            return
        scheme, _, given = head.fields.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(given.strip().encode(), self._options.token.encode())
        if scheme.lower() != "bearer" or not is_right:
            raise HttpError(401, "the token is missing or wrong", "WWW-Authenticate: Bearer\r\n")

    async def _take(self, reader: asyncio.StreamReader, fields: Mapping[str, str]) -> None:
        length = body_length(fields, BODIES_BYTES_MAX)
        if length is None:
            raise HttpError(411, "the body's length is not announced")
        if self._bodies_bytes + length > BODIES_BYTES_MAX:
            raise HttpError(503, "too much is being read")
        self._bodies_bytes += length
        try:
            body = await read_body(reader, {"content-length": str(length)}, length)
            self._on_alerts(await self._read(body))
        finally:
            self._bodies_bytes -= length

    async def _read(self, body: bytes) -> Changed:
        firing: dict[str, PushedAlert] = {}
        resolved: list[str] = []
        expires_us = self._now_us() + int(self._options.expires_after_s * 1_000_000)
        try:
            message = msgspec.json.decode(body, type=_Message)
            if message.version != VERSION:
                raise HttpError(400, f"version {VERSION} is read, not '{message.version[:20]}'")
            for start in range(0, len(message.alerts), ALERTS_PER_SLICE):
                for raw in message.alerts[start : start + ALERTS_PER_SLICE]:
                    alert = _ALERT.decode(raw)
                    node = find_node(alert.labels, self._options.node_label)
                    if node is None:
                        continue
                    key = _key(alert)
                    if alert.status == "firing":
                        firing[key] = (key, node, expires_us)
                    elif alert.status == "resolved":
                        resolved.append(key)
                await asyncio.sleep(0)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise HttpError(400, f"the body is no message of Alertmanager: {error}") from None
        if message.truncated > 0:
            if not self.left_out:
                log.warning("webhook: a message left out %d alerts: raise max_alerts", message.truncated)
            self.left_out += message.truncated
        return Changed(SOURCE, tuple(firing.values()), tuple(resolved))

    def _note(self, error: HttpError) -> None:
        if not self.refused[error.status]:
            log.warning("webhook: %s (%d); the next of this kind are only counted", error, error.status)
        self.refused[error.status] += 1


def _key(alert: _Alert) -> str:
    if alert.fingerprint:
        return alert.fingerprint[:KEY_CHARS_MAX]
    labels = msgspec.json.encode(sorted(alert.labels.items()))
    return hashlib.blake2b(labels, digest_size=16).hexdigest()


def _check_access(options: WebhookOptions, host: str) -> None:
    """Raise ValueError when any host that reaches the address could send alerts."""
    if options.token:
        if len(options.token) < TOKEN_CHARS_MIN:
            raise ValueError(
                f"the token has {len(options.token)} characters: at least {TOKEN_CHARS_MIN} are needed"
            )
        return
    if not options.allow_anonymous:
        raise ValueError(
            f"'{options.listen}' takes alerts only with a token: name a file with one in webhook_token_file"
        )
    try:
        is_loopback = ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise ValueError(
            f"'{options.listen}' is no loopback address, so webhook_allow_anonymous does not hold there: "
            "name a file with a token in webhook_token_file, or listen at 127.0.0.1"
        )
