"""A scraper as light as it can be, in a process of its own: keeps its connections, looks at every endpoint once a second.

Started with endpoints as arguments; a line `on` or `off` on standard input lets it look or rest, and is answered `done`
after a look that was under way. When its input ends it tells as JSON what it has seen.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time

import msgspec

from benchmarks.processes import module

EVERY_S = 1.0
TIMEOUT_S = 10.0


class Seen(msgspec.Struct, frozen=True):
    """All looks: how long each took, by endpoint, in milliseconds; the last page's size; CPU seconds of the scraper."""

    took_ms: dict[str, list[float]]
    bytes: dict[str, int]
    cpu_s: float


class Watcher:
    """The other end: starts a scraper that rests, lets it look and rest, takes what it saw."""

    def __init__(self, endpoints: list[str]) -> None:
        self._process = subprocess.Popen(
            module("benchmarks.watcher", *endpoints), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def look(self, looking: bool) -> None:
        """Look every second from now on, or rest."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b"on\n" if looking else b"off\n")
        self._process.stdin.flush()
        if self._process.stdout.readline() != b"done\n":
            raise RuntimeError("the scraper has failed: its last words are above")

    def result(self) -> Seen:
        """End it. What it saw."""
        output, _ = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError("the scraper has failed: its last words are above")
        return msgspec.json.decode(output, type=Seen)


class Endpoint:
    """A connection that is kept, and how long each page took."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.rpartition(":")
        self._request = f"GET /metrics HTTP/1.1\r\nHost: {endpoint}\r\n\r\n".encode()
        self._address = (host, int(port))
        self._socket: socket.socket | None = None
        self.took_ms: list[float] = []
        self.bytes = 0

    def connect(self) -> None:
        """Anew: daemons hang up on those who have not looked for a while."""
        self.close()
        self._socket = socket.create_connection(self._address, TIMEOUT_S)

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()

    def look(self) -> None:
        """One page."""
        assert self._socket is not None
        began_s = time.perf_counter()
        self._socket.sendall(self._request)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._receive()
        head, _, body = data.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(head.decode())
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        left = int(fields["Content-Length"]) - len(body)
        while left > 0:
            left -= len(self._receive())
        self.took_ms.append(1_000 * (time.perf_counter() - began_s))
        self.bytes = int(fields["Content-Length"])

    def _receive(self) -> bytes:
        assert self._socket is not None
        data = self._socket.recv(1 << 17)
        if not data:
            raise ConnectionError("the service closed the connection")
        return data


def main(names: list[str]) -> None:
    """The scraper."""
    endpoints = {name: Endpoint(name) for name in names}
    orders = b""
    looking, next_s = False, 0.0
    while True:
        wait_s = max(0.0, next_s - time.monotonic()) if looking else None
        if select.select([sys.stdin], [], [], wait_s)[0]:
            read = os.read(sys.stdin.fileno(), 64)
            if not read:
                break
            orders += read
            *lines, orders = orders.split(b"\n")
            for line in lines:
                looking, next_s = line == b"on", time.monotonic()
                for endpoint in endpoints.values():
                    (endpoint.connect if looking else endpoint.close)()
                os.write(sys.stdout.fileno(), b"done\n")
        elif looking:
            next_s += EVERY_S
            for endpoint in endpoints.values():
                endpoint.look()
    seen = Seen(
        {name: one.took_ms for name, one in endpoints.items()},
        {name: one.bytes for name, one in endpoints.items()},
        time.process_time(),
    )
    os.write(sys.stdout.fileno(), msgspec.json.encode(seen))


if __name__ == "__main__":
    main(sys.argv[1:])
