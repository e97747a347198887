"""`esattach`, and the end of a step's command that it speaks with, over loopback and in the real frames."""

from __future__ import annotations

import io
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from escli import exits
from escli.user import step_attached
from escli.user.esattach import main
from escli.user.step_output import LineWriter, StepOutput
from eslurm.core.model.step_attach import ATTACHED_MAX, AttachFrame, AttachHello, AttachWelcome
from eslurm.ports.api import Status
from eslurm.ports.step_runner import OutputFrame
from eslurm.security.step_stream import ATTACHED, OUTPUT, Purpose, StreamSealer, attach_secret
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi, Refuse
from tests.unit.cli.user.test_esrun import Supervisor

COOKIE = bytes(range(32))
TURN_S = 0.01


class Reader:
    """One that attaches, in the thread of the step's command."""

    def __init__(
        self,
        endpoint: str,
        secret: bytes = b"",
        hello: AttachHello | None = None,
        purpose: Purpose = ATTACHED,
    ) -> None:
        host, _, port = endpoint.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        sealer = StreamSealer(secret or attach_secret(COOKIE), purpose=purpose)
        self.stream = sealer.back()
        self.socket.sendall(sealer.opening + sealer.seal(msgspec.msgpack.encode(hello or AttachHello())))
        self.frames: list[AttachFrame] = []
        self.welcome: AttachWelcome | None = None
        self.is_over = False

    def read(self) -> None:
        """Take what is there."""
        self.socket.setblocking(False)
        try:
            while data := self.socket.recv(1 << 20):
                for body in self.stream.feed(data):
                    if self.welcome is None:
                        self.welcome = msgspec.msgpack.decode(body, type=AttachWelcome)
                    else:
                        self.frames.append(msgspec.msgpack.decode(body, type=AttachFrame))
        except BlockingIOError:
            return
        except ConnectionResetError:
            # Something that it has sent was not read.
            pass
        self.is_over = True

    def said(self, stream: int = 1) -> bytes:
        return b"".join(frame.data for frame in self.frames if frame.stream == stream)


class Step:
    """A step's command with two tasks on one node."""

    def __init__(self) -> None:
        self.out = io.BytesIO()
        self.output = StepOutput("127.0.0.1", COOKIE, LineWriter(self.out, io.BytesIO(), is_unbuffered=True))
        self.output.expect({(0, "cn1"): 2})
        self.node = Supervisor(self.output.endpoint, COOKIE, "cn1", 2)
        self.settle()

    def settle(self, *readers: Reader) -> None:
        """Handle all that has arrived."""
        for _ in range(8):
            self.output.run_once(TURN_S)
            for reader in readers:
                reader.read()

    def says(self, data: bytes, task: int = 0, stream: int = 1) -> None:
        self.node.send(OutputFrame(1, task, stream, data))


@pytest.fixture
def step() -> Iterator[Step]:
    made = Step()
    yield made
    made.output.close()
    made.node.socket.close()


def test_each_gets_what_comes_from_then_on_and_the_end(step: Step) -> None:
    step.says(b"before\n")
    step.settle()
    one, two = Reader(step.output.endpoint), Reader(step.output.endpoint, hello=AttachHello(1, 0))
    step.settle(one, two)
    assert one.welcome == two.welcome == AttachWelcome(2)
    step.says(b"zero\n")
    step.says(b"one\n", task=1)
    step.says(b"oops\n", stream=2)
    step.node.send(OutputFrame(1, 0, 0, exit_status=3))
    step.settle(one, two)
    assert (one.said(), one.said(2)) == (b"zero\none\n", b"oops\n")
    assert (two.said(), two.said(2)) == (b"one\n", b"oops\n")
    late = Reader(step.output.endpoint)
    step.settle(late)
    assert late.welcome == AttachWelcome(2, ((0, 3),))
    step.output.close()
    for reader in (one, two, late):
        reader.read()
        assert reader.is_over and reader.frames[-1].end == ""
        reader.socket.close()
    assert AttachFrame(0, 0, exit_status=3) in one.frames
    assert step.out.getvalue() == b"before\nzero\none\n"


