"""Groups of steps: their names, their limits, and what their counts say of an end. The kernel's part is tried in
`tests/security/test_containment.py` and `tests/contained`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from eslurm.core.model.step_key import EPILOG_STEP, StepKey
from eslurm.ports.step_runner import StepEndCause
from esnoded.procd import groups as root_groups
from esnoded.procd.groups import path_of
from esnoded.procd.options import Options
from esnoded.stepd import groups as stepd_groups
from esnoded.stepd.groups import Groups, GroupUse
from esnoded.stepd.step import Step
from esnoded.stepd.terms import Terms
from tests.kits.stepd import key
from tests.kits.topology import make_system

TERMS = Terms(key(7, step=2, node=3), "cn3", 1, 0, 0, 0, 0, None, None, None, cores=4, memory_mib=100)
OPTIONS = Options("cn3", "")


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in the place of the kernel's: a file is what was written to it last."""

    def write(path: str, text: str) -> None:
        Path(path).write_text(text)

    monkeypatch.setattr("esnoded.stepd.groups.write", write)
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    return tmp_path


def content(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir() if path.is_file()}


def test_steps_of_a_job_share_its_group_on_a_node_and_phases_have_another() -> None:
    assert path_of("/b", key(7, attempt=2, step=-1, node=3)) == "/b/job_7.2.3/step_-1"
    assert path_of("/b", key(7, attempt=2, step=0, node=3)) == "/b/job_7.2.3/step_0"
    assert path_of("/b", key(7, attempt=2, step=0, node=4)) == "/b/job_7.2.4/step_0"
    assert path_of("/b", StepKey(7, 2, EPILOG_STEP, 3)) == f"/b/phases_7.2.3/step_{EPILOG_STEP}"


def test_limits_are_the_job_s_and_its_step_ends_as_a_whole(base: Path) -> None:
    groups = Groups(str(base))
    groups.open(TERMS, OPTIONS)
    assert content(base / "job_7.1.3") == {
        "cgroup.subtree_control": "+memory +pids +cpu",
        "pids.max": "32768",
        "cpu.weight": "400",
        "memory.max": str(100 << 20),
        "memory.swap.max": "0",
    }
    assert content(base / "job_7.1.3/step_2") == {"memory.oom.group": "1"}


def test_a_step_has_the_memory_that_it_named_within_its_job_s(base: Path) -> None:
    groups = Groups(str(base))
    groups.open(replace(TERMS, own_memory_mib=10), OPTIONS)
    assert content(base / "job_7.1.3")["memory.max"] == str(100 << 20)
    assert content(base / "job_7.1.3/step_2") == {"memory.oom.group": "1", "memory.max": str(10 << 20)}


def test_the_site_may_have_all_of_a_job_ended_and_any_number_of_processes(base: Path) -> None:
    Groups(str(base)).open(TERMS, replace(OPTIONS, oom_ends="job", job_processes=0))
    found = content(base / "job_7.1.3")
    assert found["memory.oom.group"] == "1" and "pids.max" not in found


def test_what_was_not_asked_for_is_not_limited_and_shares_are_bounded(base: Path) -> None:
    groups = Groups(str(base))
    groups.open(replace(TERMS, memory_mib=0, cores=1_000), OPTIONS)
    found = content(base / "job_7.1.3")
    assert "memory.max" not in found and found["cpu.weight"] == "10000"
    groups.open(replace(TERMS, key=StepKey(7, 1, EPILOG_STEP, 3)), OPTIONS)
    assert content(base / "phases_7.1.3") == {"cgroup.subtree_control": "+memory +pids +cpu"}


def test_without_controllers_groups_have_no_limits(base: Path) -> None:
    (base / "cgroup.controllers").write_text("\n")
    Groups(str(base)).open(TERMS, OPTIONS)
    assert content(base / "job_7.1.3") == content(base / "job_7.1.3/step_2") == {}


