"""The socket of a task's MPI library by a real supervisor: whatever streams the task has, and whoever's it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from eslurm.core.model.step_input import StepInput
from eslurm.ports.step_runner import MPI_STREAM, InputFrame, OutputFrame
from tests.integration.test_step_input import Command, run_with
from tests.kits.stepd import Site, supervised
from tests.kits.stepd_processes import USERS

FIRST = 6
SAYS = """
import os
fd = int(os.environ["PMI_FD"])
os.write(fd, b"I am %s" % os.environ["ESLURM_PROCID"].encode())
print(os.read(fd, 100).decode(), flush=True)
"""


@pytest.fixture
def site(state_dir: Path) -> Iterator[Site]:
    with supervised(state_dir) as opened:
        opened.start()
        yield opened


class Library(Command):
    """A command that answers what the tasks' libraries say."""

    def __init__(self, text: bytes = b"") -> None:
        super().__init__(text)
        self.said: dict[int, bytes] = {}
        self._asked: list[int] = []

    def _take(self, frame: OutputFrame) -> None:
        super()._take(frame)
        if frame.stream == MPI_STREAM:
            self.said[frame.task] = self.said.get(frame.task, b"") + frame.data
            self._asked.append(frame.task)

    def _send_on(self, writer: asyncio.StreamWriter) -> None:
        for rank in self._asked:
            self.send(writer, InputFrame(b"You are %d" % rank, mpi_rank=rank))
        self._asked.clear()
        super()._send_on(writer)


@pytest.mark.parametrize("uid", USERS)
@pytest.mark.parametrize("given", [None, StepInput()])
def test_each_task_speaks_on_a_socket_of_its_own(site: Site, uid: int, given: StepInput | None) -> None:
    command = Library()
    ended = run_with(site, command, "/usr/bin/python3", "-c", SAYS, given=given, uid=uid, mpi="pmi")
    assert ended.exit_code == 0, ended
    assert command.said == {rank: b"I am %d" % rank for rank in (FIRST, FIRST + 1)}
    assert all(command.outputs[rank].startswith(b"You are %d" % rank) for rank in (FIRST, FIRST + 1))


def test_a_task_with_a_terminal_has_its_socket_too(site: Site) -> None:
    command = Library()
    argv = ("/usr/bin/python3", "-c", SAYS)
    given = StepInput(0, terminal=(30, 100))
    ended = run_with(site, command, *argv, given=given, first_task=0, mpi="pmi")
    assert ended.exit_code == 0, ended
    assert command.said == {0: b"I am 0", 1: b"I am 1"}


def test_a_task_without_mpi_has_no_socket(site: Site) -> None:
    command = Library()
    script = site.script('test -z "$PMI_FD" && ls -l /proc/self/fd | grep -c socket: ; true')
    assert run_with(site, command, script, given=None).exit_code == 0
    assert command.outputs == {FIRST: b"0\n", FIRST + 1: b"0\n"} and command.said == {}


def test_last_words_of_a_task_are_passed_on_before_its_end(site: Site) -> None:
    """Abort is said so, and not waited for."""

    class Ends(Library):
        ends: list[int]

        def _take(self, frame: OutputFrame) -> None:
            super()._take(frame)
            if frame.exit_status is not None:
                assert frame.task in self.said
                self.ends = [*getattr(self, "ends", []), frame.task]

    command = Ends()
    script = site.script("echo abort >&$PMI_FD; kill -KILL $$")
    run_with(site, command, "/bin/bash", script, given=None, mpi="pmi")
    assert sorted(command.ends) == [FIRST, FIRST + 1]
