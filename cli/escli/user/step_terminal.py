"""The terminal of this process as the terminal of a task: each key goes there, and nothing is done about it here.

Invariant: whatever ends the command orderly leaves the terminal as it was.
"""

from __future__ import annotations

import contextlib
import os
import signal
import termios
import tty

from escli.user.step_source import InputSource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from eslurm.core.model.step_input import TerminalSize

_DEFAULT: TerminalSize = (24, 80)


def terminal_size() -> TerminalSize:
    """The size of the first of the three streams that is a terminal."""
    for fd in range(3):
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(fd)
            return rows, columns
    return _DEFAULT


class TerminalInput(InputSource):
    """A terminal to read from, key by key from `begin` on; owns its descriptor. In the main thread."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._before: list[Any] | None = None
        self._size = terminal_size()
        self._read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._handler = signal.signal(signal.SIGWINCH, self._on_resized)

    @property
    def wakes(self) -> int:
        """The descriptor that is readable when the size may have changed."""
        return self._read_fd

    def begin(self) -> None:
        """Keys are the task's from now on."""
        if self.is_mine:
            self._before = termios.tcgetattr(self.fileno())
            # What was typed meanwhile is for the task.
            tty.setraw(self.fileno(), termios.TCSADRAIN)

    def take_size(self) -> TerminalSize | None:
        """The new size, once."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_fd, 4096)
        before, self._size = self._size, terminal_size()
        return self._size if self._size != before else None

    def close(self) -> None:
        """Leave the terminal as it was, and close the descriptor."""
        if self._before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.fileno(), termios.TCSADRAIN, self._before)
        signal.signal(signal.SIGWINCH, self._handler)
        os.close(self._read_fd)
        os.close(self._write_fd)
        super().close()

    def _on_resized(self, _signum: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._write_fd, b"!")
