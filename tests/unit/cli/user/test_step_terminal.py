"""A terminal that is a task's: keys as they are typed, sizes once, and all as it was at the end."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import Iterator

import pytest

from escli.user.step_input import InputPump, read_choice
from escli.user.step_terminal import TerminalInput, terminal_size
from eslurm.compat.errors import OptionError
from eslurm.core.model.step_input import StepInput
from tests.unit.cli.user.test_step_input import Node, Nodes, stdin, words


def resize(fd: int, rows: int, columns: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """A terminal in the place of standard input, which is not this process's own: it counts as such."""
    monkeypatch.setattr(TerminalInput, "is_mine", True)
    main_fd, own_fd = pty.openpty()
    resize(main_fd, 30, 100)
    with stdin(own_fd):
        yield main_fd, own_fd
    os.close(main_fd)
    os.close(own_fd)


def test_keys_are_passed_on_one_by_one_and_signs_too(terminal: tuple[int, int]) -> None:
    main_fd, own_fd = terminal
    before = termios.tcgetattr(own_fd)
    handler = signal.getsignal(signal.SIGWINCH)
    choice = read_choice(words("--pty"), {})
    assert choice.step == StepInput(0, terminal=(30, 100))
    nodes = Nodes(Node(1_000))
    nodes.is_complete = False
    pump = InputPump(choice.open(), nodes)
    pump.advance()
    # Before the tasks are there Ctrl-C ends the command.
    assert termios.tcgetattr(own_fd) == before
    nodes.is_complete = True
    pump.advance()
    assert termios.tcgetattr(own_fd) != before
    os.write(main_fd, b"a\x03\x1a\x04\x13")
    pump.advance()
    assert nodes.takers[0].got == b"a\x03\x1a\x04\x13" and not nodes.takers[0].has_end
    resize(main_fd, 50, 132)
    os.kill(os.getpid(), signal.SIGWINCH)
    pump.advance()
    pump.advance()
    assert nodes.takers[0].sizes == [(50, 132)]
    pump.close()
    assert termios.tcgetattr(own_fd) == before
    assert signal.getsignal(signal.SIGWINCH) is handler
    assert not nodes.watched


@pytest.mark.parametrize("given", [["-i", "all"], ["-i", "none"], ["-l"]])
def test_what_does_not_go_with_a_terminal(given: list[str]) -> None:
    with pytest.raises(OptionError, match="does not go with --pty"):
        read_choice(words("--pty", *given), {})


def test_without_a_terminal_the_task_has_one_of_the_usual_size() -> None:
    with open(os.devnull) as null, stdin(null.fileno()):
        choice = read_choice(words("--pty"), {})
        assert choice.step is not None and choice.step.terminal == terminal_size()
        source = choice.open()
        assert source is not None and source.read(10) == b""
        source.close()
