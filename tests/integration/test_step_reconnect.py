"""The connection of a step is cut, with a real supervisor and the command's own listener: no byte is lost or doubled.

Between them is a relay, whose connections the test cuts.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from escli.user.step_output import LineWriter, StepOutput
from eslurm.core.model.step_input import StepInput
from eslurm.ports.step_runner import OutputEndpoint, OutputFrame, OutputHello, StepEndCause, StepOutcome
from eslurm.security.step_stream import StreamSealer
from esnoded.stepd.client import SupervisorClient
from tests.kits.stepd import PATIENCE_S, Outcomes, Site, eventually, key, order_of, supervised
from tests.kits.stepd_processes import play

COOKIE = bytes(range(32))
TURN_S = 0.02
SIZE = 50_000_000
FIRST = 1_000_000_000
NUMBERED = f"seq -f %0.f {FIRST} 1 2000000000 | head -c"
Meanwhile: TypeAlias = Callable[[], Awaitable[None]]
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: a close is a reset, and what was not delivered is lost."""
_RELAYED_BYTES = 64 * 1024


@pytest.fixture
def site(state_dir: Path) -> Iterator[Site]:
    with supervised(state_dir) as opened:
        opened.start()
        yield opened


class Relay:
    """Passes connections on to a port. `cut` resets all of them; while it is `closed` new ones are reset, too."""

    def __init__(self, target: int) -> None:
        self.is_closed = False
        self.cuts_after: Callable[[], int] | None = None
        """Bytes after which each connection is cut from now on."""
        self.cuts = 0
        self.passed = 0
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        self.cuts += 1
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                # Wakes the thread that reads from it.
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._listener.fileno() < 0:
            return
        self.is_closed = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            if self.is_closed:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                one.close()
                continue
            try:
                other = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                one.close()
                continue
            self._ends += [one, other]
            limit = self.cuts_after() if self.cuts_after is not None else -1
            for source, sink, most in ((one, other, limit), (other, one, -1)):
                thread = threading.Thread(target=self._pump, args=(source, sink, most))
                self._threads.append(thread)
                thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket, most: int) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(_RELAYED_BYTES):
                if 0 <= most < passed + len(data):
                    sink.sendall(data[: most - passed])
                    self.cut()
                    break
                passed += len(data)
                self.passed += len(data)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        sink.close()


class Command:
    """The command of a step of one node, in a thread, behind a relay."""

    def __init__(self, tasks: int = 1) -> None:
        self.out = io.BytesIO()
        self.output = StepOutput("127.0.0.1", COOKIE, LineWriter(self.out, io.BytesIO(), is_unbuffered=True))
        self.output.expect({(-1, "cn1"): tasks})
        self.relay = Relay(int(self.output.endpoint.rpartition(":")[2]))
        self.is_stopping = threading.Event()
        self._input: bytes | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def endpoint(self) -> OutputEndpoint:
        return OutputEndpoint("127.0.0.1", self.relay.port, COOKIE)

    def _run(self) -> None:
        while not self.is_stopping.is_set():
            self.output.run_once(TURN_S)
            self._pass_on()

    def feed(self, text: bytes) -> None:
        """Pass this on as the input of the tasks, and its end."""
        self._input = text

    def _pass_on(self) -> None:
        for taker in self.output.takers:
            if self._input is None or taker.room <= 0:
                break
            count = min(taker.room, _RELAYED_BYTES)
            data, self._input = self._input[:count], self._input[count:] or None
            taker.pass_on(data, eof=self._input is None)

    def stop(self) -> None:
        """End it, and its listener."""
        self.is_stopping.set()
        self._thread.join(PATIENCE_S)
        self.output.close()

    def wait(self, condition: Callable[[], bool]) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end_s
            time.sleep(TURN_S)


@pytest.fixture
def command() -> Iterator[Command]:
    made = Command()
    yield made
    made.stop()
    made.relay.close()


def run_step(
    site: Site, command: Command, script: str, meanwhile: Meanwhile, *, is_shown: bool = True, **fields: Any
) -> StepOutcome:
    """Run a step until the supervisor says that it is over, and the command has all of its output (`is_shown`)."""
    found: list[StepOutcome] = []

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        spec = site.spec(key(), "sh", "-c", script, endpoint=command.endpoint, **fields)
        await client.launch(order_of(spec))
        await eventually(lambda: command.output.connected)
        await meanwhile()
        found.append(await outcomes.of(key()))
        if is_shown:
            await eventually(lambda: command.output.finished)

    play(site, scenario)
    return found[0]


def numbered(size: int) -> bytes:
    """The output of `NUMBERED`."""
    count = size // 11 + 1
    return b"".join([b"%d\n" % at for at in range(FIRST, FIRST + count)])[:size]


