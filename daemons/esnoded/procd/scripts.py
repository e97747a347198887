"""Batch scripts as files that can be executed: one for each step that runs one, as long as it runs.

The files lie in one directory that belongs to `procd`'s user, so no other user can put another file, a link or a FIFO under
their names; a file itself belongs to the user of its job, who alone can read it. Invariant: what is handed out was made anew
with the content that was asked for, and nothing of it stays behind the step.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress

from eslurm.core.model.job import Principal
from eslurm.core.model.step_key import StepKey

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class Scripts:
    """The files of one directory. Others may pass through it, and list nothing."""

    def __init__(self, directory: str, *, spares_homes: bool = False) -> None:
        """Make the directory, or take it over without what an earlier one has left. Raises OSError.

        Versions before 0.2 kept a directory for each user; with `spares_homes` jobs run that were started from there.
        """
        self._directory = directory
        self._names: dict[StepKey, str] = {}
        with suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        owner = os.fstat(self._fd).st_uid
        if owner != os.geteuid():
            raise PermissionError(f"{directory} belongs to user id {owner}, not to {os.geteuid()}: remove it")
        os.fchmod(self._fd, 0o711)  # nosec B103 # passed through, not listed
        self._clean(spares_homes)

    def hold(self, key: StepKey, user: Principal, script: bytes) -> str:
        """The path of the step's script, until it is released. Raises OSError."""
        if not os.path.samestat(os.stat(self._directory, follow_symlinks=False), os.fstat(self._fd)):
            raise OSError(f"{self._directory} was replaced: restart the step supervisor")
        self.release(key)
        # Nobody who does not run it knows its name: whose a job is, and since when, is not for all.
        name = self._names[key] = f"{key}-{os.urandom(8).hex()}"
        fd = os.open(name, _FLAGS, 0o500, dir_fd=self._fd)
        try:
            with open(fd, "wb") as file:
                file.write(script)
                file.flush()
                # Last: from here on it belongs to the user, who may change it.
                if user.uid != os.geteuid():
                    os.fchown(fd, user.uid, user.gid)
        except OSError:
            self.release(key)
            raise
        return f"{self._directory}/{name}"

    def release(self, key: StepKey) -> None:
        """The step is over, or was none."""
        if name := self._names.pop(key, ""):
            self._remove(name)

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
