"""scancel and scontrol: which calls they make, and their words and exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from escli.slurm.launch import main
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi


def job(job_id: int, state: str = "RUNNING", **fields: Any) -> pb.JobInfo:
    return pb.JobInfo(job_id=job_id, state=state, user="ada", uid=1000, name="a", partition="main", **fields)


KILL = "error: Kill job error on job id"
UPDATE = "Update of this parameter is not supported"
BATCH = "scancel: error: --batch is not supported: a signal reaches the script with all that it has started: --full\n"
JOBS = [
    job(1, node_names="cn1"),
    job(2, "PENDING", array_tasks_left="3-5", tasks_running=1),
    job(3, array_job_id=2, array_task=1, node_names="cn2", wckey="w"),
    job(4, "PENDING", account="physics"),
    job(5, "COMPLETED"),
]


def changed(request: Any) -> pb.ChangeReply:
    """Job 99 is not known, 5 has ended, 7 is another user's."""
    problems = {99: "not_found", 5: "conflict", 7: "denied"}
    return pb.ChangeReply(
        problems=[
            pb.Problem(what=str(ref.job_id), code=problems[ref.job_id], text="why")
            for ref in request.jobs
            if ref.job_id in problems
        ]
    )


@pytest.fixture
def api(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    import os

    for name in list(os.environ):
        if name.startswith(("SCANCEL", "SLURM", "ESLURM")):
            monkeypatch.delenv(name)
    reconfigured = pb.ReconfigureReply(changed=["node cn9: added"], needs_restart=["policy.zone"])
    answers = dict.fromkeys(("Cancel", "Hold", "Requeue", "Suspend"), changed)
    with FakeApi(
        state_dir / "s",
        Jobs=lambda _: pb.JobsReply(jobs=JOBS),
        UpdateNodes=lambda _: pb.ChangeReply(),
        UpdateJob=lambda _: pb.ChangeReply(),
        Reconfigure=lambda _: reconfigured,
        **answers,
    ) as api:
        yield api


def run(api: FakeApi, line: str) -> int:
    command, *words = line.split()
    return main(command, words, socket=api.path)


def refs(request: Any) -> list[str]:
    return [f"{one.job_id}_{one.task}" if one.HasField("task") else str(one.job_id) for one in request.jobs]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("scancel 1 2_4", ["1", "2_4"]),
        ("scancel 2_[3-5]", ["2_3", "2_4", "2_5"]),
        ("scancel 2_*", ["2"]),
        ("scancel -u ada", ["1", "2_3", "2_4", "2_5", "2_1", "4"]),
        ("scancel -t PENDING -u 1000", ["2_3", "2_4", "2_5", "4"]),
        ("scancel -t R --name a", ["1", "2_1"]),
        ("scancel -A physics", ["4"]),
        ("scancel -w cn[2-3]", ["2_1"]),
        ("scancel --wckey=w", ["2_1"]),
        ("scancel -n a 4", ["4"]),
    ],
)
def test_scancel_names_jobs(api: FakeApi, line: str, named: list[str]) -> None:
    assert run(api, line) == 0
    assert refs(api.asked("Cancel")[0]) == named


@pytest.mark.parametrize("line", ["scancel -n nosuch", "scancel -t S -u ada", "scancel -u bob"])
def test_scancel_without_a_match_does_nothing(api: FakeApi, line: str) -> None:
    assert run(api, line) == 0
    assert not api.asked("Cancel")


@pytest.mark.parametrize(
    ("line", "signum", "reach"),
    [
        ("scancel -s USR1 1", 10, "steps"),
        ("scancel -f -s SIGUSR1 1", 10, "all"),
        ("scancel --signal=9 1", 0, ""),
        ("scancel --signal=TERM 1", 15, "steps"),
    ],
)
def test_signals(api: FakeApi, line: str, signum: int, reach: str) -> None:
    assert run(api, line) == 0
    request = api.asked("Cancel")[0]
    assert (request.signal, request.reach) == (signum, reach)


