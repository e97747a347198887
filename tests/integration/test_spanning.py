"""A job runs over nodes of several cells at once: real controllers, a real etcd, commands of a user at home."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.test_cells import ask, cells
from tests.integration.test_federation import until
from tests.kits.cluster import LiveCluster
from tests.kits.commands import Ran

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

__all__ = ["cells"]

ON_BOTH = ("--cell", "any", "--span", "-N4", "-n4", "-t", "5")
RANKS = (
    'echo "$SLURM_PROCID $SLURM_NODEID $SLURM_NTASKS $SLURM_STEP_NUM_NODES $SLURM_JOB_ID $SLURM_SPAN_JOB_ID"'
)


def opened(both: tuple[LiveCluster, LiveCluster]) -> tuple[LiveCluster, LiveCluster]:
    for one in both:
        # Files are where the job was submitted, as on a shared file system.
        one.work.parent.chmod(0o711)
    return both


def shown(cluster: LiveCluster, job: int) -> dict[str, Any]:
    told = ask(cluster, "esqueue", "-j", str(job), "--json")
    assert told.code == 0, told
    (found,) = json.loads(told.out)["jobs"]
    return dict(found)


def guests(cluster: LiveCluster, *words: str) -> list[str]:
    """States of the jobs here that hold nodes for others."""
    told = ask(cluster, "esqueue", "-h", *words, "-t", "PD,R,CG", "-o", "%t")
    assert told.code == 0, told
    return told.out.split()


def esrun(cluster: LiveCluster, *words: str) -> Ran:
    """A step of the job that has written its environment: the command as its script would run it."""
    lines = (cluster.work / "environment").read_text().splitlines()
    environ = dict(line.split("=", 1) for line in lines if line.startswith("ESLURM_"))
    return cluster.run_as_user("esrun", *words, **environ)


def spanning(cluster: LiveCluster, *words: str) -> int:
    """A job that runs on all nodes of both cells."""
    job = cluster.user_job("env > env.new; mv env.new environment; sleep 600", *ON_BOTH, *words)
    cluster.reaches(job, "RUNNING")
    until((cluster.work / "environment").exists)
    return job


def test_a_step_runs_on_nodes_of_two_cells(cells: tuple[LiveCluster, LiveCluster]) -> None:
    alpha, beta = opened(cells)
    job = spanning(alpha)
    info = shown(alpha, job)
    assert [(one["cell"], one["nodes"], one["node_list"]) for one in info["guests"]] == [
        ("beta", 2, "cn[0001-0002]")
    ]
    assert (
        f"{job} R 4 cn[0001-0002],beta:cn[0001-0002]" in ask(alpha, "esqueue", "-h", "-o", "%i %t %D %R").out
    )
    assert guests(beta) == ["R"]
    assert ask(beta, "esqueue", "-h", "-o", "%j").out.strip() == f"wrap-of-{job}@alpha"
    told = esrun(alpha, "sh", "-c", RANKS)
    assert told.code == 0, told
    (guest,) = info["guests"]
    where = [f"{at} {at} 4 4 {job if at < 2 else guest['job_id']} {job}@alpha" for at in range(4)]
    assert sorted(told.out.splitlines()) == where, told
    told = esrun(alpha, "-N3", "sh", "-c", "exit $SLURM_PROCID")
    assert told.code == 2 and "task 2: exit code 2" in told.err, told
    assert esrun(alpha, "-N5", "true").code == 2
    told = ask(alpha, "escancel", str(job))
    assert told.code == 0, told
    assert alpha.end(job) == "CANCELLED"
    until(lambda: guests(beta) == [])
    until(lambda: not shown(alpha, job)["guests"])


def test_a_job_waits_until_all_of_its_nodes_are_free_at_once(cells: tuple[LiveCluster, LiveCluster]) -> None:
    alpha, beta = opened(cells)
    other = beta.user_job("sleep 600", "-N1", "--exclusive", "-t", "10")
    beta.reaches(other, "RUNNING")
    job = alpha.user_job("sleep 600", *ON_BOTH)
    until(lambda: "too few nodes are free at once" in ask(alpha, "eswhy", str(job)).out)
    assert shown(alpha, job)["reason"] == "NodesInOtherCells"
    # Its own cell's nodes are free for others meanwhile.
    assert alpha.end(alpha.user_job("true", "-N2", "--exclusive")) == "COMPLETED"
    assert ask(beta, "escancel", str(other)).code == 0
    alpha.reaches(job, "RUNNING")
    # Of a job that other cells hold nodes for nothing changes that these would not hear of.
    told = ask(alpha, "esctl", "update", "job", str(job), "timelimit=1")
    assert told.code == 1 and "does not reach its nodes in beta" in told.err, told
    assert ask(alpha, "escancel", str(job)).code == 0
    until(lambda: guests(beta) == [])


def test_leaders_of_both_cells_die_while_it_runs(cells: tuple[LiveCluster, LiveCluster]) -> None:
    alpha, beta = opened(cells)
    job = spanning(alpha)
    beta.kill("esctld")
    alpha.kill("esctld")
    alpha.launch("esctld")
    told: list[Ran] = []

    def runs() -> bool:
        told.append(esrun(alpha, "true"))
        return told[-1].code == 0

    try:
        until(runs)
    except AssertionError:
        pytest.fail(f"{told[-1]} {shown(alpha, job)}")
    there = "--cell", "beta"
    assert guests(alpha, *there) == ["R"]
    assert ask(alpha, "escancel", str(job)).code == 0
    assert alpha.end(job) == "CANCELLED"
    until(lambda: guests(alpha, *there) == [])


def test_the_doctor_names_both_ends_when_a_cell_is_silent(cells: tuple[LiveCluster, LiveCluster]) -> None:
    alpha, beta = opened(cells)
    job = spanning(alpha)
    there = f"holds nodes for job {job} of cell alpha, which is silent"
    for asked, silent, text in (
        (alpha, beta, "runs on nodes of cell beta, which is silent"),
        (beta, alpha, there),
    ):
        silent.kill(*(name for name in silent.daemons if name.startswith("esctld")))
        until(lambda asked=asked, text=text: text in asked.run("esctl", "doctor").out)
        silent.start()
        until(lambda asked=asked, text=text: text not in asked.run("esctl", "doctor").out)
    assert ask(alpha, "escancel", str(job)).code == 0
    assert alpha.end(job) == "CANCELLED"
    until(lambda: guests(beta) == [])


def test_a_job_that_loses_the_nodes_of_a_cell_starts_again(cells: tuple[LiveCluster, LiveCluster]) -> None:
    alpha, beta = opened(cells)
    job = spanning(alpha)
    (guest,) = shown(alpha, job)["guests"]
    assert ask(beta, "escancel", str(guest["job_id"])).code == 0
    until(lambda: shown(alpha, job).get("restarts", 0) or shown(alpha, job)["attempts"] > 1)
    alpha.reaches(job, "RUNNING")
    until(lambda: guests(beta) == ["R"])
    assert ask(alpha, "escancel", str(job)).code == 0
    until(lambda: guests(beta) == [])


def test_refusals_name_the_option(cells: tuple[LiveCluster, LiveCluster]) -> None:
    alpha, _ = cells
    for words, text in (
        (("--span", "-N4"), "--span"),
        (("--cell", "any", "--span", "-N1"), "two or more"),
        (("--cell", "any", "--span", "-N2", "-n3"), "no multiple"),
        (("--cell", "any", "--span", "-N4", "--array", "0-3"), "array"),
    ):
        told = ask(alpha, "essubmit", *words, "--wrap", "true")
        assert told.code in (1, 2) and text in told.err, told
