"""A job store that is restarted, gone, read-only, full or slow under a running cluster. Goal: submissions are
refused in words and accepted again within seconds, running jobs go on, nothing acknowledged is lost or runs twice.

Method: real daemons on a PostgreSQL server of their own and on SQLite; users submit all the time, one job ends in the
outage and one after it; scripts leave a line for each time they ran.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from escli import exits
from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.kits.outages import (
    BACK_MAX_S,
    SHAPE,
    Gated,
    Users,
    check_back,
    check_each_ran_once,
    check_refused,
    full_disk,
    full_file,
    locked_file,
    locked_row,
    read_only_database,
    read_only_server,
    refusal,
    rss_kib,
    stopped,
)
from tests.support import postgres

SLOW_S = 1.5
LONG_S = 5.0
LEASE_S = 5.0
"""Longer than a leader on a busy machine may stand still: only the outage is to be longer."""
GROWTH_MAX_KIB = 8_192
BIG_JOBS = 500
BIG_BYTES = 64 << 10
FEW = 10
QUIET = {"finished_retention_s": 3600, "finished_jobs_max": 100_000, "heartbeats_missed_max": 100}
"""Nothing is committed but what tests do: an outage is noticed by them first, not by the end of some job long ago."""
NO_COMMITS = "the store takes no commits"
SMALL_DISK_BYTES = 48 << 20


# ---- clusters ----


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    """One to break."""
    with postgres.own_server(durable=True) as own:
        yield own


@pytest.fixture(scope="module")
def small_disk(server: postgres.Server) -> Iterator[Path | None]:
    """A small file system that the server may use; None for a user who may mount none."""
    where = server.directory / "small"
    where.mkdir()
    options = f"size={SMALL_DISK_BYTES}"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", where], capture_output=True, check=False
    )
    if mounted.returncode:
        yield None
        return
    data = where / "data"
    data.mkdir()
    owner = server.directory.stat()
    os.chown(data, owner.st_uid, owner.st_gid)
    server.execute("postgres", f"CREATE TABLESPACE small LOCATION '{data}'")
    yield where
    server.stop(signal.SIGQUIT)
    subprocess.run(["umount", where], check=True)


@pytest.fixture(scope="module")
def database(server: postgres.Server, small_disk: Path | None) -> str:
    """The cluster's database, on the small disk where there is one."""
    name = server.create()
    if small_disk is not None:
        server.execute("postgres", f"ALTER DATABASE {name} SET TABLESPACE small")
    return name


@pytest.fixture(scope="module")
def postgresql_cluster(server: postgres.Server, database: str) -> Iterator[LiveCluster]:
    """A cluster on that database."""
    with running(**SHAPE, store_url=server.url(database), policy=QUIET) as cluster:
        yield cluster


@pytest.fixture
def on_postgresql(postgresql_cluster: LiveCluster) -> Iterator[LiveCluster]:
    """The same, idle at the start of each test."""
    with cleared(postgresql_cluster):
        yield postgresql_cluster


@pytest.fixture(scope="module")
def sqlite_cluster() -> Iterator[LiveCluster]:
    """A cluster on a file."""
    with running(**SHAPE) as cluster:
        yield cluster


@pytest.fixture
def on_sqlite(sqlite_cluster: LiveCluster) -> Iterator[LiveCluster]:
    """The same, idle at the start of each test."""
    with cleared(sqlite_cluster):
        yield sqlite_cluster


@contextmanager
def cleared(cluster: LiveCluster) -> Iterator[None]:
    """An empty work directory; what a test leaves running is cancelled."""
    cluster.empty_work()
    yield
    cluster.clear()
    cluster.hang_up()


# ---- outages under load ----


def live_through(cluster: LiveCluster, outage: AbstractContextManager[None], during_s: float = 0.0) -> None:
    """The whole story of one outage, `during_s` longer than it takes to look at everything."""
    early, late = Gated(cluster, "early", 7), Gated(cluster, "late", 0)
    with Users(cluster) as users:
        users.wait_more(FEW)
        with outage:
            check_refused(cluster)
            early.let_go()
            time.sleep(during_s)
            assert cluster.job(early.job_id).state == "RUNNING", "shown before it was committed"
        check_back(cluster, time.monotonic())
        users.wait_more(FEW)
    late.let_go()
    early.check("FAILED", 7)
    late.check("COMPLETED", 0)
    check_each_ran_once(cluster, users)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
def test_a_server_that_is_restarted_is_hardly_noticed(
    on_postgresql: LiveCluster, server: postgres.Server, how: signal.Signals
) -> None:
    cluster = on_postgresql
    job = Gated(cluster, "job", 0)
    with Users(cluster) as users:
        users.wait_more(FEW)
        with stopped(server, how):
            pass
        check_back(cluster, time.monotonic())
        users.wait_more(FEW)
    job.let_go()
    job.check("COMPLETED", 0)
    check_each_ran_once(cluster, users)


