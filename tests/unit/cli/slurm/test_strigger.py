"""`strigger`: triggers are jobs that wait for another job's end; the rest is refused by its name."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from eslurm.v1 import controller_pb2 as pb
from tests.unit.cli.slurm.conftest import Answers, Say

PROGRAM = sys.executable
HEAD = "TRIG_ID  RES_TYPE  RES_ID TYPE               OFFSET USER     FLAGS PROGRAM\n"


@pytest.fixture
def asked() -> list[Any]:
    return []


@pytest.fixture
def answers(asked: list[Any]) -> Answers:
    jobs = [
        pb.JobInfo(job_id=17, state="RUNNING", user="ada", uid=1000),
        pb.JobInfo(job_id=18, state="COMPLETED", user="ada", uid=1000),
        pb.JobInfo(job_id=20, state="PENDING", user="ada", uid=1000, comment="strigger 17 /a b"),
        pb.JobInfo(job_id=21, state="PENDING", user="bob", uid=1001, comment="strigger 17 /c"),
        pb.JobInfo(job_id=22, state="PENDING", user="ada", uid=1000, comment="strigger x /d"),
    ]

    def find(request: pb.JobsRequest) -> pb.JobsReply:
        ids = {ref.job_id for ref in request.jobs}
        return pb.JobsReply(
            jobs=[
                one
                for one in jobs
                if (not ids or one.job_id in ids) and (not request.states or one.state in request.states)
            ]
        )

    def note(reply: Any) -> Any:
        return lambda request: (asked.append(request), reply)[1]

    return {
        "Jobs": find,
        "Submit": note(pb.SubmitReply(job_ids=[23])),
        "Cancel": note(pb.ChangeReply()),
        "Ping": lambda _: pb.PingReply(cluster="alpha"),
    }


def test_it_is_a_job_that_waits_for_the_other_ones_end(say: Say, asked: list[Any]) -> None:
    assert say(f"strigger --set -j 17 --fini -p {PROGRAM}").endswith(f"-p {PROGRAM}\n")
    [job] = asked[0].jobs
    assert job.comment == f"strigger 17 {PROGRAM}"
    assert job.script == f"#!/bin/sh\nexec {PROGRAM} 17\n".encode()
    assert [(one.kind, one.job_id) for one in job.dependencies] == [("afterany", 17)]
    assert job.output == "/dev/null"
    assert b"ESLURM" not in job.environment


def test_triggers_are_listed(say: Say) -> None:
    first = "     20       job      17 fini                    0 ada            /a b\n"
    second = "     21       job      17 fini                    0 bob            /c\n"
    assert say("strigger --get") == f"$ strigger --get\n{HEAD}{first}{second}"
    assert say("strigger --get -h --user=1001").endswith(f"1001\n{second}")
    assert say("strigger --get -h -j 18").endswith("-j 18\n")


def test_triggers_are_cancelled(say: Say, asked: list[Any]) -> None:
    say("strigger --clear --id=20")
    assert [ref.job_id for ref in asked[0].jobs] == [20]
    assert "there is no such trigger" in say("strigger --clear --id=22")
    assert say("strigger --clear -Q --id=22").endswith("--id=22\n")
    assert "needs one of" in say("strigger --clear")
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "Exactly one of --set, --get or --clear"),
        ("--set --get", "Exactly one of"),
        ("--set --fini", "needs a job and an event"),
        (f"--set -j 17 --fini -p {PROGRAM}x", "there is no such file here"),
        ("--set -j 17 --fini -p here", "give the whole path"),
        (f"--set -j 99 --fini -p {PROGRAM}", "Invalid job id specified"),
        (f"--set -j 18 --fini -p {PROGRAM}", "Job has already ended"),
        (f"--set -j x --fini -p {PROGRAM}", "Invalid --jobid: x"),
        ("--set --node --down -p /x", "no program is started by states of nodes"),
        ("--set -j 17 --time -p /x", "--time is not supported: use sbatch --signal"),
        ("--set -j 17 --fini --offset=5 -p /x", "--offset=5 is not supported"),
        ("--set -j 17 --fini --flags=PERM -p /x", "--flags=PERM is not supported: a trigger is used once"),
    ],
)
def test_what_is_refused(say: Say, asked: list[Any], line: str, why: str) -> None:
    said = say(f"strigger {line}".rstrip())
    assert why in said
    assert said.endswith("[1]\n")
    assert not asked
