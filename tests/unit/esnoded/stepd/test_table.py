"""The step table against a disk that refuses: nothing is started unrecorded, nothing is told uncommitted."""

from __future__ import annotations

import os
import selectors
from collections.abc import Iterator
from pathlib import Path

import pytest

from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_runner import (
    StepEndCause,
    StepOutcome,
    StepSpec,
    StepStarted,
    StepState,
    StepWarning,
)
from eslurm.telemetry.clocks import boot_us
from esnoded.procd import procfs
from esnoded.procd import server as procd_module
from esnoded.procd import server as server_module
from esnoded.stepd import table as table_module
from esnoded.stepd.groups import Groups
from esnoded.stepd.journal import Journal, read_contents
from esnoded.stepd.step import Waiter
from esnoded.stepd.table import LaunchRefused, StepTable
from esnoded.stepd.timers import Timers
from tests.kits.stepd import Site, key
from tests.kits.stepd_direct import Direct, spawn_connector


class Rig:
    """A table in this very process, driven pass by pass."""

    def __init__(self, directory: Path) -> None:
        self.site = Site(directory)
        self.path = str(directory / "journal")
        self.journal = Journal(self.path, "boot")
        self.selector = selectors.DefaultSelector()
        self.processes = Direct("rig")
        self.table = StepTable(self.processes, Groups(""), self.journal, Timers(), self.selector, [])
        self.answers: list[StepState] = []

    def launch(self, job_id: int, *argv: str) -> None:
        self.start(self.site.spec(key(job_id), *argv))

    def start(self, spec: StepSpec, waiter: Waiter | None = None) -> None:
        """As the server does it."""
        self.table.check_admission()
        try:
            self.table.launch(self.processes.admit_spec(spec), waiter or self.answers.append)
        except LaunchRefused:
            self.processes.over([spec.key])
            raise

    def advance(self) -> list[StepOutcome]:
        """A pass, and those until every task that was started runs its program, or has said why it does not."""
        ended = self.table.advance()
        while any(task.report_fd >= 0 for _, task in self.table._tasks.values()):
            self.look()
            ended += self.table.advance()
        return ended

    def outcomes(self, count: int) -> dict[StepKey, StepOutcome]:
        """Of the next so many steps that end."""
        ended: dict[StepKey, StepOutcome] = {}
        while len(ended) < count:
            ended |= {one.key: one for one in self.table.advance()}
            self.turn()
        return ended

    def advance_until_ended(self) -> list[StepOutcome]:
        ended: list[StepOutcome] = []
        while not ended:
            # Blocks until a child has ended, without collecting it.
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            self.processes.procd.reap()
            ended = self.table.advance()
        return ended

    def turn(self) -> None:
        """Wait for what links and reports have to say, and for a child's end."""
        self.look()
        self.processes.procd.reap()

    def look(self) -> None:
        """Wait for what links and reports have to say."""
        for selected, mask in self.selector.select(0.02):
            selected.data(mask)

    def close(self) -> None:
        self.journal.close()
        self.selector.close()
        for pid in self.processes.procd._connecting:
            os.waitpid(pid, 0)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    # A sweep takes every child of this process that no step owns for a stray: here they are the test runner's.
    monkeypatch.setattr(procfs, "all_processes", lambda: iter(()))
    monkeypatch.setattr(server_module, "spawn_connector", spawn_connector)
    rig = Rig(tmp_path)
    yield rig
    rig.close()


