"""A terminal's other end, as a task hands it to the supervisor."""

from __future__ import annotations

import os
import pty
import socket
from pathlib import Path

import pytest

from esnoded.stepd.connect import receive_terminal


@pytest.fixture
def channel() -> object:
    own, theirs = socket.socketpair()
    own.setblocking(False)
    with own, theirs:
        yield own, theirs


def test_a_terminal_is_taken_and_does_not_block(channel: tuple[socket.socket, socket.socket]) -> None:
    own, theirs = channel
    main_fd, task_fd = pty.openpty()
    socket.send_fds(theirs, [b"\0"], [main_fd])
    fd = receive_terminal(own)
    assert os.isatty(fd) and not os.get_blocking(fd) and not os.get_inheritable(fd)
    for one in (fd, main_fd, task_fd):
        os.close(one)


def test_what_is_no_terminal_is_closed(channel: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    own, theirs = channel
    with (tmp_path / "file").open("w") as file:
        socket.send_fds(theirs, [b"\0"], [file.fileno()])
    assert receive_terminal(own) == -1


def test_a_task_that_is_gone_has_none(channel: tuple[socket.socket, socket.socket]) -> None:
    own, theirs = channel
    theirs.close()
    assert receive_terminal(own) == -1
