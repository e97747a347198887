"""Batch scripts as files that can be executed: one for each step that runs one.

They lie in one directory that belongs to `procd`'s user, so no other user can put another file, a link or a FIFO under
their names; a file itself belongs to its job's user, who alone can read it. Invariant: a step is handed a file that was made
for it; it is removed when the step is over.
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
        self._euid = os.geteuid()
        with suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        owner = os.fstat(self._fd).st_uid
        if owner != self._euid:
            raise PermissionError(f"{directory} belongs to user id {owner}, not to {self._euid}: remove it")
        os.fchmod(self._fd, 0o711)  # nosec B103 # passed through, not listed
        for name in os.listdir(self._fd):
            try:
                self._remove(name)
            except IsADirectoryError:
                if not spares_homes:
                    # Its user may have put anything into it.
                    with suppress(RecursionError):
                        shutil.rmtree(name, ignore_errors=True, dir_fd=self._fd)

    def hold(self, key: StepKey, user: Principal, script: bytes) -> str:
        """The path of the step's script, which is the user's. Raises OSError."""
        if not os.path.samestat(os.stat(self._directory, follow_symlinks=False), os.fstat(self._fd)):
            raise OSError(f"{self._directory} was replaced: restart the step supervisor")
        self.release(key)
        fd = os.open(str(key), _FLAGS, 0o500, dir_fd=self._fd)
        with open(fd, "wb", buffering=0) as file:
            while script:
                script = script[file.write(script) :]
            # Last: from here on it is the user's, who may do with it as they like.
            if user.uid != self._euid:
                os.fchown(fd, user.uid, user.gid)
        return f"{self._directory}/{key}"

    def release(self, key: StepKey) -> None:
        """The step is over, or was none."""
        self._remove(str(key))

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self._fd)

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)
