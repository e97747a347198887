"""A load generator in a process of its own, as light as it can be: everything is encoded before the clock starts.

Started with a plan as JSON in its first argument, it says `ready`, waits for a line, works, and answers with its
result as JSON. Invariant: one call is outstanding per connection.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import select
import socket
import subprocess
import sys
import time
from typing import Any

import msgspec

from benchmarks import jobs
from benchmarks.processes import module
from eslurm.api.methods import JOBS, PING, SUBMIT
from eslurm.transport.framing import REPLY_HEADER, REQUEST_HEADER, VERSION, retry_s
from eslurm.v1 import controller_pb2 as pb

DEADLINE_S = 60
PING_EVERY_S = 0.001


class Plan(msgspec.Struct, frozen=True):
    """A load. `kind` is submit, grpc, ping or poll; the last two run until their standard input ends.

    A poll load asks for the whole queue over `connections` at full speed, and comes again on request. `uid` (where the
    benchmark is root's) is the user of a submit or poll load. Each job of a submit load has `tasks` one-core tasks and
    runs for `work_s`, the first one on as many nodes as `nodes` says first, and so round; `cells` of a federation may take
    it, and with `span` several nodes may be of several of them.
    """

    kind: str
    socket: str = ""
    endpoint: str = ""
    token: str = ""
    connections: int = 8
    first: int = 0
    jobs: int = 0
    jobs_per_call: int = 1
    work_dir: str = "/tmp"
    held: bool = False
    output: str = ""
    uid: int = 0
    cells: list[str] = []
    work_s: int = 0
    tasks: int = 1
    nodes: tuple[int, ...] = (1,)
    span: bool = False


class Result(msgspec.Struct, frozen=True):
    """The result of a load. `took_s`: from the first call to the last answer; `waits_ms`: of pings only; `refused`: of
    polls, those told to come again later.
    """

    done: int
    took_s: float
    cpu_s: float
    waits_ms: list[float] = []
    refused: int = 0


class Load:
    """The other end: starts a generator, lets it go, takes its result."""

    def __init__(self, plan: Plan) -> None:
        self._process = subprocess.Popen(
            module("benchmarks.load", msgspec.json.encode(plan).decode()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._line()

    def go(self) -> None:
        """Start the clock."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def result(self) -> Result:
        """Wait for the end. Raises RuntimeError when the generator failed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        line = self._line()
        self._process.wait()
        return msgspec.json.decode(line, type=Result)

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise RuntimeError(f"a load generator ended with status {self._process.returncode}")
        return line


def run(plan: Plan) -> Result:
    """One load from start to end."""
    load = Load(plan)
    load.go()
    return load.result()


# ---- in the generator's process ----


def frame(number: int, payload: bytes, stream: int = 1) -> bytes:
    """One request as it goes over the Unix socket, under a request id of its own."""
    return (
        REQUEST_HEADER.pack(len(payload), VERSION, 0, number, stream, DEADLINE_S * 1000, os.urandom(16))
        + payload
    )


def connect(path: str) -> socket.socket:
    """A connection to the Unix socket."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    return connection


def receive(connection: socket.socket) -> tuple[int, bytes]:
    """One reply: its status and body."""
    status, _after_s, body = receive_all(connection)
    return status, body


def receive_all(connection: socket.socket) -> tuple[int, float, bytes]:
    """One reply: its status, the seconds after which to come again, and its body."""
    header = _exactly(connection, REPLY_HEADER.size)
    length, _version, status, after, _stream = REPLY_HEADER.unpack(header)
    return status, retry_s(after), _exactly(connection, length)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    with memoryview(data) as view:
        at = 0
        while at < size:
            more = connection.recv_into(view[at:])
            if not more:
                raise ConnectionError("the service closed the connection")
            at += more
    return bytes(data)


def _submit(plan: Plan) -> Result:
    _become(plan)
    frames = [
        frame(SUBMIT.number, call)
        for call in jobs.calls(
            plan.first,
            plan.jobs,
            plan.jobs_per_call,
            plan.work_dir,
            held=plan.held,
            output=plan.output,
            cells=plan.cells,
            work_s=plan.work_s,
            tasks=plan.tasks,
            nodes=plan.nodes,
            span=plan.span,
        )
    ]
    connections = {one.fileno(): one for one in (connect(plan.socket) for _ in range(plan.connections))}
    poll = select.epoll()
    for fd in connections:
        poll.register(fd, select.EPOLLIN)
    _begin()
    began, cpu = time.perf_counter(), time.process_time()
    left = iter(frames)
    busy = 0
    for connection, data in zip(connections.values(), left, strict=False):
        connection.sendall(data)
        busy += 1
    # Not `zip(left, ...)`: a frame taken and not sent would be lost.
    while busy:
        for fd, _event in poll.poll():
            connection = connections[fd]
            status, body = receive(connection)
            if status:
                raise RuntimeError(f"refused with status {status}: {body.decode()}")
            data = next(left, b"")
            if data:
                connection.sendall(data)
            else:
                busy -= 1
    return Result(plan.jobs, time.perf_counter() - began, time.process_time() - cpu)


def _submit_grpc(plan: Plan) -> Result:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_over_grpc(plan))


