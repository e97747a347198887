"""What living steps use, by a /proc and control groups of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from eslurm.core.model.step_usage import PIDS_TOLD_MAX, Amount, StepUse
from esnoded.procd.groups import path_of
from esnoded.procd.options import Options
from esnoded.stepd.groups import Groups
from esnoded.stepd.meter import PROCESSES_MAX, Meter
from esnoded.stepd.step import Step, Task
from esnoded.stepd.terms import Terms
from tests.kits.stepd import key

KEY = key(7, step=2, node=3)
TERMS = Terms(KEY, "cn3", 2, 4, 0, 0, 0, None, None, None)


class Host:
    """A /proc and control groups in a directory."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proc = directory / "proc"
        self.base = directory / "groups"
        self.proc.mkdir()
        self.base.mkdir()
        (self.base / "cgroup.controllers").write_text("cpu memory\n")
        monkeypatch.setattr("esnoded.stepd.groups.write", lambda _path, _text: None)

    def run(
        self, pid: int, parent: int = 1, session: int = 0, *, ticks: int = 0, pages: int = 0, **more: int
    ) -> None:
        """A process: `ticks` of user time, `pages` resident; more of `reaped`, `faults`, `virtual`, `peak`, `zombie`."""
        state = "Z" if more.get("zombie") else "R"
        fields = [state, parent, pid, session or pid, 0, -1, 0, 0, 0, more.get("faults", 0), 0, ticks, 0]
        fields += [more.get("reaped", 0), 0, 20, 0, 1, 0, 5, more.get("virtual", 0), pages, 0]
        place = self.proc / str(pid)
        place.mkdir(exist_ok=True)
        (place / "stat").write_text(f"{pid} (a ) b(c) {' '.join(map(str, fields))}\n")
        (place / "status").write_text(
            f"Name:\tx\nVmPeak:\t{more.get('peak', 0)} kB\nVmHWM:\t{more.get('peak', 0)} kB\n"
        )

    def group(self, groups: Groups, pids: list[int], cpu_us: int = 0) -> None:
        groups.open(TERMS, Options("cn3", ""))
        place = Path(path_of(str(self.base), KEY))
        (place / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
        (place / "cpu.stat").write_text(f"usage_usec {cpu_us}\nuser_usec {cpu_us}\nsystem_usec 0\n")
        (place / "memory.peak").write_text("0\n")
        (place / "memory.events").write_text("oom_kill 0\n")

    def measure(self, groups: Groups, *pids: int, with_pids: bool = False) -> StepUse:
        tasks = [Task(local, pid) for local, pid in enumerate(pids)]
        step = Step(replace(TERMS, tasks=len(pids)), 0, 0, tasks)
        [use] = Meter(groups, str(self.proc)).measure([step], with_pids=with_pids)
        return use


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr("esnoded.stepd.meter._TICK_US", 10_000)
    monkeypatch.setattr("esnoded.stepd.meter._PAGE_KIB", 4)
    return Host(tmp_path, monkeypatch)


def test_a_task_is_its_session_and_its_descendants(host: Host) -> None:
    host.run(10, ticks=100, reaped=50, pages=25, virtual=4096, faults=1)
    host.run(11, 10, 10, ticks=100, pages=25)
    host.run(12, 11, ticks=7, pages=1)  # A session of its own, below the task.
    host.run(13, 10, 10, ticks=999, zombie=1)
    host.run(20, ticks=300, pages=2, peak=900)
    host.run(30, ticks=555, pages=555)  # Another's.
    use = host.measure(Groups(""), 10, 20, with_pids=True)
    assert (use.step, use.tasks, use.pids, use.is_partial) == (2, 2, (10, 11, 12, 20), False)
    assert (use.local_ranks, use.first_task) == ((0, -1, -1, 1), 4)
    assert use.cpu_us == Amount(5_570_000, 3_000_000, 5, 2_570_000, 4)
    # The one has had 900 KiB, and has 8 now.
    assert use.memory_kib == Amount(204 + 900, 900, 5, 204, 4)
    assert use.virtual_kib == Amount(904, 900, 5, 4, 4)
    assert use.faults == Amount(1, 1, 4, 0, 5)


def test_in_a_group_a_daemon_counts_as_of_the_first_task(host: Host) -> None:
    groups = Groups(str(host.base))
    host.group(groups, [10, 20, 40, 77])
    host.run(10, ticks=1)
    host.run(20, ticks=1)
    host.run(40, 1, 40, ticks=10, pages=5)  # It has left its session and its parent.
    host.run(50, ticks=999)  # In no group of the step's.
    use = host.measure(groups, 10, 20, with_pids=True)
    assert use.pids == (10, 20, 40) and not use.is_partial, "77 has ended meanwhile"
    assert use.cpu_us == Amount(120_000, 110_000, 4, 10_000, 5)
    assert use.memory_kib.most == 20


def test_of_a_single_task_the_group_s_count_is_the_whole(host: Host) -> None:
    groups = Groups(str(host.base))
    host.group(groups, [10], cpu_us=9_000_000)
    host.run(10, ticks=1)
    assert host.measure(groups, 10).cpu_us.total == 9_000_000


def test_a_look_is_bounded(host: Host) -> None:
    count = PROCESSES_MAX + 5
    for pid in range(100, 100 + count):
        host.run(pid, 1, 100, ticks=1)
    use = host.measure(Groups(""), 100, with_pids=True)
    assert use.cpu_us.total <= PROCESSES_MAX * 10_000
    assert (len(use.pids), use.is_partial) == (PIDS_TOLD_MAX, True)
    groups = Groups(str(host.base))
    host.group(groups, list(range(100, 100 + count)))
    use = host.measure(groups, 100)
    assert (use.cpu_us.total, use.pids, use.is_partial) == (PROCESSES_MAX * 10_000, (), True)


def test_a_step_whose_tasks_have_ended_is_not_measured(host: Host) -> None:
    ended = Step(TERMS, 0, 0, [Task(0, 10, alive=False), Task(-1, 11, is_aside=True)])
    assert Meter(Groups(""), str(host.proc)).measure([ended, Step(TERMS, 0, 0)], with_pids=True) == []
    # One whose process is gone, though that is not told of yet, uses nothing.
    assert host.measure(Groups(""), 10) == StepUse(2, 1, *[Amount(0, 0, 4, 0, 4)] * 4, first_task=4)
