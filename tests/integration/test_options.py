"""Effects of a submission's options on a live cluster: where a job runs, with what, when, and in which order."""

from __future__ import annotations

import time

import pytest

from tests.kits.cluster import LiveCluster, names_of

WHERE = 'echo "$SLURM_JOB_NAME $SLURM_JOB_NODELIST" >> where'
GATE = "echo >> waiting; until test -e gate; do sleep 0.02; done"


def open_gate(cluster: LiveCluster, name: str = "gate") -> None:
    (cluster.work / name).touch()


# ---- where ----


def test_named_nodes_are_used_and_excluded_ones_are_not(cluster: LiveCluster) -> None:
    job_id = cluster.wrap("true", "-N", "3", "-w", "cn0005,cn0009", "-x", "cn[0001-0004,0006-0008,0010-0015]")
    run = cluster.only_run(job_id)
    assert names_of(run.node_names) == ["cn0005", "cn0009", "cn0016"]


def test_a_partition_limits_where_and_how_long(cluster: LiveCluster) -> None:
    run = cluster.only_run(cluster.wrap("true", "-p", "brief"))
    assert (run.node_names, run.partition) == ("cn0001", "brief")
    refused = cluster.run("essubmit", "-p", "brief", "-t", "5", "--wrap", "true")
    assert refused.code == 1, refused


def test_an_exclusive_job_is_alone_on_its_node(cluster: LiveCluster) -> None:
    alone = cluster.wrap(GATE, "--exclusive", "-w", "cn0003")
    cluster.wait_lines("waiting")
    assert cluster.job(alone).cpus == 4
    other = cluster.wrap("true", "-w", "cn0003")
    elsewhere = cluster.wrap("true", "-w", "cn0004")
    assert cluster.end(elsewhere) == "COMPLETED"
    assert cluster.job(other).state == "PENDING"
    open_gate(cluster)
    assert cluster.ended(alone, other) == ["COMPLETED", "COMPLETED"]
    assert cluster.runs(alone)[0].ended_us <= cluster.runs(other)[0].started_us


@pytest.mark.parametrize("need", [["-c", "3"], ["--mem", "3G"], ["--mem-per-cpu", "1500M", "-c", "2"]])
def test_cores_and_memory_are_never_given_twice(cluster: LiveCluster, need: list[str]) -> None:
    first = cluster.wrap(GATE, "-w", "cn0007", *need)
    cluster.wait_lines("waiting")
    second = cluster.wrap("true", "-w", "cn0007", *need)
    small = cluster.wrap("true", "-w", "cn0007", "--mem", "900")
    assert cluster.end(small) == "COMPLETED"
    assert cluster.job(second).state == "PENDING"
    open_gate(cluster)
    assert cluster.ended(first, second) == ["COMPLETED", "COMPLETED"]
    assert cluster.runs(first)[0].ended_us <= cluster.runs(second)[0].started_us


def test_tasks_per_node_decide_the_number_of_nodes(cluster: LiveCluster) -> None:
    run = cluster.only_run(cluster.wrap("true", "-n", "6", "--ntasks-per-node", "2", "-c", "2"))
    assert (run.nodes, run.cpus) == (3, 12)


def test_a_short_job_overtakes_a_large_one_that_must_wait(cluster: LiveCluster) -> None:
    running = cluster.wrap(GATE, "-t", "10", "--exclusive", "-N", "15")
    cluster.wait_lines("waiting")
    large = cluster.wrap("true", "--exclusive", "-N", "16", "-t", "10")
    too_long = cluster.wrap("true", "-t", "30")
    short = cluster.wrap("true", "-t", "1")
    assert cluster.end(short) == "COMPLETED"
    assert (cluster.job(large).state, cluster.job(too_long).state) == ("PENDING", "PENDING")
    open_gate(cluster)
    assert cluster.ended(running, large, too_long) == ["COMPLETED"] * 3
    assert cluster.runs(large)[0].started_us <= cluster.runs(too_long)[0].started_us


