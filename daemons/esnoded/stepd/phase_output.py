"""The output of a prolog or epilog: the last of it is kept in a file, and the end of that in the text of a failure.

Invariants: what is held and kept is bounded, in bytes and in files; the program never waits for a reader. The files lie in a
directory of the supervisor's own, where no other user can put, rename or read one.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from contextlib import suppress

from eslurm.core.model.step_key import StepKey
from esnoded.procd.log import complain
from esnoded.stepd.output import fds_max, last_words, make_pipe

KEPT_BYTES = 64 * 1024
KEPT_FILES = 256
_READ_BYTES = 64 * 1024


class PhaseOutput:
    """The pipe of one phase (an `OutputPipes`). `wrap` protects the loop from what goes wrong here."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        key: StepKey,
        directory: str,
        wrap: Callable[[Callable[[], object]], Callable[[], None]],
    ) -> None:
        self._selector = selector
        self._key = key
        self._directory = directory
        self._wrap = wrap
        self._fd = -1
        self._kept = bytearray()
        self._is_cut = False

    def open_pipes(self, local: int) -> tuple[int, int]:
        """See `OutputPipes`: both streams go into one pipe, in the order in which they were written."""
        self._fd, write_fd = make_pipe(fds_max())
        try:
            on_pipe = self._wrap(self._read)
            self._selector.register(self._fd, selectors.EVENT_READ, lambda _mask: on_pipe())
            return write_fd, os.dup(write_fd)
        except OSError:
            os.close(write_fd)
            raise

    def task_ended(self, local: int, exit_status: int) -> None:
        """See `OutputPipes`."""

    def last_words(self) -> str:
        """The end of the output as one line of printable text; takes what the pipe still holds."""
        self._drain()
        return last_words(self._kept)

    def finish(self) -> None:
        """The phase is over: keep its output."""
        self._drain()
        self.drop()
        try:
            self._write()
        except OSError as error:
            complain(f"the output of {self._key.phase} {self._key} is lost: {error.strerror}")

    def drop(self) -> None:
        """Close the pipe."""
        if self._fd >= 0:
            with suppress(KeyError):
                self._selector.unregister(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _drain(self) -> None:
        # What a process that cannot be killed still writes is not waited for.
        for _ in range(KEPT_BYTES // 4096):
            if self._fd < 0 or not self._read():
                return

    def _read(self) -> bool:
        """Take what is there; False when that is nothing."""
        if self._fd < 0:
            return False
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self.drop()
            return False
        self._kept += data
        if len(self._kept) > KEPT_BYTES:
            self._is_cut = True
            del self._kept[:-KEPT_BYTES]
        return True

    def _write(self) -> None:
        os.makedirs(self._directory, 0o700, exist_ok=True)
        with suppress(FileNotFoundError):
            self._make_room()
        key = self._key
        path = f"{self._directory}/{key.job_id}.{key.attempt}.{key.node}.{key.phase}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "wb") as file:
            if self._is_cut:
                file.write(b"(the beginning was cut off)\n")
            file.write(self._kept)

    def _make_room(self) -> None:
        with os.scandir(self._directory) as entries:
            files = sorted((entry.stat(follow_symlinks=False).st_mtime_ns, entry.path) for entry in entries)
        for _, path in files[: max(0, len(files) - KEPT_FILES + 1)]:
            os.unlink(path)
