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


class Options(msgspec.Struct, frozen=True):
    """What root tells a supervisor, in a file that only root can write. `ring` is a file with the site's public keys,
    `nodes` the host list of the nodes that this host is.
    """

    nodes: str
    ring: str
    min_uid: int = 1000
    allow_root_jobs: bool = False
    idle_exit_s: float = 600.0


class Place:
    """The directory of one supervisor below the agent's state directory, and the scripts beside it.

    Files: journal, socket, status, lock, instance, log, options, keys. Versions before 0.2 had theirs in the state
    directory itself (`is_old`): such a supervisor may still end the steps that it has begun.
    """

    def __init__(self, state_dir: str | os.PathLike[str], *, is_old: bool = False) -> None:
        self.state_dir = os.path.abspath(state_dir)
        self.directory = self.state_dir if is_old else os.path.join(self.state_dir, "stepd")
        self.scripts = os.path.join(self.state_dir, "scripts")
        self.options = os.path.join(self.directory, "options.json")
        self.ring = os.path.join(self.directory, "site.pub")
        self.journal = os.path.join(self.directory, "steps.journal")
        self.socket = os.path.join(self.directory, "esstepd.socket")
        self.status = os.path.join(self.directory, "esstepd.json")
        self.lock = os.path.join(self.directory, "esstepd.lock")
        self.log = os.path.join(self.directory, "esstepd.log")
        self._instance = os.path.join(self.directory, "esstepd.instance")

    def prepare(self) -> None:
        """Make the directory, closed to all others. Raises OSError, and UnsafeFile when another user could change it."""
        make_own_directory(self.state_dir, 0o711)
        make_own_directory(self.directory, 0o700)
        os.chmod(self.directory, 0o700)

    def write_options(self, options: Options) -> None:
        """Tell the supervisor, which looks at its next connection. Raises OSError."""
        _write_whole(self.options, msgspec.json.encode(options))

    def read_options(self) -> Options:
        """Raises OSError, `msgspec.MsgspecError`."""
        with open(self.options, "rb") as file:
            return msgspec.json.decode(file.read(), type=Options)

    def predecessor_lives(self) -> bool:
        """Whether a supervisor of a version before 0.2 still serves this state directory."""
        return Place(self.state_dir, is_old=True).find_supervisor() is not None

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
        fd = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
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

    def remove(self) -> None:
        """Remove the files of a supervisor that does not come again."""
        for path in (self.journal, self.status, self.socket, self.lock, self.log, self._instance):
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
    # A name of this writer's own: two agents that start at once write the same file.
    fresh = f"{path}.{os.urandom(4).hex()}.new"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
        os.rename(fresh, path)
    except OSError:
        _remove(fresh)
        raise


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
