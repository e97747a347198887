"""Files that hold keys: opened without following links, refused when others could read or replace them.

Invariant: a secret is never readable by another user, not even for the moment between creation and chmod.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

FILE_BYTES_MAX = 1 << 20


class UnsafeFile(Exception):
    """The file cannot be used; the text names it, what is wrong and the way out."""


def read_private(path: Path) -> bytes:
    """The content of a file that only its owner (this user, or root) may read. Raises `UnsafeFile`."""
    return _read(path, 0o077, f"is open to others: chmod 600 {path}")


def read_trusted(path: Path) -> bytes:
    """The content of a file that others may read but not change. Raises `UnsafeFile`."""
    return _read(path, 0o022, f"can be changed by others: chmod go-w {path}")


def write_private(path: Path, data: bytes) -> None:
    """Replace a file by one that only this user may read, at once and durably. Raises OSError."""
    _write(path, data, 0o600)


def write_public(path: Path, data: bytes) -> None:
    """Replace a file by one that everybody may read, at once and durably. Raises OSError."""
    _write(path, data, 0o644)


def _read(path: Path, forbidden: int, why: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        text = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be read: {error.strerror}"
        raise UnsafeFile(f"{path} {text}") from None
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise UnsafeFile(f"{path} is not a regular file")
        if status.st_uid not in (0, os.geteuid()):
            raise UnsafeFile(
                f"{path} belongs to user id {status.st_uid}, not to {os.geteuid()} or root: chown it"
            )
        if status.st_mode & forbidden:
            raise UnsafeFile(f"{path} {why}")
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise UnsafeFile(f"{path} has more than {FILE_BYTES_MAX} bytes")
    return data


def _write(path: Path, data: bytes, mode: int) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        os.rename(new, path)
    except BaseException:
        os.unlink(new)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
