"""A waiting job starts in the cell that can start it first: real controllers, a real etcd, commands of a user at home."""

from __future__ import annotations

import time

import pytest

from tests.integration.test_cells import ask, cells
from tests.integration.test_federation import states, until
from tests.kits.cluster import LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

__all__ = ["cells"]


def fill(cluster: LiveCluster) -> int:
    """Both nodes are held for ten minutes."""
    job = cluster.user_job("sleep 600", "-N2", "--exclusive", "-t", "10")
    cluster.reaches(job, "RUNNING")
    return job


def runs_in(cluster: LiveCluster, job: int) -> None:
    """Wait until the job of the other cell runs here. Root's own calls do not pass between cells, a user's do."""
    until(lambda: f"{job} R" in ask(cluster, "esqueue", "-h", "-o", "%A %t").out)


def movable(cluster: LiveCluster, command: str, *words: str) -> int:
    """A job of this cell that any cell may take."""
    return cluster.user_job(command, "--cell", "any", "-N1", "-t", "5", *words)


def test_a_waiting_job_starts_in_the_other_cell(cells: tuple[LiveCluster, LiveCluster]) -> None:
    alpha, beta = cells
    fill(alpha)
    for one in cells:
        # Files are where the job was submitted, as on a shared file system.
        one.work.parent.chmod(0o711)
    began_s = time.monotonic()
    job = movable(alpha, "sleep 2; echo ran in $SLURM_CLUSTER_NAME; exit 3")
    after = alpha.user_job("true", "--dependency", f"afternotok:{job}")
    runs_in(beta, job)
    assert time.monotonic() - began_s < 90
    until(lambda: alpha.job(job) is not None and alpha.job(job).state == "TRANSFERRED")
    shown = ask(alpha, "esqueue", "-h", "-o", "%i %t %R")
    assert f"{job} TR (in cell beta)" in shown.out, shown
    there = ask(beta, "esqueue", "-h", "-o", "%i")
    assert there.out.split() == [f"{job}@alpha"], there
    assert alpha.end(job) == beta.end(job) == "FAILED"
    assert alpha.job(job).exit_code == 3
    # Its end decides jobs at home.
    until(lambda: alpha.job(after).reason != "Dependency")
    kept = ask(alpha, "esacct", "-j", str(job), "-o", "jobid,state,exitcode", "-P", "-h")
    assert f"{job}|FAILED|3:0" in kept.out, kept


def test_a_job_has_its_retries_where_it_runs(cells: tuple[LiveCluster, LiveCluster]) -> None:
    """Goal: its owner retries it, with the factor that it was given at home, which hears of the last end alone."""
    alpha, beta = cells
    fill(alpha)
    for one in cells:
        one.work.parent.chmod(0o711)
    job = movable(alpha, "sleep 6", "-t", "0:02", "--retry-on=timeout:2", "--grow-time=10x")
    assert alpha.end(job) == beta.end(job) == "COMPLETED"
    assert [(run.state, run.time_limit_s) for run in beta.runs(job)] == [("REQUEUED", 2), ("COMPLETED", 20)]
    kept = ask(alpha, "esacct", "-j", str(job), "-o", "jobid,state", "-P", "-h")
    assert kept.out.splitlines() == [f"{job}|COMPLETED"], kept


def test_a_demand_to_cancel_reaches_the_owner(cells: tuple[LiveCluster, LiveCluster]) -> None:
    alpha, beta = cells
    fill(alpha)
    job = movable(alpha, "sleep 600")
    runs_in(beta, job)
    until(lambda: alpha.job(job).state == "TRANSFERRED")
    # The owner answers what is asked at home.
    shown = ask(alpha, "esqueue", "-h", "-j", str(job), "-o", "%t")
    assert shown.out.strip() == "R", shown
    held = ask(alpha, "esctl", "hold", str(job))
    assert held.code == 1 and "only waiting jobs can be held" in held.err, held
    ended = ask(alpha, "escancel", str(job))
    assert ended.code == 0, ended
    assert alpha.end(job) == beta.end(job) == "CANCELLED"


def test_a_job_stays_where_it_starts_at_once_or_is_refused_by_name(
    cells: tuple[LiveCluster, LiveCluster],
) -> None:
    alpha, beta = cells
    job = movable(alpha, "sleep 600")
    alpha.reaches(job, "RUNNING")
    assert ask(beta, "esqueue", "-h").out == ""
    told = ask(alpha, "essubmit", "--test-only", "--cell", "any", "-N1", "--wrap", "true")
    assert told.code == 0, told
    assert [line.split()[2] for line in told.out.splitlines() if " cell " in line] == ["alpha:", "beta:"]
    for words, text in (
        (("--array", "0-3"), "array"),
        (("-w", "cn0001"), "--nodelist"),
        (("--start-at", "now+1hour"), "fixed start"),
    ):
        told = ask(alpha, "essubmit", "--cell", "any", *words, "--wrap", "true")
        assert told.code == 1 and text in told.err, told
    told = ask(alpha, "essubmit", "--cell", "beta,delta", "--wrap", "true")
    assert told.code == 1 and "there is no cell delta in the federation" in told.err, told


def test_the_home_hears_of_the_end_after_its_own(cells: tuple[LiveCluster, LiveCluster]) -> None:
    alpha, beta = cells
    fill(alpha)
    job = movable(alpha, "sleep 3")
    runs_in(beta, job)
    until(lambda: alpha.job(job).state == "TRANSFERRED")
    alpha.kill("esctld")
    until(lambda: f"{job} " not in ask(beta, "esqueue", "-h", "-o", "%A %t").out)
    alpha.launch("esctld")
    until(lambda: alpha.job(job).state == "COMPLETED")


def test_a_job_is_given_up_with_its_cell(cells: tuple[LiveCluster, LiveCluster]) -> None:
    alpha, beta = cells
    fill(alpha)
    job = movable(alpha, "sleep 600")
    runs_in(beta, job)
    until(lambda: alpha.job(job).state == "TRANSFERRED")
    told = ask(alpha, "escancel", "--lost", str(alpha.user_job("true")))
    assert told.code == 1 and "is in no other cell" in told.err, told
    for controller in ("esctld", "esctld-c2"):
        beta.kill(controller)
    until(lambda: states(alpha)["beta"] == "silent")
    told = alpha.run("esctl", "doctor")
    assert f"job {job}" in told.out and f"escancel --lost {job}" in told.out, told
    # Its record answers while the owner is silent.
    assert "TR" in ask(alpha, "esqueue", "-h", "-j", str(job), "-o", "%t").out
    assert ask(alpha, "escancel", "--lost", str(job)).code == 0
    assert alpha.end(job) == "NODE_FAIL"
    assert "given up with cell beta" in alpha.job(job).exit_text
    beta.start()
    until(lambda: states(alpha)["beta"] == "alive")
