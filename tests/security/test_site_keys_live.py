"""A running cluster whose keys are replaced and whose hosts are revoked, without a restart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from escli.eslurm import main
from eslurm.security.site_keys import read_ring
from tests.integration.cluster import LiveCluster
from tests.integration.conftest import running


@pytest.fixture
def cluster() -> Iterator[LiveCluster]:
    with running(nodes=2, agents=2, satellites=1) as made:
        yield made


def keys(cluster: LiveCluster, *words: str) -> None:
    assert main(["keys", words[0], "--state-dir", str(cluster.directory), *words[1:]]) == 0


def test_keys_are_replaced_and_a_host_is_revoked_while_jobs_run(cluster: LiveCluster) -> None:
    """Goal: no restart. Method: a new key until all hosts have it, jobs under it, then one host is sent away for good."""
    keys(cluster, "rotate")

    def has_ring(revision: int) -> bool:
        homes = ["agent0", "agent1", "sat0"]
        return all(read_ring(cluster.directory / home / "site.pub").revision == revision for home in homes)

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
