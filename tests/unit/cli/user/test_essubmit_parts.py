"""`essubmit` for a job of several parts: `:` on the command line, `hetjob` in the script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from escli import exits
from escli.user.essubmit import main
from eslurm.core.model.request_limits import PARTS_MAX
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi, unanswered


def accepted(_request: Any) -> pb.SubmitReply:
    return pb.SubmitReply(job_ids=[17], revision=4)


def submit(state_dir: Path, line: str) -> pb.JobRequest:
    with FakeApi(state_dir / "s", Submit=accepted) as door:
        assert main(["--socket", door.path, *line.split()]) == exits.OK
        (request,) = door.asked("Submit")
        (job,) = request.jobs
        return job


def shape(job: pb.JobRequest) -> list[tuple[str, int, int]]:
    return [(one.partition, one.nodes_min, one.cpus_per_task) for one in job.components]


def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text("\n".join(("#!/bin/sh", *lines, "echo", "")))


def test_each_part_has_its_own_resources_and_partition(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, monkeypatch)
    job = submit(state_dir, "-N1 -c4 -p cluster -t 5 : -N8 --gpus-per-node=1 -p booster job.sh -x : y")
    assert shape(job) == [("cluster", 1, 4), ("booster", 8, 1)]
    assert [(one.name, one.items) for one in job.components[1].per_node] == [("gpu", 1)]
    assert (job.partition, job.time_limit_s, job.name) == ("", 300, "job.sh")
    assert list(job.arguments) == ["-x", ":", "y"], "behind the script, and no option follows: an argument"


def test_a_part_may_stand_behind_the_script(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, monkeypatch)
    job = submit(state_dir, "-N1 -p cluster job.sh -x : : -N8 -p booster")
    assert shape(job) == [("cluster", 1, 1), ("booster", 8, 1)]
    assert list(job.arguments) == ["-x", ":"]


@pytest.mark.parametrize(
    ("line", "parts", "arguments"),
    [
        ("-n2 -- job.sh -n 1 a : -n 2 b", 1, ["-n", "1", "a", ":", "-n", "2", "b"]),
        ("-n1 : -n2 -- job.sh a : -b", 2, ["a", ":", "-b"]),
    ],
)
def test_behind_two_dashes_nothing_begins_a_part(
    line: str,
    parts: int,
    arguments: list[str],
    state_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written(tmp_path, monkeypatch)
    job = submit(state_dir, line)
    assert (len(job.components), list(job.arguments)) == (parts, arguments)


def test_options_of_the_job_may_stand_in_any_part(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, monkeypatch)
    job = submit(state_dir, "-n1 -A physics : -n2 -t 5 -A physics : --hold -n3 -k --wrap true")
    assert [one.tasks for one in job.components] == [1, 2, 3]
    assert (job.account, job.time_limit_s, job.held, job.no_kill) == ("physics", 300, True, True)
    assert b"\ntrue\n" in job.script


def test_lines_of_the_script_begin_parts(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(
        tmp_path,
        monkeypatch,
        "#SBATCH -N1 -p cluster",
        "#SBATCH -t 5",
        "#SBATCH hetjob",
        "#SBATCH -N8 -p booster",
        "#SBATCH packjob",
        "#SBATCH -n 3",
    )
    job = submit(state_dir, "job.sh")
    assert shape(job) == [("cluster", 1, 1), ("booster", 8, 1), ("", 0, 1)]
    assert job.time_limit_s == 300


def test_the_command_line_overrides_the_script_part_by_part(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, monkeypatch, "#SBATCH -N1 --mem 1G -t 5", "#SBATCH hetjob", "#SBATCH -N8 -p booster")
    job = submit(state_dir, "--mem-per-cpu 2G -t 9 : -N4 : -c 2 job.sh")
    assert shape(job) == [("", 1, 1), ("booster", 4, 1), ("", 0, 2)]
    assert (job.components[0].memory_per_node_mib, job.components[0].memory_per_cpu_mib) == (0, 2048)
    assert job.time_limit_s == 540


@pytest.mark.parametrize(
    "lines",
    [
        ("#SBATCH -N1", "#SBATCH hetjob", "#SBATCH -N8", "#ESLURM -c 2"),
        ("#ESLURM -N1", "#SBATCH -N7", "#ESLURM hetjob", "#SBATCH hetjob", "#SBATCH -N8", "#ESLURM -N8 -c 2"),
        ("#ESLURM -N1", "#ESLURM hetjob", "#ESLURM -c 2", "#SBATCH -N8"),
    ],
)
def test_both_kinds_of_lines_count_parts(
    lines: tuple[str, ...], state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, monkeypatch, *lines)
    assert shape(submit(state_dir, "job.sh")) == [("", 1, 1), ("", 8, 2)]


def test_excluded_nodes_hold_for_later_parts(state_dir: Path) -> None:
    job = submit(state_dir, "-n1 -x cn1 : -n2 : -n3 -x cn2 --wrap true")
    assert [list(one.exclude) for one in job.components] == [["cn1"], ["cn1"], ["cn2"]]


def test_as_many_parts_as_there_may_be(state_dir: Path) -> None:
    job = submit(state_dir, " : ".join(["-n1"] * PARTS_MAX) + " --wrap true")
    assert len(job.components) == PARTS_MAX


BAD = [
    (
        " : ".join(["-n1"] * 130) + " --wrap true",
        "parts: ':' makes it a job of 129 parts: at most 128 are possible: submit several jobs",
    ),
    (
        "-n1 -t 5 : -n2 -t 6 --wrap true",
        "part 1: -t: '6' differs from -t 5, but is one for all parts: give it once",
    ),
    (
        "--requeue : --no-requeue --wrap true",
        "part 1: --no-requeue differs from --requeue, but is one for all parts",
    ),
    (
        "-n1 : -n2 -o x --wrap true",
        "part 1: -o: 'x' has no effect here, as the script runs in the first part",
    ),
    ("-n1 : --tiem 5 --wrap true", "part 1: --tiem: '--tiem' is not an option: did you mean --time?"),
    ("-n1 : -n x --wrap true", "part 1: -n: 'x' is not a number from 1 on"),
    ("-n1 : -n 2 -N 4 --wrap true", "part 1: -n: '2' tasks cannot fill 4 nodes"),
    ("twice.sh", "#SBATCH (line 4) --output: 'x' has no effect here"),
    ("beside.sh", "#SBATCH (line 2): 'hetjob' is not an option"),
]


@pytest.mark.parametrize(("line", "says"), BAD, ids=[case[0] for case in BAD])
def test_bad_parts_are_one_line_and_send_nothing(
    line: str,
    says: str,
    state_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twice.sh").write_text("#!/bin/sh\n#SBATCH -n 1\n#SBATCH hetjob\n#SBATCH --output x\n")
    (tmp_path / "beside.sh").write_text("#!/bin/sh\n#SBATCH hetjob -n 4\n")
    with FakeApi(state_dir / "s", Submit=unanswered) as door:
        assert main(["--socket", door.path, *line.split()]) == exits.USAGE
        assert door.requests == []
    captured = capsys.readouterr()
    assert captured.err.startswith(f"essubmit: {says}")
    assert (captured.out, captured.err.count("\n")) == ("", 1)