@pytest.mark.parametrize(
    ("secret", "purpose"),
    [
        (os.urandom(32), ATTACHED),
        # The secret of one that attaches is of no use as a node, and the cookie none to attach.
        (attach_secret(COOKIE), OUTPUT),
        (COOKIE, ATTACHED),
    ],
)
def test_without_the_secret_nothing_is_told(step: Step, secret: bytes, purpose: Purpose) -> None:
    stranger = Reader(step.output.endpoint, secret, purpose=purpose)
    step.settle()
    step.says(b"secret\n")
    step.settle()
    assert stranger.socket.recv(1) == b""
    stranger.socket.close()
    assert step.out.getvalue() == b"secret\n"


def test_what_is_no_hello_or_comes_behind_it_ends_that_one_alone(step: Step) -> None:
    host, _, port = step.output.endpoint.rpartition(":")
    sealer = StreamSealer(attach_secret(COOKIE), purpose=ATTACHED)
    with socket.create_connection((host, int(port))) as odd:
        odd.sendall(sealer.opening + sealer.seal(b"\x92\xfe\x01"))
        step.settle()
        assert odd.recv(1) == b""
    talker, other = Reader(step.output.endpoint), Reader(step.output.endpoint)
    step.settle(talker, other)
    talker.socket.send(b"more")
    step.settle(other)
    step.says(b"on\n")
    step.settle(talker, other)
    assert talker.is_over and talker.frames == [] and other.said() == b"on\n"
    for reader in (talker, other):
        reader.socket.close()


def test_their_number_is_bounded_and_a_place_is_free_again(step: Step) -> None:
    readers = [Reader(step.output.endpoint) for _ in range(ATTACHED_MAX)]
    for _ in range(4):
        step.settle(*readers)
    last = Reader(step.output.endpoint)
    step.settle(last)
    assert last.is_over and last.welcome is not None and "16 commands are attached" in last.welcome.refused
    readers.pop().socket.close()
    step.settle()
    again = Reader(step.output.endpoint)
    step.settle(again)
    assert again.welcome == AttachWelcome(2)
    for reader in (last, again, *readers):
        reader.socket.close()