async def _over_grpc(plan: Plan) -> Result:
    import grpc.aio

    from eslurm.api.interceptor import REQUEST_ID_KEY
    from eslurm.transport.options import door_channel_options

    calls = jobs.calls(
        plan.first, plan.jobs, plan.jobs_per_call, plan.work_dir, held=plan.held, output=plan.output
    )
    # Channels to one address would share a connection.
    options = [*door_channel_options(), ("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(plan.endpoint, options) for _ in range(plan.connections)]
    authorization = ("authorization", f"Bearer {plan.token}")
    for channel in channels:
        ping: Any = channel.unary_unary(PING.path)
        await ping(b"", timeout=DEADLINE_S, metadata=(authorization,))
    left = iter(calls)

    async def one_after_another(channel: grpc.aio.Channel) -> None:
        submit: Any = channel.unary_unary(SUBMIT.path)
        for call in left:
            metadata = (authorization, (REQUEST_ID_KEY, os.urandom(16)))
            await submit(call, timeout=DEADLINE_S, metadata=metadata)

    _begin()
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(one_after_another(channel) for channel in channels))
    result = Result(plan.jobs, time.perf_counter() - began, time.process_time() - cpu)
    for channel in channels:
        await channel.close()
    return result


def _ping(plan: Plan) -> Result:
    connection = connect(plan.socket)
    payload = pb.PingRequest().SerializeToString()
    waits_ms: list[float] = []
    _begin()
    began, cpu = time.perf_counter(), time.process_time()
    ended = select.epoll()
    ended.register(sys.stdin.fileno(), select.EPOLLIN | select.EPOLLHUP)
    while not ended.poll(PING_EVERY_S):
        asked = time.perf_counter()
        connection.sendall(frame(PING.number, payload))
        receive(connection)
        waits_ms.append((time.perf_counter() - asked) * 1000)
    return Result(len(waits_ms), time.perf_counter() - began, time.process_time() - cpu, waits_ms)


def _poll(plan: Plan) -> Result:
    _become(plan)
    connections = {one.fileno(): one for one in (connect(plan.socket) for _ in range(plan.connections))}
    ask = frame(JOBS.number, pb.JobsRequest().SerializeToString())
    _begin()
    began, cpu = time.perf_counter(), time.process_time()
    poll = select.epoll()
    poll.register(sys.stdin.fileno(), select.EPOLLIN | select.EPOLLHUP)
    for fd, connection in connections.items():
        poll.register(fd, select.EPOLLIN)
        connection.sendall(ask)
    done = refused = 0
    later: list[tuple[float, int]] = []
    while True:
        wait_s = max(0.0, later[0][0] - time.monotonic()) if later else -1
        for fd, _event in poll.poll(wait_s):
            if fd == sys.stdin.fileno():
                return Result(done, time.perf_counter() - began, time.process_time() - cpu, [], refused)
            status, after_s, _body = receive_all(connections[fd])
            if not status:
                done += 1
                connections[fd].sendall(ask)
            else:
                refused += 1
                heapq.heappush(later, (time.monotonic() + after_s, fd))
        while later and later[0][0] <= time.monotonic():
            connections[heapq.heappop(later)[1]].sendall(ask)


def _become(plan: Plan) -> None:
    if plan.uid and os.getuid() == 0:
        os.setresgid(plan.uid, plan.uid, plan.uid)
        os.setresuid(plan.uid, plan.uid, plan.uid)


def _begin() -> None:
    """Everything is prepared: say so, and wait for the word."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    # Not the buffered reader: what follows the line is for `_ping` to see.
    os.read(sys.stdin.fileno(), 3)


_KINDS = {"submit": _submit, "grpc": _submit_grpc, "ping": _ping, "poll": _poll}


def main() -> None:
    """The generator."""
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    result = _KINDS[plan.kind](plan)
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


if __name__ == "__main__":
    main()
