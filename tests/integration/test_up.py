"""A personal cluster with real daemons: jobs across `down` and `up`, daemons that die, nothing left behind.

The test adopts every orphan, so a daemon, step supervisor or job that outlives its cluster is found.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kits.commands import environment, main_of
from tests.support import process
from tests.support.leaks import kept_children

COMMAND_TIMEOUT_S = 100.0
PROGRAM = """
import importlib, sys
try:
    from escli.commands import MODULES
except ImportError:
    MODULES = {}  # a release whose commands all lie in one room
command = sys.argv.pop(1)
sys.exit(importlib.import_module(MODULES.get(command, "escli." + command)).main())
"""
"""Runs a command of the sources that come first in the path."""


class Answer(NamedTuple):
    code: int
    out: str
    err: str


class Cluster:
    """The commands of one user on one state directory; files of jobs go to `work`."""

    def __init__(self, state_dir: Path) -> None:
        # Agents that root starts are of another user.
        state_dir.chmod(0o711)
        self.directory = state_dir / "c"
        self.work = state_dir / "work"
        self.work.mkdir()
        self.others: frozenset[int] = frozenset()
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("ESLURM", "SLURM"))
        } | {"ESLURM_STATE_DIR": str(self.directory)}

    def __call__(self, command: str, *words: str) -> Answer:
        done = subprocess.run(
            self.words(command, *words),
            cwd=self.work,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def words(self, command: str, *words: str) -> list[str]:
        return [sys.executable, "-c", PROGRAM, command, *words]

    def up(self, *words: str) -> Answer:
        answer = self("eslurm", "up", "--detach", "-n", "2", "--cores", "2", "--allow-root-jobs", *words)
        assert answer.code == 0, answer.err
        return answer

    @property
    def store(self) -> Path:
        """The controllers' database; theirs is a directory of their own when root has started them."""
        home = self.directory / "controller" if os.geteuid() == 0 else self.directory
        return home / "esctld.db"

    def submit(self, script: str, *words: str) -> int:
        answer = self("essubmit", "--parsable", *words, "--wrap", script)
        assert answer.code == 0, answer.err
        return int(answer.out)

    def finish(self, script: str) -> Answer:
        """Run a short job to its end."""
        answer = self("essubmit", "--wait", "--wrap", script)
        assert answer.code == 0, answer.err
        return answer

    def jobs(self) -> dict[int, dict[str, Any]]:
        """The jobs in the queue."""
        answer = self("esqueue", "--json")
        assert answer.code == 0, answer.err
        return {job["job_id"]: job for job in json.loads(answer.out)["jobs"]}

    def status(self) -> dict[str, Any]:
        """The answer of `eslurm status`, within this process: tests look until it says what they wait for."""
        out = io.StringIO()
        with environment({"ESLURM_STATE_DIR": str(self.directory)}), contextlib.redirect_stdout(out):
            main_of("eslurm")(["status", "--json"])
        status: dict[str, Any] = json.loads(out.getvalue())
        return status

    def pid_of(self, name: str) -> int:
        return next(int(daemon["pid"]) for daemon in self.status()["daemons"] if daemon["name"] == name)

    def fifo(self, name: str) -> Path:
        """A named pipe in the jobs' directory: a job says through it that it has come to some point."""
        path = self.work / name
        os.mkfifo(path)
        return path


