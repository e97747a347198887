"""The cluster as people see it: the golden texts are what the commands print."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from escli import exits, program
from escli.admin import esctl
from escli.tables import Column, render, separated
from escli.user import esacct, escancel, esinfo, esqueue
from escli.user.queue_columns import DEFAULT, by_letters, fill, sort_key
from eslurm.ports.api import Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.fake_api import FakeApi, Refuse
from tests.support.golden import Golden

S = 1_000_000
NOON_US = 1_772_625_600 * S  # 2026-03-04T12:00:00 UTC


pytestmark = pytest.mark.usefixtures("utc")


def job(job_id: int, state: str, **fields: Any) -> pb.JobInfo:
    values: dict[str, Any] = {
        "name": "fluid",
        "user": "ada",
        "uid": 1001,
        "partition": "main",
        "priority": 100,
        "submitted_us": NOON_US - 7200 * S,
        "time_limit_s": 5400,
        "nodes": 1,
        "tasks": 4,
        "cpus": 4,
        "memory_mib": 4096,
        "work_dir": "/home/ada/run",
        "output": f"slurm-{job_id}.out",
        "requeue": True,
    }
    return pb.JobInfo(job_id=job_id, state=state, **(values | fields))


PLAN = pb.PlanReply(
    policy="planned",
    jobs=[
        pb.PlannedJob(job_id=11, running=True, start_us=NOON_US - 754 * S, nodes="cn[0001-0002,0007]"),
        pb.PlannedJob(job_id=12, start_us=NOON_US + 600 * S, nodes="cn0003", tasks=4),
        pb.PlannedJob(job_id=12, start_us=NOON_US + 900 * S, nodes="cn0004", tasks=4),
    ],
)
QUEUE = pb.JobsReply(
    jobs=[
        job(
            11,
            "RUNNING",
            started_us=NOON_US - 754 * S,
            node_names="cn[0001-0002,0007]",
            nodes=3,
            attempts=1,
            trace="4bf92f3577b34da6a3ce929d0e0e4736",
        ),
        job(
            12,
            "PENDING",
            array_tasks_left="3-15%4",
            reason="Resources",
            name="tiles",
            tasks_running=4,
            tasks_done=2,
        ),
        job(
            20,
            "RUNNING",
            array_job_id=12,
            array_task=0,
            started_us=NOON_US - 5 * S,
            node_names="cn0003",
            name="tiles",
        ),
        job(21, "LAUNCHING", array_job_id=12, array_task=1, node_names="cn0004", name="tiles"),
        job(13, "PENDING", reason="dependency", dependencies="afterok:12", name="join\x1b[2J", priority=300),
        job(
            14,
            "COMPLETING",
            started_us=NOON_US - 90_000 * S,
            node_names="cn0005",
            user="grace",
            time_limit_s=0,
        ),
        job(15, "PENDING", reason="held_user", planned_start_us=NOON_US + 600 * S, name="späte-Übung"),
        job(16, "PENDING", tasks_running=2, name="all tasks run"),
    ],
    revision=99,
    now_us=NOON_US,
)


def node(number: int, **fields: Any) -> pb.NodeInfo:
    values: dict[str, Any] = {
        "number": number,
        "name": f"cn{number:04d}",
        "state": "UP",
        "cores": 8,
        "memory_mib": 16_384,
        "partitions": ["main"],
        "since_us": NOON_US - 3600 * S,
        "endpoint": "127.0.0.1:7001",
        "incarnation": 2,
        "boot_id": "b-1",
    }
    return pb.NodeInfo(**(values | fields))


NODES = pb.NodesReply(
    nodes=[
        node(1, cores_used=8, memory_used_mib=4096, jobs=[11]),
        node(
            2,
            contained=["kill", "memory", "pids", "cpu"],
            cores_used=3,
            memory_used_mib=1024,
            jobs=[11, 12],
            features=["ib", "gpu:a100"],
            resources=[
                pb.ResourceUse(name="gpu", total=4, used=1, device_type="a100"),
                pb.ResourceUse(name="vmem", total=20480),
            ],
        ),
        *[node(number) for number in range(3, 13)],
        node(13, flags=["DRAIN"], reason="new memory", cores_used=2),
        node(14, flags=["DRAIN"], reason="new memory", partitions=["main", "short"]),
        node(15, state="UNREACHABLE", memory_mib=32_768),
        node(16, state="LOST", reason="declared lost"),
    ],
    partitions=[
        pb.PartitionInfo(name="main", is_default=True, up=True, time_limit_max_s=86_400, nodes=16),
        pb.PartitionInfo(name="short", up=False, time_limit_default_s=600, nodes=1),
    ],
    revision=99,
    now_us=NOON_US,
)

SATELLITES = pb.SatellitesReply(
    satellites=[
        pb.SatelliteInfo(
            name="sat1",
            endpoint="127.0.0.1:7100",
            state="RUNNING",
            since_us=NOON_US - 90 * S,
            broadcasts=12,
            tasks_running=2,
            nodes_given=180,
            failures=1,
            rss_bytes=41 << 20,
            sockets=63,
            lag_us=1_250,
            suspect=True,
            heard_us=NOON_US - 6 * S,
        ),
        pb.SatelliteInfo(
            name="sat2",
            endpoint="127.0.0.1:7101",
            state="DOWN",
            since_us=NOON_US - 3600 * S,
            reason="in FAULT for 1200 s",
        ),
        pb.SatelliteInfo(name="sat3", endpoint="127.0.0.1:7102", state="UNKNOWN"),
    ],
    now_us=NOON_US,
)


def attempt(job_id: int, state: str, **fields: Any) -> pb.AttemptInfo:
    values: dict[str, Any] = {
        "attempt": 1,
        "name": "fluid",
        "user": "ada",
        "partition": "main",
        "submitted_us": NOON_US - 7200 * S,
        "started_us": NOON_US - 3600 * S,
        "ended_us": NOON_US - 1800 * S,
        "node_names": "cn[0001-0002]",
        "nodes": 2,
        "cpus": 8,
        "user_cpu_us": 5_250_000,
        "system_cpu_us": 250_000,
        "max_rss_kib": 10_240,
    }
    return pb.AttemptInfo(job_id=job_id, state=state, **(values | fields))


ATTEMPTS = [
    attempt(11, "NODE_FAIL", exit_text="node cn0002 was lost"),
    attempt(11, "COMPLETED", attempt=2, trace="4bf92f3577b34da6a3ce929d0e0e4736"),
    attempt(20, "FAILED", array_job_id=12, array_task=0, exit_code=3),
    attempt(22, "CANCELLED", started_us=0, node_names="", nodes=0, cpus=0),
    attempt(23, "TIMEOUT", exit_signal=15),
]


@pytest.fixture
def door(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    with FakeApi(
        state_dir / "s",
        Jobs=lambda _: QUEUE,
        Plan=lambda _: PLAN,
        Nodes=lambda _: NODES,
        Satellites=lambda _: SATELLITES,
        Accounting=lambda _: pb.AccountingReply(attempts=ATTEMPTS),
        Ping=lambda _: pb.PingReply(
            cluster="lab",
            owner="c1",
            epoch=3,
            revision=99,
            build="0.1.0",
            now_us=NOON_US,
            nodes=16,
            nodes_up=14,
            jobs_pending=4,
            jobs_running=2,
            started_us=NOON_US - 60 * S,
        ),
        Config=lambda _: pb.ConfigReply(revision=2, json='{"cluster": "lab", "relay_width": 16}'),
        Cancel=lambda _: pb.ChangeReply(count=1),
        Hold=lambda _: pb.ChangeReply(count=1),
        Requeue=lambda _: pb.ChangeReply(count=1),
        Suspend=lambda _: pb.ChangeReply(count=1),
        UpdateJob=lambda _: pb.ChangeReply(count=1),
        UpdateNodes=lambda _: pb.ChangeReply(count=1),
        UpdateSatellites=lambda _: pb.ChangeReply(count=1),
    ) as fake:
        monkeypatch.setenv("ESLURM_SOCKET", fake.path)
        yield fake


CASES = {
    "esqueue": (esqueue, ""),
    "esqueue-long": (esqueue, "--long"),
    "esqueue-start": (esqueue, "--start"),
    "esqueue-array": (esqueue, "-r -o %i_%t"),
    "esqueue-slurm": (esqueue, "-o %.18i|%.9P|%.8j|%.8u|%.2t|%.10M|%.6D|%R"),
    "esqueue-all": (esqueue, "-o %i;%A;%F;%K;%a;%C;%m;%L;%l;%Q;%S;%V;%e;%E;%k;%Z;%N;%r;%U;100%%"),
    "esqueue-json": (esqueue, "--json"),
    "esinfo": (esinfo, ""),
    "esinfo-long": (esinfo, "-l"),
    "esinfo-nodes": (esinfo, "-N"),
    "esinfo-nodes-long": (esinfo, "-N -l -t mixed,drained,down"),
    "esinfo-reasons": (esinfo, "-R"),
    "esinfo-satellites": (esinfo, "--satellites"),
    "esacct": (esacct, ""),
    "esacct-all": (esacct, f"-P -o {','.join(esacct.COLUMNS)}"),
    "esctl-show-job": (esctl, "show job 11"),
    "esctl-show-node": (esctl, "show nodes cn0001"),
    "esctl-show-partition": (esctl, "show partition"),
    "esctl-show-satellite": (esctl, "show satellite sat1 sat2"),
    "esctl-show-config": (esctl, "show config"),
}


@pytest.mark.parametrize("name", CASES)
def test_views(name: str, door: FakeApi, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    command, line = CASES[name]
    assert command.main(line.split()) == exits.OK
    captured = capsys.readouterr()
    assert captured.err == ""
    golden(f"cli/{name}.txt", captured.out)


def test_ping_is_one_sentence(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert esctl.main(["ping"]) == exits.OK
    line = capsys.readouterr().out
    assert line.startswith(f"controller of cluster lab is up at {door.path} (")
    assert "14 of 16 nodes up, 2 jobs running, 4 pending; up 1:00, epoch 3" in line


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (esinfo, "--json"),
        (esinfo, "--satellites --json"),
        (esacct, "--json"),
        (esctl, "--json ping"),
        (esctl, "--json show job"),
        (esctl, "--json show partition"),
        (esctl, "--json show config"),
        (esctl, "--json show satellite sat1"),
        (esctl, "--json satellite resume sat2"),
        (escancel, "--json 17"),
        (esctl, "hold 17 --json"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_everything_as_json(
    command: Any, line: str, door: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(line.split()) == exits.OK
    assert isinstance(json.loads(capsys.readouterr().out), dict)


def ref(job_id: int, task: int | None = None) -> pb.JobRef:
    return pb.JobRef(job_id=job_id, task=task)


REQUESTS: list[tuple[Any, str, str, Any]] = [
    (esqueue, "-u ada -p main -n fluid", "Jobs", pb.JobsRequest(user="ada", partition="main", name="fluid")),
    (
        esqueue,
        "-j 17,18_[3,5] -t R",
        "Jobs",
        pb.JobsRequest(jobs=[ref(17), ref(18, 3), ref(18, 5)], states=["RUNNING"], finished_too=True),
    ),
    (escancel, "17 18_0", "Cancel", pb.CancelRequest(jobs=[ref(17), ref(18, 0)])),
    (
        escancel,
        "-u ada -t PD -p short -n x",
        "Cancel",
        pb.CancelRequest(user="ada", state="PENDING", partition="short", name="x"),
    ),
    (escancel, "-s SIGUSR1 17", "Cancel", pb.CancelRequest(jobs=[ref(17)], signal=10)),
    (escancel, "-s 15 17", "Cancel", pb.CancelRequest(jobs=[ref(17)], signal=15)),
    (esinfo, "-n cn[1-2] -p main", "Nodes", pb.NodesRequest(names=["cn1", "cn2"], partition="main")),
    (
        esacct,
        "-j 17 -u ada -s F -r main --name x --limit 5",
        "Accounting",
        pb.AccountingRequest(
            jobs=[ref(17)], user="ada", states=["FAILED"], partition="main", name="x", limit=5
        ),
    ),
    (
        esacct,
        "-S 2026-03-01 -E 2026-03-02",
        "Accounting",
        pb.AccountingRequest(since_us=NOON_US - 84 * 3600 * S, until_us=NOON_US - 60 * 3600 * S, limit=1000),
    ),
    (esctl, "hold 17,18_3", "Hold", pb.HoldRequest(jobs=[ref(17), ref(18, 3)])),
    (esctl, "release jobid=17", "Hold", pb.HoldRequest(jobs=[ref(17)], release=True)),
    (esctl, "requeue 17", "Requeue", pb.RequeueRequest(jobs=[ref(17)])),
    (
        esctl,
        "update job 17 time=2:00:00 priority=0 arraylimit=4 name=n partition=p comment=c",
        "UpdateJob",
        pb.UpdateJobRequest(
            job=ref(17),
            time_limit_s=7200,
            priority=0,
            array_limit=4,
            name="n",
            partition="p",
            comment="c",
        ),
    ),
    (
        esctl,
        "update JobId=17 TimeLimit=UNLIMITED StartTime=2026-03-04T12:00",
        "UpdateJob",
        pb.UpdateJobRequest(job=ref(17), time_limit_s=0, begin_us=NOON_US),
    ),
    (
        esctl,
        "drain cn[1-2] Reason=dust",
        "UpdateNodes",
        pb.UpdateNodesRequest(names=["cn1", "cn2"], action="drain", reason="dust"),
    ),
    (esctl, "suspend 17 18_3", "Suspend", pb.SuspendRequest(jobs=[ref(17), ref(18, 3)])),
    (esctl, "resume 17,18", "Suspend", pb.SuspendRequest(jobs=[ref(17), ref(18)], resume=True)),
    (esctl, "resume JobId=17", "Suspend", pb.SuspendRequest(jobs=[ref(17)], resume=True)),
    (esctl, "resume cn1 cn4", "UpdateNodes", pb.UpdateNodesRequest(names=["cn1", "cn4"], action="resume")),
    (esctl, "down cn1", "UpdateNodes", pb.UpdateNodesRequest(names=["cn1"], action="lost")),
    (
        esctl,
        "satellite down sat1,sat2 reason=disk",
        "UpdateSatellites",
        pb.UpdateSatellitesRequest(names=["sat1", "sat2"], action="down", reason="disk"),
    ),
    (
        esctl,
        "satellite resume sat[1-2]",
        "UpdateSatellites",
        pb.UpdateSatellitesRequest(names=["sat1", "sat2"], action="resume"),
    ),
]


@pytest.mark.parametrize(
    ("command", "line", "method", "request_"), REQUESTS, ids=[case[1] for case in REQUESTS]
)
def test_what_is_asked(
    command: Any, line: str, method: str, request_: Any, door: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(line.split()) == exits.OK
    assert door.requests == [(method, request_)]


BAD: list[tuple[Any, str, str]] = [
    (esqueue, "-o %W", "esqueue: -o: '%W' has '%W' which is no column"),
    (esqueue, "-o %.5", "esqueue: -o: '%.5' has"),
    (esqueue, "-t napping", "esqueue: -t: 'napping' is not a job state"),
    (esqueue, "--watch x", "esqueue: --watch: 'x' is not a number of seconds"),
    (esqueue, "--watch nan", "esqueue: --watch: 'nan' is not a number of seconds"),
    (esqueue, "17", "esqueue: argument: '17' is not an option; jobs are named with -j"),
    (esqueue, "-j 1x", "esqueue: -j: '1x' is not a job id"),
    (escancel, "", "escancel: JOB is missing"),
    (escancel, "17 --me", "escancel: --me: '17' is a job beside a choice of jobs"),
    (escancel, "-s HUPP 17", "escancel: -s: 'HUPP' is not a signal: did you mean HUP?"),
    (escancel, "-u ada -t CD", "escancel: -t: 'CD' is not one state of a live job"),
    (esinfo, "-t lazy", "esinfo: -t: 'lazy' is not a node state"),
    (esacct, "-o elapsd", "esacct: -o: 'elapsd' is not a column: did you mean elapsed?"),
    (esacct, "--limit 0", "esacct: --limit: '0' is not a number from 1"),
    (esacct, "-S whenever", "esacct: -S: 'whenever' is not a time"),
    (esctl, "", "esctl: ACTION is missing"),
    (esctl, "drian cn1", "esctl: ACTION: 'drian' is not an action: did you mean drain?"),
    (esctl, "drain cn1", "esctl: reason is missing: say why"),
    (esctl, "resume", "esctl: resume needs nodes"),
    (esctl, "show jbo", "esctl: show: 'jbo' is nothing to show: did you mean job?"),
    (esctl, "hold", "esctl: hold needs a job"),
    (esctl, "satellite", "esctl: satellite needs an action: use down or resume"),
    (esctl, "satellite resum sat1", "esctl: satellite: 'resum' is not an action: did you mean resume?"),
    (esctl, "satellite down reason=x", "esctl: satellite down needs satellites: use e.g."),
    (esctl, "satellite resume sat1 reason=x", "esctl: reason: 'x' is not expected with resume"),
    (esctl, "update fluid time=5", "esctl: update: 'fluid' names no job"),
    (esctl, "update job 17", "esctl: update: '17' is to be changed in nothing"),
    (esctl, "update job 17 tiem=5", "esctl: update: 'tiem=5' cannot be updated: did you mean time?"),
    (esctl, "update job 17 time=x", "esctl: time: 'x' is not a time"),
    (esctl, "update job 17 time", "esctl: time: 'time' has no value"),
    (esctl, "update job 17_[1-2] time=5", "esctl: update: '17_[1-2]' names several tasks"),
]


@pytest.mark.parametrize(
    ("command", "line", "says"), BAD, ids=[f"{case[0].__name__} {case[1]}" for case in BAD]
)
def test_bad_words_are_one_line_and_ask_nothing(
    command: Any, line: str, says: str, door: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(line.split()) == exits.USAGE
    captured = capsys.readouterr()
    assert captured.err.startswith(says)
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert door.requests == []


def test_problems_of_some_are_told_and_end_with_one(
    door: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = pb.Problem(what="18", code="denied", text="belongs to grace")
    door.answers["Cancel"] = lambda _: pb.ChangeReply(count=1, problems=[problem])
    assert escancel.main(["17", "18"]) == exits.FAILED
    assert capsys.readouterr().err == "escancel: 18: belongs to grace\n"


def test_satellites_that_are_not_there_or_need_nothing(
    door: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert esctl.main(["show", "satellite", "sat9"]) == exits.FAILED
    assert capsys.readouterr().err == "esctl: satellite sat9 is not known: there are sat1, sat2, sat3\n"
    door.answers["UpdateSatellites"] = lambda _: pb.ChangeReply()
    assert esctl.main(["satellite", "resume", "sat1"]) == exits.OK
    assert capsys.readouterr().err == "esctl: nothing changed: sat1 is not DOWN\n"
    assert esctl.main(["satellite", "down", "sat1", "sat2"]) == exits.OK
    assert capsys.readouterr().err == "esctl: nothing changed: sat1, sat2 are DOWN already\n"


def test_a_choice_that_fits_no_job(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    door.answers["Cancel"] = lambda _: pb.ChangeReply()
    assert escancel.main(["-u", "ada"]) == exits.OK
    assert capsys.readouterr().err == "escancel: no job matches\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("show job 99", "job 99 is not known"),
        ("show node cn99", "node cn99 is not known"),
        ("show partition gpu", "partition gpu is not known: there are main, short"),
    ],
)
def test_unknown_things(line: str, says: str, door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    door.answers["Jobs"] = lambda _: pb.JobsReply()
    door.answers["Nodes"] = lambda _: pb.NodesReply(partitions=NODES.partitions)
    assert esctl.main(line.split()) == exits.FAILED
    assert capsys.readouterr().err.startswith(f"esctl: {says}")


def test_a_refused_right(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(_request: Any) -> Any:
        raise Refuse(Status.PERMISSION_DENIED, "drain is for operators")

    door.answers["UpdateNodes"] = refuse
    assert esctl.main(["drain", "cn1", "reason=x"]) == exits.FAILED
    assert capsys.readouterr().err == "esctl: drain is for operators\n"


def test_accounting_comes_in_pages(door: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    pages = {
        0: pb.AccountingReply(attempts=ATTEMPTS[:2], next_page=7),
        7: pb.AccountingReply(attempts=ATTEMPTS[2:], next_page=9),
    }
    asked: list[tuple[int, int]] = []

    def answer(request: Any) -> pb.AccountingReply:
        asked.append((request.page, request.limit))
        return pages[request.page]

    door.answers["Accounting"] = answer
    assert esacct.main(["-h", "--limit", "4", "-o", "jobid"]) == exits.OK
    captured = capsys.readouterr()
    assert captured.out.split() == ["11", "11", "12_0", "22"]
    assert "more than these 4 lines" in captured.err
    assert asked == [(0, 4), (7, 2)]


def test_tables() -> None:
    columns = [Column("A", right=True), Column("BB", width=3, cut=True), Column("C")]
    assert render(columns, [["1", "wide one", "x"], ["100", "y", ""]]) == "  A BB  C\n  1 wid x\n100 y\n"
    assert render(columns, [], header=False) == ""
    assert render([], [["x"]]) == ""
    assert separated(["A", "B"], [["1", "2"]]) == "A|B\n1|2\n"


def test_ten_thousand_rows_are_rendered_in_order() -> None:
    infos = [job(number, "PENDING", priority=number % 7, reason="Priority") for number in range(1, 10_001)]
    infos.sort(key=sort_key)
    columns, cells = by_letters(DEFAULT)
    lines = render(columns, fill(infos, cells, NOON_US)).splitlines()
    assert len(lines) == 10_001
    assert len({len(line) for line in lines[1:]}) == 1
    assert lines[1].split()[0] == "6"


def test_no_cell_and_no_line_moves_the_readers_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: what one user wrote does nothing to another's terminal. Method: escapes in cells, in lines, in refusals."""
    evil = "a\x1b[2J\x9b31m\rb\u202ec"
    shown = r"a\x1b[2J\x9b31m\rb\u202ec"
    table = render([Column("NAME", width=40), Column("ACCOUNT")], [[evil, evil], ["x", "y"]])
    assert table.splitlines()[1] == f"{shown:40} {shown}"
    assert separated(["NAME"], [[evil]]) == f"NAME\n{shown}\n"
    program.say(f"{evil}\nnext")
    program.warn("esctl", evil)
    said = capsys.readouterr()
    assert said.out == f"{shown}\nnext\n" and said.err == f"esctl: {shown}\n"
    info = pb.JobInfo(
        job_id=1, name=evil, account=evil, partition=evil, user=evil, work_dir=evil, comment=evil
    )
    columns, cells = by_letters("iPjuakZRqvE")
    assert render(columns, fill([info], cells, 0)).replace("\n", "").isprintable()


