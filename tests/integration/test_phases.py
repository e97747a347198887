"""Prolog and epilog of nodes with real processes: what fails, what is repeated elsewhere, and what a crash leaves."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.conftest import running
from tests.integration.test_metrics import value_of
from tests.integration.test_steps import door
from tests.kits.cluster import LiveCluster, is_alive
from tests.kits.stepd import end_process

NODES = ("cn0001", "cn0002")


class Site:
    """Two nodes, each with an agent and the same programs. What these write is below the cluster's directory."""

    def __init__(self, cluster: LiveCluster) -> None:
        self.cluster = cluster
        self.told = cluster.directory / "told"
        self.told.mkdir()
        self.told.chmod(0o777)

    def configure(self, **programs: str) -> None:
        """Programs by their options, as shell text; the agents are started with them."""
        for name, text in programs.items():
            path = self.cluster.directory / name
            path.write_text(f"#!/bin/sh\ncd {self.told} || exit 99\n{text}\n")
            path.chmod(0o755)
            for agent in ("agent0", "agent1"):
                self.cluster.daemons[agent].words += [f"--{name.replace('_', '-')}", str(path)]

    def start(self) -> None:
        """Start the agents again: until a node has registered anew, the controller knows nothing of its programs."""
        self.cluster.start()
        self.cluster.wait_nodes(lambda nodes: all(node.incarnation > 1 for node in nodes.values()))

    def lines(self, name: str) -> list[str]:
        path = self.told / name
        return path.read_text().splitlines() if path.exists() else []

    def until(self, look: Callable[[], object], what: str) -> None:
        self.cluster.until(lambda: look() or None, what)

    def gate(self, name: str) -> Path:
        """A FIFO that a program waits at."""
        os.mkfifo(self.told / name)
        (self.told / name).chmod(0o666)
        return self.told / name


@contextmanager
def site() -> Iterator[Site]:
    with running(nodes=2, agents=2, satellites=1) as cluster:
        cluster.terminate("agent0", "agent1")
        yield Site(cluster)


@pytest.fixture
def opened() -> Iterator[Site]:
    with site() as made:
        yield made


RECORD = 'echo "$SLURM_JOB_ID $SLURMD_NODENAME" >> {}'
IS_FIRST = 'mkdir first 2>/dev/null && echo $SLURMD_NODENAME > first/name; test "$(cat first/name)" = $SLURMD_NODENAME'
"""Check whether this is the node on which the program has run first."""


def test_a_failing_prolog_moves_the_job_and_the_node_returns_when_its_check_passes(opened: Site) -> None:
    cluster = opened.cluster
    gate = opened.gate("gate")
    opened.configure(
        prolog=f"{RECORD.format('prologs')}\nif {IS_FIRST} && ! test -e good; then echo no disk; exit 3; fi",
        check="echo $SLURMD_NODENAME >> checks; read line < gate",
    )
    opened.start()
    moved = cluster.wrap("echo $SLURMD_NODENAME > node", "-D", str(cluster.work))
    assert cluster.end(moved) == "COMPLETED"
    (sick,) = opened.lines("first/name")
    (sound,) = set(NODES) - {sick}
    assert cluster.lines("node") == [sound]
    assert opened.lines("prologs") == [f"{moved} {sick}", f"{moved} {sound}"]
    wanted = cluster.wrap("true", "-w", sick)
    # A check that is lost is repeated after CHECK_EVERY_US.
    cluster.until(lambda: opened.lines("checks"), "the check runs", 90.0)
    (fault,) = cluster.nodes()[sick].faults
    assert "prolog" in fault and "no disk" in fault
    assert cluster.job(wanted).state == "PENDING"
    (opened.told / "good").touch()
    gate.write_text("go\n")
    assert cluster.end(wanted) == "COMPLETED"
    assert opened.lines("checks") == [sick] and not cluster.nodes()[sick].faults


