"""Connection to a step's listener: by a child that has become the step's user, and never as root.

It connects, hands the connection to the supervisor over its socket, and ends. As the user it cannot be traced, because it
has been root; stopped by its user, it is killed after `CONNECTOR_US`.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable

from eslurm.ports.step_checks import spec_problem
from eslurm.ports.step_runner import StepSpec
from esnoded.task.program import FAILED, SpawnError

CONNECT_S = 10
CONNECTOR_US = (CONNECT_S + 2) * 1_000_000
"""Greatest life of the child."""
_FDS_MAX = 1 << 30


def connect(make: Callable[[int], StepSpec], channel_fd: int) -> None:
    """The child's life. Raises `SpawnError`, which its caller says over the same socket."""
    # Nothing that root had open stays with a process of the user.
    os.closerange(3, channel_fd)
    os.closerange(channel_fd + 1, _FDS_MAX)
    signal.alarm(CONNECT_S + 1)
    try:
        spec = make(0)
        problem = spec_problem(spec)
        if problem or spec.endpoint is None:
            raise SpawnError(FAILED, problem or f"step {spec.key} has no listener")
        host, port = spec.endpoint.host, spec.endpoint.port
        connection = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        connection.settimeout(CONNECT_S)
        connection.connect((host, port))
        socket.send_fds(socket.socket(fileno=channel_fd), [b"\0"], [connection.fileno()])
    except OSError as error:
        raise SpawnError(FAILED, error.strerror or str(error)) from None
