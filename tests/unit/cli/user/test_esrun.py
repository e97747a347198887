"""`esrun` against a scripted controller and supervisors that speak the real frames over loopback."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from escli import exits
from escli.option_table import rows_of
from escli.options import Parser
from escli.user.esrun import main
from escli.user.step_calls import listen_host
from escli.user.step_following import merged
from escli.user.step_output import LineWriter, StepOutput
from escli.user.step_programs import SYNONYMS, read_programs
from eslurm.compat.environment import decode_environment
from eslurm.core.model.step_key import StepKey
from eslurm.ports.api import Status
from eslurm.ports.step_runner import OutputFrame, OutputHello
from eslurm.security.step_stream import StreamSealer
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi, Refuse


class Supervisor:
    """One node's end of a step's output."""

    def __init__(self, endpoint: str, cookie: bytes, node_name: str, tasks: int, step: int = 0) -> None:
        host, _, port = endpoint.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self._sealer = StreamSealer(cookie)
        self.socket.sendall(self._sealer.opening)
        self.send(OutputHello(StepKey(17, 1, step, 1), node_name, tasks))

    def send(self, message: Any) -> None:
        self.socket.sendall(self._sealer.seal(msgspec.msgpack.encode(message)))

    def ends(self, *statuses: tuple[int, int]) -> None:
        for task, status in statuses:
            self.send(OutputFrame(1, task, 1, eof=True))
            self.send(OutputFrame(1, task, 0, exit_status=status))
        self.socket.close()


Script = Callable[[pb.CreateStepRequest], None]


class World:
    """A controller that starts a step on `layout`; `script` plays its supervisors in a thread."""

    def __init__(
        self, path: Path, layout: dict[str, int], script: Script, parts: Sequence[pb.StepPart] = ()
    ) -> None:
        self._layout = layout
        self._parts = parts
        self._script = script
        self.threads: list[threading.Thread] = []
        self.state = "RUNNING"
        self.failed: list[pb.Problem] = []
        self.door = FakeApi(
            path, CreateStep=self._create, WaitStep=self._wait, FinishStep=lambda _: pb.ChangeReply(count=1)
        )

    def _create(self, request: Any) -> pb.CreateStepReply:
        thread = threading.Thread(target=self._script, args=(request,))
        self.threads.append(thread)
        thread.start()
        layout = [pb.StepNode(name=name, tasks=tasks) for name, tasks in self._layout.items()]
        step = self._parts[0].step if self._parts else 0
        return pb.CreateStepReply(job_id=17, attempt=1, step=step, layout=layout, parts=self._parts)

    def _wait(self, _request: Any) -> pb.StepReply:
        return pb.StepReply(state=self.state, failed=self.failed)

    def run(self, *words: str) -> int:
        with self.door:
            code = main(["--socket", self.door.path, *words])
            for thread in self.threads:
                thread.join()
        return code

    @property
    def finish(self) -> pb.FinishStepRequest:
        (request,) = self.door.asked("FinishStep")
        assert isinstance(request, pb.FinishStepRequest)
        return request


@pytest.fixture(autouse=True)
def _in_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "ESLURM_JOB_ID": "17",
        "ESLURM_NTASKS": "3",
        "ESLURM_NNODES": "2",
        "ESLURM_NODENAME": "cn1",
    }.items():
        monkeypatch.setenv(name, value)


def test_output_is_shown_by_lines_and_labelled(
    state_dir: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    def play(request: pb.CreateStepRequest) -> None:
        one = Supervisor(request.endpoint, request.cookie, "cn1", 2)
        two = Supervisor(request.endpoint, request.cookie, "cn2", 1)
        one.send(OutputFrame(1, 0, 1, b"hel"))
        one.send(OutputFrame(1, 1, 1, b"one\nmore\n"))
        one.send(OutputFrame(1, 0, 1, b"lo\nrest"))
        one.send(OutputFrame(1, 0, 2, b"oops\n"))
        one.ends((0, 0), (1, 0))
        two.ends((2, 0))

    world = World(state_dir / "s", {"cn1": 2, "cn2": 1}, play)
    assert world.run("-l", "hostname", "-l") == exits.OK
    captured = capfdbinary.readouterr()
    assert captured.out == b"1: one\n1: more\n0: hello\n0: rest\n"
    assert captured.err == b"0: oops\n"
    (create,) = world.door.asked("CreateStep")
    assert (create.job_id, create.tasks, create.nodes, create.cpus_per_task) == (17, 3, 2, 1)
    assert (list(create.argv), create.name, len(create.cookie)) == (["hostname", "-l"], "hostname", 32)
    assert create.work_dir == os.getcwd()
    assert "ESLURM_JOB_ID" not in decode_environment(create.environment)
    assert (world.finish.exit_code, world.finish.signal) == (0, 0)


def test_the_highest_code_wins_and_failures_are_told(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def play(request: pb.CreateStepRequest) -> None:
        Supervisor(request.endpoint, request.cookie, "cn1", 3).ends((0, 3), (1, -9), (2, 3))

    world = World(state_dir / "s", {"cn1": 3}, play)
    assert world.run("-N", "1", "-n", "3", "work") == 137
    assert (world.finish.exit_code, world.finish.signal) == (137, 9)
    assert capsys.readouterr().err.splitlines() == [
        "esrun: task 0,2: exit code 3",
        "esrun: task 1: ended by signal 9",
    ]


def test_a_lost_node_fails_the_step(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def play(request: pb.CreateStepRequest) -> None:
        Supervisor(request.endpoint, request.cookie, "cn2", 1).ends((1, 0))
        Supervisor(request.endpoint, request.cookie, "cn1", 1).socket.close()

    world = World(state_dir / "s", {"cn1": 1, "cn2": 1}, play)
    assert world.run("work") == exits.FAILED
    assert "step 17.0: node cn1: connection lost before its tasks had ended" in capsys.readouterr().err


def test_a_node_that_cannot_start_its_tasks(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(state_dir / "s", {"cn1": 1}, lambda _: None)
    world.state = "FAILED"
    world.failed = [pb.Problem(what="cn1", text="no such directory")]
    assert world.run("work") == exits.FAILED
    assert (
        capsys.readouterr().err == "esrun: step 17.0: node cn1 did not start its tasks: no such directory\n"
    )


def test_a_node_that_never_connects(
    state_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("escli.user.step_following._CONNECT_GRACE_S", 0.01)
    monkeypatch.setattr("escli.user.step_following._POLL_S", 0.02)
    world = World(state_dir / "s", {"cn1": 1}, lambda _: None)
    assert world.run("work") == exits.FAILED
    assert "node cn1 never connected" in capsys.readouterr().err


def test_strangers_are_not_shown(state_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def play(request: pb.CreateStepRequest) -> None:
        for cookie, node in ((bytes(32), "cn1"), (request.cookie, "cn9")):
            stranger = Supervisor(request.endpoint, cookie, node, 1)
            assert stranger.socket.recv(1) == b""
            stranger.socket.close()
        for garbage in (b"\xff" * 8, struct.pack(">I", 3) + b"abc"):
            with socket.create_connection(tuple(request.endpoint.split(":"))) as connection:  # type: ignore[arg-type]
                connection.sendall(garbage)
                assert connection.recv(1) == b""
        true = Supervisor(request.endpoint, request.cookie, "cn1", 1)
        true.send(OutputFrame(1, 0, 1, b"true\n"))
        true.ends((0, 0))

    world = World(state_dir / "s", {"cn1": 1}, play)
    assert world.run("-n", "1", "work") == exits.OK
    assert capfd.readouterr().out == "true\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_tasks(
    number: signal.Signals, code: int, state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = threading.Event()

    def play(request: pb.CreateStepRequest) -> None:
        supervisor = Supervisor(request.endpoint, request.cookie, "cn1", 1)
        supervisor.send(OutputFrame(1, 0, 1, b"x\n"))
        answered.wait()
        supervisor.socket.settimeout(0.2)
        # The closed connection is what ends the tasks.
        # What the command had not read by then makes it a reset.
        with contextlib.suppress(ConnectionResetError):
            for _ in range(100):
                os.kill(os.getpid(), number)
                with contextlib.suppress(TimeoutError):
                    assert supervisor.socket.recv(1) == b""
                    break
        closed.set()
        supervisor.socket.close()

    answered = threading.Event()
    world = World(state_dir / "s", {"cn1": 1}, play)
    normally = world.door.answers["WaitStep"]

    def wait(request: Any) -> Any:
        answered.set()
        return normally(request)

    world.door.answers["WaitStep"] = wait
    before = signal.getsignal(number)
    assert world.run("-n", "1", "work") == code
    assert closed.wait(50.0)
    assert world.finish.signal == number
    assert signal.getsignal(number) is before
    said = capsys.readouterr().err
    assert f"ended by {number.name}" in said
    if number is not signal.SIGINT:
        # On a busy machine two interrupts may come as one, which says nothing of the tasks: see test_step_ends.
        assert "one more Ctrl-C" not in said


PARTS = [
    pb.StepPart(component=0, step=4, rank_first=0, layout=[pb.StepNode(name="cn1", tasks=1)]),
    pb.StepPart(
        component=1,
        step=5,
        rank_first=1,
        layout=[pb.StepNode(name="cn1", tasks=1), pb.StepNode(name="cn2", tasks=1)],
    ),
]
"""Both parts have tasks on cn1."""


def test_a_step_over_two_parts_is_shown_and_ended_as_one(
    state_dir: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(request: pb.CreateStepRequest) -> None:
        first = Supervisor(request.endpoint, request.cookie, "cn1", 1, step=4)
        second = Supervisor(request.endpoint, request.cookie, "cn1", 1, step=5)
        third = Supervisor(request.endpoint, request.cookie, "cn2", 1, step=5)
        for rank, supervisor in enumerate((first, second, third)):
            supervisor.send(OutputFrame(1, rank, 1, b"rank %d\n" % rank))
        first.ends((0, 0))
        second.ends((1, 7))
        third.ends((2, 3))

    monkeypatch.setenv("ESLURM_NTASKS_HET_GROUP_1", "2")
    monkeypatch.setenv("ESLURM_NNODES_HET_GROUP_1", "2")
    world = World(state_dir / "s", {"cn1": 2, "cn2": 1}, play, parts=PARTS)
    assert world.run("-l", "-n", "1", "a", "x", ":", "b") == 7
    out, err = capfdbinary.readouterr()
    assert sorted(out.splitlines()) == [b"0: rank 0", b"1: rank 1", b"2: rank 2"]
    assert b"task 1: exit code 7" in err and b"task 2: exit code 3" in err
    assert (world.finish.step, world.finish.exit_code) == (4, 7)
    (request,) = world.door.asked("CreateStep")
    assert (list(request.components), list(request.argv), request.name) == ([0, 1], [], "a")
    assert [(list(one.argv), one.tasks, one.nodes, one.cpus_per_task) for one in request.programs] == [
        (["a", "x"], 1, 1, 1),
        (["b"], 2, 2, 1),
    ]


def test_a_part_that_is_lost_ends_the_others_with_the_step(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    connected, ended = threading.Event(), threading.Event()

    def play(request: pb.CreateStepRequest) -> None:
        living = Supervisor(request.endpoint, request.cookie, "cn1", 1, step=4)
        connected.set()
        # The closed connection is what ends its tasks. What the command had not read by then makes it a reset.
        with contextlib.suppress(ConnectionResetError):
            assert living.socket.recv(1) == b""
        ended.set()
        living.socket.close()

    world = World(state_dir / "s", {"cn1": 1, "cn2": 1}, play, parts=PARTS)
    normally = world.door.answers["WaitStep"]

    def wait(request: Any) -> Any:
        # Once the command has ended there is nothing left to connect to.
        assert connected.wait(50.0)
        return normally(request)

    world.door.answers["WaitStep"] = wait
    world.state = "FAILED"
    world.failed = [pb.Problem(what="cn2", code="failed", text="no such program")]
    assert world.run("a", ":", "b") == exits.FAILED
    assert ended.wait(50.0)
    assert "node cn2 did not start its tasks: no such program" in capsys.readouterr().err
    assert world.finish.step == 4


def test_a_part_may_be_named_with_the_job(state_dir: Path) -> None:
    def refuse(_request: Any) -> Any:
        raise Refuse(Status.INVALID_ARGUMENT, "enough")

    with FakeApi(state_dir / "s", CreateStep=refuse) as door:
        assert main(["--socket", door.path, "--jobid", "17+1", "work"]) == exits.FAILED
        (asked,) = door.asked("CreateStep")
    assert (asked.job_id, list(asked.components)) == (17, [1])


@pytest.mark.parametrize(
    ("line", "programs"),
    [
        ("a b", [(0, "a b", 3, 2, 1)]),
        ("-n5 -c2 a", [(0, "a", 5, 2, 2)]),
        ("--het-group=1 a", [(1, "a", 4, 3, 1)]),
        ("--pack-group 0-2 a", [(0, "a", 3, 2, 1), (1, "a", 4, 3, 1), (2, "a", 0, 0, 1)]),
        ("a : -n2 -N1 b c", [(0, "a", 3, 2, 1), (1, "b c", 2, 1, 1)]),
        ("-n2 : -n1 a", [(0, "a", 2, 2, 1), (1, "a", 1, 1, 1)]),
        ("--het-group 1,0 a : b", [(0, "b", 3, 2, 1), (1, "a", 4, 3, 1)]),
        ("--het-group 2 a : --het-group 0-1 b", [(0, "b", 3, 2, 1), (1, "b", 4, 3, 1), (2, "a", 0, 0, 1)]),
        ("--het-group 9 --pack-group 2 -n 7 a", [(2, "a", 7, 0, 1)]),
    ],
)
def test_which_program_runs_where(line: str, programs: list[tuple[int, str, int, int, int]]) -> None:
    environ = {
        "ESLURM_NTASKS": "3",
        "ESLURM_NNODES": "2",
        "ESLURM_NTASKS_HET_GROUP_1": "4",
        "ESLURM_NNODES_HET_GROUP_1": "3",
    }
    parser = Parser(rows_of("esrun"), options_end_at_first_word=True, excludes=SYNONYMS)
    found = read_programs(parser.parse(line.split()), environ)
    assert [
        (one.component, " ".join(one.argv), one.tasks, one.nodes, one.cpus_per_task) for one in found
    ] == programs


def test_a_refused_step(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(_request: Any) -> Any:
        raise Refuse(Status.INVALID_ARGUMENT, "-n: 99 tasks are more than the job's 3 cores")

    with FakeApi(state_dir / "s", CreateStep=refuse) as door:
        assert main(["--socket", door.path, "-n", "99", "work"]) == exits.FAILED
    assert capsys.readouterr().err == "esrun: -n: 99 tasks are more than the job's 3 cores\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "COMMAND is missing"),
        ("-n 0 x", "-n: '0' is not a number from 1 on"),
        (":", "COMMAND is missing"),
        ("a : -n2", "COMMAND is missing"),
        ("a : --label b", "--label is for the whole step and stands behind ':'"),
        ("a : --nosuch b", "--nosuch"),
        ("--jobid 17+x a", "--jobid: '17+x' does not name a part of a job"),
        ("--jobid 17+1 --pack-group 0 a", "--jobid: '17+1' names a part beside --pack-group"),
        ("--het-group x a", "--het-group: 'x' is not a list of parts"),
        ("--het-group 2-1 a", "--het-group: '2-1' is not a list of parts"),
        ("--het-group= a", "--het-group: an empty value is not a list of parts"),
        ("--het-group 0-200 a", "--het-group: '0-200' names part 200, above the last one"),
        ("--het-group 0,0-1 a", "--het-group: '0,0-1' names part 0 twice"),
        ("--het-group 0-2 a : b", "--het-group: '0-2' names 3 parts for 2 programs"),
        ("--pack-group 0-2 a : b", "--pack-group: '0-2' names 3 parts for 2 programs"),
        ("a : --het-group 1 b", "--het-group is given for some programs only"),
        ("--het-group 0,1 a : --het-group 0 b", "--het-group: '0' is the part of two programs"),
        ("a : -n 1 -N 2 b", "-n: '1' tasks cannot fill 2 nodes"),
        ("-n 1 -N 2 x", "-n: '1' tasks cannot fill 2 nodes"),
    ],
)
def test_bad_words(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == exits.USAGE
    assert capsys.readouterr().err.startswith(f"esrun: {says}")


def test_outside_a_job(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("ESLURM_JOB_ID")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    for words, says in (
        ("-n 2 x : y", "esrun: ':' separates programs of a job's parts, and this is no job"),
        ("--het-group 1 x", "esrun: --het-group: '1' names a part of no job"),
        ("-n 0 x", "esrun: -n: '0'"),
        ("-n 2", "esrun: COMMAND is missing"),
    ):
        assert main(words.split()) == exits.USAGE
        assert capsys.readouterr().err.startswith(says)


@pytest.mark.parametrize("line", ["-p short x", "-A physics x", "--jobid 18 -p short x"])
def test_a_step_in_a_job_asks_for_no_nodes(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == exits.USAGE
    assert "is for steps outside of jobs: inside job 1" in capsys.readouterr().err


def test_where_to_listen() -> None:
    assert listen_host({"ESLURM_STEP_HOST": "::1"}) == "::1"
    assert listen_host({"ESLURM_NODENAME": "cn0001-virtual"}) == "127.0.0.1"


@pytest.mark.parametrize(
    ("statuses", "code"),
    [({}, (0, 0)), ({0: 0, 1: 2}, (2, 0)), ({0: -15, 1: 7}, (143, 15)), ({0: -1, 1: 200}, (200, 0))],
)
def test_merging(statuses: dict[int, int], code: tuple[int, int]) -> None:
    assert merged(statuses) == code


@pytest.fixture
def sinks() -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    with io.BytesIO() as out, io.BytesIO() as err:
        yield out, err


def test_a_line_without_end_is_not_held_for_ever(sinks: tuple[io.BytesIO, io.BytesIO]) -> None:
    writer = LineWriter(*sinks, label_width=3)
    for _ in range(3):
        writer.write(7, 1, b"x" * 30_000)
    assert sinks[0].getvalue() == b"  7: " + b"x" * 90_000 + b"\n"
    writer.write(7, 1, b"y")
    writer.write(8, 2, b"z\n\nw")
    writer.flush()
    assert sinks[0].getvalue().endswith(b"\n  7: y\n")
    assert sinks[1].getvalue() == b"  8: z\n  8: \n  8: w\n"


def test_bytes_are_as_the_task_wrote_them(sinks: tuple[io.BytesIO, io.BytesIO]) -> None:
    """`esrun cat picture > copy`: a long line is cut nowhere, a last one without an end gets none."""
    written = os.urandom(200_000) + bytes(100_000) + b"\r\x0b\x85 end"
    writer = LineWriter(*sinks)
    for start in range(0, len(written), 30_000):
        writer.write(0, 1, written[start : start + 30_000])
    writer.end(0, 1)
    assert sinks[0].getvalue() == written


def test_a_line_of_one_task_is_not_torn_by_another(sinks: tuple[io.BytesIO, io.BytesIO]) -> None:
    writer = LineWriter(*sinks)
    writer.write(0, 1, b"zero, ")
    writer.write(1, 1, b"one\n")
    assert sinks[0].getvalue() == b"one\n"
    writer.write(0, 1, b"the rest\n")
    assert sinks[0].getvalue() == b"one\nzero, the rest\n"


def test_unbuffered_output_is_shown_at_once(sinks: tuple[io.BytesIO, io.BytesIO]) -> None:
    writer = LineWriter(*sinks, is_unbuffered=True)
    writer.write(0, 1, b"name? ")
    assert sinks[0].getvalue() == b"name? "


def test_a_label_begins_a_line_and_nothing_else(sinks: tuple[io.BytesIO, io.BytesIO]) -> None:
    writer = LineWriter(*sinks, label_width=1)
    writer.write(0, 1, b"10 %\r20 %\x0b\n")
    assert sinks[0].getvalue() == b"0: 10 %\r20 %\x0b\n"


def test_an_ipv6_endpoint(sinks: tuple[io.BytesIO, io.BytesIO]) -> None:
    output = StepOutput("::1", bytes(32), LineWriter(*sinks))
    assert output.endpoint.startswith("[::1]:")
    output.close()


def test_a_host_that_dies_silently_is_noticed(sinks: tuple[io.BytesIO, io.BytesIO]) -> None:
    """Goal: a connection on which nothing comes is probed, and given up within minutes."""
    output = StepOutput("127.0.0.1", bytes(32), LineWriter(*sinks))
    host, _, port = output.endpoint.rpartition(":")
    with socket.create_connection((host, int(port))):
        output.run_once(5)
        (connection,) = output._connections.values()
        options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE)]
        options += [
            (socket.IPPROTO_TCP, one)
            for one in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        ]
        on, idle_s, pause_s, tries = [connection.socket.getsockopt(*option) for option in options]
        assert on and idle_s + pause_s * tries <= 180
    output.close()
