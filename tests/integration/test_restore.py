"""A store is restored from a backup by the steps of docs/guide/store.md, and the cluster goes on from there.

Method: jobs are submitted, run and end before and after the backup, and the lead changes after it; then all but the
memberships of the hosts is lost.
"""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.integration.conftest import running
from tests.integration.test_crash import GATE, MARK, open_gate
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import agent_home
from tests.kits.stepd import end_process
from tests.support import postgres

AGENTS = ("agent0", "agent1")
Restore = Callable[[], None]


@pytest.fixture(params=["sqlite", "postgresql"])
def cluster(request: pytest.FixtureRequest) -> Iterator[LiveCluster]:
    with ExitStack() as stack:
        url = stack.enter_context(postgres.database()) if request.param == "postgresql" else ""
        made = stack.enter_context(running(nodes=2, agents=2, satellites=1, store_url=url))
        yield made


def back_up(cluster: LiveCluster) -> Restore:
    """Make a backup while the cluster runs; returns what restores it."""
    return _back_up_server(cluster.store_url) if cluster.store_url else _back_up_file(cluster.directory)


def _back_up_file(directory: Path) -> Restore:
    path, copy = directory / "esctld.db", directory / "backup"
    with closing(sqlite3.connect(path)) as live, closing(sqlite3.connect(copy)) as saved:
        live.backup(saved)

    def restore() -> None:
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        shutil.copyfile(copy, path)

    return restore


def _back_up_server(url: str) -> Restore:
    programs, name = postgres.programs(), urlsplit(url).path.lstrip("/")
    dump = subprocess.run(
        [programs / "pg_dump", "--format=custom", url], capture_output=True, check=True
    ).stdout

    def restore() -> None:
        server = postgres.shared_server()
        server.drop(name)
        server.execute("postgres", f"CREATE DATABASE {name}")
        subprocess.run(
            [programs / "pg_restore", "--exit-on-error", f"--dbname={url}"], input=dump, check=True
        )

    return restore


def stop(cluster: LiveCluster) -> None:
    """The first step: daemons and supervisors end, and with them what runs."""
    supervisors = [cluster.supervisor(agent) for agent in AGENTS]
    cluster.terminate("esctld", "sat0", *AGENTS)
    for pid in supervisors:
        end_process(pid, signal.SIGTERM, signal.SIGTERM)
    cluster.hang_up()


def forget_jobs(cluster: LiveCluster) -> None:
    """The third step."""
    for agent in AGENTS:
        directory = cluster.agent_dir(agent)
        shutil.rmtree(directory / "stepd")
        (agent_home(directory) / "agent.spool").unlink()


def test_the_cluster_goes_on_from_a_backup(cluster: LiveCluster) -> None:
    ended = cluster.wrap("true")
    assert cluster.end(ended) == "COMPLETED"
    again = cluster.wrap(f"{MARK}{GATE}", "-w", "cn0001", "--requeue")
    never = cluster.wrap(f"{MARK}{GATE}", "-w", "cn0002", "--no-requeue")
    held = cluster.wrap("true", "--hold")
    cluster.wait_lines("ran", 2)
    cluster.reaches(again, "RUNNING")
    cluster.reaches(never, "RUNNING")
    restore = back_up(cluster)
    # Known to nodes, and not to the backup: launches under ids that are given out again, and later leads.
    lost = [cluster.wrap("true", "-w", node) for node in cluster.node_names]
    assert cluster.ended(*lost) == ["COMPLETED", "COMPLETED"]
    for _ in range(2):
        cluster.kill("esctld")
        cluster.launch("esctld")
    cluster.wait_nodes(lambda nodes: all(node.state == "UP" for node in nodes.values()))
    runs_on = cluster.wrap("echo $$ >> lost; sleep 600", "-w", "cn0002")
    [pid] = cluster.wait_lines("lost")

    stop(cluster)
    assert not Path(f"/proc/{pid}").exists()
    restore()
    forget_jobs(cluster)
    cluster.launch("sat0")
    cluster.launch("esctld")
    cluster.do("esctl", "down", "cn[0001-0002]")
    for agent in AGENTS:
        cluster.launch(agent)
    cluster.wait_nodes(lambda nodes: all(node.state == "UP" for node in nodes.values()))

    assert cluster.end(never) == "NODE_FAIL"
    cluster.wait_lines("ran", 3)
    open_gate(cluster)
    assert cluster.end(again) == "COMPLETED"
    assert sorted(cluster.lines("ran")) == [f"{again}.0", f"{again}.1", f"{never}.0"]
    cluster.do("esctl", "release", str(held))
    assert cluster.end(held) == "COMPLETED"
    assert [run.state for run in cluster.runs(ended)] == ["COMPLETED"]
    # The ids of lost jobs are given out again, also on the nodes that had run them.
    anew = [cluster.wrap("true", "-w", node) for node in (*cluster.node_names, "cn0002")]
    assert anew == [*lost, runs_on]
    assert cluster.ended(*anew) == ["COMPLETED"] * 3
