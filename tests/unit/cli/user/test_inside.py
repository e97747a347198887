"""Actions on a running job: what is asked of the controller, and what is said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from escli import exits
from escli.admin import esctl
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi


def give_back(request: Any) -> pb.FinishPartReply:
    return pb.FinishPartReply(
        job_id=request.job.job_id,
        part=request.job.part,
        before=pb.Amounts(nodes=4, node_names="cn[0-3]", cpus=9),
        after=pb.Amounts(nodes=1, node_names="cn0", cpus=2),
        leaving="cn[1-2]",
        busy="cn0" if request.kill else "",
        steps=[3, 4] if request.kill else [],
    )


@pytest.fixture
def door(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    monkeypatch.setenv("ESLURM_SOCKET", str(state_dir / "s"))
    monkeypatch.delenv("ESLURM_JOB_ID", raising=False)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with FakeApi(state_dir / "s", FinishPart=give_back) as one:
        yield one


def test_a_part_is_named_with_its_job(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert esctl.main(["finish-part", "17+1"]) == exits.OK
    (asked,) = door.asked("FinishPart")
    assert asked == pb.FinishPartRequest(job=pb.JobRef(job_id=17, part=1))
    assert capsys.readouterr().out == (
        "part 1 of job 17 is given back: 4 nodes, 9 cpus -> 1 node, 2 cpus\n"
        "free when nothing of the job is left there: cn[1-2]\n"
    )


def test_inside_a_job_its_id_is_left_out(
    door: FakeApi, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert esctl.main(["finish-part", "+1"]) == exits.USAGE
    assert "is not inside a job" in capsys.readouterr().err
    monkeypatch.setenv("SLURM_JOB_ID", "23")
    assert esctl.main(["finish-part", "+2", "--kill", "--dry-run"]) == exits.OK
    (asked,) = door.asked("FinishPart")
    assert asked == pb.FinishPartRequest(job=pb.JobRef(job_id=23, part=2), kill=True, dry_run=True)
    out = capsys.readouterr().out
    assert "part 2 of job 23 would be given back" in out
    assert "steps that get SIGKILL: 3, 4" in out and "its share of cn0" in out


def test_a_dependency_is_told_before_and_after(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    shown = iter(("afterok:16(unfulfilled)", "afterany:17(unfulfilled)", "afterany:17(unfulfilled)"))
    door.answers["Jobs"] = lambda _: pb.JobsReply(jobs=[pb.JobInfo(job_id=42, dependencies=next(shown))])
    door.answers["UpdateJob"] = lambda _: pb.ChangeReply(count=1)
    assert esctl.main(["set-dependency", "42", "17"]) == exits.OK
    assert capsys.readouterr().out == (
        "job 42 waits for afterany:17(unfulfilled) (before: afterok:16(unfulfilled))\n"
    )
    assert esctl.main(["set-dependency", "42", "--dry-run"]) == exits.OK
    assert "job 42 would wait for no job (before: afterany:17(unfulfilled))" in capsys.readouterr().out
    first, second = door.asked("UpdateJob")
    assert first.dependencies == pb.Dependencies(all=[pb.Dependency(kind="afterany", job_id=17)])
    assert second.HasField("dependencies") and not second.dependencies.all and second.dry_run


@pytest.mark.parametrize("words", [[], ["17+1", "17+2"], ["17_[1,2]+1"], ["17+x"]])
def test_bad_words_are_refused_before_the_controller_is_asked(door: FakeApi, words: list[str]) -> None:
    assert esctl.main(["finish-part", *words]) == exits.USAGE
    assert not door.asked("FinishPart")
