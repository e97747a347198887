"""`esrun --async`, which only asks for a step, and `eswait`, which waits for the ends of such steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from escli import exits
from escli.user import esrun, eswait
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi


@pytest.fixture(autouse=True)
def _in_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ESLURM_STEP_ID", raising=False)
    for name, value in {"ESLURM_JOB_ID": "17", "ESLURM_NTASKS": "2", "ESLURM_NODENAME": "cn1"}.items():
        monkeypatch.setenv(name, value)


def test_a_step_is_asked_for_and_its_number_is_printed(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    door = FakeApi(
        state_dir / "s", CreateStep=lambda _: pb.CreateStepReply(job_id=17, attempt=1, step=3, waits=True)
    )
    with door:
        assert (
            esrun.main(["--socket", door.path, "-n1", "--async", "-e", "err.%t", "./part", "7"]) == exits.OK
        )
    assert capsys.readouterr().out == "17.3\n"
    (request,) = door.asked("CreateStep")
    assert (request.files.output, request.files.error) == ("slurm-%J.out", "err.%t")
    assert (request.endpoint, request.cookie, list(request.argv)) == ("", b"", ["./part", "7"])
    assert request.HasField("claim") and not request.HasField("input")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--async --pty bash", "--pty needs a command that stays"),
        ("--async --mpi pmi2 x", "--mpi: 'pmi2' needs a command that stays"),
        ("--async -i all x", "-i: 'all' has no command to come from"),
        ("-o out x", "-o: 'out' is for --async"),
        ("--each parts", "--each: 'parts' is for --async"),
        ("--async --each parts x", "--each: 'parts' has the commands"),
    ],
)
def test_what_needs_a_command_is_refused(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert esrun.main(line.split()) == exits.USAGE
    assert says in capsys.readouterr().err


def test_a_step_for_each_line_of_a_file(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (state_dir / "parts").write_text("./part 1\n\n# no part\n./part 2 | sort\n")
    numbers = iter(range(9))
    door = FakeApi(
        state_dir / "s", CreateStep=lambda _: pb.CreateStepReply(job_id=17, attempt=1, step=next(numbers))
    )
    words = ["--socket", door.path, "-n1", "--async", "--each", str(state_dir / "parts")]
    with door:
        assert esrun.main(words) == exits.OK
        assert esrun.main([*words[:-1], str(state_dir / "missing")]) == exits.FAILED
    assert capsys.readouterr().out == "17.0\n17.1\n"
    asked = [list(request.argv) for request in door.asked("CreateStep")]
    assert asked == [["/bin/sh", "-c", "./part 1"], ["/bin/sh", "-c", "./part 2 | sort"]]


def test_outside_of_jobs_there_is_no_step_to_leave_behind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ESLURM_JOB_ID")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert esrun.main(["--async", "x"]) == exits.USAGE
    assert "--async is for steps inside of jobs" in capsys.readouterr().err


def test_the_highest_code_is_that_of_the_wait(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = [pb.Problem(what="17.3", code="failed", text="exit code 7")]
    replies = [pb.StepReply(left=1), pb.StepReply(failed=failed, exit_code=7)]
    door = FakeApi(state_dir / "s", WaitStep=lambda _: replies.pop(0))
    with door:
        assert eswait.main(["--socket", door.path, "3", "17.4"]) == 7
    assert capsys.readouterr().err == "eswait: step 17.3: exit code 7\n"
    asked = door.asked("WaitStep")
    assert [(one.job_id, list(one.steps), one.over) for one in asked] == [(17, [3, 4], True)] * 2


@pytest.mark.parametrize("word", ["x", "18.3", "3.", "-1x"])
def test_what_is_no_step_of_the_job(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert eswait.main(["--", word]) == exits.USAGE
    assert "is no step of this job" in capsys.readouterr().err