@contextmanager
def running(cluster: Cluster, command: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on beside the test."""
    with subprocess.Popen(
        cluster.words(command, *words),
        cwd=cluster.work,
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def reap(before: frozenset[int] = frozenset()) -> list[process.Child]:
    """Reap the ended among the adopted processes; the others, except those that were there `before`."""
    left = []
    for child in process.children():
        if child.pid in before or child.pid in kept_children:
            continue
        if child.ended:
            os.waitpid(child.pid, 0)
        else:
            left.append(child)
    return left


@pytest.fixture
def cluster(state_dir: Path, adopt_orphans: None) -> Iterator[Cluster]:
    cluster = Cluster(state_dir)
    cluster.others = frozenset(child.pid for child in process.children())
    yield cluster
    answer = cluster("eslurm", "down", "--purge")
    assert answer.code == 0, answer.err
    assert not cluster.directory.exists()
    assert reap(cluster.others) == []


def read_from(path: Path) -> str:
    """The next words from a named pipe, once they are there."""
    with path.open() as file:
        return file.read().strip()


def test_a_job_runs_and_is_accounted(cluster: Cluster) -> None:
    cluster.up()

    cluster.finish("echo here > result")

    assert (cluster.work / "result").read_text() == "here\n"
    assert "COMPLETED" in cluster("esacct").out
    assert cluster("eslurm", "status").code == 0


def test_waiting_jobs_run_after_down_and_up(cluster: Cluster) -> None:
    cluster.up()
    done = cluster.fifo("done")
    held = cluster.submit(f"echo ran > {done}", "--hold")
    assert cluster("eslurm", "down").code == 0
    assert reap(cluster.others) == []

    cluster.up()

    assert cluster.jobs()[held]["state"] == "PENDING"
    assert cluster("esctl", "release", str(held)).code == 0
    assert read_from(done) == "ran"


def test_running_jobs_are_ended_by_down_and_start_anew(cluster: Cluster) -> None:
    cluster.up()
    started = cluster.fifo("started")
    job = cluster.submit(f"echo $SLURM_RESTART_COUNT. > {started}; sleep 600", "--requeue")
    assert read_from(started)

    answer = cluster("eslurm", "down")

    assert answer.code == 0, answer.err
    assert "ending 1 running job" in answer.err
    assert reap(cluster.others) == []
    cluster.up()
    assert read_from(started)
    assert cluster.jobs()[job]["attempts"] == 2


def test_kept_jobs_run_on_and_are_adopted(cluster: Cluster) -> None:
    cluster.up()
    started, go, done = cluster.fifo("started"), cluster.fifo("go"), cluster.fifo("done")
    job = cluster.submit(f"echo $$ > {started}; read word < {go}; echo $word > {done}")
    pid = int(read_from(started))
    answer = cluster("eslurm", "down", "--keep-jobs")
    assert "1 running job left running" in answer.err
    os.kill(pid, 0)

    cluster.up()

    assert cluster.jobs()[job]["state"] == "RUNNING"
    go.write_text("onward\n")
    assert read_from(done) == "onward"
    cluster.finish("true")
    rows = cluster("esacct", "-j", str(job), "--json").out
    assert [(row["attempt"], row["state"]) for row in json.loads(rows)["attempts"]] == [(1, "COMPLETED")]


def test_down_ends_processes_that_hide_from_their_job(cluster: Cluster) -> None:
    cluster.up()
    started = cluster.fifo("started")
    cluster.submit(f"setsid sh -c 'trap \"\" TERM; echo $$ > {started}; sleep 600' & wait")
    pidfd = os.pidfd_open(int(read_from(started)))
    try:
        assert cluster("eslurm", "down").code == 0
        assert select.select([pidfd], [], [], 0)[0] == [pidfd]
    finally:
        os.close(pidfd)
    assert reap(cluster.others) == []


def test_a_dead_daemon_is_seen_and_replaced(cluster: Cluster) -> None:
    cluster.up()
    pid = cluster.pid_of("sat1")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert cluster("eslurm", "status").code == 1

    cluster.up()

    assert cluster.pid_of("sat1") != pid
    assert cluster("eslurm", "status").code == 0
    cluster.finish("true")


@pytest.mark.parametrize("controllers", [1, 2])
def test_the_foreground_restarts_daemons_and_ends_with_ctrl_c(cluster: Cluster, controllers: int) -> None:
    with running(
        cluster, "eslurm", "up", "-n", "2", "--allow-root-jobs", "--controllers", str(controllers)
    ) as foreground:
        assert foreground.stdout is not None
        assert foreground.stderr is not None
        assert "is up" in foreground.stdout.readline()
        os.kill(cluster.pid_of("esctld"), signal.SIGKILL)
        told = ""
        while "esctld is ready again" not in told:
            told = foreground.stderr.readline()
            assert told
        cluster.finish("true")
        foreground.send_signal(signal.SIGINT)
        _, rest = foreground.communicate(timeout=COMMAND_TIMEOUT_S)
    assert foreground.returncode == 0
    assert f"The cluster is down ({controllers + 5} daemons" in rest
    assert reap(cluster.others) == []