def test_a_dry_run_stores_nothing(cluster: LiveCluster) -> None:
    before = cluster.wrap("true")
    ran = cluster.run("essubmit", "--test-only", "-N", "16", "--wrap", "true")
    assert ran.code == 0 and "would be accepted" in ran.out
    assert cluster.wrap("true") == before + 1
    assert cluster.ended(before, before + 1) == ["COMPLETED", "COMPLETED"]


# ---- when ----


def test_a_job_does_not_begin_before_its_time(cluster: LiveCluster) -> None:
    job_id = cluster.wrap("true", "--begin", "now+1hour")
    assert cluster.job(job_id).reason == "BeginTime"
    cluster.do("esctl", "update", "job", str(job_id), "begin=now+1")
    run = cluster.only_run(job_id)
    assert run.started_us >= cluster.job(job_id).begin_us > run.submitted_us


def test_a_higher_priority_comes_first(cluster: LiveCluster) -> None:
    blocker = cluster.wrap(GATE, "--exclusive", "-w", "cn0002")
    cluster.wait_lines("waiting")
    jobs = [
        cluster.wrap("true", "--exclusive", "-w", "cn0002", "--priority", str(priority))
        for priority in (10, 1000, 100)
    ]
    open_gate(cluster)
    cluster.ended(blocker, *jobs)
    started = {cluster.runs(job_id)[0].started_us: at for at, job_id in enumerate(jobs)}
    assert [started[at] for at in sorted(started)] == [1, 2, 0]


def test_an_array_keeps_to_its_limit(cluster: LiveCluster) -> None:
    command = "echo + >> live; sleep 0.05; echo - >> live"
    job_id = cluster.wrap(command, "--array", "0-9%2")
    assert cluster.end(job_id) == "COMPLETED"
    level, highest = 0, 0
    for mark in cluster.lines("live"):
        level += 1 if mark == "+" else -1
        highest = max(highest, level)
    assert highest <= 2 and len(cluster.runs(job_id)) == 10


# ---- after what ----


def test_dependencies_on_ends(cluster: LiveCluster) -> None:
    good, bad = cluster.wrap(GATE), cluster.wrap(f"{GATE}; exit 3")
    kinds = {
        f"afterok:{good}": "COMPLETED",
        f"afterok:{bad}": "CANCELLED",
        f"afternotok:{bad}": "COMPLETED",
        f"afternotok:{good}": "CANCELLED",
        f"afterany:{good}:{bad}": "COMPLETED",
        f"afterok:{good},afternotok:{bad}": "COMPLETED",
    }
    jobs = {text: cluster.wrap("true", "-d", text) for text in kinds}
    assert {cluster.job(job_id).reason for job_id in jobs.values()} == {"Dependency"}
    cluster.wait_lines("waiting", 2)
    open_gate(cluster)
    states = dict(zip(jobs, cluster.ended(*jobs.values()), strict=True))
    assert states == kinds
    ended_us = max(run.ended_us for job_id in (good, bad) for run in cluster.runs(job_id))
    assert cluster.runs(jobs[f"afterany:{good}:{bad}"])[0].started_us >= ended_us


def test_after_waits_for_the_start_only(cluster: LiveCluster) -> None:
    first = cluster.wrap(GATE, "--hold")
    later = cluster.wrap("true", "-d", f"after:{first}")
    assert cluster.job(later).reason == "Dependency"
    cluster.do("esctl", "release", str(first))
    assert cluster.end(later) == "COMPLETED"
    assert cluster.job(first).state == "RUNNING"
    open_gate(cluster)
    assert cluster.end(first) == "COMPLETED"


def test_aftercorr_follows_task_by_task(cluster: LiveCluster) -> None:
    command = "echo first $SLURM_ARRAY_TASK_ID >> order; test $SLURM_ARRAY_TASK_ID -ne 2"
    first = cluster.wrap(command, "--array", "1-3", "--hold")
    second = cluster.wrap(
        "echo second $SLURM_ARRAY_TASK_ID >> order", "--array", "1-3", "-d", f"aftercorr:{first}"
    )
    cluster.do("esctl", "release", str(first))
    cluster.ended(first, second)
    order = cluster.lines("order")
    assert sorted(order) == ["first 1", "first 2", "first 3", "second 1", "second 3"]
    assert all(order.index(f"first {task}") < order.index(f"second {task}") for task in (1, 3))


