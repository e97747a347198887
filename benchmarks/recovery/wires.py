"""TCP connections that can be cut and held up: relays on loopback between daemons that know only the relay's address.

Invariant: a whole wire changes nothing of what passes; a stalled one loses nothing, a cut one loses all that is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from typing import Any

from benchmarks.cluster import HOST

_PART_BYTES = 65_536


class _Wire:
    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._passing = asyncio.Event()
        self._passing.set()
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self._writers.add(writer)
        far: asyncio.StreamWriter | None = None
        try:
            if self._is_cut:
                return
            far_reader, far = await asyncio.open_connection(self._host, self._port)
            self._writers.add(far)
            await asyncio.gather(self._pump(reader, far), self._pump(far_reader, writer))
        except OSError:
            return
        finally:
            for one in (writer, far):
                if one is not None:
                    self._writers.discard(one)
                    one.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while part := await reader.read(_PART_BYTES):
            await self._passing.wait()
            writer.write(part)
            await writer.drain()
        writer.close()

    def set(self, state: str) -> None:
        """`whole`, `cut` or `stalled`."""
        self._is_cut = state == "cut"
        if state == "stalled":
            self._passing.clear()
        else:
            self._passing.set()
        if self._is_cut:
            for writer in self._writers:
                writer.transport.abort()


class Wires:
    """Relays to each of `targets`, in a thread of their own. `endpoints` are where they listen, in the same order."""

    def __init__(self, targets: Sequence[str]) -> None:
        self.endpoints: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._wires: list[_Wire] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="wires", daemon=True)
        self._thread.start()
        self._do(self._listen(targets))

    def set(self, number: int, state: str) -> None:
        """Make one of them `whole`, `cut` or `stalled`."""
        self._loop.call_soon_threadsafe(self._wires[number].set, state)

    def close(self) -> None:
        """Cut all and end."""
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self, targets: Sequence[str]) -> None:
        self._servers = []
        for target in targets:
            wire = _Wire(target)
            server = await asyncio.start_server(wire.serve, HOST, 0)
            self._wires.append(wire)
            self._servers.append(server)
            self.endpoints.append(f"{HOST}:{server.sockets[0].getsockname()[1]}")

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for wire in self._wires:
            wire.set("cut")
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*others, return_exceptions=True)
