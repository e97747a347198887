"""Options of a TCP connection with which a host that is gone without a word is noticed."""

from __future__ import annotations

import contextlib
import socket

__all__ = ["NOTICED_S", "keep_alive"]

NOTICED_S = 35
"""The first question after 15 s of silence, then four, each 5 s after the one before."""
_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, NOTICED_S * 1000),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)


def keep_alive(connection: socket.socket) -> None:
    """Set the options, as far as the socket has them."""
    for level, option, value in _OPTIONS:
        with contextlib.suppress(OSError):
            connection.setsockopt(level, option, value)
