"""Workers that leave their cores to others, and take them back: against an agent that does as it is told."""

from __future__ import annotations

import os
import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eslurm import loops
from eslurm.loops.coordinator import Coordinator
from eslurm.loops.cores import Core
from eslurm.loops.techniques import technique_of


class Agent(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers reports; `lines` are what it has heard, `answer` the values that it gives."""

    daemon_threads = False
    block_on_close = True

    def __init__(self, path: str) -> None:
        super().__init__(path, _Handler)
        self.lines: list[str] = []
        self.answer = {"level": "full", "excluded": "0", "idle": "0", "asked": "0"}

    def heard(self, words: str) -> list[str]:
        return [line for line in list(self.lines) if words in line]


class _Handler(socketserver.StreamRequestHandler):
    server: Agent

    def handle(self) -> None:
        for line in self.rfile:
            self.server.lines.append(line.decode().rstrip("\n"))
            said = "".join(f"{key}={value}\n" for key, value in self.server.answer.items())
            self.wfile.write(f"{said}ok\n".encode())


@pytest.fixture
def agent(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    path = str(state_dir / "job.sock")
    with Agent(path) as agent:
        monkeypatch.setenv("ESLURM_JOB_SOCKET", path)
        monkeypatch.setenv("ESLURM_JOB_ID", "17")
        monkeypatch.setenv("ESLURM_NODENAME", "cn1")
        thread = threading.Thread(target=agent.serve_forever)
        thread.start()
        yield agent
        agent.shutdown()
        thread.join()


def wait_for_rest(index: int, path: str) -> int:
    """The first iteration lasts until the other worker has been told to rest."""
    while index == 0 and not os.path.exists(path):
        time.sleep(0.01)
    return index


def test_a_worker_without_work_leaves_its_core(agent: Agent, tmp_path: Path) -> None:
    flag = tmp_path / "rested"
    going = loops.stream(wait_for_rest, 2, technique="SS", workers=2, launch="local", arguments=(str(flag),))
    with going:
        watcher = threading.Thread(target=_touch_when, args=(agent, "idle=1", flag))
        watcher.start()
        assert [value for _, value in going] == [0, 1]
        watcher.join()
    assert sorted(line.split(" idle=0")[0] for line in agent.heard("idle=0")) == [
        "report job=17 node=cn1 worker=0",
        "report job=17 node=cn1 worker=1",
    ]
    assert len(agent.heard("idle=1")) == 1


def _touch_when(agent: Agent, words: str, flag: Path) -> None:
    deadline_s = time.monotonic() + 30
    while not agent.heard(words) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    flag.touch()


def test_without_cooperation_a_process_asks_once(agent: Agent) -> None:
    agent.answer["level"] = "off"
    core = Core(os.environ, 3)
    core.take()
    core.leave()
    assert core.is_off and not core.is_asked()
    assert agent.lines == ["report job=17 node=cn1 worker=3 idle=0 wait=300"]


def test_a_core_is_taken_when_it_has_come_back(agent: Agent) -> None:
    agent.answer |= {"excluded": "1"}
    core = Core(os.environ, 0)
    taken = threading.Thread(target=core.take)
    taken.start()
    _touch_when(agent, "idle=0", Path(os.devnull))
    assert taken.is_alive()
    agent.answer |= {"excluded": "0"}
    taken.join(30)
    assert not taken.is_alive()


def test_without_an_agent_nothing_is_said() -> None:
    core = Core({"ESLURM_JOB_SOCKET": "/nowhere/job.sock", "ESLURM_JOB_ID": "17"}, 0)
    core.take()
    core.leave()
    assert not core.is_asked()


def test_a_worker_that_is_asked_rests_while_another_works() -> None:
    machine = Coordinator(technique_of("SS", 10, 2))
    machine.joined(1, "a")
    machine.joined(2, "b")
    first, second = machine.grants(0.0)
    assert machine.rests() == []
    machine.asked(1)
    machine.finished(1, first.number, 0.1, 1.0)
    assert machine.grants(1.0) == []
    assert machine.rests() == [1]
    assert machine.rests() == []
    machine.asked(2)
    machine.finished(2, second.number, 0.1, 2.0)
    assert [grant.worker for grant in machine.grants(2.0)] == [2], "one of them has to work"
    assert machine.remaining_s == pytest.approx(8 * 0.1)


def test_one_that_rests_works_again_when_the_others_are_lost() -> None:
    machine = Coordinator(technique_of("SS", 2, 2))
    machine.joined(1, "a")
    machine.joined(2, "b")
    first, _ = machine.grants(0.0)
    machine.finished(1, first.number, 0.1, 1.0)
    assert machine.grants(1.0) == []
    assert machine.rests() == [1]
    machine.lost(2, 2.0)
    (again,) = machine.grants(2.0)
    assert (again.worker, again.start, again.stop) == (1, 1, 2)
