"""Alert rules and dashboards as they are delivered. Goal: Prometheus takes them, each alert is known to fire and to be
silent, each leads to its section of the runbook, and none asks for a metric that no daemon has.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.kits.monitoring import program

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
RULES_TEST = ROOT / "deploy" / "prometheus" / "rules_test.yml"
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
RUNBOOK = ROOT / "docs" / "guide" / "runbook.md"
DAEMONS = ("esctld", "essatd", "esnoded", "esestd")
OF_PROMETHEUS = {"up"}
COLUMNS = 24

_NAME = re.compile(r"\b(?:eslurm|process)_[a-z_]+\b|\bup\b")


def promtool(*words: str) -> str:
    """Run promtool, which must be content; the result is its output."""
    ran = subprocess.run([program("promtool"), *words], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def alerts() -> list[str]:
    """The names of all alerts."""
    return re.findall(r"^ +- alert: (\w+)$", RULES.read_text(), re.MULTILINE)


def metrics() -> set[str]:
    """The names of all series that some daemon has."""
    found = set(OF_PROMETHEUS)
    for kind in DAEMONS:
        for one in importlib.import_module(f"{kind}.status").described():
            endings = ("_bucket", "_sum", "_count") if one.kind == "histogram" else ("",)
            found.update(f"{one.name}{ending}" for ending in endings)
    return found


def board(path: Path) -> Any:
    """A dashboard."""
    return json.loads(path.read_text())


def test_prometheus_takes_the_rules() -> None:
    assert f"{len(alerts())} rules found" in promtool("check", "rules", str(RULES))


def test_each_alert_fires_and_is_silent_when_it_should() -> None:
    text = RULES_TEST.read_text()
    for alert in alerts():
        assert re.search(rf"alertname: {alert}, exp_alerts: \[\]", text), f"{alert} is never silent"
        assert re.search(rf"alertname: {alert}\n +exp_alerts:\n +- exp_labels", text), f"{alert} never fires"
    promtool("test", "rules", str(RULES_TEST))


def test_each_alert_has_its_section_in_the_runbook() -> None:
    headings = re.findall(r"^#+ (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    text = RULES.read_text()
    for alert in alerts():
        assert f"runbook_url: docs/guide/runbook.md#{alert.lower()}\n" in text
    assert [heading for heading in headings if heading.startswith("Eslurm")] == alerts()


def test_rules_ask_for_what_there_is() -> None:
    expressions = re.findall(r"expr: >-\n((?: {10}.*\n)+)", RULES.read_text())
    assert len(expressions) == len(alerts())
    asked = {name for expression in expressions for name in _NAME.findall(expression)}
    assert asked <= metrics()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_ask_for_what_there_is(path: Path) -> None:
    asked: set[str] = set()
    for panel in board(path)["panels"]:
        for target in panel["targets"]:
            names = set(_NAME.findall(target["expr"]))
            assert names, panel["title"]
            asked |= names
    assert asked <= metrics()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_do_not_lie_on_each_other(path: Path) -> None:
    panels = board(path)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= COLUMNS for place in places)
    for one, other in combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)


def test_dashboards_use_the_provisioned_source() -> None:
    source = (ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text()
    (uid,) = re.findall(r"^    uid: (\w+)$", source, re.MULTILINE)
    boards = [board(path) for path in DASHBOARDS]
    assert len({one["uid"] for one in boards}) == len(boards)
    assert {panel["datasource"]["uid"] for one in boards for panel in one["panels"]} == {uid}
