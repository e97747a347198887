"""Packs through all tiers: jobs that start at their delays after the first, and are shown, held and cancelled as one."""

from __future__ import annotations

import json

import pytest

from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster

SECOND_US = 1_000_000
LATE_US = 20 * SECOND_US
"""A machine that stands still for a while starts jobs late, but never early."""
FOREVER = "echo $$ >> pids; while :; do sleep 0.05; done"


@pytest.fixture(autouse=True)
def _in_the_work_directory(cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cluster.work)


def submitted(cluster: LiveCluster, *words: str) -> list[int]:
    """The jobs of a pack."""
    ran = cluster.run("essubmit", "--json", *words)
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["pack_id"] == found["job_id"] == found["job_ids"][0]
    return [int(job_id) for job_id in found["job_ids"]]


def infos(cluster: LiveCluster, job_ids: list[int]) -> list[pb.JobInfo]:
    return [cluster.job(job_id) for job_id in job_ids]


@pytest.mark.slow
def test_each_job_starts_at_its_delay_after_the_first(cluster: LiveCluster) -> None:
    script = cluster.script("job.sh", "#!/bin/sh\n#SBATCH -t 5\ndate +%s.%N > began-$1\nsleep 5\n")
    path = cluster.work / "coupled.yaml"
    path.write_text(
        f"""\
name: coupled
parts:
  - {{script: {script}, arguments: [0], options: [-N2, -p, main, -x, cn0001]}}
  - {{script: {script}, arguments: [1], delay: 2, options: -N2 -x cn0001}}
  - {{script: {script}, arguments: [2], delay: 0:00:04, options: '-n1 : -n2 -w cn0001'}}
"""
    )
    jobs = submitted(cluster, "--pack", str(path))
    for job_id in jobs:
        assert cluster.end(job_id) == "COMPLETED"
    found = infos(cluster, jobs)
    anchor_us = found[0].pack_start_us
    assert anchor_us and {one.pack_start_us for one in found} == {anchor_us}
    assert [(one.pack_id, one.pack_index, one.pack_size, one.delay_s) for one in found] == [
        (jobs[0], 0, 3, 0),
        (jobs[0], 1, 3, 2),
        (jobs[0], 2, 3, 4),
    ]
    assert [one.name for one in found] == ["coupled"] * 3
    for index, (info, delay_s) in enumerate(zip(found, (0, 2, 4), strict=True)):
        (text,) = cluster.lines(f"began-{index}")
        due_us = anchor_us + delay_s * SECOND_US
        assert due_us <= info.started_us <= due_us + LATE_US
        assert due_us <= float(text) * SECOND_US <= due_us + LATE_US, "never before its time"
    shown = cluster.run("esqueue", "--packs", "-h", "-j", str(jobs[1])).out.splitlines()
    assert [line.split()[0] for line in shown] == [str(jobs[0]), *map(str, jobs)]
    ran = cluster.run("esacct", "--packs", "-h", "-P", "-o", "jobid,pack", "-j", str(jobs[2])).out.split()
    assert ran[:2] == [f"{job_id}|{jobs[0]}[{index}]" for index, job_id in enumerate(jobs[:2])]
    assert [line.partition("|")[0] for line in ran[2:]] == [f"{jobs[2]}+0", f"{jobs[2]}+1"]


def test_a_pack_is_held_and_cancelled_as_one(cluster: LiveCluster) -> None:
    jobs = submitted(cluster, "--hold", "--wrap", FOREVER, ":", "--delay=1", "--wrap", FOREVER)
    assert [one.state for one in infos(cluster, jobs)] == ["PENDING"] * 2
    why = cluster.run("eswhy", str(jobs[0])).out
    assert "held by its user" in why
    why = cluster.run("eswhy", str(jobs[1])).out
    assert f"starts 00:00:01 after job {jobs[0]}" in why
    cluster.do("escancel", str(jobs[1]))
    assert [cluster.end(job_id) for job_id in jobs] == ["CANCELLED"] * 2


