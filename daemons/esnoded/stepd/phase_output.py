"""The output of a prolog or epilog: the last of it is kept in a file, and the end of that in the text of a failure.

Invariant: the program never waits for a reader. The files lie in a directory of the supervisor's own.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from contextlib import suppress

from eslurm.core.model.step_key import StepKey
from eslurm.telemetry.kept_output import KEPT_BYTES, KeptOutput
from esnoded.procd.log import complain
from esnoded.stepd.output import fds_max, make_pipe

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
        self._kept = KeptOutput()

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
        return self._kept.last_words()

    def finish(self) -> None:
        """The phase is over: keep its output."""
        self._drain()
        self.drop()
        key = self._key
        try:
            self._kept.write(self._directory, f"{key.job_id}.{key.attempt}.{key.node}.{key.phase}")
        except OSError as error:
            complain(f"the output of {key.phase} {key} is lost: {error.strerror}")

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
        self._kept.add(data)
        return True
