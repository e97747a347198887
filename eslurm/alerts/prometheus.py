"""Polls a Prometheus server for firing alerts, and delivers their nodes (E-28).

Two kinds of queries: its firing alerts (`/api/v1/alerts`), or a PromQL expression (`/api/v1/query`) each of whose series
counts, whatever its value: for sites with rules of thumb but no alerts, and for answers that stay small, such as `count by
(node) (ALERTS{alertstate="firing"})`.

Invariants: while the server gives no usable answer, its last one holds until it is `stale_after_s` old, then nothing
fires; one line is logged per change of the source's state, never per query.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import quote

import msgspec

from eslurm.alerts.http import FetchError, get, parse_url
from eslurm.alerts.updates import Alert, Firing, OnAlerts, find_node

log = logging.getLogger(__name__)

SOURCE = "prometheus"
BODY_BYTES_MAX = 16 * 1024 * 1024
"""About 40,000 alerts of usual size. Read at once, and let go before the next question."""
ALERTS_PER_SLICE = 500
"""Alerts read between two turns of the event loop: about a millisecond's worth."""
KEY_CHARS_MAX = 200

T = TypeVar("T")


class PrometheusOptions(msgspec.Struct, frozen=True):
    """Options of the queries. `url` is the server's base address; `query` a PromQL expression, empty for its alerts."""

    url: str
    node_label: str = "node"
    query: str = ""
    pending: bool = False
    """True: alerts still within their rule's `for` count, too."""
    interval_s: float = 15.0
    timeout_s: float = 10.0
    """For one answer in all. The next question is never asked before it is over."""
    stale_after_s: float = 60.0


class SourceStatus(msgspec.Struct, frozen=True):
    """State of a source: new, answering, failing (its last answer holds) or stale (nothing fires)."""

    state: str = "new"
    why: str = ""
    """The problem while failing or stale."""
    answers: int = 0
    failures: int = 0
    firing: int = 0
    """Alerts about a node in the last answer."""
    unnamed: int = 0
    """Alerts in it without the label that names a node."""


class _Alerts(msgspec.Struct):
    alerts: list[msgspec.Raw]


class _AlertsReply(msgspec.Struct):
    status: str = ""
    data: _Alerts | None = None


class _Alert(msgspec.Struct):
    labels: dict[str, str]
    state: str


class _Result(msgspec.Struct):
    result_type: str = msgspec.field(name="resultType")
    result: list[msgspec.Raw]


class _QueryReply(msgspec.Struct):
    status: str = ""
    data: _Result | None = None


class _Series(msgspec.Struct):
    metric: dict[str, str]


_ALERTS_REPLY = msgspec.json.Decoder(_AlertsReply)
_QUERY_REPLY = msgspec.json.Decoder(_QueryReply)
_ALERT = msgspec.json.Decoder(_Alert)
_SERIES = msgspec.json.Decoder(_Series)


