"""The job's socket: programs of a job ask for changes of their own job, a line each (see `job_lines`).

The kernel says which user connects; the socket is open to all users and takes from each only requests about its own jobs
that run here. Invariants: bytes on a connection can at worst end that connection; connections, lines, requests a second and
idle time are bounded for each user; a flood waits at its own expense.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from eslurm.api.unix_server import bind_path, peer_ids
from eslurm.core.agent.attempt import MAY_START_STEPS
from eslurm.core.agent.node import LocalNode
from eslurm.ports.api import Answerer
from eslurm.transport.counters import ApiCounters
from eslurm.transport.fair_quota import FairQuota
from esnoded.job_cores import JobCores
from esnoded.job_lines import LINE_BYTES_MAX, LineError, answer, read_line, refusal
from esnoded.job_verbs import Verbs

log = logging.getLogger("esnoded.job_socket")

NAME = "job.sock"
UIDS_MAX = 1_024


class JobSocketSettings(msgspec.Struct, frozen=True):
    """Bounds. `burst` requests may come at once, then `requests_per_s`; connecting counts as a request."""

    connections_max: int = 256
    connections_per_uid_max: int = 16
    requests_per_s: float = 20.0
    burst: int = 40
    idle_s: float = 600.0
    write_s: float = 10.0


class JobSocket:
    """Serves one socket. `nodes` are the nodes of this process."""

    def __init__(
        self,
        path: Path,
        answerer: Answerer,
        nodes: Callable[[], Collection[LocalNode]],
        counters: ApiCounters,
        settings: JobSocketSettings | None = None,
    ) -> None:
        """`cores` is set once the agent's core is there."""
        self.cores: JobCores | None = None
        self.path = path
        self._answerer = answerer
        self._nodes = nodes
        self._counters = counters
        self._settings = settings or JobSocketSettings()
        bounds = self._settings
        self._places: FairQuota[int] = FairQuota(bounds.connections_max, bounds.connections_per_uid_max)
        self._due_s: OrderedDict[int, float] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._inode = 0

    async def start(self) -> None:
        """Begin to serve. Raises OSError that names the path."""
        listener = bind_path(self.path)
        self._inode = os.stat(self.path).st_ino
        self._server = await asyncio.start_unix_server(self._connected, sock=listener, limit=LINE_BYTES_MAX)

    async def stop(self) -> None:
        """Close the socket and all connections."""
        if self._server is None:
            return
        self._server.close()
        with contextlib.suppress(OSError):
            if os.stat(self.path).st_ino == self._inode:
                self.path.unlink()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._attend(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            uid, gid = peer_ids(writer.transport)
            if not self._places.enter(uid, privileged=uid == 0):
                writer.write(refusal("EXHAUSTED", "too many connections of this user: close one"))
                return
            self._counters.connections_now += 1
            try:
                await self._serve(reader, writer, uid, gid)
            finally:
                self._counters.connections_now -= 1
                self._places.leave(uid, privileged=uid == 0)
        except (OSError, TimeoutError):
            # It went away, was silent, or does not read its answers.
            pass
        except Exception:
            log.exception("a connection of the job's socket has failed")
        finally:
            writer.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, uid: int, gid: int
    ) -> None:
        bounds = self._settings
        while True:
            await asyncio.sleep(self._pause_s(uid))
            try:
                async with asyncio.timeout(bounds.idle_s):
                    line = await reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return
            except asyncio.LimitOverrunError:
                writer.write(refusal("INVALID", f"the line is longer than {LINE_BYTES_MAX} bytes"))
                return
            writer.write(await self._answer(line[:-1], uid, gid))
            async with asyncio.timeout(bounds.write_s):
                await writer.drain()

    async def _answer(self, line: bytes, uid: int, gid: int) -> bytes:
        self._counters.calls += 1
        try:
            request = read_line(line)
            return answer(await Verbs(self._answerer, uid, gid, self._jobs(uid), self.cores).answer(request))
        except LineError as error:
            self._counters.calls_refused += 1
            return refusal(error.code, str(error))

    def _jobs(self, uid: int) -> set[int]:
        """The user's jobs that run here now."""
        return {
            attempt.job_id
            for node in self._nodes()
            for attempt in node.attempts.values()
            if attempt.stage in MAY_START_STEPS
            and attempt.launch is not None
            and attempt.launch.spec.user.uid == uid
        }

    def _pause_s(self, uid: int) -> float:
        """Seconds until the user may ask the next time. Forgetting a user that asked long ago changes nothing."""
        now_s = asyncio.get_running_loop().time()
        due_s = max(self._due_s.pop(uid, 0.0), now_s) + 1 / self._settings.requests_per_s
        self._due_s[uid] = due_s
        if len(self._due_s) > UIDS_MAX:
            self._due_s.popitem(last=False)
        return max(0.0, due_s - now_s - self._settings.burst / self._settings.requests_per_s)
