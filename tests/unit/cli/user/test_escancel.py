"""Requests of `escancel` about jobs in other cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from escli import exits
from escli.user.escancel import main
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi


def test_a_job_is_given_up_with_its_cell(state_dir: Path) -> None:
    with FakeApi(state_dir / "s", Cancel=lambda _request: pb.ChangeReply(count=1)) as door:
        assert main(["--socket", door.path, "--lost", "17"]) == exits.OK
        (request,) = door.asked("Cancel")
    assert request.lost and [one.job_id for one in request.jobs] == [17]


@pytest.mark.parametrize("words", [["--me"], ["-s", "TERM", "17"]])
def test_only_jobs_that_are_named_are_given_up(
    state_dir: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    with FakeApi(state_dir / "s") as door:
        assert main(["--socket", door.path, "--lost", *words]) == exits.USAGE
        assert not door.requests
    assert "escancel --lost 17" in capsys.readouterr().err