def test_a_pack_that_waits_says_which_job_decides(cluster: LiveCluster) -> None:
    holder = cluster.submit("--exclusive", "-t", "10", "-w", "cn0002", "--wrap", FOREVER)
    cluster.reaches(holder, "RUNNING")
    jobs = submitted(
        cluster,
        "-n1",
        "-t",
        "1",
        "--wrap",
        "true",
        ":",
        "--delay=60",
        "-t",
        "1",
        "-w",
        "cn0002",
        "--wrap",
        "true",
    )
    why = cluster.run("eswhy", str(jobs[0])).out
    assert f"part 1 (job {jobs[1]}, 00:01:00 after the first)" in why
    assert "Planned start" in why
    first, second = infos(cluster, jobs)
    assert second.planned_start_us - first.planned_start_us == 60 * SECOND_US
    plan = cluster.call("Plan", pb.PlanRequest())
    assert {one.job_id for one in plan.jobs} == {holder, *jobs} and plan.waiting == 0
    line = cluster.run("esqueue", "-h", "-j", str(jobs[1]), "-o", "%H %d %t %r").out.split()
    assert line == [f"{jobs[0]}[1]", "+00:01:00", "PD", "PackNotBegun"]
    line = "--test-only --json -n1 -t 1 --wrap true : --delay=60 -t 1 -w cn0002 --wrap true"
    tested = json.loads(cluster.run("essubmit", *line.split()).out)["jobs"]
    assert tested[1]["start_us"] - tested[0]["start_us"] == 60 * SECOND_US
    assert [one["nodes"] for one in tested][1] == "cn0002"
    cluster.do("escancel", str(jobs[0]), str(holder))
    assert [cluster.end(job_id) for job_id in jobs] == ["CANCELLED"] * 2


def test_a_pack_that_can_never_run_is_refused_by_its_part(cluster: LiveCluster) -> None:
    for line, says in (
        ("--wrap true : --delay=5 -N99 --wrap true", "1: "),
        ("--wrap true : --delay=5 -a 0-3 --wrap true", "1: --array: "),
        ("--wrap true : --delay=5 -d afterok:1 --wrap true", "1: --dependency: "),
        ("--wrap true : --delay=5 --begin now+1hour --wrap true", "1: --begin: "),
    ):
        ran = cluster.run("essubmit", *line.split())
        assert ran.code != 0 and says in ran.err, ran.err


@pytest.mark.slow
def test_a_controller_that_is_killed_keeps_the_times_of_a_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(nodes=2, agents=1, satellites=1) as cluster:
        monkeypatch.chdir(cluster.work)
        first = ("-n1", "-t", "5", "--wrap", "sleep 60")
        jobs = submitted(cluster, *first, ":", "--delay=8", "-n1", "-t", "1", "--wrap", "date +%s.%N > began")
        cluster.reaches(jobs[0], "RUNNING")
        anchor_us = cluster.job(jobs[0]).pack_start_us
        cluster.kill("esctld")
        cluster.launch("esctld")
        found = infos(cluster, jobs)
        assert anchor_us and [one.pack_start_us for one in found] == [anchor_us] * 2
        assert cluster.end(jobs[1]) == "COMPLETED"
        (text,) = cluster.lines("began")
        due_us = anchor_us + 8 * SECOND_US
        assert due_us <= float(text) * SECOND_US <= due_us + LATE_US
        cluster.do("escancel", str(jobs[0]))
        assert cluster.end(jobs[0]) == "CANCELLED"


def test_a_failure_cancels_what_has_not_begun_and_settles_what_waits_for_the_pack(
    cluster: LiveCluster,
) -> None:
    jobs = submitted(
        cluster, "--pack-fail=cancel", "--wrap", "exit 3", ":", "--delay=600", "--wrap", "echo begun > begun"
    )
    ok = int(cluster.run("essubmit", "--parsable", f"--dependency=afterok:{jobs[0]}", "--wrap", "true").out)
    alone = int(
        cluster.run("essubmit", "--parsable", f"--dependency=afternotok:{jobs[0]}+0", "--wrap", "true").out
    )
    late = int(
        cluster.run("essubmit", "--parsable", f"--dependency=afternotok:{jobs[0]}", "--wrap", "true").out
    )
    assert [cluster.end(job_id) for job_id in jobs] == ["FAILED", "CANCELLED"]
    assert cluster.job(jobs[1]).exit_text == f"cancelled by its pack: job {jobs[0]} ended FAILED"
    assert [cluster.end(job_id) for job_id in (ok, alone, late)] == ["CANCELLED", "COMPLETED", "COMPLETED"]
    assert not (cluster.work / "begun").exists()
    shown = cluster.run("esqueue", "--packs", "-h", "-t", "all", "-j", str(jobs[0])).out.splitlines()
    assert f"(JobFailed:{jobs[0]}, PackFail=cancel)" in shown[0]
    assert f"its pack: job {jobs[0]} ended FAILED" in cluster.run("eswhy", str(jobs[1])).out


def test_a_job_waits_for_all_jobs_of_a_pack(cluster: LiveCluster) -> None:
    jobs = submitted(cluster, "--wrap", "true", ":", "--delay=2", "--wrap", "sleep 1; echo done > done")
    ran = cluster.run(
        "essubmit", "--parsable", f"--dependency=afterok:{jobs[0]}", "--wrap", "cat done > seen"
    )
    assert cluster.end(jobs[0]) == "COMPLETED"
    assert "waits for pack" in cluster.run("eswhy", ran.out.strip()).out
    assert cluster.end(int(ran.out)) == "COMPLETED"
    assert cluster.lines("seen") == ["done"]
