"""The state directory of a personal cluster: its files, its locks, and whether it may be used at all.

Invariant: a directory is used only if it is empty or holds a record of this user's own cluster; before that is certain
nothing in it is touched.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from escli.api import SOCKET, state_dir
from escli.errors import ClusterError, unusable
from escli.local.record import ClusterRecord, read_record, write_record
from eslurm import __version__
from eslurm.security.ownership import UnsafeFile, check_own_directory, make_own_directory

SOCKET_BYTES_MAX = 107
"""The longest path a Unix socket may have on Linux."""
MAIN = "main"
"""Name of the first controller."""
FEDERATION = "federation.json"
"""File of a directory that holds a federation of clusters, each in a directory of its own there."""
LONGEST_SOCKET = "agent999/stepd/esstepd.socket"
_LOCK_INTERVAL_S = 0.1
_OWN_NAMES = re.compile(
    r"cluster\.json(\.new)?|cluster\.key(\.retired)?|site\.(key|pub)|audit(-c\d+)?\.log(\.\d+)?|\.[a-z.]+\.\d+\.new|(identity|membership)(-c\d+)?(\.key)?|revoked|members|etcd(-ca)?\.(pem|key)|eslurm\.toml(\.new)?|lock|supervisor\.lock|log|esctld(-c\d+)?\..*|controller|agent\d+|sat\d+|esestd"
)


class Layout:
    """Paths within one state directory, which need not exist yet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.record_file = directory / "cluster.json"
        self.config_file = directory / "eslurm.toml"
        self.lock_file = directory / "lock"
        self.supervisor_lock_file = directory / "supervisor.lock"
        self.federation_file = directory / FEDERATION
        self.socket = directory / SOCKET
        self.logs = directory / "log"

    def sockets(self, record: ClusterRecord) -> list[str]:
        """The API sockets of all controllers, the first one's first; each serves through the leader."""
        others = [str(self.directory / f"{controller_daemon(one.name)}.sock") for one in record.standbys]
        return [str(self.socket), *others]

    def log_of(self, name: str) -> Path:
        """A daemon's log file."""
        return self.logs / f"{name}.log"

    def state_of(self, name: str) -> Path:
        """A daemon's own directory."""
        return self.directory / name

    def find_record(self) -> ClusterRecord | None:
        """The cluster's record; None when there is none. Raises `ClusterError` when it is not ours to use."""
        return read_record(self.record_file, __version__, os.getuid())

    def get_record(self) -> ClusterRecord:
        """The record of a cluster that is known to exist."""
        record = self.find_record()
        if record is None:
            raise ClusterError(f"{self.record_file} is gone: was the cluster removed meanwhile?")
        return record

    def save(self, record: ClusterRecord) -> None:
        """Write the record. Only under `locked`."""
        write_record(self.record_file, record)


def controller_daemon(name: str) -> str:
    """The name of a controller's daemon, and of its files: esctld for the first one, esctld-c2 for c2."""
    return "esctld" if name == MAIN else f"esctld-{name}"


def choose(option: str | None, environ: Mapping[str, str]) -> Layout:
    """The layout from `--state-dir`, ESLURM_STATE_DIR or the default. Raises `ClusterError` for a bad path."""
    text = option if option is not None else state_dir(environ)
    if not text or "\0" in text:
        raise unusable("--state-dir: an empty path: name a directory")
    directory = Path(os.path.abspath(os.path.expanduser(text)))
    longest = len(os.fsencode(directory)) + 1 + len(LONGEST_SOCKET)
    if longest > SOCKET_BYTES_MAX:
        raise unusable(
            f"--state-dir: {directory} is {longest - SOCKET_BYTES_MAX} bytes too long for the sockets in it "
            f"(the kernel allows {SOCKET_BYTES_MAX}): use a shorter one, e.g. --state-dir /tmp/eslurm-{os.getuid()}"
        )
    return Layout(directory)


