"""`--retry-on` through all tiers: a job that times out twice and then passes, and one whose controller dies meanwhile."""

from __future__ import annotations

import json

from tests.kits.cluster import LiveCluster
from tests.kits.daemons import PATIENCE_S

NEEDS = "date +%s.%N >> begun; sleep 6; echo restarts $SLURM_RESTART_COUNT >> done"
"""Six seconds of work: its limits are 1 s, 4 s and 16 s."""
RETRY = ("-t", "0:01", "--retry-on=timeout:2", "--grow-time=4x", "--max-time=1:00")


def test_a_job_times_out_twice_and_then_passes(cluster: LiveCluster) -> None:
    job_id = cluster.wrap(NEEDS, *RETRY)
    well = cluster.wrap("echo after >> done", "-d", f"afterok:{job_id}")
    badly = cluster.wrap("echo never >> done", "-d", f"afternotok:{job_id}")
    cluster.wait_lines("begun", 3)
    cluster.reaches(job_id, "RUNNING")
    told = cluster.run("eswhy", str(job_id)).out
    assert "Attempt 3, retried on timeout:2: attempt 2 ended by timeout, retry 2 of 2" in told
    assert "a time limit of 16 s instead of 4 s" in told
    assert cluster.job(job_id).time_limit_s == 16
    assert [cluster.job(other).state for other in (well, badly)] == ["PENDING", "PENDING"]
    assert cluster.end(job_id) == "COMPLETED"
    assert cluster.end(well) == "COMPLETED" and cluster.end(badly) == "CANCELLED"
    assert cluster.lines("done") == ["restarts 2", "after"]
    assert len(cluster.lines("begun")) == 3
    shown = json.loads(cluster.run("esacct", "--json", "-j", str(job_id)).out)["attempts"]
    assert [(run["attempt"], run["state"], run["time_limit_s"]) for run in shown] == [
        (1, "REQUEUED", 1),
        (2, "REQUEUED", 4),
        (3, "COMPLETED", 16),
    ]
    wasted = [run["wasted_s"] for run in shown]
    assert 1 <= wasted[0] < PATIENCE_S and 4 <= wasted[1] < PATIENCE_S and wasted[2] == 0
    assert [run["wasted_cpu_s"] >= run["wasted_s"] * run["cpus"] for run in shown] == [True] * 3
    assert "timeout: retried (1 of 2), with a time limit of 4 s" in shown[0]["exit_text"]
    table = cluster.run("esacct", "--attempts", "-j", str(job_id)).out
    assert "Wasted" in table and "timeout: retried (2 of 2)" in table


def test_after_the_last_retry_it_says_why_there_is_none(cluster: LiveCluster) -> None:
    ran = cluster.run("essubmit", "--wait", "-t", "0:01", "--retry-on=timeout", "--wrap", "sleep 600")
    job_id = int(ran.out.split()[-1])
    assert ran.code != 0, "its final end is that of its last attempt"
    assert "timeout: not retried again: 1 of 1 retries are used" in cluster.run("eswhy", str(job_id)).out
    assert [run.state for run in cluster.runs(job_id)] == ["REQUEUED", "TIMEOUT"]


def test_a_controller_that_dies_around_the_end_retries_once(cluster: LiveCluster) -> None:
    """Goal: one next attempt, whether the controller dies before it hears of the end or in the pause after it."""
    job_id = cluster.wrap(NEEDS, *RETRY)
    cluster.wait_lines("begun", 1)
    cluster.kill("esctld")
    cluster.launch("esctld")
    cluster.wait_lines("begun", 2)
    cluster.until(lambda: cluster.job(job_id).retries == 1 or None, "the retry is known")
    cluster.until(lambda: len(cluster.runs(job_id)) == 2 or None, "the second attempt has ended")
    cluster.kill("esctld")
    cluster.launch("esctld")
    assert cluster.end(job_id) == "COMPLETED"
    assert [(run.attempt, run.time_limit_s) for run in cluster.runs(job_id)] == [(1, 1), (2, 4), (3, 16)]
    assert len(cluster.lines("begun")) == 3 and cluster.lines("done") == ["restarts 2"]


def test_a_cause_that_is_none_is_refused_by_name(cluster: LiveCluster) -> None:
    ran = cluster.run("essubmit", "--retry-on=weather", "--wrap", "true")
    assert ran.code != 0 and "--retry-on" in ran.err and "weather" in ran.err
    ran = cluster.run("essubmit", "--retry-on=oom", "--grow-mem=2x", "--mem=1M", "--wrap", "true")
    assert ran.code == 0, ran.err


def test_any_user_has_retries_within_the_sites_bound(cluster: LiveCluster) -> None:
    job_id = cluster.user_job(f"{NEEDS.replace('sleep 6', 'sleep 2')}", *RETRY)
    assert cluster.end(job_id) == "COMPLETED"
    assert [run.state for run in cluster.runs(job_id)] == ["REQUEUED", "COMPLETED"]
    ran = cluster.run_as_user("essubmit", "-t", "1", "--retry-on=timeout:6", "--wrap", "true")
    assert ran.code != 0 and "6 retries are more than 5 (policy.retries_max)" in ran.err
