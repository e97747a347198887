"""`scontrol show step`, `scontrol liststeps` and `squeue -s`, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest

from eslurm.v1 import controller_pb2 as pb
from tests.unit.cli.slurm.conftest import Answers, Say

NOW_US = 1_795_866_000_000_000
"""2026-11-28T11:40:00Z."""
COMMON: dict[str, Any] = {
    "user": "ada",
    "uid": 1000,
    "partition": "main",
    "created_us": NOW_US - 65_000_000,
    "state": "RUNNING",
}
STEPS = [
    pb.StepInfo(job_id=17, is_batch=True, name="batch", node_names="cn1", nodes=1, tasks=1, cpus=2, **COMMON),
    pb.StepInfo(job_id=17, name="a-long-name", node_names="cn[1-2]", nodes=2, tasks=4, cpus=4, **COMMON),
    pb.StepInfo(
        job_id=19,
        array_job_id=18,
        array_task=3,
        step=1,
        name="x",
        node_names="cn3",
        nodes=1,
        tasks=1,
        cpus=1,
        **(COMMON | {"user": "bob", "uid": 1001}),
    ),
]


@pytest.fixture
def answers() -> Answers:
    def steps(request: pb.StepsRequest) -> pb.StepsReply:
        wanted = {ref.job_id for ref in request.jobs}
        found = [one for one in STEPS if not wanted or {one.job_id, one.array_job_id} & wanted]
        return pb.StepsReply(steps=found, now_us=NOW_US)

    def usage(request: pb.StepUsageRequest) -> pb.StepUsageReply:
        if request.job.job_id == 19:
            return pb.StepUsageReply(
                silent=[pb.NodeSilence(node_names=request.node, why="no answer in time")]
            )
        own = pb.NodeProcesses(node=request.node, pids=[11, 12, 13], local_ranks=[0, -1, 1], first_task=2)
        assert request.processes and len(request.steps) == 1
        return pb.StepUsageReply(steps=[pb.StepUsageInfo(step=request.steps[0], processes=[own])])

    return {"Steps": steps, "StepUsage": usage, "Ping": lambda _: pb.PingReply(cluster="alpha")}


def test_records(say: Say) -> None:
    assert say("scontrol show step 17.0") == (
        "$ scontrol show step 17.0\n"
        "StepId=17.0 UserId=1000 StartTime=2026-11-28T11:38:55 TimeLimit=UNLIMITED\n"
        "   State=RUNNING Partition=main NodeList=cn[1-2]\n"
        "   Nodes=2 CPUs=4 Tasks=4 Name=a-long-name Network=(null)\n"
        "   TRES=cpu=4,node=2\n"
        "   ResvPorts=(null)\n"
        "   CPUFreqReq=Default\n"
        "   SrunHost:Pid=(null):0\n\n"
    )
    said = say("scontrol -o show steps 17")
    assert [line.split()[0] for line in said.splitlines()[1:]] == ["StepId=17.batch", "StepId=17.0"]
    assert say("scontrol show step 17.7").endswith("Job step 17.7 not found\n[1]\n")
    assert say("scontrol show step x").endswith("Invalid job id specified\n[1]\n")


def test_lists(say: Say) -> None:
    assert say("scontrol liststeps") == (
        "$ scontrol liststeps\nJOBID    STEPID  \n17       batch   \n17       0       \n19       1       \n"
    )
    assert say("scontrol liststeps 5").endswith("There are no steps for job 5\n[1]\n")


def test_columns(say: Say) -> None:
    head = "         STEPID     NAME PARTITION     USER      TIME NODELIST\n"
    batch = "       17.batch    batch      main      ada      1:05 cn1\n"
    first = "           17.0 a-long-n      main      ada      1:05 cn[1-2]\n"
    task = "         18_3.1        x      main      bob      1:05 cn3\n"
    assert say("squeue -s") == f"$ squeue -s\n{head}{batch}{first}{task}"
    assert say("squeue -h -s -u bob").endswith(f"\n{task}")
    assert say("squeue -s -h -j 17").endswith(f"\n{batch}{first}")
    assert say("squeue -s -o %i").endswith("squeue: error: -o is not supported with --steps\n[1]\n")


def test_processes_are_those_of_this_node(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "cn2")
    rows = (
        "PID      JOBID    STEPID   LOCALID GLOBALID\n"
        "11       17       0        0       2       \n"
        "12       17       0        -       -       \n"
        "13       17       0        1       3       \n"
    )
    assert say("scontrol listpids 17.0") == f"$ scontrol listpids 17.0\n{rows}"
    # The script of the job is on the other one.
    assert say("scontrol listpids 17") == f"$ scontrol listpids 17\n{rows}"
    assert say("scontrol listpids 17 cn1").splitlines()[2] == "11       17       batch    0       2       "
    monkeypatch.setattr("os.getuid", lambda: 1001)
    silent = "scontrol: error: step 18_3.1 on cn3: no answer in time\n"
    none = "not exist on node cn3.\n[1]\n"
    assert (
        say("scontrol listpids * cn3")
        == f"$ scontrol listpids * cn3\n{silent}scontrol: error: Job steps do {none}"
    )
    # Of all jobs the own ones alone are looked at.
    monkeypatch.setattr("os.getuid", lambda: 1000)
    assert say("scontrol listpids").splitlines()[1:] == rows.splitlines()
    assert say("scontrol listpids * cn3").endswith(f"cn3\nscontrol: error: Job steps do {none}")
    assert say("scontrol listpids 17.9 cn3").endswith(f"scontrol: error: Job step 17.9 does {none}")
