"""`esnoded --each`: many agent processes of one node each, forked from one parent; their satellites keep few sockets."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import made
from tests.kits.cluster import POLL_S, is_alive, names_of
from tests.kits.crowd import AGENTS, Crowd, watched

MISSED_MAX = 4
PSS_KIB_MAX = 24 * 1024
"""Few processes share little: with hundreds of them it is half of that."""


@pytest.mark.parametrize("fork_support", ["0", "1"])
def test_each_node_has_a_process_of_its_own(fork_support: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_ENABLE_FORK_SUPPORT", fork_support)
    with made(Crowd, nodes=8, satellites=1, sockets_max=64) as cluster:
        agents = cluster.agents()
        assert len(agents) == 8
        assert len(os.listdir(f"/proc/{cluster.parent()}/task")) == 1, "the parent has no threads"
        assert cluster.supervisors() == [], "none before the first step"
        assert max(map(pss_kib, agents)) <= PSS_KIB_MAX

        job_id = cluster.wrap("echo $SLURM_JOB_NODELIST > ran", "-N", "8")
        assert cluster.end(job_id) == "COMPLETED"
        assert names_of(cluster.lines("ran")[0]) == cluster.node_names
        assert len(cluster.supervisors()) == 1, "only where the script ran"
        assert cluster.agents() == agents

        # Each has a state of its own, which the next process for the node takes up.
        cluster.terminate(AGENTS)
        assert not any(map(is_alive, agents))
        cluster.launch(AGENTS)
        job_id = cluster.wrap("true", "-N", "8")
        assert cluster.end(job_id) == "COMPLETED"


def test_agents_end_with_their_parent_and_a_killed_one_alone() -> None:
    with made(Crowd, nodes=4, satellites=1, sockets_max=64) as cluster:
        first, *others = cluster.agents()
        os.kill(first, signal.SIGKILL)
        cluster.wait_nodes(lambda nodes: [node.state for node in nodes.values()].count("UNREACHABLE") == 1)
        cluster.until(lambda: cluster.agents() == others, "its parent has heard of its end")
        cluster.kill(AGENTS)
        cluster.until(lambda: not any(map(is_alive, others)), "the end of the agents")


def test_an_agent_that_cannot_start_is_the_end_of_all() -> None:
    with made(Crowd, nodes=4, satellites=1, sockets_max=64) as cluster:
        cluster.terminate(AGENTS)
        spool = cluster.agent_dir(AGENTS) / "cn0003" / "agent.spool"
        kept = spool.read_bytes()
        spool.write_bytes(b"not a spool at all")
        daemon = cluster.daemons[AGENTS]
        daemon.spawn()
        assert not daemon.wait_ready()
        assert daemon.wait() != 0
        assert "cn0003" in daemon.tail()
        spool.write_bytes(kept)


def test_satellites_stay_within_their_sockets_and_nothing_is_lost() -> None:
    """64 processes and 16 sockets per satellite: most links are parked most of the time."""
    # Of 64 processes on a busy machine one may be late once.
    policy = {"relay_width": 4, "heartbeat_s": 1.0, "heartbeats_missed_max": MISSED_MAX}
    with made(Crowd, nodes=64, satellites=2, sockets_max=16, **policy) as cluster:
        with watched(cluster, cluster.satellites) as peaks:
            assert cluster.end(cluster.wrap("true", "-N", "64")) == "COMPLETED"
            cluster.wait_idle()

            # Everybody has something to say at once: a new epoch makes all nodes register again.
            cluster.kill("esctld")
            cluster.launch("esctld")
            cluster.wait_nodes(all_up)

            job_id = cluster.wrap("echo > up; until test -e gate; do sleep 0.02; done", "-N", "64")
            cluster.wait_lines("up")
            cluster.kill("sat0")
            (cluster.work / "gate").touch()
            assert cluster.end(job_id) == "COMPLETED"
            cluster.wait_idle()
            assert cluster.end(cluster.wrap("true", "-N", "64")) == "COMPLETED"
            # Several heartbeats long nobody is missed.
            job_id = cluster.wrap(f"sleep {2 * MISSED_MAX}", "-w", "cn0001")
            while cluster.job(job_id).state not in ("COMPLETED", "FAILED"):
                assert all_up(cluster.nodes())
                time.sleep(POLL_S)
            assert cluster.job(job_id).state == "COMPLETED"
        # It aims at 16 links. Whoever finds no room is refused in the handshake: each process may be at that, too.
        assert max(peaks.values()) <= 16 + 64, peaks
        assert min(peaks.values()) > 4, "the trees went through both of them"


def all_up(nodes: dict[str, Any]) -> bool:
    return all(node.state == "UP" for node in nodes.values())


def pss_kib(pid: int) -> int:
    """Memory of a process, what is shared counted by share."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise AssertionError(f"no memory figures of process {pid}")
