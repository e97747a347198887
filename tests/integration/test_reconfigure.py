"""A running cluster whose configuration changes: nodes and partitions come and go without a restart, and stay after one.

Method: real processes; the controller's file is written anew and read again by a command or a signal, agents are started
for new nodes, the leader is killed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import made
from tests.kits.cluster import LiveCluster
from tests.kits.commands import Ran

OWN_FILE = "c2.toml"


class Changing(LiveCluster):
    """A cluster whose file is changed; the second of two controllers has a file of its own."""

    def add_daemon(self, name: str, *words: str) -> None:
        if name == "esctld-c2":
            self.copy_file()
            own = str(self.directory / OWN_FILE)
            words = tuple(own if word.endswith("eslurm.toml") else word for word in words)
        super().add_daemon(name, *words)

    @property
    def file(self) -> Path:
        return self.directory / "eslurm.toml"

    def copy_file(self) -> None:
        shutil.copyfile(self.file, self.directory / OWN_FILE)
        (self.directory / OWN_FILE).chmod(0o600)

    def change(self, *pairs: tuple[str, str], end: str = "") -> None:
        """The file with these texts replaced, and some more at its end."""
        text = self.file.read_text()
        for before, after in pairs:
            assert before in text, before
            text = text.replace(before, after)
        new = self.file.with_suffix(".new")
        new.write_text(text + end)
        os.replace(new, self.file)

    def reconfigure(self, *words: str) -> Ran:
        return self.run("esctl", "reconfigure", *words)

    def comes(self, name: str) -> None:
        self.wait_nodes(lambda nodes: name in nodes and nodes[name].state == "UP")

    def run_on(self, name: str) -> None:
        """A job runs on this node."""
        job = self.wrap("true", "-w", name)
        assert self.end(job) == "COMPLETED"
        assert self.only_run(job).node_names == name


@pytest.fixture(scope="module")
def changing_cluster() -> Iterator[Changing]:
    with made(Changing, nodes=2, agents=1, satellites=1) as cluster:
        yield cluster


@pytest.fixture
def cluster(changing_cluster: Changing) -> Iterator[Changing]:
    """The module's cluster with the file of its start in force before and after."""
    before = changing_cluster.file.read_bytes()
    yield changing_cluster
    changing_cluster.clear()
    changing_cluster.file.write_bytes(before)
    for name in list(changing_cluster.nodes()):
        if name not in changing_cluster.node_names:
            changing_cluster.do("esctl", "drain", name, "reason=over")
    changing_cluster.do("esctl", "reconfigure")
    for name in [one for one in changing_cluster.daemons if one.startswith("added")]:
        if changing_cluster.daemons[name].process is not None:
            changing_cluster.terminate(name)
        del changing_cluster.daemons[name]
    changing_cluster.hang_up()


NODES = 'names = "cn[0001-0002]"'


def test_a_node_is_added_runs_jobs_and_is_there_after_the_controller_was_killed(cluster: Changing) -> None:
    cluster.change((NODES, 'names = "cn[0001-0003]"'))
    trial = cluster.reconfigure("--dry-run")
    assert trial.code == 0 and "node cn0003: added" in trial.out and "cn0003" not in cluster.nodes()
    ran = cluster.reconfigure()
    assert ran == Ran(0, "node cn0003: added\npartition main: nodes added: cn0003\n", "")
    cluster.add_agent("added3", "cn0003")
    cluster.launch("added3")
    cluster.comes("cn0003")
    cluster.run_on("cn0003")
    job = cluster.wrap("sleep 3", "-w", "cn0003")
    cluster.reaches(job, "RUNNING")
    cluster.kill("esctld")
    cluster.launch("esctld")
    assert cluster.end(job) == "COMPLETED"
    cluster.comes("cn0003")
    cluster.run_on("cn0003")
    assert cluster.reconfigure() == Ran(0, "nothing has changed\n", "")


def test_a_node_whose_agent_was_there_first_comes_and_goes(cluster: Changing) -> None:
    cluster.add_agent("added4", "cn0004")
    cluster.daemons["added4"].spawn()
    cluster.change((NODES, 'names = "cn[0001-0002],cn0004"'))
    assert "node cn0004: added" in cluster.reconfigure().out
    cluster.comes("cn0004")
    job = cluster.wrap("sleep 60", "-w", "cn0004")
    cluster.reaches(job, "RUNNING")
    cluster.change(('names = "cn[0001-0002],cn0004"', NODES))
    ran = cluster.reconfigure()
    assert ran.code != 0 and f"node cn0004: job {job} is on it: drain it" in ran.err
    assert "nothing has changed" in ran.err
    cluster.do("esctl", "drain", "cn0004", "reason=removed")
    cluster.do("escancel", str(job))
    cluster.ended(job)
    cluster.wait_idle()
    ran = cluster.reconfigure("--json")
    assert json.loads(ran.out)["changed"] == ["node cn0004: removed", "partition main: nodes removed: cn0004"]
    assert "cn0004" not in cluster.nodes()
    # Its agent is still there; nothing of it disturbs the others.
    cluster.run_on("cn0001")
    cluster.kill("esctld")
    cluster.launch("esctld")
    cluster.comes("cn0001")
    assert "cn0004" not in cluster.nodes()
    # Added once more it is a new node; its agent, started anew, has the files of the old one.
    cluster.change((NODES, 'names = "cn[0001-0002],cn0004"'))
    assert "node cn0004: added" in cluster.reconfigure().out
    cluster.terminate("added4")
    cluster.launch("added4")
    cluster.comes("cn0004")
    cluster.run_on("cn0004")