class PrometheusPoller:
    """Polls every `interval_s` between `start`, called inside the running loop, and `close`, which ends it at once.

    Raises ValueError for an invalid URL.
    """

    def __init__(
        self,
        options: PrometheusOptions,
        on_alerts: OnAlerts,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        base = parse_url(options.url)
        path, _, query = base.path.partition("?")
        if query:
            raise ValueError(f"'{base.name}' must have no query: give the expression by itself")
        suffix = f"query?query={quote(options.query, safe='')}" if options.query else "alerts"
        self._target = msgspec.structs.replace(base, path=f"{path.rstrip('/')}/api/v1/{suffix}")
        self._options = options
        self._on_alerts = on_alerts
        self._clock_s = clock_s
        self._answered_at_s = clock_s()
        self._task: asyncio.Task[None] | None = None
        self._status = SourceStatus()

    @property
    def status(self) -> SourceStatus:
        """State of the source, as of the last query."""
        return self._status

    @property
    def age_s(self) -> float:
        """Seconds since the last usable answer, or since this object was made."""
        return self._clock_s() - self._answered_at_s

    def start(self) -> None:
        """Query now, and every `interval_s` from now on."""
        assert self._task is None
        self._task = asyncio.create_task(self._run(), name="prometheus poller")

    async def close(self) -> None:
        """Stop polling; a query under way is dropped."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        due_s = self._clock_s()
        while True:
            await self.ask()
            due_s = max(due_s + self._options.interval_s, self._clock_s())
            await asyncio.sleep(due_s - self._clock_s())

    async def ask(self) -> None:
        """Make one query: deliver its answer, or note that there was none. Never raises."""
        try:
            body = await get(self._target, self._options.timeout_s, BODY_BYTES_MAX)
            alerts, unnamed = await self._read(body)
            self._on_alerts(Firing(SOURCE, alerts))
        except FetchError as error:
            self._on_failure(str(error))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._on_failure(f"answers what is no answer of Prometheus: {error}")
        except Exception as error:
            # A mistake of ours must not end the polling unseen.
            log.exception("an answer of %s cannot be used", self._target.name)
            self._on_failure(f"its answer cannot be used: {error!r}")
        else:
            self._on_answer(alerts, unnamed)

    async def _read(self, body: bytes) -> tuple[tuple[Alert, ...], int]:
        found: dict[Alert, None] = {}
        unnamed = 0
        raws = self._raws(body)
        for start in range(0, len(raws), ALERTS_PER_SLICE):
            for raw in raws[start : start + ALERTS_PER_SLICE]:
                labels = self._labels(raw)
                if labels is None:
                    continue
                node = find_node(labels, self._options.node_label)
                if node is None:
                    unnamed += 1
                else:
                    key = f"{labels.get('alertname', SOURCE)[:KEY_CHARS_MAX]}/{node}"
                    found[key, node] = None
            await asyncio.sleep(0)
        return tuple(found), unnamed

    def _raws(self, body: bytes) -> Sequence[msgspec.Raw]:
        """The alerts or series, unparsed: they are parsed in slices."""
        if self._options.query:
            answer = _QUERY_REPLY.decode(body)
            result = _data(answer.status, answer.data)
            if result.result_type != "vector":
                raise msgspec.DecodeError(f"the expression yields a {result.result_type[:40]}, not a vector")
            return result.result
        reply = _ALERTS_REPLY.decode(body)
        return _data(reply.status, reply.data).alerts

    def _labels(self, raw: msgspec.Raw) -> dict[str, str] | None:
        """The labels of a counting alert or series."""
        if self._options.query:
            return _SERIES.decode(raw).metric
        alert = _ALERT.decode(raw)
        counts = alert.state == "firing" or (self._options.pending and alert.state == "pending")
        return alert.labels if counts else None

    def _on_answer(self, alerts: tuple[Alert, ...], unnamed: int) -> None:
        before = self._status
        if before.state in ("failing", "stale"):
            log.info("%s answers again", self._target.name)
        self._answered_at_s = self._clock_s()
        self._status = SourceStatus(
            "answering", "", before.answers + 1, before.failures, len(alerts), unnamed
        )

    def _on_failure(self, why: str) -> None:
        before = self._status
        state = "stale" if self.age_s >= self._options.stale_after_s else "failing"
        holds = state == "failing" or before.state == "stale"
        self._status = msgspec.structs.replace(
            before, state=state, why=why, failures=before.failures + 1, firing=before.firing if holds else 0
        )
        if state == before.state:
            return
        if state == "failing":
            log.warning(
                "%s: %s; its last answer holds for %g s", self._target.name, why, self._options.stale_after_s
            )
            return
        log.warning("%s: %s; its last answer is too old: none of its alerts counts", self._target.name, why)
        try:
            self._on_alerts(Firing(SOURCE, ()))
        except Exception:
            log.exception("that nothing fires any more cannot be told")


def _data(status: str, data: T | None) -> T:
    if status != "success":
        raise msgspec.DecodeError(f"status '{status[:40]}'")
    if data is None:
        raise msgspec.DecodeError("success, yet no data")
    return data
