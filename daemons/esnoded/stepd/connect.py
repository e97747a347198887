"""A connection to the listener of a step while a child of `procd` makes it, as the step's user.

The child is not waited for: the socket between becomes readable when it has an answer, or is gone.
"""

from __future__ import annotations

import os
import socket

from esnoded.task.program import FAILED, SpawnError

_TEXT_BYTES_MAX = 4096


def parse_report(report: bytes) -> SpawnError:
    """The failure of a child of `procd`, in its own words."""
    code, _, text = report.decode(errors="replace").partition(" ")
    return SpawnError(int(code) if code.isdecimal() else FAILED, text)


def receive_connection(channel: socket.socket, text_bytes_max: int) -> tuple[bytes, socket.socket | None]:
    """The peer's text, and the connection that it hands over, if any. Raises OSError."""
    text, fds, _flags, _address = socket.recv_fds(channel, text_bytes_max, 1)
    if not fds:
        return text, None
    connection = socket.socket(fileno=fds[0])
    # `recv_fds` loses its flags.
    connection.set_inheritable(False)
    connection.setblocking(False)
    return text, connection


def receive_terminal(channel: socket.socket) -> int:
    """The other end of a terminal that a task has opened; -1: there is none."""
    try:
        _, fds, _flags, _address = socket.recv_fds(channel, 1, 1)
    except OSError:
        return -1
    for fd in fds:
        os.set_inheritable(fd, False)
        if os.isatty(fd):
            os.set_blocking(fd, False)
            return fd
        os.close(fd)
    return -1


class Connector:
    """One connection in the making. Register `fileno` for reading, then `take`; `close` it in any case."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        channel.setblocking(False)

    def fileno(self) -> int:
        """Readable when the child has an answer, or is gone."""
        return self._channel.fileno()

    def take(self) -> socket.socket:
        """The connection. Raises OSError that says why there is none."""
        text, connection = receive_connection(self._channel, _TEXT_BYTES_MAX)
        if connection is None:
            raise OSError(parse_report(text).text or "the child that connects was killed")
        return connection

    def close(self) -> None:
        """Leave the child to its end."""
        self._channel.close()
