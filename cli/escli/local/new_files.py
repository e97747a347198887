"""Several new files at once: all of them are there in the end, or none.

Each is written completely beside its place and flushed to the disk before the first one takes its place. Invariants: what
cannot be finished is taken back; no symbolic link is followed; no file is readable by more users than it shall be, at no
moment. Only a machine that goes down between two renames leaves some of them, each complete.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from eslurm.security.ownership import UnsafeFile, make_own_directory


class NewFile(NamedTuple):
    """A file to write; `gid` is its group, None: this user's. A directory that is missing gets `directory_mode`."""

    path: Path
    data: bytes
    mode: int
    gid: int | None = None
    directory_mode: int = 0o755


def write_all(files: Sequence[NewFile], *, replace: bool = False) -> None:
    """Write all of them. Raises FileExistsError for one that is there, unless they `replace` such files; `UnsafeFile` where
    another user could change what a path leads to, or what is there is no file; OSError.
    """
    # They end in this order: first what is in place is taken back, last the directories are removed.
    with ExitStack() as directories, ExitStack() as leftovers, ExitStack() as undo:
        places: list[tuple[str, str]] = []
        for file in files:
            place = os.path.join(_made(file.path.parent, file.directory_mode, directories), file.path.name)
            _check(place, file.path, replace)
            places.append((_written(place, file, leftovers), place))
        for new, place in places:
            _put(new, place, replace, undo, leftovers)
        for directory in dict.fromkeys(os.path.dirname(place) for _, place in places):
            _flush(directory)
        undo.pop_all()
        directories.pop_all()


def _made(directory: Path, mode: int, made: ExitStack) -> str:
    """The directory's path without links; what is made of it goes again when something fails."""
    missing = []
    above = directory.absolute()
    while not os.path.lexists(above):
        missing.append(str(above))
        above = above.parent
    for path in reversed(missing):
        made.callback(_forget_directory, path)
    return make_own_directory(directory, mode)


def _forget_directory(path: str) -> None:
    with suppress(OSError):
        os.rmdir(path)


def _check(place: str, path: Path, replace: bool) -> None:
    try:
        found = os.lstat(place)
    except FileNotFoundError:
        return
    if not replace:
        raise FileExistsError(0, "is there already", str(path))
    if not stat.S_ISREG(found.st_mode):
        raise UnsafeFile(f"{path} is not a regular file: remove it")


def _written(place: str, file: NewFile, leftovers: ExitStack) -> str:
    """The path of the whole file beside its place."""
    new = _beside(place, "new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    leftovers.callback(_forget, new)
    with os.fdopen(fd, "wb") as writer:
        writer.write(file.data)
        writer.flush()
        if file.gid is not None:
            os.fchown(fd, -1, file.gid)
        os.fchmod(fd, file.mode)
        os.fsync(fd)
    return new


def _put(new: str, place: str, replace: bool, undo: ExitStack, leftovers: ExitStack) -> None:
    if replace and os.path.lexists(place):
        old = _beside(place, "old")
        os.link(place, old, follow_symlinks=False)
        leftovers.callback(_forget, old)
        undo.callback(os.rename, old, place)
        os.rename(new, place)
        return
    # Unlike a rename it never replaces a file that another process has made meanwhile.
    os.link(new, place, follow_symlinks=False)
    undo.callback(_forget, place)


def _beside(place: str, kind: str) -> str:
    directory, name = os.path.split(place)
    return os.path.join(directory, f".{name}.{os.getpid()}.{kind}")


def _forget(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _flush(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
