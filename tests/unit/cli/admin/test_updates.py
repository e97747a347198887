"""`esctl update` against a door that knows one job: what is looked up, what is put over it, and what is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from escli import exits
from escli.admin.esctl import main as esctl
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi

TASKS = ("nodes=2", "ntasks=8", "cpus-per-task=2", "gres=gpu:a100:2,fpga:1", "constraint=ib")
CHUNKS = ("rset=4:ncpus=2:gpus=1,place=scatter:excl", "licenses=matlab:2")
ASKED = {17: TASKS, 18: CHUNKS, 19: (), 21: ("nodes=3", "cpus-per-task=1", "exclusive=yes", "mem=4096M")}


@pytest.fixture
def door(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    def jobs(request: pb.JobsRequest) -> pb.JobsReply:
        assert request.asked_too
        asked = ASKED.get(request.jobs[0].job_id)
        if asked is None:
            return pb.JobsReply()
        # Of an array the tasks with records of their own are told, too.
        task = pb.JobInfo(job_id=99, array_job_id=17, array_task=3, asked=["nodes=1"])
        return pb.JobsReply(
            jobs=[task, pb.JobInfo(job_id=request.jobs[0].job_id, state="PENDING", asked=asked)]
        )

    with FakeApi(state_dir / "s", Jobs=jobs, UpdateJob=lambda _: pb.ChangeReply(count=1)) as fake:
        monkeypatch.setenv("ESLURM_SOCKET", fake.path)
        yield fake


@pytest.fixture
def running(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    """A door that knows job 17, which runs on four nodes."""

    def jobs(request: pb.JobsRequest) -> pb.JobsReply:
        return pb.JobsReply(
            jobs=[pb.JobInfo(job_id=request.jobs[0].job_id, state="RUNNING", asked=["nodes=4"])]
        )

    reply = pb.ResizeJobReply(
        job_id=17,
        before=pb.Amounts(nodes=4, node_names="cn[0-3]", cpus=16),
        after=pb.Amounts(nodes=2, node_names="cn[0-1]", cpus=8),
        leaving="cn[2-3]",
        steps=[1, 4],
    )
    with FakeApi(state_dir / "s", Jobs=jobs, ResizeJob=lambda _: reply) as fake:
        monkeypatch.setenv("ESLURM_SOCKET", fake.path)
        yield fake


@pytest.mark.parametrize(
    ("word", "asked"),
    [
        ("nodes=-2", pb.ResizeJobRequest(by_nodes=-2)),
        ("NumNodes=2", pb.ResizeJobRequest(to_nodes=2)),
        ("nodelist=cn[0-1]", pb.ResizeJobRequest(nodes=["cn0", "cn1"])),
        ("nodelist=-cn[2-3]", pb.ResizeJobRequest(without=["cn2", "cn3"])),
    ],
)
def test_the_nodes_of_a_running_job_are_changed_in_place(
    running: FakeApi, capsys: pytest.CaptureFixture[str], word: str, asked: pb.ResizeJobRequest
) -> None:
    assert esctl(["update", "job", "17", word]) == exits.OK
    asked.job.job_id = 17
    assert running.asked("ResizeJob") == [asked]
    assert capsys.readouterr().out == (
        "job 17: 4 nodes, 16 cpus -> 2 nodes, 8 cpus\n"
        "are given back, and free when nothing of the job is left there: cn[2-3]\n"
        "steps with tasks there, which are ended: 1, 4\n"
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("nodes=-0", "is not a number of nodes for a running job"),
        ("nodes=-x", "is not a number of nodes for a running job"),
        ("nodes=-2 time=1:00", "change them alone"),
        ("nodes=-2 nodelist=cn1", "give one of them"),
    ],
)
def test_other_changes_of_a_running_job_go_not_with_its_nodes(
    running: FakeApi, capsys: pytest.CaptureFixture[str], words: str, text: str
) -> None:
    assert esctl(["update", "job", "17", *words.split()]) == exits.USAGE
    assert text in capsys.readouterr().err and not running.asked("ResizeJob")


def sent(door: FakeApi, line: str) -> pb.UpdateJobRequest:
    assert esctl(["update", *line.split()]) == exits.OK
    request = door.asked("UpdateJob")[-1]
    assert isinstance(request, pb.UpdateJobRequest)
    return request


def amounts(named: object) -> dict[str, int]:
    return {one.name: one.items for one in named}  # type: ignore[attr-defined]


def test_what_is_not_said_stays_as_it_is(door: FakeApi) -> None:
    request = sent(door, "17 ntasks=4 time=1:00:00")
    part = request.request
    assert (part.nodes_min, part.nodes_max, part.tasks, part.cpus_per_task) == (2, 2, 4, 2)
    assert amounts(part.per_node) == {"gpu": 2, "fpga": 1} and part.constraint == "gpu:a100&ib"
    assert (request.job.job_id, request.time_limit_s, list(request.was)) == (17, 3600, list(TASKS))


def test_dependencies_are_replaced_as_a_whole(door: FakeApi) -> None:
    given = sent(door, "17 dependency=afterok:3_4?after:5+2").dependencies
    assert given.any
    assert [(one.kind, one.job_id, one.delay_s) for one in given.all] == [
        ("afterok", 3, 0),
        ("after", 5, 120),
    ]
    assert given.all[0].task == 4 and not given.all[1].HasField("task")
    request = sent(door, "JobId=17 Dependency=")
    assert request.HasField("dependencies") and not request.dependencies.all
    assert not sent(door, "17 time=1:00:00").HasField("dependencies")
    assert esctl(["update", "17", "dependency=afterok:3,4?5"]) == exits.USAGE


def test_tasks_follow_the_nodes_unless_they_were_named(door: FakeApi) -> None:
    assert (sent(door, "job 21 nodes=5").request.tasks, sent(door, "job 17 nodes=4").request.tasks) == (5, 8)
    assert sent(door, "job 17 nodes=4 ntasks=").request.tasks == 4


@pytest.mark.parametrize(
    ("line", "per_node", "per_task", "constraint"),
    [
        ("gpus-per-node=v100:1", {"gpu": 1, "fpga": 1}, {}, "gpu:v100&ib"),
        ("gpus-per-task=1", {"fpga": 1}, {"gpu": 1}, "ib"),
        ("gpus=4", {"fpga": 1, "gpu": 2}, {}, "ib"),
        ("Gres=gpu:1", {"gpu": 1}, {}, "ib"),
        ("gres=fpga:2", {"fpga": 2}, {}, "ib"),
        ("gres=", {}, {}, "ib"),
        ("gpus=", {"fpga": 1}, {}, "ib"),
        ("features=", {"gpu": 2, "fpga": 1}, {}, "gpu:a100"),
        ("constraint=a|b", {"gpu": 2, "fpga": 1}, {}, "gpu:a100&(a|b)"),
    ],
)
def test_devices_keep_their_types_and_features_stay_features(
    door: FakeApi, line: str, per_node: dict[str, int], per_task: dict[str, int], constraint: str
) -> None:
    part = sent(door, f"job 17 {line}").request
    assert (amounts(part.per_node), amounts(part.per_task), part.constraint) == (
        per_node,
        per_task,
        constraint,
    )


def test_scontrols_words(door: FakeApi) -> None:
    line = (
        "JobId=21 NumNodes=2-4 NumTasks=6 CPUsPerTask=3 MinMemoryCPU=500M Licenses=matlab ReqNodeList=cn[1-2] "
        "ExcNodeList=cn9 Partition=p QOS=q Account=a TimeLimit=10"
    )
    request = sent(door, line)
    part = request.request
    assert (part.nodes_min, part.nodes_max, part.tasks, part.cpus_per_task) == (2, 4, 6, 3)
    assert (part.memory_per_node_mib, part.memory_per_cpu_mib) == (0, 500)
    assert (list(part.include), list(part.exclude), amounts(part.wide)) == (
        ["cn1", "cn2"],
        ["cn9"],
        {"matlab": 1},
    )
    assert (request.partition, request.qos, request.account, request.time_limit_s) == ("p", "q", "a", 600)
    part = sent(door, "job 17 NumCPUs=8 MinMemoryNode=2G TasksPerNode=4").request
    assert (part.tasks, part.memory_per_node_mib, part.tasks_per_node) == (4, 2048, 4)


def test_chunks_are_replaced_and_placed_anew(door: FakeApi) -> None:
    part = sent(door, "job 18 rset=2:ncpus=4+1:mem=1g").request
    assert [(one.count, one.cores, one.memory_mib) for one in part.chunks] == [(2, 4, 0), (1, 1, 1024)]
    assert (part.place, part.exclusive, amounts(part.wide)) == ("free", False, {"matlab": 2})
    part = sent(door, "job 18 place=pack").request
    assert (part.place, part.exclusive, part.chunks[0].count) == ("pack", True, 4)
    part = sent(door, "job 18 exclusive=no").request
    assert (part.place, part.exclusive) == ("scatter", False)
    part = sent(door, "job 18 place=free:shared exclusive=yes").request
    assert (part.place, part.exclusive) == ("free", True)
    part = sent(door, "job 18 rset= ntasks=3").request
    assert (part.tasks, len(part.chunks), amounts(part.wide)) == (3, 0, {"matlab": 2})
    part = sent(door, "job 17 rset=8:ncpus=2").request
    assert (part.nodes_min, part.chunks[0].count, part.constraint) == (0, 8, "ib")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("job 18 nodes=2", "nodes: '2' excludes --rset: say it in the chunks, or leave out --rset"),
        ("job 17 ntasks=1", "ntasks: '1' tasks cannot fill 2 nodes"),
        ("job 17 nodelist=cn[1-3]", "nodelist: 'cn[1-3]' names more than 2 nodes"),
        ("job 17 mem=1G mem-per-cpu=1G", "mem-per-cpu: '1G' excludes --mem"),
        ("job 17 gpus=3", "gpus: '3' cannot be shared out evenly over 2 nodes"),
        ("job 17 NumCPUs=9", "NumCPUs: '9' is no multiple of 2 cores a task"),
        ("job 17 NumCPUs=x", "NumCPUs: 'x' is not a number from 1 on"),
        ("job 21 nodes=2147483647 TasksPerNode=9", "ntasks: '19327352823' are more tasks than 2147483647"),
        ("job 17 place=pack", "place: 'pack' is for jobs of chunks"),
        ("job 18 place=near", "place: 'near' is no placement at 'near'"),
        ("job 17 exclusive=maybe", "exclusive: 'maybe' is neither yes nor no"),
        ("job 17 gres=gpu:0", "gres: 'gpu:0' is not understood at 'gpu:0' (column 1)"),
        ("job 17 gpu-per-node=2", "update: 'gpu-per-node=2' cannot be updated: did you mean gpus-per-node?"),
        ("job 17 rset=2:ncpu=", "rset: '2:ncpu=' is not understood in column 3"),
    ],
)
def test_what_submitting_refuses_is_refused_in_the_same_words(
    line: str, says: str, door: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert esctl(["update", *line.split()]) == exits.USAGE
    captured = capsys.readouterr()
    assert captured.err.startswith(f"esctl: {says}") and captured.err.count("\n") == 1
    assert not door.asked("UpdateJob")


def test_jobs_that_are_gone_or_cannot_be_said_are_named(
    door: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert esctl(["update", "job", "20", "nodes=2"]) == exits.FAILED
    assert "job 20 does not exist or has ended long ago" in capsys.readouterr().err
    assert esctl(["update", "job", "19", "nodes=2"]) == exits.FAILED
    assert "job 19 asks for what options cannot say: cancel it and submit it again" in capsys.readouterr().err
    door.answers["Jobs"] = lambda _: pb.JobsReply(jobs=[pb.JobInfo(job_id=17, state="COMPLETED")])
    assert esctl(["update", "job", "17", "nodes=2"]) == exits.FAILED
    assert "job 17 is COMPLETED: only waiting jobs can be changed" in capsys.readouterr().err
    assert not door.asked("UpdateJob")
    assert esctl(["update", "job", "19", "time=5"]) == exits.OK


def test_what_there_is_to_know_is_told_and_is_no_failure(
    door: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    door.answers["UpdateJob"] = lambda _: pb.ChangeReply(count=1, notes=["job 17 asks for more now"])
    assert esctl(["update", "job", "17", "nodes=4"]) == exits.OK
    assert capsys.readouterr().err == "esctl: job 17 asks for more now\n"
    assert esctl(["--json", "update", "job", "17", "nodes=4"]) == exits.OK
    assert json.loads(capsys.readouterr().out)["notes"] == ["job 17 asks for more now"]
