"""What is read of standard input, and when: by choice, by room, and never by waiting."""

from __future__ import annotations

import contextlib
import os
import pty
import socket
import stat
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from escli.option_table import rows_of
from escli.options import Parser, Words
from escli.user.step_input import InputPump, read_choice
from escli.user.step_source import InputSource, own_input
from eslurm.compat.errors import OptionError
from eslurm.core.model.step_input import StepInput

BIG = bytes(range(256)) * 1024


def words(*given: str) -> Words:
    return Parser(rows_of("esrun"), options_end_at_first_word=True).parse([*given, "cat"])


class Node:
    """Takes input up to `room` at a time."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.got = b""
        self.has_end = False
        self.sizes: list[tuple[int, int]] = []

    def resize(self, size: tuple[int, int]) -> None:
        self.sizes.append(size)

    def pass_on(self, data: bytes, *, eof: bool = False) -> None:
        assert len(data) <= self.room and not self.has_end
        self.room -= len(data)
        self.got += data
        self.has_end = eof


class Nodes:
    """The nodes of a step."""

    def __init__(self, *nodes: Node) -> None:
        self.takers = list(nodes)
        self.is_complete = True
        self.watched: list[object] = []

    def watch(self, readable: object) -> None:
        fd = readable.fileno() if isinstance(readable, InputSource) else readable
        assert isinstance(fd, int)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            raise PermissionError
        self.watched.append(readable)

    def unwatch(self, readable: object) -> None:
        self.watched.remove(readable)


def pump_all(pump: InputPump, nodes: Nodes) -> None:
    """Give room as it is used up, until the end has been passed on."""
    for _ in range(10_000):
        pump.advance()
        for node in nodes.takers:
            node.room = node.room or 1_000
        if all(node.has_end for node in nodes.takers):
            return
    raise AssertionError("the end does not come")


@contextlib.contextmanager
def stdin(fd: int) -> Iterator[None]:
    """Put a descriptor in the place of this process's standard input."""
    kept = os.dup(0)
    os.dup2(fd, 0)
    try:
        yield
    finally:
        os.dup2(kept, 0)
        os.close(kept)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe; the test may close the second."""
    read_fd, write_fd = os.pipe()
    yield read_fd, write_fd
    os.close(read_fd)
    with contextlib.suppress(OSError):
        os.close(write_fd)


# --- the choice ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "step", "path"),
    [
        ([], StepInput(), ""),
        (["-i", "all"], StepInput(), ""),
        (["--input=none"], None, ""),
        (["--input=/dev/null"], None, ""),
        (["-i", "2"], StepInput(2), ""),
        (["-i", "in.%t"], StepInput(path="in.%t"), ""),
        (["-i", "in.%j"], StepInput(), "in.17"),
        (["-i", "./2"], StepInput(), "./2"),
    ],
)
def test_choices(given: list[str], step: StepInput | None, path: str, pipe: tuple[int, int]) -> None:
    with stdin(pipe[0]):
        choice = read_choice(words(*given), {"SLURM_JOB_ID": "17"})
    assert (choice.step, choice.path) == (step, path)


def test_slurms_variable_counts_where_no_option_is_given() -> None:
    assert read_choice(words(), {"SLURM_STDINMODE": "none"}).step is None
    assert read_choice(words("-i", "1"), {"SLURM_STDINMODE": "none"}).step == StepInput(1)


def test_where_there_is_no_input_no_node_listens_for_it() -> None:
    with open(os.devnull) as null, stdin(null.fileno()):
        assert read_choice(words(), {}).step is None
        # The number of a task is still checked by the controller.
        assert read_choice(words("-i", "7"), {}).step == StepInput(7)


def test_a_closed_standard_input_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "__stdin__", None)
    assert read_choice(words(), {}).step is None
    source = own_input()
    assert source.read(10) == b""
    source.close()


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 5_000])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(OptionError):
        read_choice(words("--input", name), {})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    choice = read_choice(words("-i", str(tmp_path / "x")), {})
    with pytest.raises(OptionError, match=r"--input.*No such file"):
        choice.open()


# --- sources ---------------------------------------------------------------------------------------------


def test_a_file_is_passed_on_to_each_node(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(BIG)
    source = read_choice(words("-i", str(tmp_path / "in")), {}).open()
    nodes = Nodes(Node(100), Node(70_000))
    pump_all(InputPump(source, nodes), nodes)
    assert [node.got for node in nodes.takers] == [BIG, BIG]
    assert not nodes.watched


def test_a_pipe_is_read_as_it_comes_and_left_as_it_is(pipe: tuple[int, int]) -> None:
    read_fd, write_fd = pipe
    nodes = Nodes(Node(1_000))
    with stdin(read_fd):
        pump = InputPump(own_input(), nodes)
    assert not pump.advance() and len(nodes.watched) == 1
    os.write(write_fd, b"a line\n")
    pump.advance()
    assert nodes.takers[0].got == b"a line\n"
    # Other processes read from the same pipe: it must go on blocking for them.
    assert os.get_blocking(read_fd)
    os.close(write_fd)
    pump_all(pump, nodes)
    assert not nodes.watched


def test_a_socket_is_read_without_waiting() -> None:
    ours, theirs = socket.socketpair()
    source = InputSource(theirs.detach())
    assert source.read(10) is None
    ours.send(b"abc")
    assert source.read(10) == b"abc"
    ours.close()
    assert source.read(10) == b""
    source.close()


def test_a_terminal_gives_lines_until_its_end() -> None:
    main_fd, own_fd = pty.openpty()
    source = InputSource(os.dup(own_fd))
    try:
        assert source.read(100) is None
        os.write(main_fd, b"half")
        assert source.read(100) is None
        os.write(main_fd, b" a line\n")
        assert source.read(100) == b"half a line\n"
        os.write(main_fd, termios.tcgetattr(own_fd)[6][termios.VEOF])
        assert source.read(100) == b""
    finally:
        source.close()
        os.close(main_fd)
        os.close(own_fd)


BACKGROUND = """
import fcntl, os, sys, termios
from escli.user.step_source import InputSource
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
child = os.fork()
if not child:
    os.setpgid(0, 0)
    source = InputSource(os.dup(0))
    print(source.is_mine, source.read(100), flush=True)
    os._exit(0)
