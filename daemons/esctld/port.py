"""The port for links, held from the controller's start: another user of the host could take it and so prevent failover.

The socket is bound and never listens, so a dial is refused at once until gRPC listens beside it. Both share the port
(SO_REUSEPORT), which the kernel allows to sockets of one user only. Invariant: it is held until the process ends.
"""

from __future__ import annotations

import socket
from typing import Any

from eslurm.core.model.endpoint import split_endpoint


class HeldPort:
    """Raises OSError that names the endpoint when it is taken, ValueError when it is malformed."""

    def __init__(self, endpoint: str) -> None:
        host, port = split_endpoint(endpoint)
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        except OSError as error:
            raise OSError(error.errno, f"cannot listen at {endpoint}: {error.strerror}") from None
        try:
            if port:
                # Another process of this user would share the port, too: each would get half of the connections.
                with socket.socket(family) as alone:
                    alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    alone.bind(address)
            self._socket = _bound(family, address)
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot listen at {endpoint}: {error.strerror}: end what has the port (ss -ltnp names it), or "
                "choose another one (controller.listen, --listen)",
            ) from None
        port = self._socket.getsockname()[1]
        self.endpoint = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        """Release it."""
        self._socket.close()


def _bound(family: int, address: Any) -> socket.socket:
    """A bound socket. Ended connections of a listener that did not share the port, as in older releases, are no obstacle."""
    held = _reusing(family)
    try:
        held.bind(address)
        with _reusing(family) as brief:
            brief.bind(held.getsockname())
            # The kernel lets any user reuse an address where none listens; having listened, it compares socket by socket.
            brief.listen()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except OSError:
        held.close()
        raise
    return held


def _reusing(family: int) -> socket.socket:
    found = socket.socket(family)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return found
