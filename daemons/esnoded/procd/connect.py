"""How the listener of a step is reached: as the step's user, and never as root.

A child becomes the user, connects, hands the connection to the supervisor over the socket that it was given, and ends.
As the user it cannot be traced, for it has been root; stopped by its user, it is killed after `CONNECTOR_US`.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress

from eslurm.ports.step_runner import OutputEndpoint, StepSpec
from esnoded.procd.spawn import fork, reset_signals, set_ids
from esnoded.procd.task import SpawnError

CONNECT_S = 10
CONNECTOR_US = (CONNECT_S + 2) * 1_000_000
"""How long a child may be there."""
_TEXT_BYTES_MAX = 512


def spawn_connector(spec: StepSpec, endpoint: OutputEndpoint, channel_fd: int) -> int:
    """Start the child; returns its pid. Raises OSError."""
    return fork(lambda: _connect(spec, endpoint, channel_fd))


def _connect(spec: StepSpec, endpoint: OutputEndpoint, channel_fd: int) -> None:
    channel = socket.socket(fileno=channel_fd)
    try:
        reset_signals()
        signal.alarm(CONNECT_S + 1)
        # Nothing of root's stays with a process of the user.
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) != channel_fd:
                with suppress(OSError):
                    os.close(int(name))
        set_ids(spec)
        family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.settimeout(CONNECT_S)
        connection.connect((endpoint.host, endpoint.port))
        socket.send_fds(channel, [b"\0"], [connection.fileno()])
    except SpawnError as error:
        channel.send(error.text.encode()[:_TEXT_BYTES_MAX])
    except Exception as error:
        text = getattr(error, "strerror", None) or str(error)
        channel.send(text.encode(errors="replace")[:_TEXT_BYTES_MAX])
