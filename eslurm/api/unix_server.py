"""The API socket for commands on this host: framed protobuf on a Unix socket.

The kernel identifies the caller. Invariant: bytes on a connection can at worst end that connection; calls, connections and
buffers are bounded, few users cannot fill the socket, and operators find a place in it; every call is answered, expires,
or ends with its connection. After a refusal with a retry time nothing is read from the caller for a while: asking on at
full speed then costs only the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from eslurm.api.methods import BY_NUMBER, Method, too_large_text
from eslurm.api.principals import Principals
from eslurm.api.status import refusal_of
from eslurm.core.model.job import Principal
from eslurm.ports.api import Answered, Answerer, Caller, Status
from eslurm.transport.counters import ApiCounters
from eslurm.transport.fair_quota import FairQuota
from eslurm.transport.framing import (
    CONNECTION_STREAM,
    FLAG_RETRY,
    NO_REQUEST_ID,
    REPLY_HEADER,
    REQUEST_BYTES_MAX,
    REQUEST_HEADER,
    VERSION,
    retry_units,
)
from eslurm.transport.peers import connections_room

_HEADER_BYTES = REQUEST_HEADER.size
_UCRED = struct.Struct("=iII")
_HOLD_MAX_S = 1.0
_SMALL_BYTES = 64 * 1024
"""Requests up to this size are bounded by the number of calls and connections, which large ones do not take."""


class UnixServerSettings(msgspec.Struct, frozen=True):
    """Bounds of a Unix server."""

    connections_max: int = 1024
    connections_per_uid_max: int = 256
    calls_per_connection_max: int = 256
    calls_max: int = 8192
    request_bytes_max: int = REQUEST_BYTES_MAX
    bytes_per_uid_max: int = 2 * REQUEST_BYTES_MAX
    """Requests in memory, whole or begun, of one user; `bytes_max`: of all."""
    bytes_max: int = 8 * REQUEST_BYTES_MAX
    request_timeout_s: float = 30.0
    """For a request that has begun to arrive whole."""
    backlog: int = 1024


class UnixServer:
    """Serves one socket. The socket is open to all users: rights are checked per call."""

    def __init__(
        self,
        path: str | Path,
        answerer: Answerer,
        principals: Principals,
        settings: UnixServerSettings | None = None,
        counters: ApiCounters | None = None,
        is_privileged: Callable[[int], bool] = lambda _uid: False,
    ) -> None:
        """`is_privileged` names the uids, besides root and this process's own, that may use the reserve."""
        self._own = (0, os.geteuid())
        self._is_privileged = is_privileged
        self.path = Path(path)
        self.answerer = answerer
        self.principals = principals
        # A quarter of the descriptors at most: remote peers may take half of them.
        connections_max = min(UnixServerSettings().connections_max, connections_room() // 2)
        self.settings = settings or UnixServerSettings(connections_max=connections_max)
        self.counters = counters or ApiCounters()
        self.calls: FairQuota[int] = FairQuota(self.settings.calls_max, self.settings.calls_max)
        self.places: FairQuota[int] = FairQuota(
            self.settings.connections_max, self.settings.connections_per_uid_max
        )
        self.bytes_now = 0
        self.bytes_by_uid: Counter[int] = Counter()
        self.connections: set[_Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._server: asyncio.Server | None = None
        self._inode = 0

    def is_privileged(self, uid: int) -> bool:
        """Check whether this user may use the reserve."""
        return uid in self._own or self._is_privileged(uid)

    async def start(self) -> None:
        """Begin to serve. Raises OSError that names the path when it is too long, taken, or not a socket."""
        listener = bind_path(self.path)
        self._inode = os.stat(self.path).st_ino
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: _Connection(self, loop), sock=listener, backlog=self.settings.backlog
        )

    async def stop(self, grace_s: float = 1.0) -> None:
        """Close the socket and all connections; answers on their way have `grace_s` to be read.

        Calls that should still be answered are drained at the authoriser before.
        """
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(OSError):
            # Not another process's socket that took the place meanwhile.
            if os.stat(self.path).st_ino == self._inode:
                self.path.unlink()
        for connection in list(self.connections):
            connection.close()
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        for connection in list(self.connections):
            connection.abort()
        await self._empty.wait()

    def count_bytes(self, uid: int, change: int) -> bool:
        """Count the bytes of a user's requests; returns whether they are within bounds."""
        self.bytes_now += change
        self.bytes_by_uid[uid] += change
        used = self.bytes_by_uid[uid]
        if not used:
            del self.bytes_by_uid[uid]
        return used <= self.settings.bytes_per_uid_max and self.bytes_now <= self.settings.bytes_max

    def enter(self, connection: _Connection, uid: int) -> bool:
        """Count a connection in, if it is admitted."""
        self.counters.connections += 1
        if not self.places.enter(uid, privileged=self.is_privileged(uid)):
            return False
        self.connections.add(connection)
        self.counters.connections_now += 1
        self._empty.clear()
        return True

    def leave(self, connection: _Connection, uid: int) -> None:
        """Count a connection out, if it was in."""
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        self.counters.connections_now -= 1
        self.places.leave(uid, privileged=self.is_privileged(uid))
        if not self.connections:
            self._empty.set()


def bind_path(path: Path) -> socket.socket:
    """A bound socket, mode 0666, in a directory all may enter; a dead process's socket is replaced."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if path.exists() or path.is_symlink():
        _remove_dead(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.bind(str(path))
        path.chmod(0o666)
    except OSError as error:
        listener.close()
        # A name that does not fit says so without a number.
        raise OSError(
            error.errno or errno.ENAMETOOLONG, f"cannot listen at {path}: {error.strerror or error}"
        ) from None
    return listener


def _remove_dead(path: Path) -> None:
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise OSError(errno.EEXIST, f"{path} exists and is not a socket; remove it or choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        # EAGAIN means a full backlog: a process listens there.
        taken = probe.connect_ex(str(path)) in (0, errno.EAGAIN)
    if taken:
        raise OSError(errno.EADDRINUSE, f"another process serves {path}; stop it first")
    path.unlink(missing_ok=True)


def peer_ids(transport: asyncio.BaseTransport) -> tuple[int, int]:
    """(uid, gid) of the process that connected, as the kernel recorded them then."""
    raw = transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    _pid, uid, gid = _UCRED.unpack(raw)
    return uid, gid


class _Call:
    """One call under way on a connection."""

    __slots__ = ("size_bytes", "task", "timer")

    def __init__(self, task: asyncio.Task[None], timer: asyncio.TimerHandle, size_bytes: int) -> None:
        self.task = task
        self.timer = timer
        self.size_bytes = size_bytes


class _Connection(asyncio.Protocol):
    def __init__(self, server: UnixServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._uid = -1
        self._principal: Principal | None = None
        # What has come and is not taken yet; nothing is looked at before so many bytes are there.
        self._buffer = bytearray()
        self._needed = _HEADER_BYTES
        self._calls: dict[int, _Call] = {}
        self._replies: list[bytes] = []
        self._broken = False
        # Causes of a stop in reading: unread answers, or a refusal with a retry time.
        self._full = False
        self._held: asyncio.TimerHandle | None = None
        # What the server has counted of the buffer, and when a request that has begun must have come whole.
        self._counted_bytes = 0
        self._due: asyncio.TimerHandle | None = None

    # ---- the connection ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self._server
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        uid, gid = peer_ids(transport)
        self._uid = uid
        if not server.enter(self, uid):
            self._break(Status.UNAVAILABLE, "too many connections to this socket; try again")
            return
        self._principal = server.principals.cached(uid, gid)
        if self._principal is None:
            self._keep(self._loop.create_task(self._identify(uid, gid), name=f"principal {uid}"))

    async def _identify(self, uid: int, gid: int) -> None:
        try:
            self._principal = await self._server.principals.resolve(uid, gid)
        except Exception as error:
            self._break(refusal_of(error).status, f"uid {uid} could not be looked up")
            return
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._held is not None:
            self._held.cancel()
        server = self._server
        server.leave(self, self._uid)
        for stream, call in list(self._calls.items()):
            self._end_call(stream)
            call.task.cancel()
        self._buffer.clear()
        self._on_buffer()

    def pause_writing(self) -> None:
        """Read no more requests from a client that does not read its answers."""
        self._full = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._full = False
        self._go_on()

    def _hold(self, retry_after_s: float) -> None:
        """Stop reading for a while."""
        if self._held is None and self._transport is not None:
            self._transport.pause_reading()
            self._held = self._loop.call_later(min(retry_after_s, _HOLD_MAX_S), self._release)

    def _release(self) -> None:
        self._held = None
        self._go_on()

    def _go_on(self) -> None:
        """Process received bytes and read on, unless another cause still prevents it."""
        if self._principal is None or self._full or self._held is not None or self._broken:
            return
        if self._transport is not None and not self._transport.is_closing():
            self._take_frames()
            if not self._broken:
                self._transport.resume_reading()

    def close(self) -> None:
        """End the connection after its answers have gone out."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def _break(self, status: Status, text: str) -> None:
        self._broken = True
        self._buffer.clear()
        self._on_buffer()
        self._reply(CONNECTION_STREAM, status, text.encode())
        self.close()

    # ---- requests ----

    def data_received(self, data: bytes) -> None:
        if self._broken:
            return
        self._buffer += data
        if len(self._buffer) < self._needed or self._held is not None:
            self._on_buffer()
        elif self._principal is not None:
            self._take_frames()
        elif self._transport is not None:
            # Not in `connection_made`: uvloop begins to read after it in any case.
            self._transport.pause_reading()

    def _take_frames(self) -> None:
        buffer = self._buffer
        offset = 0
        self._needed = _HEADER_BYTES
        most_bytes = self._server.settings.request_bytes_max
        while len(buffer) - offset >= _HEADER_BYTES:
            header = REQUEST_HEADER.unpack_from(buffer, offset)
            length, version = header[0], header[1]
            if version != VERSION:
                self._garbage(f"a frame of version {version}; this server speaks version {VERSION}")
                return
            method = BY_NUMBER.get(header[3])
            if length > most_bytes or (method is not None and length > method.request_bytes_max):
                # By its header alone: nothing of it is kept.
                self._garbage(
                    too_large_text(method, length)
                    if method is not None and method.request_bytes_max < most_bytes
                    else f"a request of {length} bytes; at most {most_bytes} are taken"
                )
                return
            end = offset + _HEADER_BYTES + length
            if len(buffer) < end:
                self._needed = end - offset
                break
            with memoryview(buffer) as view:
                # One copy, of what may be megabytes.
                payload = bytes(view[offset + _HEADER_BYTES : end])
            self._begin(header, payload)
            if self._broken:
                return
            offset = end
        del buffer[:offset]
        self._on_buffer(new=offset > 0)

    def _on_buffer(self, *, new: bool = False) -> None:
        """The buffer has changed; with `new` what it holds is the beginning of another request."""
        size_bytes = len(self._buffer)
        change, self._counted_bytes = size_bytes - self._counted_bytes, size_bytes
        fits = not change or self._server.count_bytes(self._uid, change)
        if self._due is not None and (new or not size_bytes):
            self._due.cancel()
            self._due = None
        if not fits and size_bytes > _SMALL_BYTES and change > 0:
            self._server.counters.calls_refused += 1
            self._break(Status.RESOURCE_EXHAUSTED, "too much of unfinished requests; try again later")
        elif size_bytes and self._due is None:
            self._due = self._loop.call_later(self._server.settings.request_timeout_s, self._on_due)

    def _on_due(self) -> None:
        self._due = None
        if self._principal is None or self._full or self._held is not None:
            # This side has stopped reading.
            self._on_buffer()
        else:
            self._garbage(
                f"a request that was not whole within {self._server.settings.request_timeout_s:g} s"
            )

    def _garbage(self, text: str) -> None:
        self._server.counters.broken_frames += 1
        self._break(Status.INVALID_ARGUMENT, text)

    def _begin(self, header: tuple[Any, ...], payload: bytes) -> None:
        _length, _version, flags, number, stream, deadline_ms, request_id = header
        server = self._server
        server.counters.calls += 1
        if stream == CONNECTION_STREAM or stream in self._calls:
            self._garbage(f"stream {stream} is in use")
            return
        method = BY_NUMBER.get(number)
        if method is None:
            self._refuse(stream, Status.UNIMPLEMENTED, f"this server knows no method {number}; is it older?")
            return
        if not deadline_ms:
            self._refuse(stream, Status.INVALID_ARGUMENT, f"{method.name} needs a deadline")
            return
        if len(self._calls) >= server.settings.calls_per_connection_max or not server.calls.enter(
            self._uid, privileged=server.is_privileged(self._uid)
        ):
            self._refuse(stream, Status.RESOURCE_EXHAUSTED, "too many calls at once; wait for answers")
            return
        if not server.count_bytes(self._uid, len(payload)) and len(payload) > _SMALL_BYTES:
            server.count_bytes(self._uid, -len(payload))
            server.calls.leave(self._uid, privileged=server.is_privileged(self._uid))
            self._refuse(stream, Status.RESOURCE_EXHAUSTED, "too many large calls at once; wait for answers")
            return
        assert self._principal is not None
        caller = Caller(
            self._principal,
            b"" if request_id == NO_REQUEST_ID else request_id,
            bool(flags & FLAG_RETRY),
            deadline_ms * 1000,
            "socket",
        )
        task = self._loop.create_task(self._answer(stream, method, payload, caller))
        self._keep(task)
        timer = self._loop.call_later(deadline_ms / 1000, self._expire, stream)
        self._calls[stream] = _Call(task, timer, len(payload))

    def _keep(self, task: asyncio.Task[None]) -> None:
        tasks = self._server.tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _answer(self, stream: int, method: Method[Any, Any], payload: bytes, caller: Caller) -> None:
        try:
            answered = await self._server.answerer.answer(method, payload, caller)
        except Exception as error:
            refusal = refusal_of(error)
            answered = Answered(refusal.status, refusal.text, b"", refusal.retry_after_s)
        if self._end_call(stream):
            if answered.status is Status.OK:
                self._reply(stream, Status.OK, answered.reply)
            else:
                self._refuse(stream, answered.status, answered.text, answered.retry_after_s)
                if answered.retry_after_s:
                    self._hold(answered.retry_after_s)

    def _expire(self, stream: int) -> None:
        call = self._calls[stream]
        self._end_call(stream)
        call.task.cancel()
        self._refuse(stream, Status.DEADLINE_EXCEEDED, "the deadline passed before the answer was known")

    def _end_call(self, stream: int) -> bool:
        call = self._calls.pop(stream, None)
        if call is None:
            return False
        call.timer.cancel()
        self._server.calls.leave(self._uid, privileged=self._server.is_privileged(self._uid))
        self._server.count_bytes(self._uid, -call.size_bytes)
        return True

    # ---- replies ----

    def _refuse(self, stream: int, status: Status, text: str, retry_after_s: float = 0.0) -> None:
        self._server.counters.calls_refused += 1
        self._reply(stream, status, text.encode(), retry_after_s)

    def _reply(self, stream: int, status: Status, body: bytes, retry_after_s: float = 0.0) -> None:
        if self._transport is None:
            return
        if not self._replies:
            # Answers that become known in the same tick share a write.
            self._loop.call_soon(self._flush)
        self._replies.append(
            REPLY_HEADER.pack(len(body), VERSION, status, retry_units(retry_after_s), stream)
        )
        self._replies.append(body)

    def _flush(self) -> None:
        replies, self._replies = self._replies, []
        if replies and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(replies))
