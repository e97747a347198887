"""`eslurm chaos` on a personal cluster of real daemons, as its user types it."""

from __future__ import annotations

import json
import stat
from typing import Any

import pytest

from tests.integration.test_up import Cluster, cluster

__all__ = ["cluster"]


def failed(cluster: Cluster, *words: str) -> list[dict[str, Any]]:
    """Give one more command, and return all faults that have failed so far."""
    answer = cluster("eslurm", "chaos", *words, "--json")
    assert answer.code == 0, answer.err
    found: list[dict[str, Any]] = json.loads(answer.out)["failed"]
    return found


@pytest.mark.slow
def test_nodes_and_satellites_fail_and_heal(cluster: Cluster) -> None:
    answer = cluster("eslurm", "up", "--detach", "--emulate", "40", "--hosts", "2", "--allow-root-jobs")
    assert answer.code == 0, answer.err
    assert "40 nodes in esctld (" in answer.out
    for name in ("agent1", "sat1"):
        assert stat.S_IMODE((cluster.directory / name / "chaos.sock").stat().st_mode) == 0o600

    first = failed(cluster, "kill", "--share", "30%", "--seed", "5", "--for", "10m")
    assert [(one["mode"], one["count"]) for one in first] == [("dead", 12)]
    assert 0 < first[0]["left_s"] <= 600
    again = failed(cluster, "hang", "--share", "30%", "--seed", "5")
    assert [(one["mode"], one["nodes"], one["left_s"]) for one in again] == [
        ("silent", first[0]["nodes"], None)
    ]
    slow = failed(cluster, "slow", "--satellite", "sat1", "--delay", "20ms")
    assert [(one["mode"], one["satellite"], one["delay_ms"]) for one in slow[1:]] == [("slow", "sat1", 20)]
    stopped = failed(cluster, "hang", "--satellite", "sat2")
    assert {one["satellite"]: one["mode"] for one in stopped[1:]} == {"sat1": "slow", "sat2": "silent"}

    assert failed(cluster, "heal") == []
    cluster.finish("true")


@pytest.mark.slow
def test_a_killed_satellite_comes_back_with_heal(cluster: Cluster) -> None:
    cluster.up()
    killed = failed(cluster, "kill", "--satellite", "sat1")
    assert [(one["mode"], one["satellite"]) for one in killed] == [("dead", "sat1")]
    cluster.finish("true")
    assert failed(cluster, "heal", "--satellite", "sat1") == []
    assert cluster("eslurm", "status").code == 0
