"""`esrun` passes its input on to supervisors that speak the real frames, as they make room, and to no other peer."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from escli import exits
from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_runner import INPUT_DONE, InputFrame, OutputFrame, OutputHello
from eslurm.security.step_stream import StreamSealer
from eslurm.v1 import controller_pb2 as pb
from tests.unit.cli.user.test_esrun import World, _in_a_job  # noqa: F401 - the fixture is for all tests
from tests.unit.cli.user.test_step_input import stdin

BIG = os.urandom(200_000)
HOST = ("127.0.0.1", 0)


class Reader:
    """One node's supervisor, whose tasks read."""

    def __init__(self, request: pb.CreateStepRequest, node_name: str, tasks: int, room: int) -> None:
        host, _, port = request.endpoint.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 5)
        self._sealer = StreamSealer(request.cookie)
        self._back = self._sealer.back()
        self._hello = OutputHello(StepKey(17, 1, 0, 1), node_name, tasks, room)
        self.frames: list[InputFrame] = []
        self.socket.sendall(self._sealer.opening)
        self.send(self._hello)

    def send(self, message: OutputHello | OutputFrame) -> None:
        self.socket.sendall(self._sealer.seal(msgspec.msgpack.encode(message)))

    def grant(self, count: int) -> None:
        self.send(OutputFrame(1, -1, 0, input_bytes=count))

    @property
    def data(self) -> bytes:
        return b"".join(frame.data for frame in self.frames)

    def read(self, until: Callable[[], bool]) -> None:
        """Take frames until something holds; fails when the connection ends."""
        while not until():
            data = self.socket.recv(65_536)
            assert data, "it hung up"
            self.frames += [msgspec.msgpack.decode(body, type=InputFrame) for body in self._back.feed(data)]

    @property
    def has_end(self) -> bool:
        return bool(self.frames) and self.frames[-1].eof

    def read_all(self, room: int) -> None:
        """Take all, and make room for so many bytes at a time."""
        granted = self._hello.input_bytes
        while not self.has_end:
            known = len(self.data)
            self.read(lambda known=known: len(self.data) > known or self.has_end)  # type: ignore[misc]
            assert len(self.data) <= granted
            granted = len(self.data) + room
            self.grant(granted)

    def ends(self, *tasks: int) -> None:
        for task in tasks:
            self.send(OutputFrame(1, task, 1, eof=True))
            self.send(OutputFrame(1, task, 0, exit_status=0))
        self.socket.close()


@pytest.fixture
def piped(tmp_path: Path) -> Iterator[None]:
    """Standard input is a file with `BIG`."""
    (tmp_path / "in").write_bytes(BIG)
    with (tmp_path / "in").open() as file, stdin(file.fileno()):
        yield


def test_each_node_gets_all_as_it_makes_room_and_the_end(state_dir: Path, piped: None) -> None:
    readers: list[Reader] = []

    def play(request: pb.CreateStepRequest) -> None:
        assert (request.input.rank, request.input.path) == (-1, "")
        readers.extend([Reader(request, "cn1", 2, 1_000), Reader(request, "cn2", 1, 300_000)])
        one, two = readers
        one.read_all(5_000)
        two.read_all(300_000)
        one.ends(0, 1)
        two.ends(2)

    world = World(state_dir / "s", {"cn1": 2, "cn2": 1}, play)
    assert world.run("cat") == exits.OK
    for reader in readers:
        # The first frame proves the cookie and is small.
        assert reader.frames[0] == InputFrame()
        assert reader.data == BIG
        assert [frame.eof for frame in reader.frames].count(True) == 1


def test_a_node_whose_tasks_read_nothing_gets_nothing(state_dir: Path, piped: None) -> None:
    def play(request: pb.CreateStepRequest) -> None:
        one, two = Reader(request, "cn1", 2, 0), Reader(request, "cn2", 1, 300_000)
        two.read_all(300_000)
        assert two.data == BIG
        one.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            one.socket.recv(1)
        one.socket.settimeout(5)
        one.ends(0, 1)
        two.ends(2)

    assert World(state_dir / "s", {"cn1": 2, "cn2": 1}, play).run("-i", "2", "cat") == exits.OK


def test_nodes_that_have_had_enough_hold_nothing_up(state_dir: Path, piped: None) -> None:
    """As `head -1`: the tasks of one node close their input, the other's read on."""

    def play(request: pb.CreateStepRequest) -> None:
        one, two = Reader(request, "cn1", 2, 100), Reader(request, "cn2", 1, 300_000)
        one.read(lambda: len(one.data) == 100)
        one.grant(INPUT_DONE)
        two.read_all(300_000)
        assert two.data == BIG and one.data == BIG[:100]
        one.ends(0, 1)
        two.ends(2)

    assert World(state_dir / "s", {"cn1": 2, "cn2": 1}, play).run("cat") == exits.OK


def test_a_peer_without_the_cookie_gets_no_byte_of_the_input(state_dir: Path, piped: None) -> None:
    """Any process that reaches the port may connect, and may say that it is a node which reads."""
    heard: list[bytes] = []

    def play(request: pb.CreateStepRequest) -> None:
        host, _, port = request.endpoint.rpartition(":")
        for cookie in (os.urandom(32), b""):
            with socket.create_connection((host, int(port)), 5) as stranger:
                if cookie:
                    sealer = StreamSealer(cookie)
                    hello = OutputHello(StepKey(17, 1, 0, 1), "cn1", 3, 1 << 20)
                    stranger.sendall(sealer.opening + sealer.seal(msgspec.msgpack.encode(hello)))
                else:
                    stranger.sendall(bytes(64))
                heard.append(stranger.recv(65_536))
        one = Reader(request, "cn1", 3, 300_000)
        one.read_all(300_000)
        one.ends(0, 1, 2)

    assert World(state_dir / "s", {"cn1": 3}, play).run("cat") == exits.OK
    assert heard == [b"", b""]


def test_a_step_is_told_that_it_has_no_input(state_dir: Path) -> None:
    def play(request: pb.CreateStepRequest) -> None:
        assert not request.HasField("input")
        Reader(request, "cn1", 1, 0).ends(0)

    for name, words in (("s", ["-i", "none"]), ("t", ["--input=/dev/null"])):
        assert World(state_dir / name, {"cn1": 1}, play).run(*words, "cat") == exits.OK


def test_a_file_of_each_task_is_opened_there(state_dir: Path, piped: None) -> None:
    def play(request: pb.CreateStepRequest) -> None:
        assert (request.input.rank, request.input.path) == (-1, "in.%t")
        Reader(request, "cn1", 1, 0).ends(0)

    assert World(state_dir / "s", {"cn1": 1}, play).run("-i", "in.%t", "cat") == exits.OK
