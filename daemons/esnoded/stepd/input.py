"""The pipes to the standard input of a step's tasks, fed from its connection (`output.OutputLink`).

Invariants: no write blocks, and none raises for a task that has closed its input or is over; its rest is dropped. A
descriptor is open as long as its task may read.
"""

from __future__ import annotations

import contextlib
import os
import selectors
from collections.abc import Callable, Iterable

from eslurm.core.model.step_input import TerminalSize
from eslurm.ports.step_runner import INPUT_DONE, InputFrame
from esnoded.stepd.input_window import InputWindow
from esnoded.task.terminal import set_size

_WRITE_BYTES = 64 * 1024
_END_OF_INPUT = b"\x04"


class InputPipes:
    """`grant` tells the peer the number of bytes that it may have sent in all, or `INPUT_DONE`; `wrap` guards the loop."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        tasks: Iterable[int],
        wrap: Callable[[Callable[[int], object]], Callable[[int], None]],
        grant: Callable[[int], None],
    ) -> None:
        self._selector = selector
        self._window = InputWindow(tasks)
        self._on_writable = wrap(self._write)
        self._grant = grant
        self._fds: dict[int, int] = {}
        """The write end of each task that was started."""
        self._watched: set[int] = set()
        self._terminals: set[int] = set()
        self._size: TerminalSize | None = None
        self._is_done = not self._window.readers

    def takes(self, local: int) -> bool:
        """Check whether the task is one of those that read, and has not been given its pipe."""
        return local in self._window.readers and local not in self._fds

    def open(self, local: int, make_pipe: Callable[[], tuple[int, int]]) -> int:
        """The read end for a task; the caller closes it after the task was started. Raises OSError."""
        read_fd, write_fd = make_pipe()
        # The task's end blocks, as any program expects.
        os.set_blocking(read_fd, True)
        os.set_blocking(write_fd, False)
        self._fds[local] = write_fd
        self._update(local)
        return read_fd

    def use_terminal(self, local: int, fd: int) -> None:
        """Write to a task's terminal; owns the descriptor, which does not block."""
        if local not in self._window.readers:
            os.close(fd)
            return
        self._fds[local] = fd
        self._terminals.add(local)
        self._resize()
        self._update(local)

    def _resize(self) -> None:
        for local in self._terminals & self._fds.keys() if self._size is not None else ():
            assert self._size is not None
            with contextlib.suppress(OSError):
                set_size(self._fds[local], self._size)

    def take(self, frame: InputFrame) -> None:
        """One message of the peer. Raises `TooMuch`."""
        if frame.size is not None:
            self._size = frame.size
            self._resize()
        self._window.add(frame.data)
        self._window.is_ended |= frame.eof
        for local in tuple(self._fds):
            if local not in self._watched:
                self._update(local)
        self._tell()

    def leave(self, local: int) -> None:
        """The task is over, or has closed its input."""
        self._window.leave(local)
        self._close_fd(local)
        self._tell()

    def close(self) -> None:
        """No more input comes: every task that still reads finds the end."""
        self._is_done = True
        for local in tuple(self._fds):
            self._window.leave(local)
            self._close_fd(local)

    def _update(self, local: int) -> None:
        """Watch a pipe that something is there for, close one whose task has everything."""
        if self._window.has_rest(local):
            if local not in self._watched:
                self._watched.add(local)
                on_writable = self._on_writable
                self._selector.register(
                    self._fds[local], selectors.EVENT_WRITE, lambda _mask: on_writable(local)
                )
            return
        self._unwatch(local)
        if self._window.is_ended:
            if local in self._terminals:
                # A terminal does not end with its input: it gets what a user types for that.
                with contextlib.suppress(OSError):
                    os.write(self._fds[local], _END_OF_INPUT)
            self._window.leave(local)
            self._close_fd(local)

    def _write(self, local: int) -> None:
        if local not in self._watched:
            return
        rest = self._window.rest(local)
        try:
            count = os.write(self._fds[local], rest[:_WRITE_BYTES])
        except BlockingIOError:
            return
        except OSError:
            # It has closed its input, which no program is told by a signal here.
            count = -1
        finally:
            rest.release()
        if count < 0:
            self.leave(local)
            return
        self._window.took(local, count)
        self._update(local)
        self._tell()

    def _tell(self) -> None:
        if self._is_done:
            return
        if not self._window.readers:
            self._is_done = True
            self._grant(INPUT_DONE)
        elif (count := self._window.grant()) > 0:
            self._grant(count)

    def _unwatch(self, local: int) -> None:
        if local in self._watched:
            self._watched.discard(local)
            self._selector.unregister(self._fds[local])

    def _close_fd(self, local: int) -> None:
        self._unwatch(local)
        if (fd := self._fds.pop(local, -1)) >= 0:
            os.close(fd)
