"""The demo's command line, and its reading of the queue."""

from __future__ import annotations

from typing import Any

import pytest

from escli.local.demo import Progress, main, progress_of
from eslurm.v1 import controller_pb2 as pb


def array(**fields: Any) -> pb.JobInfo:
    return pb.JobInfo(job_id=1, state="PENDING", **fields)


def task(number: int, state: str, nodes: str) -> pb.JobInfo:
    return pb.JobInfo(job_id=10 + number, array_job_id=1, array_task=number, state=state, node_names=nodes)


JOIN = pb.JobInfo(job_id=2, state="PENDING", reason="Dependency")


@pytest.mark.parametrize(
    ("left", "waiting"), [("4-15%8", 12), ("3,5,7-9", 5), ("0-10:5%2", 3), ("%8", 0), ("", 0)]
)
def test_tasks_that_wait_are_counted(left: str, waiting: int) -> None:
    progress = progress_of([array(array_tasks_left=left), JOIN], 1, 2)
    assert progress == Progress(waiting, 0, 0, 0, "", "waiting (Dependency)")


def test_where_tasks_run() -> None:
    infos = [
        array(tasks_running=2, tasks_done=1, tasks_failed=1),
        task(0, "COMPLETED", "cn09"),
        task(1, "RUNNING", "cn02"),
        task(2, "RUNNING", "cn01"),
        pb.JobInfo(job_id=2, state="RUNNING", node_names="cn03"),
    ]
    assert progress_of(infos, 1, 2) == Progress(0, 2, 1, 1, "cn[01-02]", "running on cn03")


def test_half_an_answer_is_none() -> None:
    assert progress_of([array()], 1, 2) is None
    assert progress_of([JOIN], 1, 2) is None


@pytest.mark.parametrize("width", ["31", "8193", "-5", "wide"])
def test_a_width_that_is_none_is_refused(width: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([f"--width={width}"])
    assert ended.value.code == 2
    assert f"--width: '{width}' is no width of a picture: write 32 to 8192" in capsys.readouterr().err
