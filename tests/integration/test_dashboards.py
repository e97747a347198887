"""A real Prometheus scrapes a real cluster at work. Goal: every panel of every dashboard shows data, the alert rules that
are delivered can be evaluated and are silent where nothing is wrong, and Prometheus' own tool accepts every daemon's page.

Method: all kinds of daemons with their own endpoints; jobs of two accounts come and go until each query has a number.
"""

from __future__ import annotations

import json
import math
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import PATIENCE_S, ROOT, Daemon
from tests.kits.monitoring import Monitor, program, scraping
from tests.support.ports import free_port

DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
ESTIMATOR = "esestd"
WORK_MAX_S = 120.0
RATE_INTERVAL = "15s"
"""The interval that Grafana puts in the place of $__rate_interval: several scrapes."""
PAGE_BYTES_MAX = 100_000


def queries(path: Path) -> dict[str, str]:
    """The dashboard's queries by panel and place, as Grafana would send them."""
    found = {}
    for panel in json.loads(path.read_text())["panels"]:
        for target in panel["targets"]:
            place = f"{path.stem}: {panel['title']} ({target['refId']})"
            found[place] = target["expr"].replace("$__rate_interval", RATE_INTERVAL)
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    sections = '[estimator]\nname = "last-2"\n[phases]\ncontroller_prolog = "/bin/true"'
    # Where nothing is wrong nobody is missed, and the lead stays where it is.
    patience: dict[str, Any] = {"policy": {"heartbeats_missed_max": 100}, "controller": {"lease_s": 10}}
    with running(nodes=8, controllers=2, sections=sections, is_watched=True, **patience) as cluster:
        endpoint = f"127.0.0.1:{free_port()}"
        words = [ESTIMATOR, "--config", str(cluster.directory / "eslurm.toml")]
        words += ["--state-dir", str(cluster.directory / ESTIMATOR)]
        words += ["--controller-socket", str(cluster.socket), "--metrics-listen", endpoint]
        cluster.daemons[ESTIMATOR] = Daemon(ESTIMATOR, words, cluster.directory / f"{ESTIMATOR}.log")
        cluster.watched[ESTIMATOR] = endpoint
        cluster.launch(ESTIMATOR)
        cluster.wait_standbys()
        yield cluster


def jobs_of(cluster: LiveCluster) -> dict[str, list[str]]:
    """Every daemon's endpoint, under the names that the rules and the dashboards expect."""
    kinds = {"esctld": "esctld", "sat": "essatd", "agent": "esnoded", "esestd": "esestd"}
    found: dict[str, list[str]] = {kind: [] for kind in kinds.values()}
    for name, endpoint in cluster.watched.items():
        found[next(kind for start, kind in kinds.items() if name.startswith(start))].append(endpoint)
    return found


def has_number(monitor: Monitor, query: str) -> bool:
    """Check that Prometheus has a number for it now."""
    found = monitor.get("query", query=query)["result"]
    return any(not math.isnan(float(sample["value"][1])) for sample in found)


@pytest.mark.slow
def test_every_panel_has_data_and_no_alert_is_wrong(cluster: LiveCluster) -> None:
    left = {place: query for path in DASHBOARDS for place, query in queries(path).items()}
    assert len(left) > 60
    with scraping(jobs_of(cluster), RULES.read_text()) as monitor:
        deadline_s = time.monotonic() + WORK_MAX_S
        while left and time.monotonic() < deadline_s:
            jobs = [cluster.wrap("sleep 0.5", "--time", "1", "-n", "16") for _ in range(6)]
            jobs += [
                cluster.submit(
                    "--array", "0-5", "--time", "1", cluster.script("array.sh", "#!/bin/sh\nsleep 0.3\n")
                )
            ]
            cluster.run("essubmit", "--partition", "nowhere", "--wrap", "true")
            cluster.ended(*jobs)
            left = {place: query for place, query in left.items() if not has_number(monitor, query)}
        assert not left, f"no data for {json.dumps(left, indent=1)}"
        rules = [rule for group in monitor.get("rules")["groups"] for rule in group["rules"]]
        assert rules
        assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] == "err"} == {}
        assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []
    cluster.hang_up()


def test_promtool_accepts_every_page(cluster: LiveCluster) -> None:
    assert cluster.end(cluster.wrap("true")) == "COMPLETED"
    pages = jobs_of(cluster)
    assert {kind: len(endpoints) for kind, endpoints in pages.items()} == {
        "esctld": 2,
        "essatd": 2,
        "esnoded": 2,
        "esestd": 1,
    }
    for kind, endpoints in pages.items():
        for endpoint in endpoints:
            with urllib.request.urlopen(f"http://{endpoint}/metrics", timeout=PATIENCE_S) as answer:
                page = answer.read()
            assert len(page) < PAGE_BYTES_MAX
            ran = subprocess.run([program("promtool"), "check", "metrics"], input=page, capture_output=True)
            assert ran.returncode == 0 and not ran.stdout + ran.stderr, (kind, ran.stdout + ran.stderr)
    cluster.hang_up()
