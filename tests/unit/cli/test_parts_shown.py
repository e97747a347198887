"""Jobs of several parts as commands show them: one line for the whole, or one for each part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from escli import exits
from escli.admin import esctl
from escli.user import esacct, escancel, esqueue
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi

PARTS = (
    pb.PartInfo(
        part=0, partition="cluster", nodes=1, tasks=4, cpus=4, node_names="cn1", asked=["cpus-per-task=4"]
    ),
    pb.PartInfo(
        part=1,
        partition="booster",
        nodes=8,
        tasks=8,
        cpus=8,
        node_names="bn[1-8]",
        resources="gpu:8",
        asked=["nodes=8"],
    ),
)
JOB = pb.JobInfo(
    job_id=17,
    state="RUNNING",
    name="fluid",
    user="ada",
    partition="cluster",
    nodes=9,
    cpus=12,
    tasks=12,
    parts=PARTS,
)
TASK = pb.JobInfo(
    job_id=31,
    array_job_id=20,
    array_task=4,
    state="RUNNING",
    name="many",
    user="ada",
    partition="cluster",
    parts=PARTS,
)
PLAIN = pb.JobInfo(job_id=19, state="RUNNING", name="one", user="ada", partition="main", nodes=1)


def queue(state_dir: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    reply = pb.JobsReply(jobs=[JOB, PLAIN, TASK])
    with FakeApi(state_dir / "s", Jobs=lambda _request: reply) as door:
        assert esqueue.main(["--socket", door.path, "-h", "-o", "%i %P %D %A", *words]) == exits.OK
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("", ["17 cluster,booster 9 17", "19 main 1 19", "20_4 cluster,booster 0 31"]),
        (
            "--parts",
            [
                "17+0 cluster 1 17",
                "17+1 booster 8 17",
                "19 main 1 19",
                "20_4+0 cluster 1 31",
                "20_4+1 booster 8 31",
            ],
        ),
        ("-j 17+1", ["17+1 booster 8 17", "19 main 1 19", "20_4 cluster,booster 0 31"]),
        ("-j 18", ["17+1 booster 8 17", "19 main 1 19", "20_4 cluster,booster 0 31"]),
        ("-j 17,17+1", ["17 cluster,booster 9 17", "19 main 1 19", "20_4 cluster,booster 0 31"]),
        ("-j 20_4+1", ["17 cluster,booster 9 17", "19 main 1 19", "20_4+1 booster 8 31"]),
        ("-j 31+0", ["17 cluster,booster 9 17", "19 main 1 19", "20_4+0 cluster 1 31"]),
    ],
)
def test_the_queue_shows_the_whole_or_the_parts(
    words: str, lines: list[str], state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert queue(state_dir, capsys, *words.split()) == lines


def test_accounting_has_a_line_for_each_part_and_json_the_whole(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = pb.AttemptInfo(
        job_id=17, attempt=1, name="fluid", nodes=9, cpus=12, partition="cluster", parts=PARTS
    )
    plain = pb.AttemptInfo(
        job_id=19, attempt=1, name="one", nodes=1, cpus=1, partition="main", node_names="cn9"
    )

    def answer(_request: Any) -> pb.AccountingReply:
        return pb.AccountingReply(attempts=[run, plain])

    words = ["-P", "-h", "-o", "jobid,partition,allocnodes,nodelist"]
    with FakeApi(state_dir / "s", Accounting=answer) as door:
        assert esacct.main(["--socket", door.path, *words]) == exits.OK
        assert capsys.readouterr().out.splitlines() == [
            "17+0|cluster|1|cn1",
            "17+1|booster|8|bn[1-8]",
            "19|main|1|cn9",
        ]
        assert esacct.main(["--socket", door.path, *words, "-j", "17+1"]) == exits.OK
        assert capsys.readouterr().out.splitlines() == ["17+1|booster|8|bn[1-8]", "19|main|1|cn9"]
        assert esacct.main(["--socket", door.path, "--json"]) == exits.OK
        shown = json.loads(capsys.readouterr().out)["attempts"]
    assert [one["part"] for one in shown[0]["parts"]] == [0, 1]


def test_show_job_has_a_line_for_each_part(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeApi(state_dir / "s", Jobs=lambda _request: pb.JobsReply(jobs=[JOB])) as door:
        assert esctl.main(["--socket", door.path, "show", "job", "17+1"]) == exits.OK
        (request,) = door.asked("Jobs")
    assert (request.jobs[0].job_id, request.jobs[0].part) == (17, 1)
    lines = capsys.readouterr().out.splitlines()
    assert "   Partition=cluster,booster NodeList=(null)" in lines
    assert lines[-1].strip() == (
        "Part=17+1 Partition=booster NodeList=bn[1-8] NumNodes=8 NumTasks=8 NumCPUs=8 Memory=0M Gres=gpu:8 Asked=nodes=8"
    )


def test_a_part_is_cancelled_with_a_remark(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reply = pb.ChangeReply(
        count=1, notes=["17+1 is part 1 of job 17: this concerns the whole job, all 2 parts"]
    )
    with FakeApi(state_dir / "s", Cancel=lambda _request: reply) as door:
        assert escancel.main(["--socket", door.path, "17+1"]) == exits.OK
        assert "this concerns the whole job, all 2 parts" in capsys.readouterr().err
        assert escancel.main(["--socket", door.path, "-Q", "17+1"]) == exits.OK
        assert capsys.readouterr().err == ""
        first, _ = door.asked("Cancel")
    assert (first.jobs[0].job_id, first.jobs[0].part) == (17, 1)


def test_an_update_of_a_part_starts_from_what_that_part_asks_for(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = pb.JobInfo()
    waiting.CopyFrom(JOB)
    waiting.state = "PENDING"

    def update(door: FakeApi, job: str) -> int:
        return esctl.main(["--socket", door.path, "update", "job", job, "cpus-per-task=2"])

    with FakeApi(
        state_dir / "s",
        Jobs=lambda _request: pb.JobsReply(jobs=[waiting]),
        UpdateJob=lambda _request: pb.ChangeReply(),
    ) as door:
        assert update(door, "17+1") == update(door, "18") == exits.OK
        by_number, by_id = door.asked("UpdateJob")
        assert update(door, "17") == exits.FAILED
        assert "job 17 has 2 parts: say which one is to be changed, like 17+1" in capsys.readouterr().err
        assert update(door, "17+2") == exits.FAILED
        assert "it has no such part" in capsys.readouterr().err
    assert (by_number.job.job_id, by_number.job.part, by_id.job.job_id) == (17, 1, 18)
    assert by_number.request == by_id.request
    assert (by_number.request.nodes_min, by_number.request.cpus_per_task, list(by_number.was)) == (
        8,
        2,
        ["nodes=8"],
    )
