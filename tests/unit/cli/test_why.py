"""`eswhy`, `esctl why`, `esctl plan` and `essubmit --test-only` against a door with scripted answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from escli import exits
from escli.admin.esctl import main as esctl
from escli.user import essubmit, eswhy, plan_chart
from escli.user.why import answer
from eslurm.ports.api import Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi, Refuse
from tests.support.golden import Golden

S = 1_000_000
HOUR = 3600 * S
NOON_US = 1_772_625_600 * S  # 2026-03-04T12:00:00 UTC


pytestmark = pytest.mark.usefixtures("utc")


def job(**fields: Any) -> pb.JobInfo:
    return pb.JobInfo(
        job_id=17,
        name="fluid",
        user="ada",
        partition="main",
        state="PENDING",
        submitted_us=NOON_US - 2 * HOUR,
        **fields,
    )


WAITING = pb.WhyReply(
    job=job(planned_start_us=NOON_US + 3 * HOUR),
    reasons=[
        pb.Reason(
            kind="limit",
            text="limit lab: user ada may use 64 cores at a time; 48 cores are used by 2 jobs, 24 cores are asked for",
            until_us=NOON_US + 26 * HOUR,
            holders=[pb.Holder(job_id=9, what="job 9, 32 cores", nodes=2, until_us=NOON_US + 26 * HOUR)],
        ),
        pb.Reason(
            kind="resources", text="needs 3 nodes with 8 cores each; 2 are free", until_us=NOON_US + 3 * HOUR
        ),
        pb.Reason(kind="feature", text="without the features ib", nodes_failing=2, nodes_of=16),
        pb.Reason(
            kind="nodes_unavailable",
            text="out of service: 1 drained (cn0009: new memory)",
            nodes_failing=1,
            nodes_of=16,
        ),
        pb.Reason(
            kind="maintenance",
            text="kept for reservation repair (maintenance)",
            nodes_failing=4,
            nodes_of=16,
            holders=[
                pb.Holder(what="reservation repair (maintenance)", nodes=4, until_us=NOON_US + 2 * HOUR)
            ],
        ),
        pb.Reason(
            kind="resources",
            text="with less than 8 cores free",
            nodes_failing=7,
            nodes_of=16,
            holders=[
                pb.Holder(job_id=9, what="job 9", nodes=5, until_us=NOON_US + 26 * HOUR),
                pb.Holder(job_id=12, what="job 12", nodes=2),
            ],
        ),
    ],
    planned_start_us=NOON_US + 3 * HOUR,
    planned_nodes="cn[0001-0003]",
    alternatives=[
        pb.Alternative(
            text="2 h less", option="--time 4:00:00", start_us=NOON_US, nodes=3, update="time=4:00:00"
        ),
        pb.Alternative(
            text="without --exclusive",
            option="without --exclusive",
            start_us=NOON_US + HOUR,
            nodes=3,
            update="exclusive=no",
        ),
    ],
    ahead=4,
    priority=1200,
    factors="1200 = 200 age + 1000 QOS",
    now_us=NOON_US,
)
RUNNING = pb.WhyReply(job=pb.JobInfo(job_id=18, name="x", user="ada", partition="main", state="RUNNING"))
ESTIMATED = pb.WhyReply(
    job=job(array_tasks_left="3-9"),
    reasons=[pb.Reason(kind="priority", text="waits behind job 9, which is ahead in the queue")],
    planned_start_us=NOON_US + 40,
    planned_nodes="cn0001",
    ahead=1,
    priority=7,
    now_us=NOON_US,
)
HELD = pb.WhyReply(
    job=job(),
    reasons=[pb.Reason(kind="hold", text="held by its user: esctl release 17 lets it go")],
    now_us=NOON_US,
)
PLAN = pb.PlanReply(
    policy="planned",
    jobs=[
        pb.PlannedJob(
            job_id=9, user="ada", name="fluid", partition="main", running=True, start_us=NOON_US - HOUR,
            end_us=NOON_US + 2 * HOUR, nodes="cn[01-04]", node_count=4, cores=32,
        ),
        pb.PlannedJob(
            job_id=12, array_job_id=10, array_task=3, user="eve", name="tile", partition="main", running=True,
            start_us=NOON_US - HOUR, nodes="cn08", node_count=1, cores=8,
        ),
        pb.PlannedJob(
            job_id=17, user="eve", name="wide", partition="main", start_us=NOON_US + 2 * HOUR,
            end_us=NOON_US + 5 * HOUR, nodes="cn[01-06]", node_count=6, cores=48,
        ),
        pb.PlannedJob(
            job_id=20, user="ada", name="many", partition="main", start_us=NOON_US + 5 * HOUR,
            end_us=NOON_US + 6 * HOUR, nodes="cn[01-02]", node_count=2, cores=16, tasks=2,
        ),
    ],
    waiting=3,
    made_us=NOON_US - 5 * S,
    now_us=NOON_US,
    nodes=8,
    slots=5,
    reservations=[
        pb.PlannedJob(
            name="repair", user="(maintenance)", start_us=NOON_US + 3 * HOUR, end_us=NOON_US + 6 * HOUR,
            nodes="cn07", node_count=1,
        )
    ],
)  # fmt: skip
NODES = pb.NodesReply(nodes=[pb.NodeInfo(number=n, name=f"cn{n:02d}") for n in range(1, 9)])


@pytest.fixture
def door(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    answers = {17: WAITING, 18: RUNNING, 19: ESTIMATED, 20: HELD}

    def why(request: pb.WhyRequest) -> pb.WhyReply:
        found = answers.get(request.job.job_id)
        if found is None:
            raise Refuse(Status.NOT_FOUND, f"job {request.job.job_id} does not exist")
        return found

    with FakeApi(state_dir / "s", Why=why, Plan=lambda _: PLAN, Nodes=lambda _: NODES) as fake:
        monkeypatch.setenv("ESLURM_SOCKET", fake.path)
        yield fake


def test_all_that_is_known(door: FakeApi, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    assert eswhy.main(["17"]) == exits.OK
    out = capsys.readouterr().out
    golden("cli/eswhy.txt", out)
    assert esctl(["why", "JobId=17"]) == exits.OK
    assert capsys.readouterr().out == out


def test_several_jobs_running_held_and_only_estimated(
    door: FakeApi, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    assert eswhy.main(["--no-alternatives", "18,19", "20"]) == exits.OK
    golden("cli/eswhy-several.txt", capsys.readouterr().out)
    assert [request.no_alternatives for request in door.asked("Why")] == [True] * 3
    assert eswhy.main(["--json", "17_3"]) == exits.OK
    assert len(json.loads(capsys.readouterr().out)["reasons"]) == 6
    assert door.asked("Why")[-1].job == pb.JobRef(job_id=17, task=3)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "eswhy: JOB is missing: use e.g. eswhy 17"),
        (["x"], "eswhy: why: 'x' is not a job id"),
        (["99"], "eswhy: job 99 does not exist"),
    ],
)
def test_what_cannot_be_told(
    words: list[str], text: str, door: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert eswhy.main(words) != exits.OK
    assert capsys.readouterr().err.startswith(text)


def test_the_plan_as_a_table(door: FakeApi, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    assert esctl(["plan", "partition=main", "limit=5", "until=2030-01-01"]) == exits.OK
    golden("cli/esctl-plan.txt", capsys.readouterr().out)
    (asked,) = door.asked("Plan")
    assert (asked.partition, asked.limit) == ("main", 5) and asked.until_us > NOON_US
    assert esctl(["plan", "--format", "json"]) == exits.OK
    assert json.loads(capsys.readouterr().out)["policy"] == "planned"
    assert esctl(["plan", "--json"]) == exits.OK
    assert json.loads(capsys.readouterr().out)["waiting"] == 3


def test_the_plan_as_a_chart(
    door: FakeApi, golden: Golden, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "40")
    assert esctl(["plan", "--format", "chart"]) == exits.OK
    golden("cli/esctl-plan-chart.txt", capsys.readouterr().out)


def test_many_nodes_share_rows_and_colours_add_nothing_but_colour(golden: Golden) -> None:
    names = [node.name for node in NODES.nodes]
    plain = plan_chart.chart(PLAN, names, width=60, rows=3)
    golden("cli/esctl-plan-chart-grouped.txt", plain + "\n")
    assert all(len(line) <= 60 for line in plain.splitlines()[:5])
    coloured = plan_chart.chart(PLAN, names, width=60, rows=3, coloured=True)
    assert "\x1b[" in coloured
    bare = coloured.replace("\x1b[0m", "")
    while "\x1b[" in bare:
        head, _, rest = bare.partition("\x1b[")
        bare = head + rest.partition("m")[2]
    assert bare == plain


def test_charts_of_nothing_and_of_too_much() -> None:
    assert plan_chart.chart(PLAN, [], width=60, rows=3) == "no nodes"
    empty = plan_chart.chart(pb.PlanReply(policy="fcfs", now_us=NOON_US), ["a", "b"], width=10, rows=8)
    assert "fcfs: 0 running, 0 planned" in empty and "no plan has been made yet" in empty
    jobs = [
        pb.PlannedJob(job_id=at, start_us=NOON_US, end_us=NOON_US + HOUR, nodes=f"n{at}", node_count=1)
        for at in range(40)
    ]
    crowd = plan_chart.chart(
        pb.PlanReply(jobs=jobs, now_us=NOON_US), [f"n{at}" for at in range(40)], width=60, rows=40
    )
    assert "#  other jobs" in crowd


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["plan", "--format", "svg"],
            "esctl: --format: 'svg' is not a format: use one of table, chart, json",
        ),
        (["plan", "main"], "esctl: plan: 'main' selects nothing: use partition=NAME"),
        (["plan", "limt=3"], "esctl: plan: 'limt=3' selects nothing: did you mean limit=?"),
        (["plan", "limit=0"], "esctl: limit: '0' is not a number of jobs"),
        (["plan", "until=1999-01-01"], "esctl: until: '1999-01-01' has passed"),
        (["plan", "until=whenever"], "esctl: until: 'whenever' is not a time"),
    ],
)
def test_plans_that_cannot_be_shown(
    words: list[str], text: str, door: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert esctl(words) == exits.USAGE
    assert capsys.readouterr().err.startswith(text)


def test_a_job_that_is_only_asked_about(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    reply = pb.SubmitReply(
        test_answer="would be accepted and wait",
        test_start_us=NOON_US,
        test_nodes="cn[01-02]",
        test_reasons=[pb.Reason(kind="resources", text="needs 2 nodes with 1 core each; 0 are free")],
    )
    door.answers["Submit"] = lambda _: reply
    assert essubmit.main(["--test-only", "--wrap", "true"]) == exits.OK
    assert capsys.readouterr().out == (
        "essubmit: would be accepted and wait (planned start 2026-03-04T12:00:00) on cn[01-02]\n"
        "  resources: needs 2 nodes with 1 core each; 0 are free\n"
    )
    assert essubmit.main(["--test-only", "--json", "--wrap", "true"]) == exits.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["nodes"], found["start_us"], found["reasons"][0]["kind"]) == (
        "cn[01-02]",
        NOON_US,
        "resources",
    )


def test_each_job_of_a_test_is_told(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    reply = pb.SubmitReply(
        test_answer="would be accepted and wait",
        tests=[
            pb.TestAnswer(answer="would be accepted and wait", start_us=NOON_US, nodes="cn1"),
            pb.TestAnswer(answer="would be refused: --nodes: 3 are too many", refused=True),
        ],
    )
    door.answers["Submit"] = lambda _: reply
    assert essubmit.main(["--test-only", "--wrap", "true"]) == exits.FAILED
    assert capsys.readouterr().out == (
        "essubmit: job 1 of 2: would be accepted and wait (planned start 2026-03-04T12:00:00) on cn1\n"
        "essubmit: job 2 of 2: would be refused: --nodes: 3 are too many\n"
    )
    assert essubmit.main(["--test-only", "--json", "--wrap", "true"]) == exits.FAILED
    jobs = json.loads(capsys.readouterr().out)["jobs"]
    assert [(one["refused"], one["nodes"], one["start_us"]) for one in jobs] == [
        (False, "cn1", NOON_US),
        (True, "", None),
    ]


def test_a_running_job_names_the_nodes_that_it_lost() -> None:
    info = pb.JobInfo(job_id=7, name="a", user="alice", partition="main", state="RUNNING")
    line = "Job 7 (a, user alice) in partition main does not wait: it is RUNNING"
    assert answer(pb.WhyReply(job=info)) == line
    info.reason_text = "without cn1, lost since its start"
    assert answer(pb.WhyReply(job=info)) == f"{line}, without cn1, lost since its start"


def test_the_part_that_decides_is_shown_with_its_partition_and_its_command() -> None:
    reply = pb.WhyReply(
        job=job(
            planned_start_us=NOON_US + HOUR,
            parts=[pb.PartInfo(part=0, partition="main"), pb.PartInfo(part=1, partition="booster")],
        ),
        reasons=[
            pb.Reason(kind="resources", text="part 1: needs 8 nodes; part 0 could start now", part=1),
            pb.Reason(kind="resources", text="in use by others", nodes_failing=2, nodes_of=9, part=1),
        ],
        planned_start_us=NOON_US + HOUR,
        alternatives=[
            pb.Alternative(text="part 1: 4 nodes", start_us=NOON_US, nodes=5, update="nodes=4", part=1),
            pb.Alternative(text="1 h less", start_us=NOON_US, nodes=9, update="time=1:00:00"),
        ],
        now_us=NOON_US,
    )
    lines = answer(reply).splitlines()
    assert lines[0].startswith("Job 17 (fluid, user ada) in partition main,booster waits since")
    assert "  resources: part 1: needs 8 nodes; part 0 could start now" in lines
    assert "Of the 9 nodes of partition booster (part 1):" in lines
    assert [line.strip() for line in lines if "esctl" in line] == [
        "esctl update job 17+1 nodes=4",
        "esctl update job 17 time=1:00:00",
    ]


def test_a_retried_job_says_which_attempt_it_is_and_why() -> None:
    told = "attempt 1 ended by timeout, retry 1 of 2: a time limit of 900 s instead of 600 s"
    waiting = job(retry_on="timeout:2", retries=1, attempts=1, retry_text=told)
    assert f"Attempt 2, retried on timeout:2: {told}" in answer(pb.WhyReply(job=waiting)).splitlines()
    waiting.state, waiting.attempts = "RUNNING", 2
    line = f"Attempt 2, retried on timeout:2: {told}"
    assert answer(pb.WhyReply(job=waiting)).splitlines()[1:] == [line]
    fresh = job(retry_on="node-fail:1")
    assert "Attempt 1, retried on node-fail:1" in answer(pb.WhyReply(job=fresh)).splitlines()
    array = job(retry_on="timeout:1", array_tasks_left="0-3")
    assert "Each of its tasks is retried on timeout:1" in answer(pb.WhyReply(job=array)).splitlines()