def test_all_nodes_are_prepared_before_the_script_and_cleaned_up_after_it(opened: Site) -> None:
    cluster = opened.cluster
    # One for each node: where two read, the end of one writer ends both.
    gates = {name: opened.gate(f"gate.{name}") for name in NODES}
    opened.configure(
        prolog=RECORD.format("prologs"),
        epilog=f"echo $SLURM_JOB_EXIT_CODE2 >> codes; {RECORD.format('epilogs')}; read line < gate.$SLURMD_NODENAME",
    )
    opened.start()
    job = cluster.wrap(f"cp {opened.told}/prologs {cluster.work}/seen; exit 3", "-N2")
    opened.until(lambda: len(opened.lines("epilogs")) == 2, "the epilogs run")
    assert sorted(cluster.lines("seen")) == [f"{job} {name}" for name in NODES]
    # Its end is known, its nodes are not free.
    info = cluster.reaches(job, "COMPLETING")
    assert info.exit_code == 3
    waits = cluster.wrap("true")
    for gate in gates.values():
        gate.write_text("go\n")
    assert cluster.end(job) == "FAILED"
    gates[cluster.reaches(waits, "COMPLETING").node_names].write_text("go\n")
    assert cluster.end(waits) == "COMPLETED"
    # The node of the script knows how it ended.
    assert sorted(opened.lines("codes")) == ["", "0:0", "3:0"]
    assert len(opened.lines("prologs")) == len(opened.lines("epilogs")) == 3


def test_a_failing_epilog_takes_the_node_out_and_leaves_the_job_s_end_alone(opened: Site) -> None:
    cluster = opened.cluster
    opened.configure(epilog="echo cannot clean up; exit 1")
    opened.start()
    job = cluster.wrap("exit 0", "-w", "cn0001")
    assert cluster.end(job) == "COMPLETED"
    opened.until(lambda: cluster.nodes()["cn0001"].faults, "the node has a fault")
    (fault,) = cluster.nodes()["cn0001"].faults
    assert "epilog" in fault and "cannot clean up" in fault


@pytest.mark.parametrize("victim", ["agent", "supervisor"])
def test_after_a_crash_inside_a_prolog_it_is_not_run_again_there_and_the_job_runs_once(
    opened: Site, victim: str
) -> None:
    cluster = opened.cluster
    gate = opened.gate("gate")
    opened.configure(prolog=f"{RECORD.format('prologs')}\nif {IS_FIRST}; then read line < gate; fi")
    opened.start()
    job = cluster.wrap(f"echo $SLURMD_NODENAME >> {opened.told}/ran")
    opened.until(lambda: opened.lines("prologs") and opened.lines("first/name"), "the prolog runs")
    (first,) = opened.lines("first/name")
    (other,) = set(NODES) - {first}
    assert cluster.job(job).state == "LAUNCHING"
    agent = f"agent{NODES.index(first)}"
    if victim == "agent":
        cluster.kill(agent)
        cluster.start()
        gate.write_text("go\n")
        expected = [first]
    else:
        end_process(cluster.supervisor(agent), signal.SIGKILL)
        expected = [first, other]
    assert cluster.end(job) == "COMPLETED"
    assert opened.lines("prologs") == [f"{job} {name}" for name in expected]
    assert opened.lines("ran") == expected[-1:]


def test_a_task_prolog_changes_the_environment_of_tasks_and_stops_those_for_which_it_fails(
    opened: Site,
) -> None:
    cluster = opened.cluster
    opened.configure(
        task_prolog=(
            'test "$MODE" = bad && { echo no licence >&2; exit 4; }\n'
            "echo export ADDED=$SLURM_PROCID; echo unset REMOVED; echo print prepared"
        )
    )
    opened.start()
    text = (
        f"{door(cluster)}export REMOVED=x KEPT=y\nesrun -n2 sh -c 'echo $ADDED-$REMOVED-$KEPT' > good\n"
        f"MODE=bad esrun -n1 touch {cluster.work}/touched 2> bad\n"
    )
    assert cluster.end(cluster.submit("-n2", cluster.script("steps", text))) == "FAILED"
    assert sorted(cluster.lines("good")) == ["0--y", "1--y", "prepared", "prepared"]
    said = "\n".join(cluster.lines("bad"))
    assert "failed: exit code 4" in said and not (cluster.work / "touched").exists()


