"""How the supervisor reaches the listener of a step: as the step's user, and never as root.

A child becomes the user, connects, hands the connection back over a socket pair and ends: what the user names is
connected to with the user's rights only. It is not waited for: its end of the pair becomes readable when it has an
answer. As the user it cannot be traced, for it has been root; stopped or slow, it is killed by `close`.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress

from eslurm.ports.step_runner import OutputEndpoint, StepSpec
from esnoded.stepd.spawn import Launchpad, SpawnError, fork, reset_signals, set_ids

CONNECT_S = 10.0
_TEXT_BYTES_MAX = 512


class Connector:
    """One connection in the making. Register `fileno` for reading, then `take`; `close` it in any case."""

    def __init__(self, pad: Launchpad, spec: StepSpec, endpoint: OutputEndpoint) -> None:
        """Raises OSError."""
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._pid_fd = -1
        try:
            pid = fork(lambda: _connect(pad, spec, endpoint, theirs.fileno()))
            # Nobody else collects children: until then the number is this child's.
            self._pid_fd = os.pidfd_open(pid)
        except OSError:
            self._channel.close()
            raise
        finally:
            theirs.close()
        self._channel.setblocking(False)

    def fileno(self) -> int:
        """Readable when the child has an answer, or is gone."""
        return self._channel.fileno()

    def take(self) -> socket.socket:
        """The connection. Raises OSError that says why there is none."""
        text, fds, _, _ = socket.recv_fds(self._channel, _TEXT_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC)
        if not fds:
            raise OSError(text.decode(errors="replace") or "the child that connects was killed")
        connection = socket.socket(fileno=fds[0])
        connection.setblocking(False)
        return connection

    def close(self) -> None:
        """End the child if it is still there."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pid_fd, signal.SIGKILL)
        os.close(self._pid_fd)
        self._channel.close()


def connect_directly(endpoint: OutputEndpoint) -> socket.socket:
    """A connection that may still be in the making, with this process's own rights. Raises OSError."""
    connection = socket.socket(_family(endpoint), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with suppress(BlockingIOError):
            connection.connect((endpoint.host, endpoint.port))
    except OSError:
        connection.close()
        raise
    return connection


def _family(endpoint: OutputEndpoint) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET


def _connect(pad: Launchpad, spec: StepSpec, endpoint: OutputEndpoint, channel_fd: int) -> None:
    """The child's whole life."""
    channel = socket.socket(fileno=channel_fd)
    try:
        reset_signals()
        # Nothing of the supervisor stays with a process of the user.
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) != channel_fd:
                with suppress(OSError):
                    os.close(int(name))
        set_ids(pad, spec)
        connection = socket.socket(_family(endpoint), socket.SOCK_STREAM)
        connection.settimeout(CONNECT_S)
        connection.connect((endpoint.host, endpoint.port))
        socket.send_fds(channel, [b"\0"], [connection.fileno()])
    except SpawnError as error:
        channel.send(error.text.encode()[:_TEXT_BYTES_MAX])
    except Exception as error:
        text = getattr(error, "strerror", None) or str(error)
        channel.send(text.encode(errors="replace")[:_TEXT_BYTES_MAX])
