"""A personal cluster with two controllers: commands, jobs and daemons find whichever leads, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from eslurm.store.stopped import write_lock_holders
from tests.integration.test_up import COMMAND_TIMEOUT_S, Cluster, cluster, read_from, reap, running
from tests.kits.cluster import POLL_S
from tests.kits.commands import BIN
from tests.support.postgres import database

__all__ = ["cluster"]


def leader(cluster: Cluster) -> str:
    """The controller that leads, as the cluster says."""
    answer = cluster("esinfo", "--controllers", "--json")
    assert answer.code == 0, answer.err
    return next(str(one["name"]) for one in json.loads(answer.out)["controllers"] if one["role"] == "leader")


def roles(cluster: Cluster) -> dict[str, str]:
    return {one["name"]: one["role"] for one in cluster.status()["daemons"] if one["kind"] == "esctld"}


def wait_roles(cluster: Cluster, **expected: str) -> None:
    """Wait until the leader is linked with the one that stands by."""
    wanted = {f"esctld{'' if name == 'main' else f'-{name}'}": role for name, role in expected.items()}
    deadline_s = time.monotonic() + COMMAND_TIMEOUT_S
    while (found := roles(cluster)) != wanted:
        assert time.monotonic() < deadline_s, found
        time.sleep(POLL_S)


def sockets(cluster: Cluster) -> list[str]:
    found: list[str] = cluster.status()["sockets"]
    return found


def kill(cluster: Cluster, name: str) -> None:
    pid = cluster.pid_of(name)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def stop_while_it_commits(pid: int, database: Path) -> None:
    """Stop a child that has just taken the database's write lock, until it has it then as well.

    It goes on in between for as long as it likes: one that was stopped all the time would lose the lead.
    """
    deadline_s = time.monotonic() + COMMAND_TIMEOUT_S
    while True:
        while pid not in write_lock_holders(str(database)):
            assert time.monotonic() < deadline_s, "it never commits"
        os.kill(pid, signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
        if pid in write_lock_holders(str(database)):
            return
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
def test_it_is_handed_over_and_back_and_every_socket_serves(cluster: Cluster) -> None:
    cluster.up("--controllers", "2")
    first, second = sockets(cluster)
    wait_roles(cluster, main="leader", c2="standby")
    answer = cluster("esctl", "takeover", "c2", "--json")
    assert answer.code == 0, answer.err
    told = json.loads(answer.out)
    assert (told["from"], told["to"]) == ("main", "c2")
    assert told["epoch"] > told["epoch_before"]
    wait_roles(cluster, main="standby", c2="leader")
    for socket in (first, second):
        answer = cluster("essubmit", "--socket", socket, "--wait", "-Q", "--wrap", "true")
        assert answer.code == 0, answer.err

    answer = cluster("esctl", "takeover")
    assert answer.code == 0, answer.err
    assert answer.out.startswith("main leads now")
    for socket in (first, second):
        answer = cluster("essubmit", "--socket", socket, "--wait", "-Q", "--wrap", "true")
        assert answer.code == 0, answer.err
    assert len(json.loads(cluster("esacct", "--json").out)["attempts"]) == 4


@pytest.mark.slow
def test_jobs_and_waiting_commands_outlive_the_leader(cluster: Cluster) -> None:
    """`essubmit --wait`, and `esrun` in a job, are under way while the leader is killed."""
    cluster.up("--controllers", "2")
    started, go, done = cluster.fifo("started"), cluster.fifo("go"), cluster.fifo("done")
    script = (
        f"PATH={BIN}:$PATH; echo > {started}; read word < {go}; esrun sh -c 'echo $0' ran > {done}; exit 7"
    )
    with running(cluster, "essubmit", "--wait", "--wrap", script) as waiting:
        read_from(started)
        kill(cluster, "esctld")
        go.write_text("onward\n")
        assert read_from(done) == "ran"
        _, told = waiting.communicate(timeout=COMMAND_TIMEOUT_S)
    assert waiting.returncode == 7, told
    assert leader(cluster) == "c2"
    assert cluster("eslurm", "status").code == 1
    # A killed daemon's socket file is still there.
    cluster.finish("true")

    cluster.up("--controllers", "2")
    wait_roles(cluster, main="standby", c2="leader")
    rows = json.loads(cluster("esacct", "--json").out)["attempts"]
    assert [(row["attempt"], row["exit_code"]) for row in rows] == [(1, 7), (1, 0)]


@pytest.mark.slow
def test_a_controller_fails_by_name_and_is_healed(cluster: Cluster) -> None:
    cluster.up("--controllers", "2")
    answer = cluster("eslurm", "chaos", "kill", "main", "--json")
    assert answer.code == 0, answer.err
    assert [(one["mode"], one["controller"]) for one in json.loads(answer.out)["failed"]] == [
        ("dead", "main")
    ]
    cluster.finish("true")
    assert cluster("eslurm", "chaos", "heal").code == 0
    assert cluster("eslurm", "status").code == 0
    answer = cluster("eslurm", "down")
    assert answer.code == 0, answer.err
    assert reap(cluster.others) == []


@pytest.mark.slow
def test_a_leader_that_was_paused_does_no_harm_and_is_healed(cluster: Cluster) -> None:
    """The first socket is the paused one's: it takes connections and says nothing."""
    cluster.up("--controllers", "2")
    cluster.finish("echo 1 >> ran")
    assert cluster("eslurm", "chaos", "hang", "main").code == 0
    cluster.finish("echo 2 >> ran")
    assert leader(cluster) == "c2"

    answer = cluster("eslurm", "chaos", "heal", "main")
    assert answer.code == 0, answer.err
    assert "esctld is ready again" in answer.err
    wait_roles(cluster, main="standby", c2="leader")
    cluster.finish("echo 3 >> ran")
    assert (cluster.work / "ran").read_text() == "1\n2\n3\n"


@pytest.mark.slow
def test_a_leader_that_was_paused_in_the_middle_of_a_commit_is_followed_all_the_same(
    cluster: Cluster,
) -> None:
    """It takes the lock of the SQLite file along: whoever follows has to end it."""
    cluster.up("--controllers", "2")
    cluster.finish("echo 1 >> ran")
    pid = cluster.pid_of("esctld")
    stop_while_it_commits(pid, cluster.store)
    cluster.finish("echo 2 >> ran")
    assert leader(cluster) == "c2"
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL

    answer = cluster("eslurm", "chaos", "heal", "main")
    assert answer.code == 0, answer.err
    assert "esctld is ready again" in answer.err
    wait_roles(cluster, main="standby", c2="leader")
    cluster.finish("echo 3 >> ran")
    assert (cluster.work / "ran").read_text() == "1\n2\n3\n"


@pytest.mark.slow
def test_two_controllers_on_postgresql(cluster: Cluster) -> None:
    with database() as url:
        cluster.up("--controllers", "2", "--store", url)
        cluster.finish("true")
        kill(cluster, "esctld")
        cluster.finish("true")
        assert leader(cluster) == "c2"
        assert len(json.loads(cluster("esacct", "--json").out)["attempts"]) == 2
        assert cluster("eslurm", "down").code == 0
