"""Ownership of paths: files and directories that another user could replace are refused.

Invariant: a settled path has no symbolic link, and only root and this user can change what any part of it leads to, so a
later open by it reaches the checked file.
"""

from __future__ import annotations

import os
import stat

_LINKS_MAX = 40
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UnsafeFile(Exception):
    """The file or directory is unsafe; the text names it, the problem and the way out."""


def settle(path: str | os.PathLike[str]) -> str:
    """The path without symbolic links, each directory checked, as far as the path exists.

    A link is judged by its owner and its directory. Raises `UnsafeFile`, and OSError when a part cannot be read.
    """
    pending = _parts(os.path.join(os.getcwd(), os.fspath(path)))
    at = "/"
    links = 0
    _check_passage(at, os.lstat(at))
    while pending:
        name = pending.pop()
        if name == "..":
            at = os.path.dirname(at)
            continue
        here = os.path.join(at, name)
        try:
            found = os.lstat(here)
        except FileNotFoundError:
            return os.path.join(here, *reversed(pending))
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _LINKS_MAX:
                raise UnsafeFile(f"{path} leads through more than {_LINKS_MAX} symbolic links")
            _check_owner(here, found)
            target = os.readlink(here)
            if os.path.isabs(target):
                at = "/"
            pending.extend(_parts(target))
            continue
        if pending:
            _check_passage(here, found)
        at = here
    return at


def check_own_directory(path: str | os.PathLike[str]) -> str:
    """The settled path of a directory that belongs to this user alone, or that is missing.

    Raises `UnsafeFile`, and OSError when it cannot be examined.
    """
    settled = settle(path)
    try:
        found = os.lstat(settled)
    except FileNotFoundError:
        return settled
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeFile(f"{path} is not a directory: name another one")
    if found.st_uid != os.geteuid():
        raise UnsafeFile(
            f"{path} belongs to user id {found.st_uid}, this is user id {os.geteuid()}: name a directory of its own, or "
            "chown it"
        )
    if found.st_mode & _OTHERS_WRITE:
        raise UnsafeFile(f"{path}: others may write to it: chmod go-w {path}, or name another one")
    return settled


def make_own_directory(path: str | os.PathLike[str], mode: int) -> str:
    """The same; creates it when it is missing. Raises the same."""
    settled = check_own_directory(path)
    os.makedirs(settled, mode=mode, exist_ok=True)
    # Again: a umask may have left what was made above it open to others.
    return check_own_directory(settled)


def check_program(path: str | os.PathLike[str]) -> str:
    """The settled path of a program that only root and this user can change. Raises `UnsafeFile`, and OSError when it
    cannot be examined.
    """
    if not os.path.isabs(path):
        raise UnsafeFile(f"{path} is not an absolute path: name the program from the root on")
    settled = settle(path)
    try:
        found = os.lstat(settled)
    except FileNotFoundError:
        raise UnsafeFile(f"{path} does not exist") from None
    if not stat.S_ISREG(found.st_mode) or not found.st_mode & stat.S_IXUSR:
        raise UnsafeFile(f"{path} is not a file that can be executed: chmod +x {path}, or name another one")
    _check_owner(settled, found)
    if found.st_mode & _OTHERS_WRITE:
        raise UnsafeFile(f"{path}: others may write to it: chmod go-w {path}")
    return settled


def _parts(path: str) -> list[str]:
    """The components below the root, the last one first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _check_passage(path: str, found: os.stat_result) -> None:
    """Raise `UnsafeFile` for a directory in which other users could replace an entry."""
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeFile(f"{path} is not a directory: name another one")
    _check_owner(path, found)
    # In a sticky directory each user can replace only own files.
    if found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX and not _is_private_group(found):
        raise UnsafeFile(
            f"{path}: others may replace what is in it: chmod go-w {path}, or use a place somewhere else"
        )


def _check_owner(path: str, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise UnsafeFile(
            f"{path} belongs to user id {found.st_uid}, who could replace what it leads to: chown it to root or to user id "
            f"{os.geteuid()}, or use a place somewhere else"
        )


def _is_private_group(found: os.stat_result) -> bool:
    """Check whether the group with write permission holds only the owner: the group of the owner's name on many systems."""
    if found.st_mode & stat.S_IWOTH or found.st_uid != os.geteuid():
        return False
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    is_own = user.pw_gid == group.gr_gid and user.pw_name == group.gr_name
    return is_own and set(group.gr_mem) <= {user.pw_name}