def fail(*_arguments: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_step_goes_from_queue_to_outcome(rig: Rig) -> None:
    rig.launch(1, "sh", "-c", "exit 3")
    assert rig.table.has_work and rig.table.live == 1
    assert rig.advance() == []
    assert isinstance(rig.answers[0], StepStarted)
    (ended,) = rig.advance_until_ended()
    assert (ended.key, ended.exit_code) == (key(1), 3)
    assert read_contents(Path(rig.path).read_bytes()).outcomes == {key(1): ended}
    rig.table.acknowledge([key(1)])
    rig.advance()
    assert read_contents(Path(rig.path).read_bytes()).outcomes == {}
    assert rig.table.live == 0 and not rig.table.list_steps()


def test_without_a_journal_nothing_is_started(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(rig.journal, "flush", fail)
        rig.launch(1, "touch", "started")
        rig.advance()
    (answer,) = rig.answers
    assert isinstance(answer, StepOutcome)
    assert answer.cause is StepEndCause.SPAWN_FAILED
    assert "journal" in answer.text
    assert not (rig.site.work / "started").exists()
    # Nothing of it is remembered: the next launch is a first one.
    rig.launch(1, "touch", "started")
    rig.advance()
    rig.advance_until_ended()
    assert (rig.site.work / "started").exists()


def test_an_ending_is_held_back_until_it_is_on_the_disk(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    rig.launch(1, "true")
    rig.advance()
    (started,) = rig.answers
    assert isinstance(started, StepStarted)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        rig.processes.procd.reap()
        assert rig.advance() == []
        assert rig.advance() == []
        assert [type(state) for state in rig.table.list_steps()] == [StepStarted]
    (ended,) = rig.advance()
    assert ended.key == key(1)
    assert read_contents(Path(rig.path).read_bytes()).outcomes == {key(1): ended}
    assert "held back" in capfd.readouterr().err


def test_what_is_over_and_held_back_is_neither_warned_nor_ended_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning would start a script beside what has ended, and its end would end the step twice."""
    warning = StepWarning(60_000_000, script=rig.site.script("exit", "beside"))
    spec = rig.site.spec(key(1), "true", time_limit_us=3_600_000_000, warning=warning)
    rig.start(spec)
    rig.advance()
    (started,) = rig.answers
    assert isinstance(started, StepStarted)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        rig.processes.procd.reap()
        assert rig.advance() == []
        patch.setattr(procd_module, "spawn_task", fail)
        assert rig.table.set_limit(key(1), 60_000_000)
        assert rig.advance() == []
        assert rig.table.suspend(key(1), resume=False)
        assert rig.table.terminate(key(1), StepEndCause.TIME_LIMIT, 0)
        assert rig.advance() == []
    (ended,) = rig.advance()
    assert (ended.cause, ended.exit_code, ended.text) == (StepEndCause.EXITED, 0, "")
    assert rig.table.live == 0


def test_a_queued_step_can_be_ended_before_it_starts(rig: Rig) -> None:
    rig.launch(1, "touch", "started")
    assert rig.table.terminate(key(1), StepEndCause.SIGNALLED, 0)
    (ended,) = rig.advance()
    assert (ended.cause, ended.text) == (StepEndCause.SIGNALLED, "ended before it was started")
    assert rig.answers == [ended]
    assert not (rig.site.work / "started").exists()


def test_a_full_or_stopping_table_refuses(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "LIVE_STEPS_MAX", 1)
    rig.launch(1, "true")
    with pytest.raises(LaunchRefused, match="already runs 1 steps"):
        rig.launch(2, "true")
    rig.advance()
    rig.advance_until_ended()
    monkeypatch.setattr(table_module, "OUTCOMES_MAX", 1)
    with pytest.raises(LaunchRefused, match="acknowledged"):
        rig.launch(3, "true")
    rig.table.acknowledge([key(1)])
    rig.table.stop()
    with pytest.raises(LaunchRefused, match="stopping"):
        rig.launch(3, "true")


def test_a_step_whose_group_is_not_empty_yet_is_over_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever looks at it meanwhile, and how often."""
    rig.launch(1, "true")
    looks: list[StepKey] = []

    def is_empty(one: StepKey) -> bool:
        looks.append(one)
        step = rig.table._steps.get(one)
        if len(looks) < 4:
            assert step is not None
            rig.table._at(step, 0, lambda: rig.table._touch(step))
        return len(looks) >= 4

    monkeypatch.setattr(rig.table._groups, "is_empty", is_empty)
    ended: list[StepOutcome] = []
    while not ended:
        ended += rig.advance()
        if not looks:
            rig.turn()
    until_us = boot_us() + 50_000
    while boot_us() < until_us:
        ended += rig.advance()
    assert [one.key for one in ended] == [key(1)] and len(looks) == 4
