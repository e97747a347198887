"""Batch scripts as files that can be executed: one per user and content, shared by all steps that run it.

Making and removing a directory per attempt costs ten times what the rest of a short job costs. The files lie in one
directory that belongs to `procd`'s user, so no other user can put another file, a link or a FIFO under their names; a
file itself belongs to its job's user, who alone can read it. Invariants: a file that a held step runs stays where it is;
what is handed out has the content that was asked for, whatever the user has done to it since; of the files that no step
holds the most recently used are kept.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections import OrderedDict
from contextlib import suppress

from eslurm.core.model.job import Principal
from eslurm.core.model.step_key import StepKey

IDLE_MAX = 256
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_FRESH = "new"


class Scripts:
    """The files of one directory. Others may pass through it, and list nothing."""

    def __init__(self, directory: str, idle_max: int = IDLE_MAX, *, spares_homes: bool = False) -> None:
        """Make the directory, or take it over without what an earlier one has left. Raises OSError.

        Versions before 0.2 kept a directory for each user; with `spares_homes` jobs run that were started from there.
        """
        self._directory = directory
        self._idle_max = idle_max
        self._euid = os.geteuid()
        self._holders: dict[str, set[StepKey]] = {}
        self._held: dict[StepKey, str] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()
        with suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        owner = os.fstat(self._fd).st_uid
        if owner != self._euid:
            raise PermissionError(f"{directory} belongs to user id {owner}, not to {self._euid}: remove it")
        os.fchmod(self._fd, 0o711)  # nosec B103 # passed through, not listed
        self._clean(spares_homes)

    def hold(self, key: StepKey, user: Principal, digest: bytes, script: bytes) -> str:
        """The path of the script, written if need be, for as long as the step holds it. Raises OSError."""
        if not os.path.samestat(os.stat(self._directory, follow_symlinks=False), os.fstat(self._fd)):
            raise OSError(f"{self._directory} was replaced: restart the step supervisor")
        name = f"{user.uid}-{digest.hex()}"
        if not self._is_there(name, user.uid, script):
            self._write(name, user, script)
        self._idle.pop(name, None)
        self._holders.setdefault(name, set()).add(key)
        self._held[key] = name
        return f"{self._directory}/{name}"

    def release(self, key: StepKey) -> None:
        """The step is over, or was none."""
        name = self._held.pop(key, None)
        if name is None:
            return
        holders = self._holders[name]
        holders.discard(key)
        if holders:
            return
        del self._holders[name]
        self._idle[name] = None
        while len(self._idle) > self._idle_max:
            self._remove(self._idle.popitem(last=False)[0])

    def _is_there(self, name: str, uid: int, script: bytes) -> bool:
        """Check whether the file holds this very script: its user may have written to it."""
        try:
            fd = os.open(name, os.O_RDONLY | _FLAGS, dir_fd=self._fd)
        except OSError:
            return False
        status = os.fstat(fd)
        if (status.st_mode, status.st_uid) != (stat.S_IFREG | 0o500, uid):
            os.close(fd)
            return False
        with open(fd, "rb", buffering=0) as file:
            return file.read(len(script) + 1) == script

    def _write(self, name: str, user: Principal, script: bytes) -> None:
        self._remove(_FRESH)
        fd = os.open(_FRESH, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o500, dir_fd=self._fd)
        with open(fd, "wb", buffering=0) as file:
            while script:
                script = script[file.write(script) :]
            # Last: from here on it belongs to the user, who may change it.
            if user.uid != self._euid:
                os.fchown(fd, user.uid, user.gid)
        os.rename(_FRESH, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def _clean(self, spares_homes: bool) -> None:
        for name in os.listdir(self._fd):
            try:
                self._remove(name)
            except IsADirectoryError:
                if spares_homes:
                    continue
                # Its user may have put anything into it.
                with suppress(RecursionError):
                    shutil.rmtree(name, ignore_errors=True, dir_fd=self._fd)
