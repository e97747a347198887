"""A daemon's own directory inside root's state directory, when root starts it as another user (`--user`).

The state directory stays root's: no other user can replace root's files there. Invariant: in the daemon's directory root
follows no name that the daemon's user could have changed; a file gets there as a new one, or by a rename.
"""

from __future__ import annotations

import fnmatch
import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from eslurm.security.account import Account, give
from eslurm.security.ownership import UnsafeFile

CONTROLLER = "controller"
"""Directory of controllers that root has started as another user."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_PASSED_THROUGH = 0o711


def make_home(
    state_dir: Path,
    name: str,
    account: Account,
    *,
    moved: Iterable[str] = (),
    copied: Iterable[str] = (),
    linked: Iterable[str] = (),
) -> Path:
    """The directory `name` of the account, with root's files for it.

    `moved` are patterns of files from the time when the daemon was root's, `copied` files that root writes, `linked` the
    sockets that clients look for there. Raises OSError, and ValueError when a file is in both places.
    """
    os.chmod(state_dir, _PASSED_THROUGH)
    home = state_dir / name
    with suppress(FileExistsError):
        home.mkdir(mode=0o700)
    fd = os.open(home, _DIRECTORY)
    try:
        if os.fstat(fd).st_uid != account.uid:
            # It was another user's: what that one has kept goes to the new one.
            _give_all(fd, account)
        os.fchmod(fd, _PASSED_THROUGH)
        for pattern in moved:
            for found in fnmatch.filter(os.listdir(state_dir), pattern):
                _move(state_dir, found, home, fd, account)
        for file in copied:
            with suppress(FileNotFoundError):
                _copy((state_dir / file).read_bytes(), file, fd, account)
    finally:
        os.close(fd)
    for file in linked:
        with suppress(FileNotFoundError):
            os.unlink(state_dir / file)
        os.symlink(f"{name}/{file}", state_dir / file)
    return home


def read_in_home(state_dir: Path, name: str, file: str, bytes_max: int) -> bytes:
    """The content of a plain file that the user of `name` wrote there; empty without one. The caller must check it.

    Raises `UnsafeFile`.
    """
    try:
        home = os.open(state_dir / name, _DIRECTORY)
    except OSError:
        return b""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=home)
        with open(fd, "rb") as opened:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.fstat(home).st_uid:
                raise UnsafeFile(f"{state_dir / name / file} is no plain file of its directory's user")
            data = opened.read(bytes_max + 1)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise UnsafeFile(f"{state_dir / name / file} cannot be read: {error.strerror}") from None
    finally:
        os.close(home)
    if len(data) > bytes_max:
        raise UnsafeFile(f"{state_dir / name / file} has more than {bytes_max} bytes")
    return data


def share(path: Path, account: Account) -> None:
    """Let the account's group, and no other user, read a file of root's in a directory of root's. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.fchmod(fd, 0o600)
        os.fchown(fd, -1, account.gid)
        os.fchmod(fd, 0o640)
    finally:
        os.close(fd)


def _give_all(directory: int, account: Account) -> None:
    """Give a directory's content, then the directory: its former user cannot change it meanwhile."""
    os.fchown(directory, 0, 0)
    os.fchmod(directory, 0o700)
    for name in os.listdir(directory):
        if not give(name, account, directory=directory):
            with suppress(OSError):
                _give_directory(name, directory, account)
    os.fchown(directory, account.uid, account.gid)


def _give_directory(name: str, directory: int, account: Account) -> None:
    fd = os.open(name, _DIRECTORY, dir_fd=directory)
    try:
        _give_all(fd, account)
    finally:
        os.close(fd)


def _move(state_dir: Path, name: str, home: Path, directory: int, account: Account) -> None:
    source = state_dir / name
    mode = os.lstat(source).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=directory, follow_symlinks=False)
        raise ValueError(
            f"{source} and {home / name} are both there: put the one away that is not to be used"
        )
    if stat.S_ISDIR(mode):
        parent = os.open(state_dir, _DIRECTORY)
        try:
            _give_directory(name, parent, account)
        finally:
            os.close(parent)
    elif not give(str(source), account):
        return
    os.rename(source, name, dst_dir_fd=directory)


def _copy(data: bytes, name: str, directory: int, account: Account) -> None:
    fresh = f".{name}.{secrets.token_hex(8)}.root"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(fresh, flags, 0o600, dir_fd=directory)
    with open(fd, "wb") as file:
        file.write(data)
        os.fchown(fd, account.uid, account.gid)
    os.rename(fresh, name, src_dir_fd=directory, dst_dir_fd=directory)
