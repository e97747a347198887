"""A real PostgreSQL server for tests: made from nothing, on a Unix socket only, gone with the tests.

Invariant: without its programs the test is not run, which is told (`groups`); a server never outlives the process that
started it, however that ends. PostgreSQL refuses to run as root: for root it runs as an ordinary user.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.support import groups, leaks

USER = "eslurm"
START_S = 60.0
_OPTIONS = {
    "listen_addresses": "",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "log_min_messages": "fatal",
    # Restarts are part of the tests.
    "restart_after_crash": "on",
}
_names = itertools.count(1)


class Server:
    """One server and its databases. `durable` pays for fsync, for tests that end it violently."""

    def __init__(self, *, durable: bool = False) -> None:
        self._programs = programs()
        self._options = dict(_OPTIONS) if durable else {**_OPTIONS, "fsync": "off", "full_page_writes": "off"}
        self._process: subprocess.Popen[bytes] | None = None
        # Short, for the socket, and open to the server's user, which pytest's own directories are not; controllers that root
        # has started are other users, too.
        self.directory = Path(tempfile.mkdtemp(prefix="es-pg-", dir="/tmp"))
        self.directory.chmod(0o711)
        self._log = self.directory / "log"
        self._user = _server_user()
        if self._user is not None:
            os.chown(self.directory, self._user.pw_uid, self._user.pw_gid)
        self._run(
            "initdb", "--no-sync", "--auth=trust", f"--username={USER}", "--encoding=UTF8", "--locale=C"
        )
        self.start()

    def start(self) -> None:
        """Starts it, the first time or again, and returns when it answers."""
        settings = {**self._options, "unix_socket_directories": str(self.directory)}
        options = [f"--{name}={value}" for name, value in settings.items()]
        options += ["-D", str(self.directory / "data")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._as_user("--pdeathsig", "QUIT"), str(self._programs / "postgres"), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        leaks.kept_children.add(self._process.pid)
        deadline_s = time.monotonic() + START_S
        while self._process.poll() is None and time.monotonic() < deadline_s:
            try:
                psycopg.connect(self.dsn("postgres")).close()
            except psycopg.OperationalError:
                time.sleep(0.02)
            else:
                return
        pytest.fail(f"PostgreSQL does not start:\n{self._log.read_text()}", pytrace=False)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends its sessions and shuts down in order; SIGQUIT is a crash: all processes end at once."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_S)
            leaks.kept_children.discard(self._process.pid)
            self._process = None

    def remove(self) -> None:
        """Stops it and deletes everything."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory)

    def create(self) -> str:
        """A new empty database's name."""
        name = f"db{next(_names)}"
        self.execute("postgres", f"CREATE DATABASE {name}")
        return name

    def drop(self, name: str) -> None:
        """Deletes a database, whoever is connected to it."""
        self.execute("postgres", f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def execute(self, database: str, *statements: str) -> None:
        """Runs statements as an operator would, each by itself."""
        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def dsn(self, database: str) -> str:
        """For the driver alone."""
        return f"host={self.directory} user={USER} dbname={database} connect_timeout=60"

    def url(self, database: str) -> str:
        """The URL for a configuration."""
        return f"postgresql://{USER}@/{database}?host={self.directory}"

    def log(self) -> str:
        """The server's log."""
        return self._log.read_text()

    def _run(self, program: str, *options: str) -> None:
        done = subprocess.run(
            [*self._as_user(), self._programs / program, "-D", self.directory / "data", *options],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.fail(f"{program} failed:\n{done.stdout}{done.stderr}", pytrace=False)

    def _as_user(self, *how: str) -> list[str]:
        if self._user is not None:
            how = (f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}", "--clear-groups", *how)
        return ["setpriv", *how, "--"] if how else []


def programs() -> Path:
    """The directory of the server's programs; without them the test is not run."""
    on_path = shutil.which("postgres")
    found = [Path(on_path).resolve().parent] if on_path else []
    # Debian keeps each release's programs out of PATH.
    found += sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True
    )
    for directory in found:
        if (directory / "postgres").exists() and (directory / "initdb").exists():
            return directory
    return groups.lacks("PostgreSQL 15 or newer")


def _server_user() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


@functools.cache
def shared_server() -> Server:
    """The one that most tests share; started when the first asks. It forgets what a power cut would."""
    server = Server()
    atexit.register(server.remove)
    return server


@contextmanager
def own_server(*, durable: bool = False) -> Iterator[Server]:
    """One to stop, break and restart."""
    server = Server(durable=durable)
    try:
        yield server
    finally:
        server.remove()


@contextmanager
def database(server: Server | None = None) -> Iterator[str]:
    """The URL of a new database, dropped after."""
    where = server or shared_server()
    name = where.create()
    try:
        yield where.url(name)
    finally:
        where.drop(name)
