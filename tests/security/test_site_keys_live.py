"""A running cluster whose keys are replaced and whose hosts are revoked, without a restart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from escli.local.eslurm import main
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster


@pytest.fixture
def cluster() -> Iterator[LiveCluster]:
    with running(nodes=2, agents=2, satellites=1) as made:
        yield made


def read_ring_of(path: Path) -> int:
    (line,) = [line for line in path.read_text().splitlines() if line.startswith("#")]
    return int(line.partition("revision ")[2].partition(":")[0])


def keys(cluster: LiveCluster, *words: str) -> None:
    assert main(["keys", words[0], "--state-dir", str(cluster.directory), *words[1:]]) == 0


def test_keys_are_replaced_and_a_host_is_revoked_while_jobs_run(cluster: LiveCluster) -> None:
    """Goal: no restart. Method: a new key until all hosts have it, jobs under it, then one host is sent away for good."""
    keys(cluster, "rotate")

    def has_ring(revision: int) -> bool:
        # An agent that root has started keeps what it learns in a directory of its own user.
        homes = ["agent0/agent", "agent1/agent"] if os.getuid() == 0 else ["agent0", "agent1"]
        paths = [cluster.directory / home / "site.pub" for home in (*homes, "sat0")]
        return all(path.exists() and read_ring_of(path) == revision for path in paths)

    cluster.until(lambda: has_ring(2), "the new key everywhere")
    keys(cluster, "rotate", "--finish")
    cluster.until(lambda: has_ring(3), "the key that signs now everywhere")
    assert cluster.end(cluster.wrap("true", "-w", "cn0001")) == "COMPLETED"
    assert cluster.end(cluster.wrap("true", "-w", "cn0002")) == "COMPLETED"
    keys(cluster, "revoke", "cn0002")
    log = cluster.daemons["sat0"].log
    cluster.until(lambda: "was revoked" in log.read_text(), "the satellite ends the link")
    cluster.wait_nodes(lambda nodes: nodes["cn0002"].state != "UP")
    assert cluster.end(cluster.wrap("true", "-w", "cn0001")) == "COMPLETED"
    assert cluster.nodes()["cn0002"].state != "UP"