def test_without_a_directory_there_are_none(tmp_path: Path) -> None:
    groups = Groups("")
    groups.open(TERMS, OPTIONS)
    groups.kill(TERMS.key)
    assert groups.is_empty(TERMS.key) and groups.use(TERMS.key) is None
    groups.close(TERMS.key)
    assert list(tmp_path.iterdir()) == []


def test_counts_are_read_where_they_are(base: Path) -> None:
    groups = Groups(str(base))
    groups.open(TERMS, OPTIONS)
    step = base / "job_7.1.3/step_2"
    (step / "cpu.stat").write_text("usage_usec 30\nuser_usec 20\nsystem_usec 10\n")
    (step / "memory.events").write_text("low 0\nhigh 0\nmax 4\noom 1\noom_kill 2\n")
    assert groups.use(TERMS.key) == GroupUse(20, 10, 0, 2), "older kernels keep no peak"
    (step / "memory.peak").write_text("104857600\n")
    assert groups.use(TERMS.key) == GroupUse(20, 10, 100 << 20, 2)


@pytest.mark.parametrize(
    ("step", "use", "cause", "text"),
    [
        (
            {"signum": 9},
            GroupUse(oom_kills=1, peak_bytes=100 << 20),
            StepEndCause.OUT_OF_MEMORY,
            "out of memory: its job may use 100 MiB on node cn3, the step has used 100 MiB; ask for more with --mem",
        ),
        ({"signum": 9}, GroupUse(), None, ""),
        ({"exit_code": 0}, GroupUse(oom_kills=1), None, ""),
        (
            {"signum": 9, "cause": StepEndCause.TIME_LIMIT, "text": "x"},
            GroupUse(oom_kills=1),
            StepEndCause.TIME_LIMIT,
            "x",
        ),
    ],
    ids=["killed", "kill -9", "went on", "was to end"],
)
def test_out_of_memory_is_what_the_kernel_counted_and_what_ended_the_step(
    step: dict[str, object], use: GroupUse, cause: StepEndCause | None, text: str
) -> None:
    made = Step(TERMS, 0, 0, **step)  # type: ignore[arg-type]
    made.take_use(use)
    assert (made.cause, made.text) == (cause, text)


def test_a_node_without_a_limit_says_that_it_had_no_memory_left() -> None:
    made = Step(replace(TERMS, memory_mib=0), 0, 0, signum=9)
    made.take_use(GroupUse(oom_kills=1))
    assert made.text == "out of memory: node cn3 had none left; ask for more with --mem"


