"""Job stores that are destroyed, not there yet, or never to be opened. Goal: the controller acknowledges nothing that it
could not find again, and says in one line what is wrong; a store that is only away it waits for.

Method: a controller alone, on a file or on a PostgreSQL server of the test's own.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from eslurm.api.methods import SUBMIT
from eslurm.api.unix_client import Client
from eslurm.ports.api import ApiUnreachable, Status
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import PATIENCE_S
from tests.kits.outages import BACK_MAX_S, SHAPE, refusal, stopped, submission
from tests.support import postgres

EXIT_CANNOT_START = 2
PAGE_BYTES = 4096


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    """One to break."""
    with postgres.own_server(durable=True) as own:
        yield own


@contextmanager
def controller(directory: Path, store_url: str = "") -> Iterator[LiveCluster]:
    """A controller without anything else; not started."""
    cluster = LiveCluster(directory, **SHAPE, store_url=store_url)
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[LiveCluster]:
    """One on a file."""
    with controller(tmp_path) as cluster:
        yield cluster


# ---- stores that are gone for good ----


def remove(file: Path) -> None:
    file.unlink()


def replace(file: Path) -> None:
    copy = file.with_suffix(".copy")
    shutil.copy(file, copy)
    copy.replace(file)


def empty(file: Path) -> None:
    os.truncate(file, 0)


@pytest.mark.parametrize(
    ("ending", "destroy", "said"),
    [
        ("", remove, "was removed while it was in use"),
        ("", replace, "was replaced while it was in use"),
        ("", empty, "was emptied while it was in use"),
        ("-wal", remove, "was removed while it was in use"),
    ],
    ids=["removed", "replaced", "emptied", "log removed"],
)
def test_a_file_that_is_not_there_any_more_ends_the_controller(
    alone: LiveCluster, ending: str, destroy: Callable[[Path], None], said: str
) -> None:
    """A job acknowledged from now on could never be found again. Nothing but the lease's renewal notices it."""
    alone.launch("esctld")
    assert alone.wrap("true") == 1
    file = alone.directory / f"esctld.db{ending}"
    destroy(file)
    assert alone.daemons["esctld"].wait() == EXIT_CANNOT_START
    assert last_line(alone) == f"esctld: the job store sqlite:///{alone.directory}/esctld.db: {file} {said}"


def test_a_damaged_file_ends_the_controller(alone: LiveCluster) -> None:
    alone.launch("esctld")
    for _ in range(50):
        alone.wrap("true")
    alone.terminate("esctld")
    alone.launch("esctld")
    file = alone.directory / "esctld.db"
    with file.open("r+b") as pages:
        pages.seek(PAGE_BYTES)
        pages.write(os.urandom(file.stat().st_size - PAGE_BYTES))
    with pytest.raises(ApiUnreachable), Client(str(alone.socket), 0.0) as client:
        client.call(SUBMIT, submission(alone), 1.0)
    assert alone.daemons["esctld"].wait() == EXIT_CANNOT_START
    assert "malformed" in last_line(alone), alone.logs()
    daemon = alone.daemons["esctld"]
    daemon.spawn()
    assert not daemon.wait_ready()
    assert daemon.wait() == EXIT_CANNOT_START
    assert "malformed" in last_line(alone), alone.logs()


def last_line(cluster: LiveCluster) -> str:
    return cluster.daemons["esctld"].tail().splitlines()[-1]


# ---- starting ----


def test_a_controller_that_starts_waits_for_its_store(server: postgres.Server, tmp_path: Path) -> None:
    with controller(tmp_path, server.url(server.create())) as cluster:
        daemon = cluster.daemons["esctld"]
        with stopped(server, signal.SIGINT):
            daemon.spawn()
            cluster.until(lambda: "trying again until it can" in daemon.tail(), "it says so")
            assert "the job store cannot be read: " in daemon.tail()
            refused = cluster.until(lambda: refusal(cluster, 0.2), "submissions are refused")
            assert refused.status is Status.UNAVAILABLE and "try again" in refused.text
        began_s = time.monotonic()
        assert daemon.wait_ready()
        assert time.monotonic() - began_s < BACK_MAX_S
        assert cluster.wrap("true") == 1
        assert "the job store can be read again" in daemon.tail()


@pytest.mark.parametrize("wrong", ["password", "no password", "database", "user"])
def test_a_store_that_will_never_open_ends_the_controller_at_once(
    server: postgres.Server, tmp_path: Path, wrong: str
) -> None:
    user, database, secret = "guest", "postgres", "r1ght"
    ask_for_passwords(server, user, secret)
    user, secret, database = {
        "password": (user, "wr0ng", database),
        "no password": (user, "", database),
        "database": (user, secret, "nowhere"),
        "user": ("nobody", secret, database),
    }[wrong]
    url = f"postgresql://{user}:{secret}@/{database}?host={server.directory}"
    with controller(tmp_path, url) as cluster:
        daemon = cluster.daemons["esctld"]
        daemon.spawn()
        assert not daemon.wait_ready()
        assert daemon.wait() == EXIT_CANNOT_START
        # The log's own lines begin with a date.
        (line,) = [one for one in daemon.tail().splitlines() if not one[:1].isdigit()]
    assert line.startswith("esctld: the job store postgresql://") and server.directory.name in line
    assert not secret or secret not in line
    assert (user if wrong != "database" else database) in line


def ask_for_passwords(server: postgres.Server, user: str, secret: str) -> None:
    """From now on one user has to give one."""
    rules = server.directory / "data/pg_hba.conf"
    if user in rules.read_text():
        return
    rules.write_text(f"local all {postgres.USER} trust\nlocal all {user} scram-sha-256\n")
    server.execute("postgres", f"CREATE ROLE {user} LOGIN PASSWORD '{secret}'", "SELECT pg_reload_conf()")
    # It reads them a moment later.
    deadline_s = time.monotonic() + PATIENCE_S
    while lets_in(server, user):
        assert time.monotonic() < deadline_s, "no password is asked for"


def lets_in(server: postgres.Server, user: str) -> bool:
    """Check that a user may come without a password."""
    try:
        psycopg.connect(server.dsn("postgres"), user=user).close()
    except psycopg.OperationalError:
        return False
    return True