def test_a_task_epilog_follows_each_task_and_changes_nothing_of_its_end(opened: Site) -> None:
    cluster = opened.cluster
    opened.configure(
        task_epilog=(
            'echo "$SLURM_PROCID $ESLURM_TASK_EXIT_CODE $SLURM_SCRIPT_CONTEXT $KEPT $(id -u)" >> epilogs\n'
            'test -n "$SLURM_TASK_PID" || touch nobody; echo cannot clean up; exit 7'
        )
    )
    opened.start()
    text = (
        f"{door(cluster)}export KEPT=y\nesrun -n2 sh -c 'exit $SLURM_PROCID' 2> said; echo $? > codes\n"
        # A step ends when the epilogs of its tasks have ended.
        f"sort {opened.told}/epilogs > seen; rm {opened.told}/epilogs\n"
        f"esrun -n1 sh -c 'kill -9 $$' 2>> said; echo $? >> codes\n"
        f"cat {opened.told}/epilogs >> seen\nesrun -n1 /nowhere/program 2>> said; echo $? >> codes\nexit 0\n"
    )
    job = cluster.submit("-n2", cluster.script("steps", text))
    assert cluster.end(job) == "COMPLETED"
    assert cluster.lines("codes") == ["1", "137", "1"]
    uid = os.getuid()
    assert cluster.lines("seen") == [
        f"0 0:0 epilog_task y {uid}",
        f"1 1:0 epilog_task y {uid}",
        f"0 0:9 epilog_task y {uid}",
    ]
    # None follows a task that never ran; what an epilog prints is not the task's.
    assert len(opened.lines("epilogs")) == 1 and not opened.lines("nobody")
    assert "cannot clean up" not in "\n".join(cluster.lines("said"))


def test_the_epilogs_of_cancelled_tasks_run_within_the_grace_and_end_with_their_step(opened: Site) -> None:
    cluster = opened.cluster
    opened.gate("never")
    opened.configure(
        task_epilog='echo "$$ $SLURM_PROCID $ESLURM_TASK_EXIT_CODE" >> epilogs; read line < never'
    )
    opened.start()
    text = f"{door(cluster)}esrun -n2 sh -c 'echo here >> {opened.told}/begun; exec sleep 600'\n"
    job = cluster.submit("-n2", cluster.script("steps", text))
    opened.until(lambda: len(opened.lines("begun")) == 2, "the tasks run")
    cluster.run("escancel", str(job))
    assert cluster.end(job) == "CANCELLED"
    pids, ranks, ends = zip(*[line.split() for line in opened.lines("epilogs")], strict=True)
    assert sorted(ranks) == ["0", "1"] and set(ends) == {"0:15"}
    assert not [pid for pid in pids if is_alive(int(pid))]


def test_phases_of_nodes_are_timed_and_their_failures_counted() -> None:
    with running(nodes=2, agents=2, satellites=1, is_watched=True) as cluster:
        cluster.terminate("agent0", "agent1")
        site = Site(cluster)
        site.configure(prolog=f"if {IS_FIRST}; then exit 3; fi", epilog="exit 0")
        site.start()
        assert cluster.end(cluster.wrap("true")) == "COMPLETED"

        def told(name: str, phase: str) -> float | None:
            return value_of(cluster, "esctld", f"eslurm_phase_{name}", phase=phase)

        site.until(lambda: told("seconds_count", "node_epilog") == 1, "the epilog is counted")
        assert told("seconds_count", "node_prolog") == 2 and (told("seconds_sum", "node_prolog") or 0) > 0
        assert told("failures_total", "node_prolog") == 1 and told("failures_total", "node_epilog") == 0