def test_fifty_megabytes_over_connections_that_are_cut_anywhere(site: Site, command: Command) -> None:
    """In the opening, the hello, the answer, frames, or the last words; tasks end before their output has arrived."""
    draw = random.Random(7)

    async def cut() -> None:
        command.relay.cuts_after = lambda: draw.choice((60, 200, 4_000, 1_000_000, 9_000_000, 20_000_000))
        (site.work / "go").touch()
        await eventually(lambda: len(command.out.getvalue()) > 1000)
        command.relay.cut()

    outcome = run_step(site, command, f"until test -e go; do sleep 0.02; done; {NUMBERED} {SIZE}", cut)
    assert (outcome.exit_code, outcome.cause, outcome.text) == (0, StepEndCause.EXITED, "")
    assert command.relay.cuts > 5
    shown = command.out.getvalue()
    assert len(shown) == SIZE and hashlib.sha256(shown).digest() == hashlib.sha256(numbered(SIZE)).digest()
    assert command.output.statuses == {0: 0} and not command.output.lost


def test_tasks_go_on_and_end_while_the_network_is_away(site: Site, command: Command) -> None:
    """What is kept is bounded: the task that writes more waits, and goes on when the network is there again."""
    small, large = 1_000_000, 30_000_000

    async def away() -> None:
        # More than is kept has gone out: the command has acknowledged, from where on a cut is one that is mended.
        await eventually(lambda: (site.work / "begun").exists())
        command.relay.is_closed = True
        command.relay.cut()
        (site.work / "go").touch()
        # The first has ended, its output is kept; the second waits for room.
        await eventually(lambda: (site.work / "first").exists())
        await asyncio.sleep(0.5)
        assert not (site.work / "second").exists() and not command.output.lost
        command.relay.is_closed = False

    script = (
        f"{NUMBERED} {large}; touch begun; until test -e go; do sleep 0.02; done; "
        f"{NUMBERED} {small}; touch first; {NUMBERED} {large}; touch second; exit 3"
    )
    outcome = run_step(site, command, script, away)
    assert (outcome.exit_code, outcome.cause, outcome.text) == (3, StepEndCause.EXITED, "")
    assert command.out.getvalue() == numbered(large) + numbered(small) + numbered(large)
    assert command.output.statuses == {0: 3} and not command.output.lost


def test_input_is_neither_lost_nor_doubled(site: Site, command: Command) -> None:
    """5 MB to the task and back, over connections that are cut again and again."""
    text = os.urandom(5_000_000)
    draw = random.Random(3)
    command.feed(text)

    async def cut() -> None:
        command.relay.cuts_after = lambda: draw.choice((300, 70_000, 500_000, 3_000_000))
        await eventually(lambda: len(command.out.getvalue()) > 1000)
        command.relay.cut()

    outcome = run_step(site, command, "exec cat", cut, input=StepInput())
    assert (outcome.exit_code, outcome.text) == (0, "")
    assert command.relay.cuts > 3
    assert command.out.getvalue() == text


def test_a_command_that_is_gone_ends_its_step_at_once(site: Site, command: Command) -> None:
    """Its host says so: nothing listens there."""

    async def stop() -> None:
        command.relay.close()

    outcome = run_step(site, command, "sleep 600", stop, is_shown=False, kill_grace_us=0)
    assert outcome.cause is StepEndCause.SIGNALLED
    assert outcome.text == "connection for its output lost: the reader closed the connection"


def test_a_hello_that_is_thrown_in_again_takes_no_node_s_place(command: Command) -> None:
    """An attacker on the path has recorded a connection. It cannot send back the number that is asked for."""
    sealer = StreamSealer(COOKIE)
    hello = OutputHello(key(), "cn1", 1, resumes=True)
    opening = sealer.opening + sealer.seal(msgspec.msgpack.encode(hello))
    frames = [
        sealer.seal(msgspec.msgpack.encode(frame))
        for frame in (
            OutputFrame(0, 0, 1, b"one\n"),
            OutputFrame(0, 0, 1, b"two\n"),
            OutputFrame(0, 0, 0, exit_status=0),
        )
    ]
    address = ("127.0.0.1", int(command.output.endpoint.rpartition(":")[2]))
    with socket.create_connection(address, PATIENCE_S) as node:
        node.sendall(opening + frames[0])
        assert node.recv(4096)
        with socket.create_connection(address, PATIENCE_S) as again:
            again.sendall(opening)
            # The question.
            assert again.recv(4096)
            again.sendall(frames[0])
            assert again.recv(4096) == b""
        node.sendall(frames[1])
        node.sendall(frames[2])
        command.wait(lambda: command.output.statuses == {0: 0})
    assert command.out.getvalue() == b"one\ntwo\n"