_, status = os.waitpid(child, os.WUNTRACED)
print("stopped" if os.WIFSTOPPED(status) else "ended", InputSource(os.dup(0)).is_mine)
if os.WIFSTOPPED(status):
    os.kill(child, 9)
"""


def test_in_the_background_of_its_terminal_nothing_is_read_and_nothing_stopped() -> None:
    """`esrun solver &` goes on; a program that reads there is stopped by the kernel, and its output with it."""
    main_fd, own_fd = pty.openpty()
    try:
        os.write(main_fd, b"for the shell\n")
        found = subprocess.run(
            [sys.executable, "-c", BACKGROUND],
            stdin=own_fd,
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    finally:
        os.close(own_fd)
        os.close(main_fd)
    assert found.stdout.split("\n")[:2] == ["False None", "ended True"]


def test_a_source_that_fails_is_at_its_end(tmp_path: Path) -> None:
    source = InputSource(os.open(tmp_path, os.O_RDONLY))
    assert source.read(100) == b""
    source.close()


# --- when ------------------------------------------------------------------------------------------------


def opened(text: bytes) -> InputSource:
    read_fd, write_fd = os.pipe()
    threading.Thread(target=lambda: (os.write(write_fd, text), os.close(write_fd))).start()
    return InputSource(read_fd)


def test_nothing_is_read_before_all_nodes_are_there() -> None:
    nodes = Nodes(Node(1_000))
    nodes.is_complete = False
    source = opened(b"abc")
    pump = InputPump(source, nodes)
    assert not pump.advance() and not nodes.takers[0].got
    nodes.is_complete = True
    pump_all(pump, nodes)
    assert nodes.takers[0].got == b"abc"


def test_a_node_without_room_holds_up_all() -> None:
    nodes = Nodes(Node(1_000), Node(1_000))
    nodes.takers[1].room = 0
    pump = InputPump(opened(b"abc"), nodes)
    assert not pump.advance()
    assert not nodes.takers[0].got and not nodes.watched
    pump_all(pump, nodes)


def test_where_no_task_reads_any_more_nothing_is_read() -> None:
    nodes = Nodes(Node(1_000))
    read_fd, write_fd = os.pipe()
    pump = InputPump(InputSource(read_fd), nodes)
    pump.advance()
    nodes.takers.clear()
    assert not pump.advance() and not nodes.watched
    # It is closed, and what comes stays with whom it came from.
    with pytest.raises(BrokenPipeError):
        os.write(write_fd, b"x")
    os.close(write_fd)
    pump.close()


def test_a_step_without_input_reads_nothing() -> None:
    nodes = Nodes(Node(1_000))
    pump = InputPump(None, nodes)
    assert not pump.advance()
    pump.close()