def test_one_of_several_is_enough_and_a_waiting_job_waits_for_others(cluster: LiveCluster) -> None:
    held, array = (
        cluster.wrap("true", "--hold"),
        cluster.wrap("test $SLURM_ARRAY_TASK_ID -eq 1", "-a", "1-2", "--hold"),
    )
    either = cluster.wrap("echo either >> ran", "-d", f"afterok:{held}?afterok:{array}_1")
    last = cluster.wrap("echo last >> ran", "-d", f"afterok:{array}_2?afterok:{either}")
    assert cluster.job(either).dependencies == f"afterok:{held}(unfulfilled)?afterok:{array}_1(unfulfilled)"
    assert f"Dependency=afterok:{held}(unfulfilled)?" in cluster.run("esctl", "show", "job", str(either)).out
    refused = cluster.run("esctl", "update", "job", str(held), f"dependency=afterok:{last}")
    assert refused.code == 1
    assert f"job {held} would wait for itself: {held} -> {last} -> {either} -> {held}" in refused.err
    cluster.do("esctl", "release", str(array))
    assert cluster.ended(array, either, last) == ["FAILED", "COMPLETED", "COMPLETED"]
    assert cluster.lines("ran") == ["either", "last"]
    waits = cluster.wrap("true", "-d", str(held))
    cluster.do("esctl", "update", "job", str(waits), f"dependency=afternotok:{array}_2")
    assert cluster.end(waits) == "COMPLETED"
    again = cluster.wrap("true", "-d", str(held))
    cluster.do("esctl", "update", "job", str(again), "dependency=")
    assert cluster.end(again) == "COMPLETED"
    cluster.do("escancel", str(held))


def test_singletons_of_one_name_run_one_after_the_other(cluster: LiveCluster) -> None:
    command = "echo + >> live; sleep 0.1; echo - >> live"
    jobs = [cluster.wrap(command, "-J", "one", "-d", "singleton") for _ in range(3)]
    assert cluster.ended(*jobs) == ["COMPLETED"] * 3
    assert cluster.lines("live") == ["+", "-"] * 3


def test_a_dependency_on_a_job_that_ended_long_ago_is_met_at_once(cluster: LiveCluster) -> None:
    first = cluster.wrap("true")
    cluster.end(first)
    assert cluster.end(cluster.wrap("true", "-d", f"afterok:{first}")) == "COMPLETED"
    ran = cluster.run("essubmit", "-d", f"afternotok:{first}", "--wrap", "true")
    assert ran.code == 1 and f"afternotok:{first} can never be met" in ran.err


# ---- nodes out of service ----


def test_a_drained_node_ends_its_jobs_and_takes_no_more(cluster: LiveCluster) -> None:
    running = cluster.wrap(GATE, "-w", "cn0006")
    cluster.wait_lines("waiting")
    cluster.do("esctl", "drain", "cn0006", "reason=new memory")
    waiting = cluster.wrap("echo >> ran", "-w", "cn0006")
    open_gate(cluster)
    assert cluster.end(running) == "COMPLETED"
    node = cluster.nodes()["cn0006"]
    assert (list(node.flags), node.reason) == (["DRAIN"], "new memory")
    assert cluster.job(waiting).state == "PENDING"
    cluster.until(lambda: cluster.job(waiting).reason == "ReqNodeNotAvail", "it is told why")
    cluster.do("esctl", "resume", "cn0006")
    assert cluster.end(waiting) == "COMPLETED"
    assert len(cluster.lines("ran")) == 1


def test_begin_is_shown_in_the_sites_time(cluster: LiveCluster) -> None:
    job_id = cluster.wrap("true", "--begin", "now+1hour")
    assert abs(cluster.job(job_id).begin_us / 1e6 - time.time() - 3600) < 60
    cluster.do("escancel", str(job_id))
    assert cluster.end(job_id) == "CANCELLED"
