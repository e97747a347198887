"""A terminal for a task: opened by the task's own process as the user, whose terminal it is therefore.

Programs that open their terminal by its name find it theirs, and no right of root's is needed for that.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import termios

from eslurm.core.model.step_input import TerminalSize

_SIZE = struct.Struct("HHHH")


def open_terminal(channel_fd: int, size: TerminalSize) -> int:
    """Open a terminal that controls this process's session, and hand its other end over the socket. Raises OSError."""
    main_fd, own_fd = os.openpty()
    try:
        set_size(own_fd, size)
        with socket.socket(fileno=os.dup(channel_fd)) as channel:
            socket.send_fds(channel, [b"\0"], [main_fd])
        fcntl.ioctl(own_fd, termios.TIOCSCTTY, 0)
    except OSError:
        os.close(own_fd)
        raise
    finally:
        os.close(main_fd)
    return own_fd


def set_size(fd: int, size: TerminalSize) -> None:
    """Set rows and columns; the programs in the foreground hear of it. Raises OSError."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, _SIZE.pack(*size, 0, 0))
