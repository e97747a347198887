"""A worker: `python -P -m eslurm.loops.worker`, started by the executor or by `esrun`, one for each core.

It says that it is there, computes one chunk at a time, and ends with the coordinator's word or its connection. Its
proof is the loop's cookie, which it takes out of its environment before the function runs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle  # nosec B403 # results are pickled here; unpickled where frames are authenticated
import signal
import socket
import sys
import traceback
from collections import deque
from collections.abc import MutableMapping, Sequence

from eslurm.loops import task, words
from eslurm.loops.alive import keep_alive
from eslurm.loops.cores import Core, worker_of
from eslurm.loops.frames import COOKIE_VARIABLE, FRAME_BYTES_MAX, FrameError, Frames

__all__ = ["label_of", "main", "serve"]

CONNECT_TIMEOUT_S = 60.0
_READ_BYTES = 1 << 20
EXIT_USAGE = 2


class Link:
    """The worker's side of a connection, blocking."""

    def __init__(self, connection: socket.socket, cookie: bytes) -> None:
        self._connection = connection
        self._frames = Frames(cookie, is_coordinator=False)
        self._here: deque[bytes] = deque()
        connection.sendall(self._frames.greeting)
        while not self._frames.is_greeted and self._read():
            pass

    def send(self, payload: bytes) -> None:
        """Send a frame. Raises OSError."""
        self._connection.sendall(self._frames.seal(payload))

    def receive(self) -> bytes | None:
        """The next payload; None when the coordinator has closed. Raises FrameError, OSError."""
        while not self._here:
            if not self._read():
                return None
        return self._here.popleft()

    def _read(self) -> bool:
        data = self._connection.recv(_READ_BYTES)
        self._here.extend(self._frames.feed(data))
        return bool(data)


def serve(connection: socket.socket, cookie: bytes, label: str, core: Core | None = None) -> None:
    """Compute chunks until the coordinator has no more. Raises FrameError, OSError."""
    core = core or Core({}, 0)
    link = Link(connection, cookie)
    link.send(words.write_join(label))
    work: task.Task | None = None
    problem = ""
    is_resting = False
    while (payload := link.receive()) is not None:
        kind, rest = payload[:1], payload[1:]
        if kind == words.STOP:
            return
        if kind == words.TASK:
            try:
                work = task.unpack(rest)
            except (Exception, SystemExit):
                problem = traceback.format_exc()
        elif kind == words.REST:
            core.leave()
            is_resting = True
        elif kind == words.GRANT:
            if is_resting:
                core.take()
                is_resting = False
            answer = _answer(work, problem, *words.read_grant(rest))
            if core.is_asked():
                link.send(words.ASKED)
            link.send(answer)


def _answer(work: task.Task | None, problem: str, number: int, start: int, stop: int) -> bytes:
    if work is None:
        return words.write_failed(number, problem or "the coordinator has not said which function")
    try:
        values, seconds = work.compute(start, stop)
        pickled = pickle.dumps(values, pickle.HIGHEST_PROTOCOL)
    except (Exception, SystemExit):
        return words.write_failed(number, traceback.format_exc())
    answer = words.write_done(number, seconds, pickled)
    if len(answer) > FRAME_BYTES_MAX:
        return words.write_failed(
            number,
            f"the results of {stop - start} iterations take {len(answer)} bytes: set `largest` for smaller chunks",
        )
    return answer


def label_of(environ: MutableMapping[str, str]) -> str:
    """The worker's name for people: its node (or host) and its number there or its process."""
    node = environ.get("SLURMD_NODENAME") or os.uname().nodename
    return f"{node}/{environ.get('SLURM_LOCALID') or os.getpid()}"


def main(argv: Sequence[str], environ: MutableMapping[str, str]) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="eslurm.loops.worker", description="Computes chunks of a loop.")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--fd", type=int, help="a connected socket that was inherited")
    way.add_argument("--connect", metavar="HOST:PORT", help="the coordinator's address")
    given = parser.parse_args(argv)
    try:
        cookie = bytes.fromhex(environ.pop(COOKIE_VARIABLE, ""))
        # Ctrl-C goes to every process of a terminal; the coordinator ends its workers by itself.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        core = Core(environ, worker_of(environ))
        core.take()
        with _connected(given.fd, given.connect) as connection, contextlib.suppress(ConnectionError):
            # A connection that ends is the end of the loop: other workers were faster.
            serve(connection, cookie, label_of(environ), core)
    except (FrameError, ValueError) as error:
        sys.stderr.write(f"eslurm.loops.worker: {error}\n")
        return EXIT_USAGE
    except OSError as error:
        where = given.connect or "its socket"
        sys.stderr.write(f"eslurm.loops.worker: the coordinator at {where} cannot be reached: {error}\n")
        return 1
    return 0


def _connected(fd: int | None, address: str | None) -> socket.socket:
    if fd is not None:
        return socket.socket(fileno=fd)
    host, _, port = (address or "").rpartition(":")
    connection = socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S)
    connection.settimeout(None)
    keep_alive(connection)
    return connection


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
