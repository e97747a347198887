"""Daemons that are watched. Goal: every daemon's page holds what the reference says, health tells the truth through a
failover, and logs as JSON are JSON, name jobs and hold no secret.

Method: a cluster of two controllers whose daemons all have a door and log JSON; the leader is killed.
"""

from __future__ import annotations

import importlib
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from escli.health import ask
from eslurm.core.dispatch.broadcaster import EPOCH_SHIFT
from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import PATIENCE_S

SECRET_WORD = "swordfish-of-ada"
KINDS = {"esctld": "esctld", "sat": "essatd", "agent": "esnoded"}


@pytest.fixture(scope="module")
def watched_cluster() -> Iterator[LiveCluster]:
    """Everything is watched, and logs JSON."""
    # Only who is killed loses the lead.
    how: dict[str, Any] = {"controllers": 2, "controller": {"lease_s": 5}}
    with running(nodes=8, is_watched=True, log_format="json", log_level="debug", **how) as cluster:
        cluster.wait_standbys()
        yield cluster


@pytest.fixture
def watched(watched_cluster: LiveCluster) -> Iterator[LiveCluster]:
    """The module's cluster, whole; its connection for calls ends with the test."""
    watched_cluster.start()
    yield watched_cluster
    watched_cluster.hang_up()


def page_of(cluster: LiveCluster, name: str) -> bytes:
    """A daemon's metrics."""
    with urllib.request.urlopen(f"http://{cluster.watched[name]}/metrics", timeout=PATIENCE_S) as answer:
        page: bytes = answer.read()
    return page


def health_of(cluster: LiveCluster, name: str) -> tuple[bool, str]:
    """Ask a daemon for its health: the verdict and its line."""
    host, _, port = cluster.watched[name].partition(":")
    return ask(host, int(port), "/health")


def value_of(cluster: LiveCluster, name: str, metric: str, **labels: str) -> float | None:
    """One number of a daemon's page."""
    for family in text_string_to_metric_families(page_of(cluster, name).decode()):
        for sample in family.samples:
            if sample.name == metric and sample.labels == labels:
                return float(sample.value)
    return None


def kind_of(name: str) -> str:
    """The kind of the daemon with this name."""
    return next(kind for start, kind in KINDS.items() if name.startswith(start))


def test_pages_hold_what_the_reference_says(watched: LiveCluster) -> None:
    watched.until(lambda: value_of(watched, "esctld", "eslurm_nodes", state="UP") == 8, "the census")
    for name in watched.watched:
        described = {one.name.removesuffix("_total"): one for one in _described(kind_of(name))}
        found = {
            family.name: family for family in text_string_to_metric_families(page_of(watched, name).decode())
        }
        assert found.keys() <= described.keys(), name
        if name != "esctld-c2":
            assert found.keys() == described.keys(), name
        for metric, family in found.items():
            assert family.type == described[metric].kind, metric
            assert family.documentation == described[metric].text, metric
            for sample in family.samples:
                assert set(sample.labels) - {"le"} == set(described[metric].labels), metric


def _described(kind: str) -> list[object]:
    return importlib.import_module(f"{kind}.status").described()  # type: ignore[no-any-return]


def test_health_tells_the_truth_through_a_failover(watched: LiveCluster) -> None:
    expected = {
        "esctld": "leads, epoch 1, ",
        "esctld-c2": "stands by: main leads",
        "agent0": "serves 4 nodes, all registered",
    }

    def is_well() -> bool:
        lines = {name: health_of(watched, name) for name in watched.watched}
        said = [lines[name][1].startswith(words) for name, words in expected.items()]
        return all(said) and all(is_well for is_well, _ in lines.values())

    # That its nodes are registered reaches an agent a little later than others.
    watched.until(is_well, "all are well")
    watched.kill("esctld")
    with pytest.raises(OSError):
        health_of(watched, "esctld")
    watched.until(lambda: health_of(watched, "esctld-c2")[1].startswith("leads, epoch 2"), "c2 to lead")
    watched.until(lambda: health_of(watched, "sat0") == (True, _linked(watched)), "sat0 to follow")
    watched.until(
        lambda: value_of(watched, "esctld-c2", "eslurm_controller_role", role="leader") == 1,
        "a leader's page",
    )
    watched.launch("esctld")
    watched.until(lambda: health_of(watched, "esctld") == (True, "stands by: c2 leads"), "main to stand by")
    watched.kill("sat0", "sat1")
    watched.until(
        lambda: value_of(watched, "esctld-c2", "eslurm_satellites", state="RUNNING") == 0, "satellites missed"
    )