def test_a_server_that_is_gone_and_comes_back(on_postgresql: LiveCluster, server: postgres.Server) -> None:
    """Meanwhile sixteen jobs end and eight users never stop trying: the controller keeps what it has, and no more."""
    cluster = on_postgresql
    gate = cluster.work / "gate"
    jobs = [cluster.wrap(f"until [ -e {gate} ]; do sleep 0.05; done; echo >> {gate}") for _ in range(16)]
    for job_id in jobs:
        cluster.reaches(job_id, "RUNNING")
    process = cluster.daemons["esctld"].process
    assert process is not None
    with Users(cluster) as users, stopped(server, signal.SIGQUIT):
        check_refused(cluster)
        gate.touch()
        cluster.wait_lines("gate", len(jobs))
        before_kib = rss_kib(process.pid)
        over_s = time.monotonic() + LONG_S
        for at in range(BIG_JOBS):
            big = f"{at:{BIG_BYTES}}"
            cluster.until(lambda big=big: refusal(cluster, 0.2, big), "it is refused")
        time.sleep(max(0.0, over_s - time.monotonic()))
        assert rss_kib(process.pid) - before_kib < GROWTH_MAX_KIB
    assert set(cluster.ended(*jobs)) == {"COMPLETED"}
    assert all(len(cluster.runs(job_id)) == 1 for job_id in jobs)
    check_each_ran_once(cluster, users)


def test_a_database_closed_for_writing(
    on_postgresql: LiveCluster, server: postgres.Server, database: str
) -> None:
    live_through(on_postgresql, read_only_database(server, database))


def test_a_server_closed_for_writing(on_postgresql: LiveCluster, server: postgres.Server) -> None:
    live_through(on_postgresql, read_only_server(server))


def test_a_server_whose_disk_is_full(
    on_postgresql: LiveCluster, server: postgres.Server, database: str, small_disk: Path | None
) -> None:
    live_through(on_postgresql, full_disk(server, database, small_disk))


def test_a_file_whose_disk_is_full(on_sqlite: LiveCluster) -> None:
    live_through(on_sqlite, full_file(on_sqlite))


def test_a_file_that_somebody_else_has_locked(on_sqlite: LiveCluster) -> None:
    live_through(on_sqlite, locked_file(on_sqlite))


def wait_through(cluster: LiveCluster, slow: Callable[[], AbstractContextManager[None]]) -> None:
    """A store that takes its time refuses nobody."""
    outages = cluster.daemons["esctld"].log.read_text().count(NO_COMMITS)
    with Users(cluster) as users:
        users.wait_more(FEW)
        with slow():
            time.sleep(SLOW_S)
        users.wait_more(FEW)
    assert SLOW_S / 2 < users.longest_s < SLOW_S + BACK_MAX_S
    check_each_ran_once(cluster, users)
    assert cluster.daemons["esctld"].log.read_text().count(NO_COMMITS) == outages


def test_a_slow_server(on_postgresql: LiveCluster, server: postgres.Server, database: str) -> None:
    wait_through(on_postgresql, lambda: locked_row(server, database))


def test_a_slow_file(on_sqlite: LiveCluster) -> None:
    wait_through(on_sqlite, lambda: locked_file(on_sqlite))


def test_what_a_command_says(
    on_postgresql: LiveCluster, server: postgres.Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("escli.user.essubmit._TIMEOUT_S", 5.0)
    cluster = on_postgresql
    jobs_before = {info.job_id for info in cluster.call("Jobs", pb.JobsRequest(finished_too=True)).jobs}
    words = ["essubmit", "-D", str(cluster.work), "--wrap", "true"]
    with read_only_database(server, database):
        unsure = cluster.run(*words)
        refused = cluster.run(*words)
    assert unsure.code == exits.UNKNOWN_OUTCOME and "it may have taken effect" in unsure.err
    assert refused.code == exits.UNREACHABLE and "nothing was changed" in refused.err
    for ran in (unsure, refused):
        first, last = ran.err.splitlines()
        assert first == "essubmit: the job store does not answer at present; trying again"
        assert "the job store does not answer at present: try again in a moment" in last
    with Users(cluster) as users:
        users.wait_more(1)
    jobs = {info.job_id for info in cluster.call("Jobs", pb.JobsRequest(finished_too=True)).jobs}
    # The first was decided before the store was known to be away, and came true; the second never was.
    assert len(jobs - jobs_before - set(users.acknowledged)) == 1


def test_a_leader_stays_the_leader(server: postgres.Server) -> None:
    """An outage longer than the lease is no reason for a switch: the standby could not see the store either."""
    url = server.url(server.create())
    with running(**SHAPE, controllers=2, store_url=url, controller={"lease_s": LEASE_S}) as cluster:
        cluster.wait_standbys()
        (before,) = (one for one in cluster.controller_infos() if one.role == "leader")
        live_through(cluster, stopped(server, signal.SIGQUIT), 1.2 * LEASE_S)
        (after,) = (one for one in cluster.controller_infos() if one.role == "leader")
        assert (after.name, after.epoch) == (before.name, before.epoch)
