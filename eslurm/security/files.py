"""Files with keys: refused when others could read or replace them, or any directory of their path.

Invariant: a secret is never readable by another user, not even for the moment between creation and chmod.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from eslurm.security.ownership import UnsafeFile as UnsafeFile
from eslurm.security.ownership import settle

FILE_BYTES_MAX = 1 << 20


def read_private(path: Path, *, may_group_read: bool = False) -> bytes:
    """The content of a file that only its owner (this user, or root) may read, or its group. Raises `UnsafeFile`."""
    forbidden = 0o027 if may_group_read else 0o077
    return _read(path, forbidden, f"is open to others: chmod 600 {path}", FILE_BYTES_MAX)


def read_trusted(path: Path, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """The content of a file that others may read but not change. Raises `UnsafeFile`."""
    return _read(path, 0o022, f"can be changed by others: chmod go-w {path}", bytes_max)


def write_private(path: Path, data: bytes, *, may_group_read: bool = False) -> None:
    """Replace a file by one that only this user may read, at once and durably; and the group that could read it before,
    if it `may_group_read`. Raises OSError."""
    group = _reading_group(path) if may_group_read else None
    _write(path, data, 0o600 if group is None else 0o640, group)


def write_public(path: Path, data: bytes) -> None:
    """Replace a file atomically and durably by one that all users may read. Raises OSError."""
    _write(path, data, 0o644)


def _read(path: Path, forbidden: int, why: str, bytes_max: int) -> bytes:
    try:
        fd = os.open(settle(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        text = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be read: {error.strerror}"
        raise UnsafeFile(f"{path} {text}") from None
    try:
        _check(path, os.fstat(fd), forbidden, why)
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(bytes_max + 1)
    finally:
        os.close(fd)
    if len(data) > bytes_max:
        raise UnsafeFile(f"{path} has more than {bytes_max} bytes")
    return data


def _check(path: Path, status: os.stat_result, forbidden: int, why: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFile(f"{path} is not a regular file")
    if status.st_uid not in (0, os.geteuid()):
        raise UnsafeFile(
            f"{path} belongs to user id {status.st_uid}, not to {os.geteuid()} or root: chown it"
        )
    if status.st_mode & forbidden:
        raise UnsafeFile(f"{path} {why}")


def _reading_group(path: Path) -> int | None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    is_shared = stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IRGRP
    return status.st_gid if is_shared and status.st_uid == os.geteuid() else None


def _write(path: Path, data: bytes, mode: int, group: int | None = None) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if group is not None:
                os.fchown(fd, -1, group)
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
