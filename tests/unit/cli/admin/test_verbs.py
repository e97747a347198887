"""esctl's actions on jobs, partitions and crontabs: their calls, words and exit codes."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from escli.admin.esctl import main
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi

CRONTAB = """GREETING=hello
#ESLURM --time=5 --job-name=often
#SCRON -p short
*/5 * * * * echo $GREETING
@daily /usr/bin/true
"""


@pytest.fixture
def api(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    monkeypatch.chdir(state_dir)
    monkeypatch.setenv("SECRET", "xylophone")
    changed: Any = lambda _: pb.ChangeReply(count=1)  # noqa: E731
    step = pb.StepInfo(job_id=17, name="a", state="RUNNING", user="ada", uid=1000, partition="main", nodes=1)
    with FakeApi(
        state_dir / "s",
        Requeue=changed,
        TopJob=changed,
        UpdatePartitions=changed,
        SetCrontab=changed,
        Crontab=lambda asked: pb.CrontabReply(user=asked.user or "ada", text="" if asked.user else CRONTAB),
        JobScript=lambda _: pb.JobScriptReply(script=b"#!/bin/sh\n"),
        Steps=lambda _: pb.StepsReply(steps=[step]),
    ) as api:
        yield api


def run(api: FakeApi, *words: str) -> int:
    return main(["--socket", str(api.path), *words])


def test_requeued_on_hold(api: FakeApi) -> None:
    assert run(api, "requeue", "17", "--hold") == 0
    assert api.asked("Requeue")[0].hold


def test_the_first_job_named_is_on_top_in_the_end(api: FakeApi) -> None:
    assert run(api, "top", "17", "18") == 0
    assert [one.job.job_id for one in api.asked("TopJob")] == [18, 17]


def test_partitions(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(api, "partition", "drain", "short,long", "main") == 0
    [request] = api.asked("UpdatePartitions")
    assert (list(request.names), request.state) == (["short", "long", "main"], "DRAIN")
    for words, why in (
        ((), "partition needs an action: use one of up, down, drain, inactive"),
        (("off", "main"), "partition: 'off' is not an action"),
        (("up",), "partition up needs partitions"),
    ):
        assert run(api, "partition", *words) == 2
        assert why in capsys.readouterr().err


def test_scripts_and_steps(api: FakeApi, state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(api, "script", "17", "--output", "job.sh") == 0
    assert (state_dir / "job.sh").read_text() == "#!/bin/sh\n"
    assert "job.sh: the script of job 17" in capsys.readouterr().out
    assert run(api, "show", "step", "17") == 0
    assert capsys.readouterr().out.startswith("StepId=17.0 Name=a\n   UserId=ada(1000) Partition=main")


def test_a_crontab_is_sent_line_by_line(api: FakeApi, state_dir: Path) -> None:
    path = state_dir / "my.crontab"
    path.write_text(CRONTAB.rstrip("\n"))
    assert run(api, "crontab", "set", str(path)) == 0
    [request] = api.asked("SetCrontab")
    assert request.text == CRONTAB
    often, daily = request.jobs
    assert (often.first, often.line, often.schedule) == (2, 4, "*/5 * * * *")
    assert (often.job.name, often.job.time_limit_s, often.job.partition) == ("often", 300, "short")
    assert often.job.script == b"#!/bin/sh\n# A line of a crontab.\necho $GREETING\n"
    assert b"GREETING=hello" in often.job.environment
    assert b"xylophone" not in often.job.environment
    assert (daily.first, daily.line, daily.schedule, daily.job.name) == (5, 5, "0 0 * * *", "true")


def test_a_crontab_is_shown_and_removed(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(api, "crontab", "show") == 0
    assert capsys.readouterr().out == CRONTAB
    assert run(api, "crontab", "show", "-u", "bob") == 1
    assert "bob has no crontab" in capsys.readouterr().err
    assert run(api, "crontab", "remove", "-u", "bob") == 0
    [request] = api.asked("SetCrontab")
    assert (request.user, request.text, len(request.jobs)) == ("bob", "", 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#SCRON --time=x\n* * * * * true\n", "#SCRON (line 1) --time: 'x'"),
        ("#SCRON --export=ALL\n* * * * * true\n", "#SCRON (line 1) --export means nothing in a crontab"),
        ("* * * * * true\n61 * * * * true\n", "line 2: '61 * * * * true' does not parse at column 1"),
        ("x" * 70_000, "is longer than 65536 bytes"),
    ],
)
def test_what_is_no_crontab(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert run(api, "crontab", "set", "-") != 0
    assert why in capsys.readouterr().err
    assert not api.asked("SetCrontab")