def test_the_own_group_is_found_below_its_mount(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where a container sees a part of the hierarchy only."""
    files = {
        "/proc/self/cgroup": "3:memory:/x\n0::/unit/part\n",
        "/proc/self/mountinfo": "30 1 0:1 / /proc rw - proc proc rw\n41 31 0:38 /unit /mnt/cg rw,relatime - cgroup2 c rw\n",
    }

    def opened(path: str, **_more: object) -> object:
        (tmp_path / "f").write_text(files[path])
        return (tmp_path / "f").open()

    monkeypatch.setattr(root_groups, "open", opened, raising=False)
    assert root_groups.own_group() == "/mnt/cg/part"
    files["/proc/self/mountinfo"] = "30 1 0:1 / /proc rw - proc proc rw\n"
    assert root_groups.own_group() == ""


def test_a_job_whose_limits_cannot_be_set_has_no_group_that_its_next_step_would_find(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = Groups(str(base))

    def full(path: str, _text: str) -> None:
        raise OSError(28, "No space left on device", path)

    with monkeypatch.context() as patched:
        patched.setattr("esnoded.stepd.groups.write", full)
        with pytest.raises(OSError, match="No space"):
            groups.open(TERMS, OPTIONS)
    assert not (base / "job_7.1.3").exists()
    groups.open(TERMS, OPTIONS)
    assert content(base / "job_7.1.3")["memory.max"] == str(100 << 20)


BOUND = replace(OPTIONS, bind_cores=True)


def bound(base: Path) -> Groups:
    """Groups on a host of two sockets with two cores of two threads each."""
    system = base / "system"
    make_system(system, [(0, 0), (0, 0), (1, 1), (1, 1)], threads=2)
    (base / "cpuset.cpus.effective").write_text("0-7\n")
    return Groups(str(base), str(system))


def of_job(job_id: int, cores: int, **fields: object) -> Terms:
    return replace(TERMS, key=key(job_id, **fields), cores=cores)  # type: ignore[arg-type]


def cpus(base: Path, job_id: int) -> str:
    path = base / f"job_{job_id}.1.0/cpuset.cpus"
    return path.read_text() if path.exists() else ""


def remove(base: Path, terms: Terms) -> None:
    """Empty its group, and its job's, of the files that the kernel would remove with them."""
    job = base / f"job_{terms.key.job_id}.1.0"
    for path in job.rglob("*"):
        if path.is_file():
            path.unlink()


def test_jobs_have_cores_of_their_own_until_their_groups_are_gone(base: Path) -> None:
    groups = bound(base)
    one, two, three = of_job(1, 1), of_job(2, 2), of_job(3, 1)
    for terms in (one, of_job(1, 1, step=0), two, three):
        groups.open(terms, BOUND)
    assert [cpus(base, number) for number in (1, 2, 3)] == ["0,4", "2-3,6-7", "1,5"]
    assert content(base / "job_1.1.0")["cgroup.subtree_control"] == "+cpuset", "its tasks know it by that"
    remove(base, one)
    groups.close(one.key)
    groups.open(of_job(4, 1), BOUND)
    assert cpus(base, 4) == "", "a step of the first job is left"
    groups.close(key(1, step=0))
    groups.open(of_job(5, 1), BOUND)
    assert cpus(base, 5) == "0,4"


def test_a_job_that_finds_too_few_runs_on_all_and_the_log_says_so_once(
    base: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    groups = bound(base)
    groups.open(of_job(1, 3), BOUND)
    wide = of_job(2, 2)
    for _ in range(2):
        groups.open(wide, BOUND)
        remove(base, wide)
        groups.close(wide.key)
    assert capfd.readouterr().err.count("\n") == 1
    groups.open(wide, BOUND)
    assert content(base / "job_2.1.0")["cgroup.subtree_control"] == "+memory +pids +cpu"
    groups.open(of_job(3, 2, node=3), BOUND)
    assert capfd.readouterr().err == (
        "esstepd: job 3 has no cores of its own: it has 2 on node cn3, and of the 4 cores of this host 1 are of no job\n"
    )


def test_cores_of_a_job_that_could_not_be_removed_are_free_when_it_can_be(base: Path) -> None:
    groups = bound(base)
    first, second, third = of_job(1, 4), of_job(2, 1), of_job(3, 1)
    groups.open(first, BOUND)
    # As with a process that no signal ends, the directory of its step is not empty.
    groups.close(first.key)
    groups.open(second, BOUND)
    assert cpus(base, 2) == ""
    remove(base, first)
    groups.open(third, BOUND)
    assert cpus(base, 3) == "0,4" and not (base / "job_1.1.0").exists()


def test_phases_and_jobs_where_it_is_off_run_on_all(base: Path) -> None:
    groups = bound(base)
    groups.open(of_job(1, 1), OPTIONS)
    groups.open(replace(TERMS, key=StepKey(2, 1, EPILOG_STEP, 0)), BOUND)
    assert not list(base.rglob("cpuset.cpus"))


def test_cores_that_cannot_be_set_keep_no_job_from_running(
    base: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    groups = bound(base)
    written = stepd_groups.write

    def refuse(path: str, text: str) -> None:
        if path.endswith("cpuset.cpus"):
            raise OSError(22, "Invalid argument")
        written(path, text)

    with monkeypatch.context() as patched:
        patched.setattr(stepd_groups, "write", refuse)
        groups.open(of_job(1, 4), BOUND)
    assert "job 1 has no cores of its own: that cannot be set: " in capfd.readouterr().err
    groups.open(of_job(2, 4), BOUND)
    assert cpus(base, 2) == "0-7"
