"""Real etcd servers for tests: made from nothing, on loopback only, gone with the tests.

Invariant: without the program the test is not run, which is told (`groups`); a server never outlives the process that
started it, however that ends. Servers sync to disk as they do at a site.
"""

from __future__ import annotations

import atexit
import functools
import http.client
import itertools
import json
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support import groups, leaks
from tests.support.ports import free_port

START_S = 60.0
QUOTA_BYTES = 64 * 1024 * 1024
_names = itertools.count(1)


class Member:
    """One server. `tls`: the files for clients, who need a certificate of the same authorities."""

    def __init__(self, directory: Path, name: str, tls: Path | None) -> None:
        self.name = name
        self.client_port = free_port()
        self.peer_port = free_port()
        self.tls = tls
        self.directory = directory / name
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """The endpoint that a configuration names."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.client_port}"

    @property
    def peer_url(self) -> str:
        """The address that other members call. They are on this host."""
        return f"http://127.0.0.1:{self.peer_port}"

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def start(self, cluster: str, quota_bytes: int, state: str = "new") -> None:
        """Start it, the first time or again; returns before it answers."""
        options = {
            "name": self.name,
            "data-dir": str(self.directory),
            "listen-client-urls": self.endpoint,
            "advertise-client-urls": self.endpoint,
            "listen-peer-urls": self.peer_url,
            "initial-advertise-peer-urls": self.peer_url,
            "initial-cluster": cluster,
            "initial-cluster-state": state,
            "quota-backend-bytes": str(quota_bytes),
            "log-level": "error",
            "logger": "zap",
        }
        if self.tls:
            options |= {
                "cert-file": str(self.tls / "host.pem"),
                "key-file": str(self.tls / "host.key"),
                "trusted-ca-file": str(self.tls / "authorities.pem"),
            }
        words = [f"--{name}={value}" for name, value in options.items()]
        words += ["--client-cert-auth"] * bool(self.tls)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", program(), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        leaks.kept_children.add(self._process.pid)

    def wait(self) -> None:
        """Return when it answers and sees a leader."""
        deadline_s = time.monotonic() + START_S
        while self._process is not None and self._process.poll() is None and time.monotonic() < deadline_s:
            if self._is_healthy():
                return
            time.sleep(0.02)
        pytest.fail(f"etcd {self.name} does not answer:\n{self._log.read_text()[-4000:]}", pytrace=False)

    def send_signal(self, number: signal.Signals) -> None:
        """SIGSTOP pauses it, SIGCONT lets it go on; returns when it stands still."""
        assert self._process is not None
        self._process.send_signal(number)
        if number is signal.SIGSTOP:
            # The signal is on its way to each of its threads.
            tasks = Path(f"/proc/{self._process.pid}/task")
            while any(_state(task) not in "TZX" for task in tasks.iterdir()):
                time.sleep(0.001)

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it; the data stays."""
        if self._process is not None:
            self._process.send_signal(how)
            # One that is paused ends by nothing else than SIGKILL.
            self._process.wait(START_S)
            leaks.kept_children.discard(self._process.pid)
            self._process = None

    def _is_healthy(self) -> bool:
        with suppress(OSError, ValueError, http.client.HTTPException):
            connection: http.client.HTTPConnection
            if self.tls:
                context = ssl.create_default_context(cafile=str(self.tls / "authorities.pem"))
                context.check_hostname = False
                context.load_cert_chain(self.tls / "host.pem", self.tls / "host.key")
                connection = http.client.HTTPSConnection(
                    "127.0.0.1", self.client_port, timeout=5, context=context
                )
            else:
                connection = http.client.HTTPConnection("127.0.0.1", self.client_port, timeout=5)
            try:
                connection.request("GET", "/health")
                answer = json.loads(connection.getresponse().read())
                return bool(answer.get("health") == "true")
            finally:
                connection.close()
        return False


def _state(task: Path) -> str:
    """The letter for what a thread does; X: it has ended."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


class Etcd:
    """One store of one or more members."""

    def __init__(
        self,
        members: int = 1,
        tls: Path | None = None,
        quota_bytes: int = QUOTA_BYTES,
        parent: Path | None = None,
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="es-etcd-", dir=parent))
        self._quota_bytes = quota_bytes
        self.members = [Member(self.directory, f"m{number}", tls) for number in range(members)]
        for member in self.members:
            self.start(member)
        for member in self.members:
            member.wait()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Of all members."""
        return tuple(member.endpoint for member in self.members)

    def start(self, member: Member) -> None:
        """Start a member, the first time or again, with its data."""
        cluster = ",".join(f"{one.name}={one.peer_url}" for one in self.members)
        member.start(cluster, self._quota_bytes)

    def restore(self, member: Member, backup: Path) -> None:
        """Start the store's only member with the data of a backup in place of its own."""
        shutil.rmtree(member.directory)
        words = (
            *("--name", member.name, "--data-dir", str(member.directory)),
            *("--initial-cluster", f"{member.name}={member.peer_url}"),
            *("--initial-advertise-peer-urls", member.peer_url),
        )
        self.ctl("snapshot", "restore", str(backup), *words)
        self.start(member)
        member.wait()

    def remove(self) -> None:
        """Stop all and delete everything."""
        for member in self.members:
            member.stop()
        shutil.rmtree(self.directory)

    def start_empty(self, member: Member) -> None:
        """Start a member without any data, which was added to the others before."""
        shutil.rmtree(member.directory)
        cluster = ",".join(f"{one.name}={one.peer_url}" for one in self.members)
        member.start(cluster, self._quota_bytes, "existing")

    def ctl(self, *words: str) -> str:
        """Run `etcdctl` with all members, without TLS; the result is its output."""
        return _ctl(self.endpoints, *words)

    def ctl_of(self, member: Member) -> Callable[..., str]:
        """The same with one member."""
        return functools.partial(_ctl, (member.endpoint,))


def _ctl(endpoints: Sequence[str], *words: str) -> str:
    return subprocess.run(
        [client(), f"--endpoints={','.join(endpoints)}", *words],
        env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def program() -> str:
    """The server; without it the test is not run."""
    return _found("etcd")


def client() -> str:
    """The program for administrators; without it the test is not run."""
    return _found("etcdctl")


def _found(name: str) -> str:
    found = shutil.which(name)
    return found if found else groups.lacks(name)


@functools.cache
def shared() -> Etcd:
    """One member that most tests share; started when the first asks. A test has keys of its own by `new_root`."""
    etcd = Etcd()
    atexit.register(etcd.remove)
    return etcd


def new_root() -> str:
    """A prefix that no other test of this process uses."""
    return f"/test{next(_names)}/"


@contextmanager
def own(
    members: int = 1,
    tls: Path | None = None,
    quota_bytes: int = QUOTA_BYTES,
    parent: Path | None = None,
) -> Iterator[Etcd]:
    """One to stop, pause and break; its data are below `parent`."""
    etcd = Etcd(members, tls, quota_bytes, parent)
    try:
        yield etcd
    finally:
        etcd.remove()
