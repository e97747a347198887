"""CPUs of tasks: which ones each kind of binding means, and what a bad one ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eslurm.compat.cpu_binding import ASKED, parse_binding
from eslurm.ports.step_runner import OutputEndpoint, StepSpec
from esnoded.task import cpu_binding
from esnoded.task.cpu_binding import BindingFailed, bind_task, cpus_of, is_asked
from esnoded.task.program import Program
from esnoded.topology import Core, read_cores
from tests.kits.stepd import key
from tests.kits.topology import make_system

CORES = (Core((0, 4), 0, 0), Core((1, 5), 0, 1), Core((2, 6), 1, 2), Core((3, 7), 1, 2))
ALL = frozenset(range(8))


def bound(words: str, tasks: int, per_task: int = 1, cores: tuple[Core, ...] = CORES) -> list[set[int]]:
    """The CPUs of each task."""
    allowed = {cpu for core in cores for cpu in core.cpus}
    return [cpus_of(parse_binding(words), local, per_task, allowed, cores) for local in range(tasks)]


@pytest.mark.parametrize(
    ("words", "per_task", "found"),
    [
        ("none", 1, [set(ALL)] * 2),
        ("cores", 1, [{0, 4}, {1, 5}]),
        ("cores", 2, [{0, 4, 1, 5}, {2, 6, 3, 7}]),
        ("cores", 3, [{0, 4, 1, 5, 2, 6}, {3, 7, 0, 4, 1, 5}]),
        ("cores", 9, [set(ALL)] * 2),
        ("threads", 1, [{0}, {4}]),
        ("threads", 2, [{0, 4}, {1, 5}]),
        ("rank", 1, [{0}, {1}]),
        ("sockets", 2, [{0, 4, 1, 5}, {2, 6, 3, 7}]),
        ("ldoms", 1, [{0, 4}, {1, 5}]),
        ("map_cpu:7", 1, [{7}, {7}]),
        ("map_cpu:7,0", 1, [{7}, {0}]),
        ("mask_cpu:0x3,0xf0", 1, [{0, 1}, {4, 5, 6, 7}]),
        ("mask_cpu:0x101,0x1", 1, [{0}, {0}]),
    ],
)
def test_the_cpus_of_two_tasks(words: str, per_task: int, found: list[set[int]]) -> None:
    assert bound(words, 2, per_task) == found


def test_more_tasks_than_cores_begin_anew() -> None:
    assert bound("cores", 5)[4] == {0, 4}
    assert bound("rank", 6)[5] == {1}


@pytest.mark.parametrize("words", ["map_cpu:8", "mask_cpu:0x100"])
def test_cpus_of_others_are_refused_by_name(words: str) -> None:
    with pytest.raises(ValueError, match=r"--cpu-bind: the CPUs 8 .* not of its job, which may use 0-7"):
        bound(words, 1)


def task(tasks: int = 2, asked: str = "", **fields: object) -> StepSpec:
    env = {"SLURM_CPUS_PER_TASK": "1"} | ({ASKED: asked} if asked else {})
    known = {"endpoint": OutputEndpoint("127.0.0.1", 1, bytes(32)), "cores": 4, "tasks": tasks, "env": env}
    return StepSpec(key(), "cn1", 0, 0, ("true",), cwd="/", **(known | fields))  # type: ignore[arg-type]


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[set[int]]:
    """This process has the CPUs of `CORES` in the group of a job; the list is of what it was bound to."""
    make_system(tmp_path, [(core.socket, core.domain) for core in CORES], threads=2)
    changes: list[set[int]] = []
    monkeypatch.setattr(cpu_binding, "read_cores", lambda cpus: read_cores(cpus, str(tmp_path)))
    monkeypatch.setattr(cpu_binding, "_has_cores", lambda: True)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(ALL))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _pid, cpus: changes.append(set(cpus)))
    return changes


def test_tasks_that_fill_the_cores_of_their_job_have_their_own(process: list[set[int]]) -> None:
    found = bind_task(task(4), 1, 2)
    assert process == [{1, 5}]
    assert found["SLURM_CPU_BIND"] == "quiet,mask_cpu:0x11,0x22,0x44,0x88"


@pytest.mark.parametrize("tasks", [1, 2, 3, 5, 8])
def test_others_may_use_all_of_them(process: list[set[int]], tasks: int) -> None:
    assert bind_task(task(tasks), 0, 2)["SLURM_CPU_BIND"] == "quiet,none"
    assert process == []


def test_without_a_word_and_cores_of_its_own_nothing_changes(
    process: list[set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_binding, "_has_cores", lambda: False)
    assert bind_task(task(4), 1, 2) == {} == bind_task(task(4, "quiet"), 1, 2)
    assert process == []
    assert bind_task(task(4, "cores"), 1, 2)["SLURM_CPU_BIND_TYPE"] == "mask_cpu:"
    assert process == [{1, 5}]


def test_a_script_is_not_bound_by_what_its_user_has_in_the_environment(process: list[set[int]]) -> None:
    script = task(4, "map_cpu:1", endpoint=None)
    assert not is_asked(script) and bind_task(script, 0, 2) == {} and process == []


@pytest.mark.parametrize("asked", ["nonsense", "map_cpu:99", "map_cpu:" + "0," * 40_000])
def test_a_forged_value_ends_the_task(process: list[set[int]], asked: str) -> None:
    with pytest.raises(BindingFailed, match="--cpu-bind: "):
        bind_task(task(4, asked), 0, 2)
    assert process == []


def test_verbose_says_it_on_standard_error(process: list[set[int]]) -> None:
    read_fd, write_fd = os.pipe()
    try:
        bind_task(task(2, "verbose,rank", first_task=4), 1, write_fd)
        assert os.read(read_fd, 999).decode() == (
            f"cpu-bind=RANK - cn1, task  5  1 [{os.getpid()}]: mask 0x2 set\n"
        )
    finally:
        os.close(read_fd)
        os.close(write_fd)


def test_a_list_that_no_variable_should_hold_is_left_out(process: list[set[int]]) -> None:
    assert bind_task(task(2_000, "cores"), 0, 2)["SLURM_CPU_BIND_LIST"] == ""


def test_a_task_that_asks_for_cpus_is_not_spawned_but_forked() -> None:
    assert Program(lambda _local: task(2, "cores"), "mark", 0).spawn() == 0


@pytest.mark.parametrize(
    ("path", "has"),
    [
        ("/eslurm-1/job_17.1.0/step_-1", True),
        ("/eslurm-1/job_17.1.0", False),
        ("/slurm/uid_0/job_17/step_0", False),
        ("/", False),
    ],
)
def test_a_job_has_cores_where_its_steps_have_the_controller(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str, has: bool
) -> None:
    (tmp_path / "cpuset").write_text(f"{path}\n")
    monkeypatch.setattr(cpu_binding, "open", lambda *_a, **_k: (tmp_path / "cpuset").open(), raising=False)
    assert cpu_binding._has_cores() is has
