"""The private socket for fault injection: one JSON object a line in, one a line out.

Invariant: only the user that runs the daemon can connect (mode 0600 before the first connection is taken), and the socket
exists only while a daemon that was started with `--allow-chaos` runs.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from eslurm.compat.hostlist import fold
from eslurm.faults.switches import Switch

NAME = "chaos.sock"
LINE_BYTES_MAX = 4 << 20


class ChaosRequest(msgspec.Struct, frozen=True):
    """`action` is a `switches.Mode`, "heal" or "show"; no `nodes` means all of the process.

    `for_us` ends the failure by itself; without it only "heal" does.
    """

    action: str
    nodes: str = ""
    for_us: int | None = None
    delay_us: int = 0


class Struck(msgspec.Struct, frozen=True):
    """Nodes that have the same failure; `left_us` is None for one without an end. A satellite names none."""

    nodes: str
    count: int
    mode: str
    left_us: int | None = None
    delay_us: int = 0


class ChaosReply(msgspec.Struct, frozen=True):
    """`changed` nodes were struck or healed; `struck` are the failures in force. With `error` nothing was changed;
    `is_early`: the same request will succeed in a moment.
    """

    changed: int = 0
    struck: tuple[Struck, ...] = ()
    error: str = ""
    is_early: bool = False


class TooEarly(ValueError):
    """It is not possible yet."""


def fold_struck(named: Iterable[tuple[str, Switch]], now_us: int) -> tuple[Struck, ...]:
    """One line for each kind of failure, in the order of the first node that has it."""
    groups: dict[Switch, list[str]] = {}
    for name, switch in named:
        groups.setdefault(switch, []).append(name)
    return tuple(
        Struck(fold(names), len(names), switch.mode.value, left_us(switch, now_us), switch.delay_us)
        for switch, names in groups.items()
    )


def left_us(switch: Switch, now_us: int) -> int | None:
    """Remaining time of the failure in microseconds; None: no end."""
    return None if switch.until_us is None else max(0, switch.until_us - now_us)


class ChaosSocket:
    """Serves `answer` at `path`. An `answer` that raises `ValueError` refuses with its text."""

    def __init__(self, path: Path, answer: Callable[[ChaosRequest], ChaosReply]) -> None:
        self._path = path
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._calls: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self) -> None:
        """Listen. Raises OSError."""
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listener.bind(str(self._path))
            # No connection is possible before it listens.
            os.chmod(self._path, 0o600)
            self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=LINE_BYTES_MAX)
        except BaseException:
            listener.close()
            raise

    async def stop(self) -> None:
        """Close the socket and remove it."""
        if self._server is None:
            return
        self._server.close()
        # A cancelled handler would be reported as an error; one whose connection is gone just ends.
        for writer in self._calls.values():
            writer.transport.abort()
        await asyncio.gather(*self._calls, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._calls[task] = writer
        try:
            while line := await reader.readline():
                writer.write(msgspec.json.encode(self._reply(line)) + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            # The peer has gone, or its line is longer than any request.
            return
        finally:
            del self._calls[task]
            writer.close()

    def _reply(self, line: bytes) -> ChaosReply:
        try:
            return self._answer(msgspec.json.decode(line, type=ChaosRequest))
        except (msgspec.MsgspecError, ValueError) as error:
            return ChaosReply(error=str(error), is_early=isinstance(error, TooEarly))
