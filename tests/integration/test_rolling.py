"""Daemons are replaced one after another while jobs run and users submit: no job is lost, nobody is refused for long.

The daemons that are replaced may be of the release before: `pytest --upgrade-from DIRECTORY` (its sources), which
`make verify-upgrade` does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import running
from tests.integration.test_steps import door
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import ROOT
from tests.kits.outages import Gated
from tests.kits.submitters import Submitters

REFUSED_MAX_S = 20.0
"""Far above what a restart takes on a busy machine, far below a user's own patience."""
BOTTOM_UP = ("sat0", "sat1", "agent0", "agent1", "esctld")
TOP_DOWN = tuple(reversed(BOTTOM_UP))


def replace(cluster: LiveCluster, name: str) -> None:
    """Stop a daemon in good order and start this release's in its place."""
    cluster.terminate(name)
    cluster.daemons[name].source = ROOT
    cluster.launch(name)
    cluster.wait_nodes(lambda nodes: all(node.state == "UP" for node in nodes.values()))


@pytest.mark.slow
@pytest.mark.parametrize("order", [BOTTOM_UP, TOP_DOWN], ids=["bottom_up", "top_down"])
def test_daemons_are_replaced_one_after_another_while_jobs_run(
    order: tuple[str, ...], upgrade_from: Path
) -> None:
    with running(nodes=8, agents=2, satellites=2, source=upgrade_from) as cluster:
        with Submitters(cluster.socket, cluster.work) as users:
            steady = Gated(cluster, "steady", 0)
            cluster.reaches(steady.job_id, "RUNNING")
            for name in order:
                replace(cluster, name)
            steady.let_go()
        assert not users.failures
        assert set(cluster.ended(*users.acknowledged)) == {"COMPLETED"}
        assert users.ran() == dict.fromkeys(users.acknowledged, 1)
        steady.check("COMPLETED", 0)
        assert [run.attempt for run in cluster.runs(steady.job_id)] == [1]
        assert users.longest_s < REFUSED_MAX_S, f"somebody waited {users.longest_s:.2f} s"


@pytest.mark.slow
def test_a_job_of_several_parts_waits_for_nodes_with_older_agents_to_be_updated(upgrade_from: Path) -> None:
    protocol = upgrade_from / "eslurm" / "core" / "model" / "protocol.py"
    are_older = "AGENT_PROTOCOL" not in protocol.read_text()
    with running(nodes=8, agents=2, satellites=2, source=upgrade_from) as cluster:
        replace(cluster, "esctld")
        replace(cluster, "agent0")
        parts = ("-N1", "-o", "said", ":", "-N1", "-n2")
        command = f"{door(cluster)}esrun sh -c 'echo $SLURM_PROCID' : sh -c 'echo $SLURM_PROCID'"
        small = cluster.submit(*parts, "--wrap", command)
        assert cluster.end(small) == "COMPLETED", cluster.lines("said")
        assert sorted(cluster.lines("said")) == ["0", "1", "2"]
        wide = cluster.submit("-N3", "--exclusive", ":", "-N3", "--exclusive", "--wrap", "true")
        if are_older:
            why = cluster.run("eswhy", str(wide)).out
            assert "4 nodes have an older agent" in why, why
            assert cluster.job(wide).state == "PENDING"
        replace(cluster, "agent1")
        assert cluster.end(wide) == "COMPLETED"