def test_partitions_come_by_a_signal_and_go_when_they_are_empty(cluster: Changing) -> None:
    cluster.change(end='[[partition]]\nname = "debug"\nnodes = "cn0002"\ntime_limit_max_s = 120\n')
    cluster.daemons["esctld"].send(signal.SIGHUP)
    cluster.until(lambda: "debug" in partitions(cluster), "the new partition")
    assert partitions(cluster)["debug"].time_limit_max_s == 120
    job = cluster.wrap("sleep 60", "-p", "debug")
    cluster.reaches(job, "RUNNING")
    waiting = cluster.wrap("true", "-p", "debug", "--hold")
    cluster.change(("time_limit_max_s = 120", "time_limit_max_s = 60\nup = false"))
    assert "partition debug: up true -> false, time_limit_max_s 120 -> 60" in cluster.reconfigure().out
    text = cluster.file.read_text()
    cluster.file.write_text(text[: text.index('[[partition]]\nname = "debug"')])
    ran = cluster.reconfigure()
    assert f"partition debug: jobs {job}, {waiting} are in it" in ran.err and "debug" in partitions(cluster)
    cluster.do("escancel", str(job), str(waiting))
    cluster.ended(job, waiting)
    assert cluster.reconfigure().out == "partition debug: removed\n"
    refused = cluster.run("essubmit", "-p", "debug", "--wrap", "true")
    assert refused.code != 0 and "debug" in refused.err


def test_a_broken_file_changes_nothing(cluster: Changing) -> None:
    good = cluster.file.read_text()
    cases: Sequence[tuple[str, str]] = (
        (good.replace("cores = 4", "cores = -4"), "cores"),
        (good + "[policy2]\n", "policy2"),
        (good.replace('"cn0001"', '"cn0009"'), "partition.nodes: 'cn0009'"),
        (good.replace(NODES, 'names = "cn[0001-"'), "nodes.names"),
    )
    for text, said in cases:
        assert text != good
        cluster.file.write_text(text)
        ran = cluster.reconfigure()
        assert ran.code != 0 and said in ran.err and str(cluster.file) in ran.err, ran
    assert set(cluster.nodes()) == set(cluster.node_names)
    # A controller that is asked by a signal says it in its log, and leads on.
    cluster.daemons["esctld"].send(signal.SIGHUP)
    cluster.until(lambda: "nothing has changed" in cluster.daemons["esctld"].tail(), "the line in the log")
    cluster.run_on("cn0001")


def test_a_standby_with_the_file_of_before_says_so_and_does_not_bring_it_back(state_dir: Path) -> None:
    with made(Changing, nodes=2, agents=1, satellites=0, controllers=2) as pair:
        pair.wait_standbys()
        pair.change((NODES, 'names = "cn[0001-0003]"'))
        ran = pair.reconfigure()
        assert "node cn0003: added" in ran.out and "standby c2: give its host the same file" in ran.out
        pair.until(lambda: of_standby(pair).configuration, "the standby sees that its file is older")
        assert "is older than the one in force" in pair.run("esinfo", "--controllers").out
        pair.add_agent("added3", "cn0003")
        pair.launch("added3")
        pair.comes("cn0003")
        pair.kill("esctld")
        pair.until(lambda: pair.leader() == "c2", "the standby leads")
        pair.socket = pair.sockets[1]
        pair.comes("cn0003")
        pair.run_on("cn0003")
        assert "stays in force" in pair.daemons["esctld-c2"].log.read_text()
        pair.copy_file()
        assert pair.reconfigure() == Ran(0, "nothing has changed\n", "")


def of_standby(cluster: LiveCluster) -> Any:
    [found] = [one for one in cluster.controller_infos() if one.role == "standby"]
    return found


def partitions(cluster: LiveCluster) -> dict[str, Any]:
    from eslurm.v1 import controller_pb2 as pb

    return {one.name: one for one in cluster.call("Nodes", pb.NodesRequest()).partitions}