@pytest.mark.parametrize(
    ("line", "code", "err"),
    [
        ("scancel 99 5", 0, ""),
        ("scancel -v 99", 0, f"scancel: Terminating job 99\nscancel: {KILL} 99: Invalid job id specified\n"),
        ("scancel 7", 1, "scancel: error: Kill job error on job id 7: Access/permission denied\n"),
        ("scancel", 1, "scancel: error: No job identification provided\n"),
        ("scancel x", 1, "scancel: error: Invalid job id x\n"),
        ("scancel 1.0", 1, "scancel: error: 1.0: signals for single steps are not supported: name the job\n"),
        ("scancel -s NOSUCH 1", 1, "scancel: error: Unknown job signal: NOSUCH\n"),
        ("scancel -b -s USR1 1", 1, BATCH),
        ("scancel -i 1", 1, "scancel: error: -i is not supported: there is no dialogue\n"),
        ("scontrol hold 99", 1, "Invalid job id specified for job 99\n"),
        ("scontrol hold", 1, "too few arguments for keyword:hold\n"),
        ("scontrol nosuch", 1, "invalid keyword: nosuch\n"),
        ("scontrol", 1, "scontrol: error: the interactive mode is not supported: give a command\n"),
        ("scontrol update JobId=1 Foo=1", 1, "Update of this parameter is not supported: Foo=1\nRequest aborted\n"),
        ("scontrol update PartitionName=x MaxTime=1", 1, f"{UPDATE}: MaxTime=1\nRequest aborted\n"),
        ("scontrol update NodeName=cn1 State=DRAIN", 1, "You must specify a reason when DOWNING a node\nRequest denied\n"),
    ],
)  # fmt: skip
def test_words_and_exit_codes(
    api: FakeApi, capsys: pytest.CaptureFixture[str], line: str, code: int, err: str
) -> None:
    assert run(api, line) == code
    assert capsys.readouterr() == ("", err)


@pytest.mark.parametrize(
    ("line", "method"),
    [
        ("hold", "Hold"),
        ("uhold", "Hold"),
        ("requeue", "Requeue"),
        ("requeuehold", "Requeue"),
        ("suspend", "Suspend"),
        ("resume", "Suspend"),
    ],
)
def test_scontrol_changes_jobs(api: FakeApi, line: str, method: str) -> None:
    assert run(api, f"scontrol {line} 1,2_4 jobid=3") == 0
    assert refs(api.asked(method)[0]) == ["1", "2_4", "3"]


def test_scontrol_updates(api: FakeApi) -> None:
    assert run(api, "scontrol update TimeLimit=5 JobId=1 Comment=x") == 0
    request = api.asked("UpdateJob")[0]
    assert (request.job.job_id, request.time_limit_s, request.comment) == (1, 300, "x")
    assert run(api, "scontrol update nodename=cn[1-2] state=drain reason=disk") == 0
    nodes = api.asked("UpdateNodes")[0]
    assert (list(nodes.names), nodes.action, nodes.reason) == (["cn1", "cn2"], "drain", "disk")
    assert run(api, "scontrol update jobid=1 hold") == 0
    assert not api.asked("Hold")[0].release


def test_srun_is_for_jobs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert main("srun", ["-n2", "--het-group=1", "hostname"]) == 1
    assert main("srun", ["-n2", "-o", "out-%t", "hostname"]) == 1
    assert main("srun", ["-n2x", "hostname"]) == 1
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert main("srun", ["-n2", "-o", "out-%t", "hostname"]) == 1
    assert main("srun", ["-n1", "-o", "out-%J", "hostname"]) == 1
    assert main("srun", ["--mpi=lam", "hostname"]) == 1
    assert main("srun", ["-n1", "-pshort", "hostname"]) == 1
    assert main("srun", ["-n1", "--exclusive=user", "hostname"]) == 1
    assert main("srun", ["-n1", "--overlap", "--exact", "hostname"]) == 2
    assert main("srun", ["-n1"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "srun: error: --het-group: '1' names a part of no job: submit a job of several parts",
        "srun: error: --output=out-%t is not supported: a file for each of several tasks",
        'srun: error: Invalid numeric value "2x" for --ntasks.',
        "srun: error: --output=out-%t is not supported: a file for each of several tasks",
        "srun: error: --output=out-%J is not supported: the step's number is not known here",
        "srun: error: Invalid MPI type 'lam', --mpi=list for acceptable types",
        "srun: error: -p is not supported inside of jobs: the job has its nodes already",
        "srun: error: --exclusive=user is not supported: jobs have their nodes alone, or share them with all "
        "(outside of jobs)",
        "srun: error: --exact excludes --overlap, which takes nothing of the job: give one of them",
        "srun: fatal: No command given to execute.",
    ]


def test_scontrol_reconfigure(api: FakeApi, state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(api, "scontrol reconfigure") == 0
    assert capsys.readouterr() == ("", "policy.zone: needs a restart of the controller\n")
    assert list(api.asked("Reconfigure")) == [pb.ReconfigureRequest()]
    assert run(api, "scontrol reconfigure cn1") == 1
    assert "too many arguments for keyword:reconfigure" in capsys.readouterr().err
    problem = pb.Problem(what="node cn1", code="conflict", text="job 7 is on it")
    with FakeApi(state_dir / "s2", Reconfigure=lambda _: pb.ReconfigureReply(problems=[problem])) as other:
        assert run(other, "scontrol reconfigure") == 1
    assert capsys.readouterr().err == "slurm_reconfigure error: node cn1: job 7 is on it\n"
