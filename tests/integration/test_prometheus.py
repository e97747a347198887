"""Alerts from a real Prometheus, asked and by way of a real Alertmanager, end up as predicted nodes.

Method: the test heats nodes and waits for the prediction; nothing waits for a while.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eslurm.alerts.feeds import AlertSources
from eslurm.config.sections import FailureSection
from eslurm.core.prediction.alerts import FiringAlerts
from tests.kits import monitoring
from tests.support.loops import both_loops, run

WAIT_S = 60.0
NAMES = {number: f"cn{number:04}" for number in range(1, 9)}


@pytest.fixture(scope="module")
def site() -> Iterator[SimpleNamespace]:
    """Thermometers and a Prometheus that watches them; the Alertmanager it tells is not there yet."""
    thermometers = monitoring.Thermometers()
    alertmanager = monitoring.free_endpoint()
    try:
        with monitoring.prometheus(thermometers.endpoint, alertmanager) as prometheus:
            yield SimpleNamespace(thermometers=thermometers, prometheus=prometheus, alertmanager=alertmanager)
    finally:
        thermometers.close()


@pytest.fixture
def book() -> FiringAlerts:
    """Knows the nodes cn0001 to cn0008."""
    found = FiringAlerts()
    found.set_nodes(NAMES)
    return found


def said(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    """Lines of ours; the loop's own word on a busy machine is another matter."""
    ours = (record for record in caplog.records if record.name.startswith("eslurm."))
    return [record.getMessage() for record in ours if record.levelno >= level]


def now_us() -> int:
    return time.time_ns() // 1000


async def until(condition: Callable[[], object]) -> None:
    """Returns as soon as the condition holds."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what changes is in another process
            await asyncio.sleep(0.02)


async def with_feeds(
    failure: FailureSection,
    book: FiringAlerts,
    steps: Callable[[AlertSources, Callable[[set[int]], Any]], Any],
) -> None:
    """Runs `steps(feeds, predicted)`; awaiting `predicted(nodes)` waits until just these are predicted."""
    feeds = AlertSources(failure, book, now_us)

    async def predicted(nodes: set[int]) -> None:
        await until(lambda: book.nodes(now_us()) == nodes)

    await feeds.start()
    try:
        await steps(feeds, predicted)
    finally:
        await feeds.close()


@both_loops
def test_firing_alerts_of_a_real_prometheus_are_predictions_until_they_are_over(
    site: SimpleNamespace, book: FiringAlerts, uvloop: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(feeds: AlertSources, predicted: Callable[[set[int]], Any]) -> None:
        site.thermometers.set(cn0001=40, cn0003=95, cn0005=85, cn0007=99, zz0001=99)
        await predicted({3, 7})
        site.thermometers.set(cn0001=40, cn0003=95, cn0005=85, cn0007=40, zz0001=40)
        await predicted({3})
        assert feeds.prometheus is not None
        assert feeds.prometheus.status.state == "answering"
        # The dead man's switch is about no node.
        assert feeds.prometheus.status.unnamed == 1

    failure = FailureSection(prometheus_url=site.prometheus.url, prometheus_interval_s=0.1)
    run(with_feeds(failure, book, steps), uvloop=uvloop)
    assert said(caplog) == ["prometheus: an alert for 'zz0001' was ignored: no such node"]


def test_an_expression_predicts_without_any_alert(site: SimpleNamespace, book: FiringAlerts) -> None:
    async def steps(feeds: AlertSources, predicted: Callable[[set[int]], Any]) -> None:
        site.thermometers.set(cn0001=40, cn0002=61, cn0006=62)
        await predicted({2, 6})

    failure = FailureSection(
        prometheus_url=f"{site.prometheus.url}/",
        prometheus_interval_s=0.1,
        settings={"alerts": {"query": "max by (node) (node_temperature_celsius) > 60"}},
    )
    run(with_feeds(failure, book, steps), uvloop=True)


def test_an_expression_with_a_mistake_is_told_and_predicts_nothing(
    site: SimpleNamespace, book: FiringAlerts, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(feeds: AlertSources, predicted: Callable[[set[int]], Any]) -> None:
        poller = feeds.prometheus
        assert poller is not None
        await until(lambda: poller.status.failures >= 3)
        assert "400" in poller.status.why

    failure = FailureSection(
        prometheus_url=site.prometheus.url,
        prometheus_interval_s=0.05,
        settings={"alerts": {"query": "node_temperature_celsius >"}},
    )
    run(with_feeds(failure, book, steps), uvloop=True)
    assert len(said(caplog)) == 1
    assert book.nodes(now_us()) == frozenset()


def test_a_prometheus_that_hangs_is_forgotten_after_a_while_and_heard_again(
    site: SimpleNamespace, book: FiringAlerts, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(feeds: AlertSources, predicted: Callable[[set[int]], Any]) -> None:
        poller = feeds.prometheus
        assert poller is not None
        site.thermometers.set(cn0004=95)
        await predicted({4})
        caplog.clear()
        site.prometheus.freeze()
        try:
            await predicted(set())
            assert poller.status.state == "stale"
        finally:
            site.prometheus.thaw()
        await predicted({4})

    failure = FailureSection(
        prometheus_url=site.prometheus.url,
        prometheus_interval_s=0.1,
        settings={"alerts": {"prometheus_timeout_s": 1.0, "stale_after_s": 3.0}},
    )
    run(with_feeds(failure, book, steps), uvloop=True)
    while_frozen = [text for text in said(caplog, logging.INFO) if "no answer within 1 s" in text]
    assert "its last answer holds for 3 s" in while_frozen[0]
    assert "its last answer is too old" in while_frozen[1]


def test_a_real_alertmanager_tells_what_begins_and_what_is_over(
    site: SimpleNamespace, book: FiringAlerts, tmp_path: Path
) -> None:
    async def steps(feeds: AlertSources, predicted: Callable[[set[int]], Any]) -> None:
        site.thermometers.set(cn0002=95, cn0008=95)
        assert feeds.webhook is not None
        with monitoring.alertmanager(site.alertmanager, feeds.webhook_endpoint, "let-me-in-please"):
            await predicted({2, 8})
            site.thermometers.set(cn0002=40, cn0008=95)
            await predicted({8})
        assert feeds.webhook.messages >= 2
        assert not feeds.webhook.refused

    token = tmp_path / "token"
    token.write_text("let-me-in-please\n")
    token.chmod(0o600)
    failure = FailureSection(
        webhook_listen="127.0.0.1:0", settings={"alerts": {"webhook_token_file": str(token)}}
    )
    run(with_feeds(failure, book, steps), uvloop=True)
