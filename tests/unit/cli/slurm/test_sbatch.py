"""sbatch's options become a request: precedence, spellings, and what is refused."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from escli.slurm import sbatch
from escli.slurm.launch import main
from eslurm.ports.api import Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi, Refuse


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith(("SBATCH", "SLURM", "ESLURM")):
            monkeypatch.delenv(name)


@contextmanager
def controller(state_dir: Path, answer: Any = None) -> Iterator[FakeApi]:
    reply = answer or (lambda _: pb.SubmitReply(job_ids=[17]))
    with FakeApi(state_dir / "s", Submit=reply, Ping=lambda _: pb.PingReply(cluster="here")) as api:
        yield api


def submitted(state_dir: Path, *words: str) -> pb.JobRequest:
    with controller(state_dir) as api:
        assert main("sbatch", words, socket=api.path) == 0
    (state_dir / "s").unlink()
    job: pb.JobRequest = api.asked("Submit")[0].jobs[0]
    return job


def script(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "job.sh"
    path.write_text("\n".join(["#!/bin/bash", *lines, "true", ""]))
    return str(path)


def test_the_command_line_wins_over_the_environment_and_that_over_the_script(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script(tmp_path, "#SBATCH -J script -t 1 -A script", "#SBATCH --comment='of the script'")
    monkeypatch.setenv("SBATCH_JOB_NAME", "environment")
    monkeypatch.setenv("SBATCH_TIMELIMIT", "2")
    job = submitted(state_dir, "-J", "line", path)
    assert (job.name, job.time_limit_s, job.account, job.comment) == ("line", 120, "script", "of the script")


def test_an_option_takes_its_opposite_back(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script(tmp_path, "#SBATCH --mem-per-cpu=1G --no-requeue")
    monkeypatch.setenv("SBATCH_REQUEUE", "1")
    job = submitted(state_dir, "--mem=2G", path)
    assert (job.components[0].memory_per_node_mib, job.components[0].memory_per_cpu_mib) == (2048, 0)
    assert job.requeue


def test_defaults_are_those_of_sbatch(state_dir: Path, tmp_path: Path) -> None:
    job = submitted(state_dir, script(tmp_path))
    assert (job.name, job.output, job.truncate_output) == ("job.sh", "slurm-%j.out", True)
    assert job.command == str(tmp_path / "job.sh")
    assert not submitted(state_dir, "--open-mode=append", "--wrap", "true").truncate_output


def test_wrap_and_standard_input(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert submitted(state_dir, "--wrap", "echo hi").script.endswith(b"\necho hi\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"#!/bin/sh\n#SBATCH -n 3\ntrue\n")))
    job = submitted(state_dir)
    assert (job.name, job.components[0].tasks, job.command) == ("sbatch", 3, "")


def test_a_script_is_found_in_path(state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = script(tmp_path)
    monkeypatch.setenv("PATH", f"/usr/bin:{tmp_path}")
    assert submitted(state_dir, "job.sh").command == path


def test_script_arguments_follow_the_script(state_dir: Path, tmp_path: Path) -> None:
    assert list(submitted(state_dir, script(tmp_path), "-n", "2").arguments) == ["-n", "2"]


def test_forms_that_differ_from_essubmit(state_dir: Path, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("cn1\ncn2, cn3\n")
    job = submitted(
        state_dir,
        *("--gres=none", "--wckey=w", "--export=NIL", "--exclusive", "--tasks-per-node=2", "-N", "3"),
        *("-F", str(hosts), "--signal=B:USR1@30", "--use-min-nodes", "--wrap", "true"),
    )
    part = job.components[0]
    assert (job.wckey, part.exclusive, part.tasks_per_node, part.tasks) == ("w", True, 2, 6)
    assert list(part.include) == ["cn1", "cn2", "cn3"]
    assert (job.warn_signal, job.warn_before_s, job.warn_batch_only) == (10, 30, True)
    assert b"SHELL=" in job.environment


def test_parts_of_the_script_and_of_the_line(state_dir: Path, tmp_path: Path) -> None:
    path = script(tmp_path, "#SBATCH -n 1", "#SBATCH hetjob", "#SBATCH -n 4")
    job = submitted(state_dir, "-c2", ":", "-p", "big", path)
    assert [(part.tasks, part.cpus_per_task, part.partition) for part in job.components] == [
        (1, 2, ""),
        (4, 1, "big"),
    ]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--mail-type=DONE", "--wrap", "true"], "--mail-type: 'DONE' is no event"),
        (["--mail-user=-oQ/tmp", "--wrap", "true"], "--mail-user: '-oQ/tmp' is neither"),
        (["--overcommit", "--wrap", "true"], "--overcommit is not supported: a core has one task"),
        (["--gid=54321", "--wrap", "true"], "--gid=54321 is not supported: jobs run as the user"),
        (["--export-file=/no/such/file", "--wrap", "true"], "Could not open user environment file"),
        (["--exclusive=user", "--wrap", "true"], "--exclusive=user is not supported: "),
        (["--signal=R:USR1", "--wrap", "true"], "--signal=R: is not supported: "),
        (["--wrap", "true", "job.sh"], "Script arguments are not permitted with the --wrap option."),
        (["/no/such/file"], "Unable to open file /no/such/file"),
    ],
)
def test_refusals_are_one_line_and_exit_code_1(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("sbatch", words) == 1
    captured = capsys.readouterr()
    assert line in captured.err.splitlines()[0]
    assert captured.err.startswith("sbatch: ")
    assert captured.out == ""


@pytest.mark.parametrize(
    ("words", "line", "code"),
    [
        (["-n", "x"], 'Invalid numeric value "x" for --ntasks.', 1),
        (["-N", "x"], '"x" is not a valid node count', 255),
        (["-t", "xx"], "Invalid --time specification", 255),
        (["--mem=1X"], "Invalid --mem specification", 255),
        (["--signal=FOO"], "Invalid --signal specification", 255),
        (["--open-mode=x"], "Invalid --open-mode specification", 255),
        (["--array=x"], "Batch job submission failed: Invalid job array specification", 1),
        (["-d", "foo:1"], "Batch job submission failed: Job dependency problem", 1),
        (["--gpus=x"], "Invalid generic resource (gres) specification", 1),
    ],
)
def test_invalid_values_in_the_words_of_sbatch(
    words: list[str], line: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("sbatch", [*words, "--wrap", "true"]) == code
    assert capsys.readouterr().err.startswith(f"sbatch: error: {line}")


def test_empty_values_are_none(state_dir: Path) -> None:
    job = submitted(state_dir, "-J", "", "-C", "", "--qos=", "-p", "", "-w", "", "--wrap", "true")
    assert (job.name, job.components[0].constraint, job.qos, job.partition) == ("wrap", "", "", "")


def test_variables_that_cannot_be_met_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SBATCH_OVERCOMMIT", "1")
    assert main("sbatch", ["--wrap", "true"]) == 1
    assert "SBATCH_OVERCOMMIT is not supported" in capsys.readouterr().err


def test_pbs_lines_are_not_left_out_silently(
    state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script(tmp_path, "#PBS -l nodes=4")
    assert main("sbatch", [path]) == 1
    assert "#PBS lines are not supported" in capsys.readouterr().err
    assert submitted(state_dir, "--ignore-pbs", path).name == "job.sh"


def test_a_text_without_an_interpreter_is_no_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").write_text("hostname\n")
    assert main("sbatch", [str(tmp_path / "x")]) == 1
    assert capsys.readouterr().err.splitlines() == list(sbatch._NO_SCRIPT)


@pytest.mark.parametrize(
    ("words", "out"),
    [
        ([], "Submitted batch job 17\n"),
        (["--parsable"], "17\n"),
        (["--quiet"], ""),
        (["-M", "here"], "Submitted batch job 17 on cluster here\n"),
        (["-M", "here", "--parsable"], "17;here\n"),
    ],
)
def test_what_it_says(
    state_dir: Path, capsys: pytest.CaptureFixture[str], words: list[str], out: str
) -> None:
    submitted(state_dir, *words, "--wrap", "true")
    assert capsys.readouterr().out == out


def test_refusals_of_the_controller_are_in_words_that_programs_know(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: Any) -> Any:
        raise Refuse(Status.INVALID_ARGUMENT, "--partition: 'x' does not exist: use one of main")

    with controller(state_dir, refuse) as api:
        assert main("sbatch", ["--wrap", "true"], socket=api.path) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "sbatch: error: invalid partition specified: "
    assert lines[1].startswith(
        "sbatch: error: Batch job submission failed: Invalid partition name specified ("
    )


def test_a_test_says_when_and_where(
    state_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    test = pb.TestAnswer(start_us=1_795_866_000_000_000, nodes="cn[1-2]")
    refused = pb.TestAnswer(refused=True, answer="--nodes: needs 99 nodes")
    partitions = pb.NodesReply(partitions=[pb.PartitionInfo(name="main", is_default=True)])
    for answer, code, line in (
        (
            test,
            0,
            "sbatch: Job to start at 2026-11-28T11:40:00 using 8 processors on nodes cn[1-2] in partition main\n",
        ),
        (refused, 1, "allocation failure: --nodes: needs 99 nodes\n"),
    ):
        reply = pb.SubmitReply(tests=[answer])
        with FakeApi(state_dir / "s", Submit=lambda _, reply=reply: reply, Nodes=lambda _: partitions) as api:
            assert main("sbatch", ["--test-only", "-n4", "-c2", "--wrap", "true"], socket=api.path) == code
        (state_dir / "s").unlink()
        assert capsys.readouterr() == ("", line)
    monkeypatch.undo()
    time.tzset()


def test_no_controller(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("sbatch", ["--wrap", "true"], socket=str(tmp_path / "none")) == 1
    assert "Unable to contact slurm controller (connect failure)" in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("sbatch", ["--version"], release="22.05") == 0
    assert main("srun", ["-V"]) == 0
    assert main("sbatch", ["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["slurm 22.05.11", "slurm 25.11.0", "Usage: sbatch [OPTIONS...] script [args...]"]