def test_esacct_counts_what_was_wasted(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: core time of attempts that were followed by another one, less their suspensions; the last one is none."""
    runs = [
        pb.AttemptInfo(
            job_id=17,
            attempt=at,
            state=state,
            cpus=8,
            started_us=100 * S,
            ended_us=(100 + 600 * at) * S,
            paused_us=60 * S,
            time_limit_s=600 * at,
            exit_text="timeout: retried (1 of 1)" if at == 1 else "",
        )
        for at, state in ((1, "REQUEUED"), (2, "TIMEOUT"))
    ]
    with FakeApi(state_dir / "s", Accounting=lambda _: pb.AccountingReply(attempts=runs)) as door:
        assert esacct.main(["--socket", door.path, "-P", "--attempts", "-j", "17"]) == exits.OK
        assert capsys.readouterr().out.splitlines() == [
            "JobID|Attempt|JobName|AllocCPUS|State|Elapsed|Timelimit|Wasted|Reason",
            "17|1||8|REQUEUED|00:09:00|10:00|01:12:00|timeout: retried (1 of 1)",
            "17|2||8|TIMEOUT|00:19:00|20:00|00:00:00|",
        ]
        assert esacct.main(["--socket", door.path, "--json", "-j", "17"]) == exits.OK
        shown = json.loads(capsys.readouterr().out)["attempts"]
    assert [(run["wasted_s"], run["wasted_cpu_s"]) for run in shown] == [(540, 4320), (0, 0)]
