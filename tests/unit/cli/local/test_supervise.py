"""The foreground of `eslurm up`: restarts, giving up, and leaving when others stopped the cluster.

Time does not matter here: the watch is interrupted by what it tells.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys

import pytest

from escli.interrupts import Interrupts
from escli.local import processes
from escli.local.layout import locked, supervising
from escli.local.plan import Programs
from escli.local.stop import stop_all
from escli.local.supervise import RESTARTS_MAX, Watch
from tests.unit.cli.local.fakes import FAKE, Fakes


def programs_with(mode: str) -> Programs:
    return {kind: (sys.executable, str(FAKE), mode, kind) for kind in ("esctld", "essatd", "esnoded")}


class Story:
    """Lines of the watch; it interrupts the watch at the first line with `until` in it."""

    def __init__(self, interrupts: Interrupts, until: str) -> None:
        self.lines: list[str] = []
        self._interrupts = interrupts
        self._until = until

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        if self._until in line:
            self._interrupts.request()


def test_a_dead_daemon_is_started_again(fakes: Fakes) -> None:
    fakes.up()
    before = fakes.pids()
    with Interrupts() as interrupts:
        story = Story(interrupts, "is ready again")
        os.kill(before["agent1"], signal.SIGKILL)
        assert not Watch(fakes.layout, programs_with("works"), interrupts, story).run()

    after = fakes.pids()
    assert f"agent1 (pid {before['agent1']}) died; starting it again" in story.lines[0]
    assert after.pop("agent1") != before.pop("agent1")
    assert after == before
    with locked(fakes.layout):
        assert stop_all(fakes.layout, fakes.record()).daemons == 5


def test_a_daemon_that_keeps_dying_is_left_so(fakes: Fakes) -> None:
    fakes.up()
    os.kill(fakes.pids()["sat1"], signal.SIGKILL)
    with Interrupts() as interrupts:
        story = Story(interrupts, "tries it again")
        assert not Watch(fakes.layout, programs_with("dies"), interrupts, story).run()

    assert sum("starting it again" in line for line in story.lines) == RESTARTS_MAX
    assert sum("ended before it was ready" in line for line in story.lines) == RESTARTS_MAX
    assert any("sat1 died again and is left so" in line for line in story.lines)
    assert any("the dog ate my spool" in line for line in story.lines)


def test_daemons_that_were_stopped_by_others_stay_stopped(fakes: Fakes) -> None:
    fakes.up()
    with Interrupts() as interrupts:
        story = Story(interrupts, "nothing")
        watch = Watch(fakes.layout, programs_with("works"), interrupts, story)
        with locked(fakes.layout):
            stop_all(fakes.layout, fakes.record())
        assert watch.run()
    assert story.lines == []


def test_a_purged_cluster_ends_the_watch(fakes: Fakes) -> None:
    fakes.up()
    fakes("down")
    shutil.rmtree(fakes.layout.directory)
    with Interrupts() as interrupts:
        assert Watch(fakes.layout, programs_with("works"), interrupts, Story(interrupts, "")).run()


def test_the_foreground_ends_the_cluster_when_it_is_interrupted(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(watch: Watch) -> bool:
        assert len(fakes.record().daemons) == 5
        return False

    monkeypatch.setattr(Watch, "run", interrupted)
    answer = fakes("up")

    assert answer.code == 0, answer.err
    assert "Ctrl-C stops the cluster" in answer.out
    assert "The cluster is down (5 daemons ended)" in answer.err
    assert fakes.record().daemons == ()


def test_only_one_foreground_watches(fakes: Fakes) -> None:
    fakes.up()
    fakes.kill("sat1")
    with supervising(fakes.layout) as is_first:
        assert is_first
        answer = fakes("up")
    assert answer.code == 0
    assert "another `eslurm up` watches this cluster" in answer.err
    assert len([daemon for daemon in fakes.record().daemons if processes.is_alive(daemon.identity)]) == 5


def test_signals_are_seen_between_steps() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts() as interrupts:
        hurried = interrupts.is_hurried()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Exception, match="interrupted"):
            interrupts.wait((), 10)
        assert hurried()
        assert interrupts.wait((), 0) == []
    assert signal.getsignal(signal.SIGTERM) is before