def check(layout: Layout) -> ClusterRecord | None:
    """Check whether the directory may be used; the record of the cluster in it, None if it is empty or missing.

    Raises `ClusterError` with the reason. Changes nothing.
    """
    directory = layout.directory
    if not is_usable(layout):
        return None
    record = layout.find_record()
    if record is None:
        if layout.federation_file.exists():
            raise unusable(
                f"{directory}: holds a federation of several cells: name one with --state-dir {directory}/NAME "
                "(`eslurm status` lists them)"
            )
        foreign = sorted(
            set(os.listdir(directory)) - {layout.lock_file.name, f"{layout.record_file.name}.new"}
        )
        if foreign:
            raise unusable(
                f"{directory}: is not empty and holds no cluster ({foreign[0]} is there): name an empty or a new "
                "directory with --state-dir"
            )
    return record


def is_usable(layout: Layout) -> bool:
    """Check whether the directory is there; it, or the place where it would be made, has to be this user's alone.

    Raises `ClusterError`.
    """
    directory = layout.directory
    try:
        check_own_directory(directory)
    except UnsafeFile as error:
        raise unusable(f"--state-dir: {error}") from None
    except OSError as error:
        raise unusable(f"{directory}: cannot be used: {error.strerror}: name another --state-dir") from None
    if not directory.exists():
        return False
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        raise unusable(
            f"{directory}: you cannot write to it: chmod u+rwx {directory}, or name another --state-dir"
        )
    return True


def make(layout: Layout) -> None:
    """Make the directory if need be, closed to others. Raises `ClusterError`.

    In root's directory other users may pass to their jobs' scripts, and root's agents, which are not root, to their own
    directories.
    """
    try:
        make_own_directory(layout.directory, 0o700)
        if os.geteuid() == 0:
            os.chmod(layout.directory, 0o711)  # nosec B103 # passed through, not listed
    except UnsafeFile as error:
        raise unusable(f"--state-dir: {error}") from None
    except OSError as error:
        raise unusable(
            f"{layout.directory}: cannot be made: {error.strerror}: name another --state-dir"
        ) from None


def foreign_names(layout: Layout) -> list[str]:
    """Names in the directory that no part of a cluster created."""
    return sorted(name for name in os.listdir(layout.directory) if not _OWN_NAMES.fullmatch(name))


@contextmanager
def locked(layout: Layout, timeout_s: float = 60.0) -> Iterator[None]:
    """The lock to start and stop daemons here; waits for another command that holds it.

    Raises `ClusterError` after `timeout_s`, or when the directory is gone.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        fd = _try_lock(layout.lock_file)
        if fd is not None:
            if _is_same(fd, layout.lock_file):
                break
            os.close(fd)
            raise ClusterError(f"{layout.directory}: was removed meanwhile: try again")
        if time.monotonic() > deadline_s:
            raise ClusterError(
                f"{layout.directory}: another eslurm command has been at work here for {timeout_s:g} s: "
                "wait for it, or end it"
            )
        time.sleep(_LOCK_INTERVAL_S)
    try:
        yield
    finally:
        os.close(fd)


@contextmanager
def supervising(layout: Layout) -> Iterator[bool]:
    """The lock to watch the daemons; false when another `eslurm up` already does."""
    fd = _try_lock(layout.supervisor_lock_file)
    try:
        yield fd is not None
    finally:
        if fd is not None:
            os.close(fd)


def is_supervised(layout: Layout) -> bool:
    """Check whether an `eslurm up` in the foreground watches the daemons."""
    if not layout.supervisor_lock_file.exists():
        return False
    with supervising(layout) as free:
        return not free


def _try_lock(path: Path) -> int | None:
    """The lock's descriptor, None when another has it. The file itself stays: removing it would split the lock."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ClusterError(f"{path}: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _is_same(fd: int, path: Path) -> bool:
    """Check whether the path still leads to the open file."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
