"""Ports on loopback for the daemons: free ones at first, the same ones ever after.

Invariants: a port in use is never taken over, but an error that names it. A port that was chosen is this command's until
the command ends, however long a daemon takes until it listens: two clusters that start at once have different ports.
"""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Sequence
from typing import Final

from escli import exits
from escli.errors import ClusterError, unusable

HOST = "127.0.0.1"
_LOWEST = 10_240
_EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"
_EPHEMERAL_DEFAULT = 32_768
_TRIES_MAX = 200

_reserved: Final[list[socket.socket]] = []
"""Open until the command ends."""


def address(port: int) -> str:
    """`127.0.0.1:PORT`."""
    return f"{HOST}:{port}"


def port_of(listen: str) -> int:
    """The port of a `HOST:PORT`; 0 when there is none."""
    text = listen.rpartition(":")[2]
    return int(text) if text.isdecimal() else 0


def is_free(listen: str) -> bool:
    """Check whether a daemon could listen there now.

    An address that is not this host's counts as free: the daemon will say more.
    """
    host, _, _ = listen.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port_of(listen)))
            # Two sockets may share an address until one of them listens.
            probe.listen(1)
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True


def choose(count: int, base: int | None, taken: Sequence[int] = ()) -> list[int]:
    """`count` free ports that are not among `taken`: those from `base` on, or some of the system's choice.

    Raises `ClusterError` when one from `base` on is in use.
    """
    if base is not None:
        return _from_base(count, base)
    # Below the ports of outgoing connections, or any program could have one by the next start.
    draw = random.SystemRandom()
    highest = max(_lowest_ephemeral(), _LOWEST + 1000)
    ports: list[int] = []
    for _ in range(_TRIES_MAX + count):
        if len(ports) == count:
            return ports
        port = draw.randrange(_LOWEST, highest)
        if port not in taken and port not in ports and is_free(address(port)) and _reserve(port):
            ports.append(port)
    raise ClusterError("no free ports were found on loopback: name some with --port-base")


def _from_base(count: int, base: int) -> list[int]:
    last = base + count - 1
    if not 1024 <= base <= last <= 65535:
        raise unusable(f"--port-base: {base}: {count} ports are needed from there on, within 1024 to 65535")
    for port in range(base, last + 1):
        if not is_free(address(port)):
            raise ClusterError(
                f"--port-base: port {port} is in use: {count} free ones are needed from {base} on, name another base",
                exits.USAGE,
            )
        # Refused where a connection of an earlier cluster has just ended, which hinders no daemon.
        _reserve(port)
    return list(range(base, last + 1))


def _reserve(port: int) -> bool:
    """Keep the port from other commands that choose, until this command ends; a daemon may listen there all the same.

    The kernel refuses a port to a socket without SO_REUSEADDR as long as any other has it, and gives it to a socket
    with SO_REUSEADDR, such as a daemon's, beside others of the kind that do not listen.
    """
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.bind((HOST, port))
    except OSError:
        holder.close()
        return False
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _reserved.append(holder)
    return True


def _lowest_ephemeral() -> int:
    try:
        with open(_EPHEMERAL, encoding="ascii") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return _EPHEMERAL_DEFAULT
