"""Where a supervisor lives: the files of its state directory, and how to tell that it is alive.

A status file alone proves nothing (its writer may be dead and its pid another's); together with the boot
id and the process's start time it does. Paths are strings: `pathlib` would cost a tenth of the supervisor's memory.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from eslurm.security.ownership import make_own_directory
from esnoded.stepd import procfs

_SOCKET_PATH_MAX = 100


class SupervisorStatus(msgspec.Struct, frozen=True):
    """What a supervisor writes down about itself. `started_us` is wall time in microseconds UTC."""

    pid: int
    start_ticks: int
    boot_id: str
    instance: str
    started_us: int


class Place:
    """The state directory of one supervisor. Files: journal, socket, status, lock, instance, log."""

    def __init__(self, state_dir: str | os.PathLike[str]) -> None:
        self.directory = os.path.abspath(state_dir)
        self.journal = os.path.join(self.directory, "steps.journal")
        self.socket = os.path.join(self.directory, "esstepd.socket")
        self.status = os.path.join(self.directory, "esstepd.json")
        self.lock = os.path.join(self.directory, "esstepd.lock")
        self.log = os.path.join(self.directory, "esstepd.log")
        self._instance = os.path.join(self.directory, "esstepd.instance")

    def prepare(self) -> None:
        """Make the directory, closed to all others. Raises OSError, and UnsafeFile when another user could change it."""
        make_own_directory(self.directory, 0o700)

    def instance(self) -> str:
        """The lasting name of this directory, drawn at its first use. Call it with the lock held."""
        try:
            with open(self._instance, encoding="ascii") as file:
                return file.read()
        except FileNotFoundError:
            name = os.urandom(8).hex()
            _write_whole(self._instance, name.encode())
            return name

    def try_lock(self) -> int | None:
        """Take the right to be this directory's supervisor: a descriptor to keep, None when another has it.

        The lock belongs to the process, not to the descriptor: a child that hangs before its exec does not keep it.
        """
        fd = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd

    def write_status(self, status: SupervisorStatus) -> None:
        """Replace the status file at once."""
        _write_whole(self.status, msgspec.json.encode(status))

    def remove_status(self) -> None:
        """Take down what points to a supervisor that ends in good order."""
        for path in (self.status, self.socket):
            _remove(path)

    def find_supervisor(self) -> SupervisorStatus | None:
        """The supervisor that is alive now, None when there is none."""
        try:
            with open(self.status, "rb") as file:
                status = msgspec.json.decode(file.read(), type=SupervisorStatus)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        process = procfs.find_process(status.pid)
        if process is None or process.state in "ZX" or process.start_ticks != status.start_ticks:
            return None
        return status if status.boot_id == procfs.read_boot_id() else None

    @contextmanager
    def socket_address(self) -> Iterator[str]:
        """A name for the socket that is short enough for the kernel, valid within the context."""
        if len(os.fsencode(self.socket)) <= _SOCKET_PATH_MAX:
            yield self.socket
            return
        fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{fd}/{os.path.basename(self.socket)}"
        finally:
            os.close(fd)

    def listen(self) -> socket.socket:
        """Bind the socket anew. Call it with the lock held."""
        _remove(self.socket)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with self.socket_address() as address:
            listener.bind(address)
        os.chmod(self.socket, 0o600)
        listener.listen(16)
        return listener

    def connect(self) -> socket.socket:
        """A connection to whoever listens, non-blocking from then on. Raises OSError."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(1.0)
            with self.socket_address() as address:
                connection.connect(address)
            connection.setblocking(False)
        except OSError:
            connection.close()
            raise
        return connection


def _write_whole(path: str, data: bytes) -> None:
    fresh = f"{path}.new"
    with open(fresh, "wb") as file:
        file.write(data)
    os.rename(fresh, path)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