def _linked(cluster: LiveCluster) -> str:
    return f"linked to the controller at {cluster.endpoints[1]}, epoch 2"


def test_a_job_is_followed_by_its_trace(watched: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its submission to the node on which it ends; the broadcast of its launch is named on the way."""
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    monkeypatch.setenv("TRACEPARENT", f"00-{trace}-00f067aa0ba902b7-01")
    job = watched.wrap("sleep 0.3", "-N", "2")
    monkeypatch.setenv("TRACEPARENT", "00-broken")
    other = watched.wrap("sleep 0.3; exit 3")
    assert (watched.end(job), watched.end(other)) == ("COMPLETED", "FAILED")
    assert f"Trace={trace}\n" in watched.run("esctl", "show", "job", str(job)).out
    own = json.loads(watched.run("esctl", "show", "job", str(other), "--json").out)["jobs"][0]["trace"]
    assert len(bytes.fromhex(own)) == 16 and own != trace
    kept = watched.run("esacct", "-j", f"{job},{other}", "-h", "-P", "-o", "trace").out
    assert kept.split() == [trace, own]
    wanted = {
        ("esctld.jobs", ""),
        ("esctld.jobs", "placed,"),
        ("esctld.jobs", "began"),
        ("esctld.jobs", "ended,"),
        ("esctld.cargo", "sent"),
        ("esnoded.shell", "began"),
        ("esnoded.shell", "ended"),
    }
    # A daemon acts first and writes then.
    watched.until(lambda: _happened(_followed(watched, trace)) >= wanted, "all is written")
    followed = _followed(watched, trace)
    assert {one["job"] for one in followed} == {job}
    assert _happened(followed) == wanted
    # The controller has given it an id before there is an attempt.
    assert {one.get("attempt") for one in followed} == {None, 1}
    (sent,) = (one for one in followed if one["logger"] == "esctld.cargo")
    assert sent["broadcast"] >> EPOCH_SHIFT == sent["epoch"]
    assert len({one["epoch"] for one in followed}) == 1
    assert {one["job"] for one in _told(watched) if one.get("trace") == own} == {other}


def _followed(cluster: LiveCluster, trace: str) -> list[dict[str, Any]]:
    """The log records with this trace."""
    return [one for one in _told(cluster) if one.get("trace") == trace]


def _happened(followed: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """The logger of each record, with the first word of its message after the colon."""
    return {(one["logger"], one["message"].partition(": ")[2].partition(" ")[0]) for one in followed}


def _told(cluster: LiveCluster) -> list[dict[str, Any]]:
    """All that the daemons have logged, in whole lines."""
    texts = [(cluster.directory / f"{name}.log").read_text() for name in cluster.watched]
    lines = [line for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [json.loads(line) for line in lines if not line.startswith("ready ")]


def test_logs_are_json_and_hold_no_secret(watched: LiveCluster) -> None:
    job = watched.submit("--export", f"PASSWORD={SECRET_WORD}", watched.script("s.sh", "#!/bin/sh\ntrue\n"))
    assert watched.end(job) == "COMPLETED"

    def ended() -> set[tuple[str, int]]:
        mine = [one for one in _told(watched) if one.get("job") == job and "ended" in one["message"]]
        return {(one["logger"], one["attempt"]) for one in mine}

    watched.until(lambda: ended() == {("esctld.jobs", 1), ("esnoded.shell", 1)}, "both tell of its end")
    seed = json.loads((watched.directory / "site.key").read_text())["keys"][0]["seed"]
    for name in watched.watched:
        text = (watched.directory / f"{name}.log").read_text()
        assert seed not in text and SECRET_WORD not in text
    told = _told(watched)
    assert all({"at", "level", "logger", "message"} <= one.keys() for one in told)
    assert {1, watched.call("Ping", pb.PingRequest()).epoch} <= {one.get("epoch") for one in told}
