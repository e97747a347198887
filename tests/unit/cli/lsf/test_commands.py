"""`bsub`, `bjobs` and `bkill` against a controller that answers what a test says."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from escli.lsf.launch import main
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi
from tests.support.golden import Golden

S = 1_000_000
NOW_US = 1_800_000_000 * S
OWN = os.getuid()
JOBS = (
    pb.JobInfo(job_id=17, name="relax-the-very-long-name", user="ada", uid=OWN, partition="main", state="RUNNING",
               submitted_us=NOW_US - 9000 * S, started_us=NOW_US - 3661 * S, nodes=2, tasks=8, node_names="cn[1-2]"),
    pb.JobInfo(job_id=18, name="sweep", user="bob", uid=OWN + 1, partition="main", state="PENDING", array_tasks_left="2-3",
               tasks_running=1, tasks=1, submitted_us=NOW_US - 60 * S),
    pb.JobInfo(job_id=20, array_job_id=18, array_task=1, name="sweep", user="bob", uid=OWN + 1, partition="main",
               state="RUNNING", started_us=NOW_US - 5 * S, tasks=1, node_names="cn3", submitted_us=NOW_US - 60 * S),
    pb.JobInfo(job_id=21, name="held", user="ada", uid=OWN, partition="main", state="PENDING", reason="JobHeldUser",
               tasks=1, submitted_us=NOW_US - 50 * S),
    pb.JobInfo(job_id=23, name="done", user="ada", uid=OWN, partition="main", state="COMPLETED", started_us=NOW_US - 60 * S,
               ended_us=NOW_US - 30 * S, tasks=1, node_names="cn1", submitted_us=NOW_US - 70 * S),
    pb.JobInfo(job_id=24, name="bad", user="ada", uid=OWN, partition="main", state="FAILED", exit_code=3, tasks=1,
               started_us=NOW_US - 60 * S, ended_us=NOW_US - 30 * S, node_names="cn1", submitted_us=NOW_US - 70 * S),
)  # fmt: skip


def jobs(request: pb.JobsRequest) -> pb.JobsReply:
    wanted = {ref.job_id for ref in request.jobs}
    ended = ("COMPLETED", "FAILED")
    found = [
        one
        for one in JOBS
        if (not wanted or wanted & {one.job_id, one.array_job_id})
        and (not request.name or one.name == request.name)
        and (request.finished_too or one.state not in ended)
    ]
    return pb.JobsReply(now_us=NOW_US, jobs=found)


def cancelled(request: pb.CancelRequest) -> pb.ChangeReply:
    codes = {99: "not_found", 23: "conflict", 18: "denied"}
    return pb.ChangeReply(
        problems=[
            pb.Problem(
                what=f"{ref.job_id}_{ref.task}" if ref.HasField("task") else str(ref.job_id),
                code=codes[ref.job_id],
            )
            for ref in request.jobs
            if ref.job_id in codes
        ]
    )


@pytest.fixture
def api(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    for name in list(os.environ):
        if name.startswith(("SLURM", "ESLURM", "LSB", "LS_", "LSF")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(state_dir)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    with FakeApi(
        state_dir / "s",
        Submit=lambda _: pb.SubmitReply(job_ids=[17]),
        Ping=lambda _: pb.PingReply(cluster="here"),
        Jobs=jobs,
        Cancel=cancelled,
    ) as served:
        yield served
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def say(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def run(*words: str) -> tuple[int, str]:
        code = main(words[0], words[1:], socket=api.path)
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


Say = Callable[..., tuple[int, str]]


def test_a_script_from_standard_input(
    say: Say, api: FakeApi, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        b'#!/bin/bash\n#BSUB -J fluid\n#BSUB -q short\n#BSUB -n 8 -R "span[ptile=4] rusage[mem=4GB]"\n#BSUB -W 1:00\n'
        b"#BSUB -o out.%J\n\necho $LSB_HOSTS\n"
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert say("bsub", "-q", "long") == (0, "Job <17> is submitted to queue <long>.\n")
    job: Any = api.asked("Submit")[0].jobs[0]
    assert (job.name, job.partition, job.time_limit_s, job.work_dir) == (
        "fluid",
        "long",
        3600,
        str(state_dir),
    )
    part = job.components[0]
    assert (part.tasks, part.nodes_min, part.tasks_per_node, part.memory_per_node_mib) == (8, 2, 4, 4096)
    assert (job.output, job.truncate_output, job.requeue, job.script) == ("out.%j", False, False, text)
    variables = dict(one.split("=", 1) for one in bytes(job.environment).decode().split("\0") if "=" in one)
    assert (
        variables["LS_SUBCWD"] == str(state_dir) and variables["LSB_QUEUE"] == "long" and "PATH" in variables
    )


def test_a_command(say: Say, api: FakeApi) -> None:
    assert say("bsub", "-oo", "x", "echo", "-n", "'two words'") == (
        0,
        "Job <17> is submitted to default queue <main>.\n",
    )
    job: Any = api.asked("Submit")[0].jobs[0]
    assert job.script == b"#!/bin/sh\necho -n 'two words'\n" and job.name == "echo -n 'two words'"
    assert job.truncate_output and job.output == "x"


def test_a_name_in_a_dependency(say: Say, api: FakeApi) -> None:
    assert say("bsub", "-w", "ended(relax-the-very-long-name)", "true")[0] == 0
    (dependency,) = api.asked("Submit")[0].jobs[0].dependencies
    assert (dependency.kind, dependency.job_id) == ("afterany", 17)
    assert "'sweep' is none of your jobs" in say("bsub", "-w", "done(sweep)", "true")[1]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("bsub", "-I", "bash"),
            "bsub: -I is not supported: use esalloc, or esrun --pty bash. Job not submitted.",
        ),
        (("bsub", "-Is", "bash"), "bsub: -Is is not supported: use esrun --pty bash. Job not submitted."),
        (("bsub", "-Z", "true"), "bsub: illegal option -Z: see bsub -h. Job not submitted."),
        (("bsub", "-u", "|/bin/sh", "-N", "true"), "bsub: -u: '|/bin/sh' is neither"),
        (("bsub", "-R", "cu[x]", "true"), "bsub: -R: 'cu[x]' is not supported"),
        (("bsub", " "), "bsub: the command is empty"),
        (("bjobs", "-l"), "bjobs: -l is not supported: use esctl show job ID"),
        (("bjobs", "x"), "bjobs: JOB: 'x' is no job id"),
        (("bjobs", "-o", "nothing"), "bjobs: -o: 'nothing' is no field"),
        (("bjobs", "99"), "Job <99> is not found"),
        (("bkill",), "bkill: Job ID is missing"),
        (("bkill", "99"), "Job <99>: No matching job found"),
        (("bkill", "23"), "Job <23>: Job has already finished"),
        (("bkill", "18[3]"), "Job <18[3]>: User permission denied"),
    ],
)
def test_errors(say: Say, api: FakeApi, words: tuple[str, ...], text: str) -> None:
    code, said = say(*words)
    assert code == 255 and said.startswith(text) and said.count("\n") == 1
    assert not api.asked("Submit")


def test_a_wrong_line_of_a_script(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"#BSUB -n 4\n#BSUB -sla gold\ntrue\n")))
    code, said = say("bsub")
    assert code == 255 and said.startswith(
        "bsub: #BSUB line 3: -sla=gold is not supported: there are no service classes"
    )


def test_tables(say: Say, golden: Golden) -> None:
    lines = []
    for words in (
        ("bjobs",),
        ("bjobs", "-u", "all"),
        ("bjobs", "-w", "-u", "all", "-noheader"),
        ("bjobs", "-a"),
        ("bjobs", "-d"),
        ("bjobs", "-r"),
        ("bjobs", "-p", "-u", "bob"),
        ("bjobs", "-s"),
        ("bjobs", "18[2]", "24"),
        ("bjobs", "-J", "held"),
        ("bjobs", "-o", "jobid:5 jobindex stat exec_host:-20 run_time exit_code", "17", "18", "24"),
        ("bjobs", "-noheader", "-o", "jobid stat job_name delimiter='^'", "17"),
        ("bjobs", "-u", "nobody-here"),
    ):
        code, said = say(*words)
        assert code == 0
        lines.append(f"$ {' '.join(words)}\n{said}")
    golden("cli/lsf.txt", "\n".join(lines))
    records = json.loads(say("bjobs", "-o", "jobid stat", "-json", "17")[1])
    assert records == {"COMMAND": "bjobs", "JOBS": 1, "RECORDS": [{"JOBID": "17", "STAT": "RUN"}]}


def test_kills(say: Say, api: FakeApi) -> None:
    assert say("bkill", "17", "21") == (0, "Job <17> is being terminated\nJob <21> is being terminated\n")
    assert say("bkill", "-s", "USR1", "17") == (0, "Job <17> is being signaled\n")
    assert api.asked("Cancel")[1].signal == 10
    assert say("bkill", "0") == (0, "Job <17> is being terminated\nJob <21> is being terminated\n")
    assert say("bkill", "-J", "held", "0") == (0, "Job <21> is being terminated\n")
    assert say("bkill", "-J", "none") == (255, "No matching job found\n")
    assert say("bkill", "17", "99")[0] == 255


def test_help_and_version(say: Say) -> None:
    for command in ("bsub", "bjobs", "bkill"):
        code, said = say(command, "-h")
        assert code == 0 and said.startswith(f"Usage: {command}")
        assert say(command, "-V")[1].startswith("eslurm ")
