"""Ways to take a cluster's job store away for a while, users who submit all the time, and what they must see meanwhile.

Invariant: an outage ends with its `with`, whatever happens in it; a job is counted as run by what its own script wrote.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from eslurm.api.methods import SUBMIT
from eslurm.api.unix_client import Client
from eslurm.ports.api import ApiRefused, ApiUnreachable, Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import PATIENCE_S
from tests.kits.submitters import Submitters
from tests.support import postgres

BACK_MAX_S = 30.0
"""Far above what it takes on a busy machine, far below any patience: nobody waits for a time-out."""
SHAPE: dict[str, Any] = {"nodes": 4, "agents": 1, "satellites": 1}


class Users(Submitters):
    """Eight users who submit whenever the cluster lets them."""

    def __init__(self, cluster: LiveCluster) -> None:
        super().__init__(str(cluster.socket), cluster.work, threads=8, pause_s=0.02)
        self._cluster = cluster

    def wait_more(self, count: int) -> None:
        """Wait until so many more were accepted."""
        goal = len(self.acknowledged) + count
        enough = f"{count} more submissions"
        self._cluster.until(lambda: len(self.acknowledged) >= goal or self.failures, enough)
        assert not self.failures, self.failures


class Gated:
    """A job that runs until it is let go."""

    def __init__(self, cluster: LiveCluster, name: str, code: int) -> None:
        self._cluster = cluster
        self._gate = cluster.work / f"{name}.gate"
        self._name = name
        os.mkfifo(self._gate)
        lines = cluster.work / name
        self.job_id = cluster.wrap(
            f"echo begun >> {lines}; read go < {self._gate}; echo over >> {lines}; exit {code}"
        )
        cluster.wait_lines(name)

    def let_go(self) -> None:
        """Returns when its script is at its end."""
        self._gate.write_text("go\n")
        self._cluster.wait_lines(self._name, 2)

    def check(self, state: str, code: int) -> None:
        """It ran once, and that is what the cluster says."""
        run = self._cluster.only_run(self.job_id)
        assert (run.state, run.exit_code) == (state, code)
        assert self._cluster.lines(self._name) == ["begun", "over"]


def submission(cluster: LiveCluster, padding: str = "") -> pb.SubmitRequest:
    """A job that leaves a line in `tried`; its script is longer by the padding."""
    need = pb.ResourceRequest(tasks=1, cpus_per_task=1)
    script = f"#!/bin/sh\necho $SLURM_JOB_ID >>{cluster.work}/tried\n#{padding}\n"
    job = pb.JobRequest(
        name="try", components=[need], script=script.encode(), work_dir=str(cluster.work), output="/dev/null"
    )
    return pb.SubmitRequest(jobs=[job])


def refusal(cluster: LiveCluster, timeout_s: float, padding: str = "") -> ApiRefused | None:
    """Why a submission is refused now, None when it is not."""
    with Client(str(cluster.socket), timeout_s) as client:
        try:
            client.call(SUBMIT, submission(cluster, padding), timeout_s)
        except ApiRefused as refused:
            return refused
        except ApiUnreachable:
            return None
    return None


def check_refused(cluster: LiveCluster) -> None:
    """Wait until submissions are refused, and see that all else is answered from memory."""
    refused = cluster.until(lambda: refusal(cluster, 0.2), "submissions are refused")
    assert refused.status is Status.UNAVAILABLE
    assert "job store" in refused.text and "try again" in refused.text
    # The outage goes on meanwhile: whoever waited for the store would wait until these give up.
    for command in (["esqueue"], ["esinfo"], ["esctl", "show", "nodes"]):
        cluster.do(*command)


def check_back(cluster: LiveCluster, ended_s: float) -> None:
    """A submission is accepted soon after the outage's end."""
    with Client(str(cluster.socket), PATIENCE_S) as client:
        client.call(SUBMIT, submission(cluster), PATIENCE_S)
    assert time.monotonic() - ended_s < BACK_MAX_S


def check_each_ran_once(cluster: LiveCluster, users: Users) -> None:
    """Every accepted job is known, has run to its end, and exactly once."""
    assert not users.failures, users.failures
    job_ids = users.acknowledged
    assert len(set(job_ids)) == len(job_ids), "a job id was given out twice"
    assert set(cluster.ended(*job_ids)) == {"COMPLETED"}
    assert users.ran() == Counter(job_ids)
    tried = Counter(cluster.lines("tried"))
    assert set(tried.values()) <= {1}, tried


def rss_kib(pid: int) -> int:
    """The memory that a process holds."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS:")))


@contextmanager
def stopped(server: postgres.Server, how: signal.Signals) -> Iterator[None]:
    """No server: SIGINT ends it in order, SIGQUIT as a crash does."""
    server.stop(how)
    try:
        yield
    finally:
        server.start()


@contextmanager
def read_only_database(server: postgres.Server, database: str) -> Iterator[None]:
    """As an administrator closes it for a move: new sessions may only read, and those there were are ended."""
    server.execute(
        "postgres",
        f"ALTER DATABASE {database} SET default_transaction_read_only = on",
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'",
    )
    try:
        yield
    finally:
        server.execute("postgres", f"ALTER DATABASE {database} RESET default_transaction_read_only")


@contextmanager
def read_only_server(server: postgres.Server) -> Iterator[None]:
    """Sessions stay, and each transaction may only read from now on."""
    server.execute(
        "postgres", "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"
    )
    try:
        yield
    finally:
        server.execute(
            "postgres",
            "SET default_transaction_read_only = off",
            "ALTER SYSTEM RESET default_transaction_read_only",
            "SELECT pg_reload_conf()",
        )


@contextmanager
def full_disk(server: postgres.Server, database: str, disk: Path | None) -> Iterator[None]:
    """No table can grow. Without a disk of its own the server says the same words with the same code."""
    if disk is None:
        complain = "RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'"
        server.execute(
            database,
            f"CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {complain}; END $$",
            "CREATE TRIGGER full_disk BEFORE INSERT ON facts EXECUTE FUNCTION full_disk()",
        )
        try:
            yield
        finally:
            server.execute(database, "DROP FUNCTION full_disk CASCADE")
        return
    ballast = disk / "ballast"
    try:
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        yield
    finally:
        ballast.unlink()


@contextmanager
def full_file(cluster: LiveCluster) -> Iterator[None]:
    """The kernel refuses to let the store's log grow, as a full disk does."""
    process = cluster.daemons["esctld"].process
    assert process is not None
    size = (cluster.directory / "esctld.db-wal").stat().st_size
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unlimited)


@contextmanager
def locked_file(cluster: LiveCluster) -> Iterator[None]:
    """A tool of somebody else has begun to write and does not go on."""
    with contextlib.closing(
        sqlite3.connect(cluster.directory / "esctld.db", PATIENCE_S, isolation_level=None)
    ) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def locked_row(server: postgres.Server, database: str) -> Iterator[None]:
    """A third session holds the leader row."""
    with psycopg.connect(server.dsn(database)) as other:
        assert other.execute("SELECT 1 FROM leader FOR UPDATE").rowcount == 1
        yield
        other.rollback()