def test_one_that_reads_nothing_is_cut_off_and_holds_up_neither_output_nor_the_others(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_attached, "BEHIND_BYTES_MAX", 1 << 20)
    slow, other = Reader(step.output.endpoint), Reader(step.output.endpoint)
    step.settle(slow, other)
    block, count = b"x" * 60_000, 400
    for _ in range(count):
        step.says(block)
        step.output.run_once(TURN_S)
        other.read()
    step.settle(other)
    assert len(step.out.getvalue()) == len(other.said()) == count * len(block)
    # It finds all up to the cut, and that it was one.
    while not slow.is_over:
        step.settle(slow)
    said = slow.said()
    assert said == block * (len(said) // len(block)) and 0 < len(said) < count * len(block)
    assert slow.frames[-1].end is not None and "were waiting to be read" in slow.frames[-1].end
    for reader in (slow, other):
        reader.socket.close()


class Command:
    """The command itself, against a controller that names the step."""

    def __init__(self, path: Path, step: Step) -> None:
        self.step = step
        self.door = FakeApi(path, AttachStep=self._attach)
        self.is_over = threading.Event()

    def _attach(self, request: pb.AttachStepRequest) -> pb.AttachStepReply:
        if request.job_id != 17:
            raise Refuse(Status.NOT_FOUND, f"job {request.job_id} does not exist")
        return pb.AttachStepReply(
            endpoint=self.step.output.endpoint,
            secret=attach_secret(COOKIE),
            layout=[pb.StepNode(name="cn1", tasks=1), pb.StepNode(name="cn2", tasks=2)],
        )

    def run(self, *words: str, play: tuple[OutputFrame, ...] = (), ends: bool = True) -> int:
        """Its exit code; `play` are the step's frames once it is attached."""
        output = self.step.output

        def drive() -> None:
            while not self.is_over.is_set():
                output.run_once(TURN_S)
                if output._attached is not None and output._attached._all:
                    break
            for frame in play:
                self.step.node.send(frame)
            for _ in range(20):
                output.run_once(TURN_S)
            if ends:
                output.close()

        with self.door:
            thread = threading.Thread(target=drive)
            thread.start()
            try:
                return main(["--socket", self.door.path, *words])
            finally:
                self.is_over.set()
                thread.join()


def test_lines_are_shown_and_the_steps_exit_code_is_its_own(
    state_dir: Path, step: Step, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    play = (
        OutputFrame(1, 0, 1, b"ze"),
        OutputFrame(1, 1, 1, b"one\n"),
        OutputFrame(1, 0, 1, b"ro\nrest"),
        OutputFrame(1, 0, 1, eof=True),
        OutputFrame(1, 0, 0, exit_status=0),
        OutputFrame(1, 1, 0, exit_status=7),
    )
    assert Command(state_dir / "s", step).run("-l", "17.0", play=play) == 7
    shown = capfdbinary.readouterr()
    assert shown.out == b"1: one\n0: zero\n0: rest\n"
    assert shown.err == b"esattach: task 1: exit code 7\n"


def test_a_command_that_ends_before_its_tasks_is_told_of(
    state_dir: Path, step: Step, capfd: pytest.CaptureFixture[str]
) -> None:
    assert Command(state_dir / "s", step).run("17.0") == exits.FAILED
    assert capfd.readouterr().err == "esattach: step 17.0: its command ended before its tasks\n"


def test_the_layout_attaches_to_nothing(
    state_dir: Path, step: Step, capfd: pytest.CaptureFixture[str]
) -> None:
    assert Command(state_dir / "s", step).run("--layout", "17.0") == exits.OK
    assert capfd.readouterr().out == (
        "Job step layout:\n  3 tasks, 2 nodes (cn[1-2])\n\n"
        "  Node 0 (cn1), 1 task(s): 0\n  Node 1 (cn2), 2 task(s): 1 2\n"
    )


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ((), exits.USAGE, "JOB.STEP is not one step: use e.g. esattach 17.0"),
        (("17",), exits.USAGE, "names no step: use JOB.STEP, e.g. 17.0"),
        (("17.x",), exits.USAGE, "does not name a step by its number"),
        (("17_[1-2].0",), exits.USAGE, "does not name one step"),
        (("17+1.0",), exits.USAGE, "does not name one step"),
        (("--output-filter", "x", "17.0"), exits.USAGE, "is not the number of a task"),
        (("18.0",), exits.FAILED, "job 18 does not exist"),
    ],
)
def test_what_names_no_step_is_refused(
    state_dir: Path,
    step: Step,
    capfd: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: int,
    text: str,
) -> None:
    assert Command(state_dir / "s", step).run(*words) == code
    assert text in capfd.readouterr().err


def test_another_listener_at_its_place_learns_nothing_and_is_not_believed(
    state_dir: Path, step: Step, capfd: pytest.CaptureFixture[str]
) -> None:
    command = Command(state_dir / "s", step)
    with socket.create_server(("127.0.0.1", 0)) as other:
        host, port = other.getsockname()

        def answer(_request: pb.AttachStepRequest) -> pb.AttachStepReply:
            return pb.AttachStepReply(endpoint=f"{host}:{port}", secret=attach_secret(COOKIE))

        def lie() -> None:
            accepted, _ = other.accept()
            with accepted:
                heard.append(accepted.recv(4096))
                accepted.sendall(StreamSealer(os.urandom(32), b"s" * 32, ATTACHED).seal(b"\x91\x02"))

        heard: list[bytes] = []
        command.door.answers["AttachStep"] = answer
        thread = threading.Thread(target=lie)
        thread.start()
        assert command.run("17.0") == exits.FAILED
        thread.join()
    assert "the connection to its command is lost" in capfd.readouterr().err
    assert attach_secret(COOKIE) not in heard[0] and COOKIE not in heard[0]
