"""Input of a step's tasks by a real supervisor: each its own pace, nothing lost, and peers that do not keep the rules."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from eslurm.core.model.step_input import StepInput
from eslurm.ports.step_runner import (
    INPUT_DONE,
    InputFrame,
    OutputEndpoint,
    OutputFrame,
    OutputHello,
    StepEndCause,
    StepOutcome,
)
from eslurm.security.step_stream import StreamOpener, StreamSealer
from esnoded.stepd.client import SupervisorClient
from esnoded.stepd.input_window import WINDOW_BYTES
from tests.kits.stepd import PATIENCE_S, Outcomes, Site, eventually, key, supervised
from tests.kits.stepd_processes import USERS, play

COOKIE = bytes(range(32))
BIG = os.urandom(5_000_000)
PIPE_BYTES = 64 * 1024
FRAME_BYTES = 64 * 1024


@pytest.fixture
def site(state_dir: Path) -> Iterator[Site]:
    with supervised(state_dir) as opened:
        opened.start()
        yield opened


class Command:
    """The listener of `esrun`: sends what it is granted of `text`, and its end."""

    def __init__(self, text: bytes = b"", *, ends: bool = True) -> None:
        self.hello: OutputHello | None = None
        self.outputs: dict[int, bytes] = {}
        self.is_done = False
        """No task reads any more."""
        self.sent = 0
        self.closed = asyncio.Event()
        self._text = text
        self._ends = ends
        self._granted = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = StreamOpener(COOKIE)
        # What the supervisor has not read when it hangs up makes it a reset.
        with contextlib.suppress(ConnectionResetError):
            while data := await reader.read(65_536):
                for body in stream.feed(data):
                    if self.hello is None:
                        self.hello = msgspec.msgpack.decode(body, type=OutputHello)
                        self._granted = self.hello.input_bytes
                        await self.begin(stream.back(), writer)
                    else:
                        self._take(msgspec.msgpack.decode(body, type=OutputFrame))
                self._send_on(writer)
        writer.close()
        self.closed.set()

    async def begin(self, sealer: StreamSealer, writer: asyncio.StreamWriter) -> None:
        self._sealer = sealer
        self.send(writer, InputFrame())

    def send(self, writer: asyncio.StreamWriter, frame: InputFrame) -> None:
        writer.write(self._sealer.seal(msgspec.msgpack.encode(frame)))

    def _take(self, frame: OutputFrame) -> None:
        if frame.input_bytes == INPUT_DONE:
            self.is_done = True
        elif frame.input_bytes is not None:
            self._granted = frame.input_bytes
        elif frame.stream == 1:
            self.outputs[frame.task] = self.outputs.get(frame.task, b"") + frame.data

    def _send_on(self, writer: asyncio.StreamWriter) -> None:
        while not self.is_done and self.sent < min(self._granted, len(self._text)):
            end = min(self._granted, len(self._text), self.sent + FRAME_BYTES)
            self.send(writer, InputFrame(self._text[self.sent : end]))
            self.sent = end
        if self.sent == len(self._text) and self._ends and not self.is_done:
            self._ends = False
            self.send(writer, InputFrame(eof=True))


def run_with(
    site: Site,
    command: Command,
    *argv: str,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
    given: StepInput | None = StepInput(),  # noqa: B008 - it is frozen
    tasks: int = 2,
    first_task: int = 6,
    uid: int = -1,
    mpi: str = "",
) -> StepOutcome:
    """Run a step whose command is this one to its end."""
    found: list[StepOutcome] = []
    uid = os.getuid() if uid < 0 else uid

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        server = await asyncio.start_server(command.serve, "127.0.0.1", 0)
        async with server, asyncio.timeout(PATIENCE_S):
            endpoint = OutputEndpoint("127.0.0.1", server.sockets[0].getsockname()[1], COOKIE)
            spec = site.spec(
                key(),
                *argv,
                tasks=tasks,
                first_task=first_task,
                input=given,
                endpoint=endpoint,
                uid=uid,
                gid=uid,
                mpi=mpi,
            )
            await client.launch(spec)
            if meanwhile is not None:
                await meanwhile()
            found.append(await outcomes.of(spec.key))
            await command.closed.wait()

    play(site, scenario)
    return found[0]


@pytest.mark.parametrize("uid", USERS)
def test_each_task_reads_all_of_it(site: Site, uid: int) -> None:
    command = Command(BIG)
    assert run_with(site, command, "sha256sum", uid=uid).exit_code == 0
    digest = f"{hashlib.sha256(BIG).hexdigest()}  -\n".encode()
    assert command.outputs == {6: digest, 7: digest}


def test_what_goes_in_comes_out(site: Site) -> None:
    """Both ways are full at the same time."""
    command = Command(BIG)
    assert run_with(site, command, "cat").exit_code == 0
    assert command.outputs == {6: BIG, 7: BIG}


def test_one_task_reads_and_the_other_has_no_input(site: Site) -> None:
    command = Command(b"for one\n")
    script = site.script('read line; echo "$ESLURM_PROCID: $line"')
    assert run_with(site, command, script, given=StepInput(7)).exit_code == 0
    assert command.outputs[7].endswith(b": for one\n") and command.outputs[6].endswith(b": \n")


def test_no_task_of_a_step_without_input_is_granted_any(site: Site) -> None:
    command = Command(ends=False)
    assert run_with(site, command, "cat", given=None).exit_code == 0
    assert command.hello is not None and command.hello.input_bytes == 0


def test_a_task_that_reads_nothing_bounds_what_is_sent_until_it_ends(site: Site) -> None:
    command = Command(BIG)
    script = site.script(
        'test "$ESLURM_LOCALID" = 0 || { until test -e gate; do sleep 0.02; done; exit 0; }\ncat'
    )

    async def meanwhile() -> None:
        await eventually(lambda: command.sent >= WINDOW_BYTES)
        # The sleeper's pipe takes some; the window holds the rest for it.
        await eventually(lambda: len(command.outputs.get(6, b"")) >= WINDOW_BYTES)
        assert command.sent <= WINDOW_BYTES + PIPE_BYTES
        (site.work / "gate").touch()

    assert run_with(site, command, script, meanwhile=meanwhile).exit_code == 0
    assert command.outputs[6] == BIG


def test_where_no_task_reads_any_more_that_is_told(site: Site) -> None:
    command = Command(BIG, ends=False)
    assert run_with(site, command, "head", "-c", "10").exit_code == 0
    assert command.is_done
    assert command.outputs == {6: BIG[:10], 7: BIG[:10]}


def test_input_that_stays_open_does_not_keep_a_step(site: Site) -> None:
    command = Command(b"x", ends=False)
    assert run_with(site, command, "true").exit_code == 0


@pytest.mark.parametrize("uid", USERS)
def test_a_task_has_a_terminal_of_its_own_user(site: Site, uid: int) -> None:
    command = Command(b"stty size\nexit 3\n")
    script = site.script(
        'tty; stat -c %u "$(tty)"; tty < /dev/tty; read first; eval "$first"; read last; eval "$last"'
    )
    given = StepInput(0, terminal=(30, 100))
    ended = run_with(site, command, script, given=given, tasks=1, first_task=0, uid=uid)
    assert ended.exit_code == 3
    # What is typed is shown, too, and may come first.
    shown = command.outputs[0].decode().splitlines()
    assert any(line.startswith("/dev/pts/") for line in shown) and "/dev/tty" in shown
    assert str(uid) in shown and shown[-1] == "30 100"


def test_the_end_of_input_is_told_to_a_terminal_as_a_user_types_it(site: Site) -> None:
    command = Command(b"a line\n")
    ended = run_with(site, command, "cat", given=StepInput(0, terminal=(0, 0)), tasks=1, first_task=0)
    assert ended.exit_code == 0
    assert command.outputs[0].endswith(b"a line\r\n")


def test_a_task_that_cannot_start_has_no_terminal(site: Site) -> None:
    command = Command(b"a line\n")
    ended = run_with(
        site, command, "no-such-program", given=StepInput(0, terminal=(0, 0)), tasks=1, first_task=0
    )
    assert ended.exit_code == 127 and "no-such-program: command not found" in ended.text


# --- peers that do not keep the rules --------------------------------------------------------------------


class TooMuch(Command):
    """Sends more than it is granted."""

    async def begin(self, sealer: StreamSealer, writer: asyncio.StreamWriter) -> None:
        await super().begin(sealer, writer)
        for _ in range(WINDOW_BYTES // FRAME_BYTES + 2):
            self.send(writer, InputFrame(bytes(FRAME_BYTES)))


class Foreign(Command):
    """Does not know the cookie."""

    async def begin(self, sealer: StreamSealer, writer: asyncio.StreamWriter) -> None:
        opener = StreamOpener(os.urandom(32))
        there = StreamSealer(os.urandom(32))
        opener.feed(there.opening)
        writer.write(opener.back().seal(msgspec.msgpack.encode(InputFrame(b"rm -rf ."))))


class Garbage(Command):
    """Sends what is no frame."""

    async def begin(self, sealer: StreamSealer, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\xff" * 1_000)


class NoMessage(Command):
    """Sends a frame with another message."""

    async def begin(self, sealer: StreamSealer, writer: asyncio.StreamWriter) -> None:
        writer.write(sealer.seal(msgspec.msgpack.encode({"data": [[[]]]})))


class AfterEnd(Command):
    """Sends more behind the end."""

    async def begin(self, sealer: StreamSealer, writer: asyncio.StreamWriter) -> None:
        await super().begin(sealer, writer)
        self.send(writer, InputFrame(b"a", eof=True))
        self.send(writer, InputFrame(b"b"))


@pytest.mark.parametrize("peer", [TooMuch, Foreign, Garbage, NoMessage, AfterEnd])
def test_such_a_peer_ends_its_own_step_and_no_other(site: Site, peer: type[Command]) -> None:
    ended = run_with(site, peer(ends=False), "sleep", "600")
    assert ended.cause is StepEndCause.SIGNALLED
    assert "output lost" in ended.text and "no input" in ended.text
    command = Command(b"fine")
    again: list[StepOutcome] = []

    async def scenario(client: SupervisorClient, outcomes: Outcomes) -> None:
        server = await asyncio.start_server(command.serve, "127.0.0.1", 0)
        async with server, asyncio.timeout(PATIENCE_S):
            endpoint = OutputEndpoint("127.0.0.1", server.sockets[0].getsockname()[1], COOKIE)
            await client.launch(site.spec(key(2), "cat", input=StepInput(), endpoint=endpoint))
            again.append(await outcomes.of(key(2)))
            await command.closed.wait()

    play(site, scenario)
    assert again[0].exit_code == 0 and command.outputs == {0: b"fine"}


def test_a_step_whose_peer_hangs_up_in_the_midst_of_its_input_is_ended(site: Site) -> None:
    class Quitter(Command):
        async def begin(self, sealer: StreamSealer, writer: asyncio.StreamWriter) -> None:
            await super().begin(sealer, writer)
            self.send(writer, InputFrame(b"some"))
            writer.write_eof()

    ended = run_with(site, Quitter(ends=False), "cat")
    assert "output lost" in ended.text
