"""The files of a supervisor in its state directory, and the check that it is alive.

A status file alone proves nothing (its writer may be dead and its pid another's); together with the boot id and the
process's start time it does. Paths are strings: `pathlib` would cost a tenth of the supervisor's memory.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from eslurm.security.account import Account, give
from eslurm.security.ownership import make_own_directory
from esnoded.procd import procfs
from esnoded.procd.options import Options

_SOCKET_PATH_MAX = 100


class SupervisorStatus(msgspec.Struct, frozen=True):
    """The status file of a supervisor. `started_us` is wall time in microseconds UTC.

    `pid` is the part that stays root (`procd`), `server_pid` the part that serves, which it started. `version` is that of
    its protocol; releases before that of version 4 do not say it.
    """

    pid: int
    start_ticks: int
    boot_id: str
    instance: str
    started_us: int
    server_pid: int = 0
    version: int = 0


class Place:
    """The directory of one supervisor below the agent's state directory, and the scripts beside it.

    Files of root's: socket, status, lock, instance, log, options, keys, launches; the journal is in a directory of the user
    that serves. Versions before 0.2 had theirs in the state directory itself (`is_old`): such a supervisor may still end the
    steps that it has begun.
    """

    def __init__(self, state_dir: str | os.PathLike[str], *, is_old: bool = False) -> None:
        self.state_dir = os.path.abspath(state_dir)
        self.directory = self.state_dir if is_old else os.path.join(self.state_dir, "stepd")
        self.scripts = os.path.join(self.state_dir, "scripts")
        self.options = os.path.join(self.directory, "options.json")
        self.ring = os.path.join(self.directory, "site.pub")
        self.served = self.state_dir if is_old else os.path.join(self.directory, "served")
        self.journal = os.path.join(self.served, "steps.journal")
        self.root_journal = os.path.join(self.directory, "steps.journal")
        self.launches = os.path.join(self.directory, "launches")
        self.socket = os.path.join(self.directory, "esstepd.socket")
        self.status = os.path.join(self.directory, "esstepd.json")
        self.lock = os.path.join(self.directory, "esstepd.lock")
        self.log = os.path.join(self.directory, "esstepd.log")
        self._instance = os.path.join(self.directory, "esstepd.instance")
        self._groups = os.path.join(self.directory, "groups")

    def prepare(self) -> None:
        """Make the directory, which others may pass through and not list. Raises OSError, and UnsafeFile when another user
        could change it.
        """
        make_own_directory(self.state_dir, 0o711)
        make_own_directory(self.directory, 0o711)
        os.chmod(self.directory, 0o711)  # nosec B103 # passed through, not listed

    def prepare_served(self, account: Account | None) -> None:
        """Make the directory of the user that serves; a journal of an earlier version goes there. Raises OSError."""
        with suppress(FileExistsError):
            os.mkdir(self.served, 0o700)
        fd = os.open(self.served, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            owner = account or Account(os.geteuid(), os.getegid())
            if os.fstat(fd).st_uid != owner.uid:
                # It was another user's: what that one has kept goes to the new one.
                for name in os.listdir(fd):
                    give(name, owner, directory=fd)
                os.fchown(fd, owner.uid, owner.gid)
            if give(self.root_journal, owner):
                os.rename(self.root_journal, os.path.basename(self.journal), dst_dir_fd=fd)
        finally:
            os.close(fd)

    def write_options(self, options: Options) -> None:
        """Tell the supervisor, which looks at its next connection. Raises OSError."""
        _write_whole(self.options, msgspec.json.encode(options))

    def predecessor_lives(self) -> bool:
        """Check whether a supervisor of a version before 0.2 still serves this state directory."""
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

    def read_groups(self) -> str:
        """The directory of control groups of the last supervisor; empty when it had none. Raises OSError."""
        with suppress(FileNotFoundError), open(self._groups, encoding="utf-8") as file:
            return file.read()
        return ""

    def write_groups(self, path: str) -> None:
        """Keep the directory of control groups for the next supervisor. Raises OSError."""
        _write_whole(self._groups, path.encode())

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
        known = (self.journal, self.status, self.socket, self.lock, self.log, self._instance, self._groups)
        for path in known:
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
        """A connection to the supervisor, non-blocking from then on. Raises OSError."""
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
