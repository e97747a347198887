"""Ports on loopback for the daemons that tests start.

Invariant: none is given out twice, neither here nor by another process that runs tests at the same time, however long a
daemon takes until it listens, or is away between two starts.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import tempfile

# Below those that `eslurm up` chooses from, and those that the kernel gives to outgoing connections.
_LOWEST = 2_000
_COUNT = 8_000

# A byte stands for a port. Whoever has one locks it; the kernel lets go of a process's locks when it ends. Opened when
# the tests are collected, because no test may leave a file open.
_claims = os.open(
    f"{tempfile.gettempdir()}/eslurm-test-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
)
_given: set[int] = set()


def free_port() -> int:
    """A port where nobody listens, for this process alone until it ends."""
    return free_run(1)


def free_run(count: int) -> int:
    """The first of so many neighbouring ones."""
    while True:
        first = _LOWEST + secrets.randbelow(_COUNT - count + 1)
        if all(_is_free(port) and _is_claimed(port) for port in range(first, first + count)):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _is_claimed(port: int) -> bool:
    """Claim the port for this process; its own locks would never refuse it, so its claims are noted too."""
    if port in _given:
        return False
    try:
        fcntl.lockf(_claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except BlockingIOError:
        return False
    _given.add(port)
    return True
