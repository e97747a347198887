"""Jobs that transfer between cells: real controllers, a real etcd, and each job's own record of its runs."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.test_cells import ask, cell, pin
from tests.integration.test_federation import seen, states, until
from tests.kits.cluster import LiveCluster
from tests.support import etcd

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Two = tuple[LiveCluster, LiveCluster]


@pytest.fixture
def store() -> Iterator[etcd.Etcd]:
    with etcd.own() as store:
        yield store


@pytest.fixture
def cells(state_dir: Path, store: etcd.Etcd) -> Iterator[Two]:
    """Alpha and beta, each with a standby; both see idle nodes of the other."""
    with ExitStack() as stack:
        alpha, beta = (cell(state_dir / name, name, store, controllers=2) for name in ("alpha", "beta"))
        pin(alpha, beta=beta)
        pin(beta, alpha=alpha)
        for one in (alpha, beta):
            stack.callback(one.stop)
            one.start()
        until(
            lambda: all(
                set(states(one).values()) == {"alive"}
                and all(info.nodes_free == 2 for info in seen(one).values())
                for one in (alpha, beta)
            )
        )
        until(
            lambda: all(
                ask(one, "esqueue", "--cell", name).code == 0
                for one, name in ((alpha, "beta"), (beta, "alpha"))
            )
        )
        yield alpha, beta


def fill(cluster: LiveCluster) -> int:
    """A job that has all nodes of the cell for long."""
    job = cluster.user_job("sleep 600", "-N2", "--exclusive", "-t", "60")
    cluster.reaches(job, "RUNNING")
    return job


def movable(cluster: LiveCluster, command: str, *words: str) -> int:
    """A job that may run in any cell; its id."""
    return cluster.user_job(command, "--cell", "any", "-t", "5", *words)


def shown(cluster: LiveCluster, job: int) -> str:
    """The state of a job in its cell's own list; empty: it is not there."""
    found = json.loads(ask(cluster, "esqueue", "--json", "-t", "all").out)["jobs"]
    return next((str(one["state"]) for one in found if one["job_id"] == job), "")


def test_a_job_of_a_full_cell_runs_in_the_other(cells: Two) -> None:
    alpha, beta = cells
    blocker = fill(alpha)
    runs = alpha.work / "runs"
    job = movable(alpha, f"echo $SLURM_CLUSTER_NAME >> {runs}; exit 3", "-N2")
    after = alpha.user_job("true", f"--dependency=afternotok:{job}")
    ok = alpha.user_job("true", f"--dependency=afterok:{job}")
    until(lambda: shown(alpha, job) == "FAILED")
    assert runs.read_text().split() == ["live"]
    until(lambda: shown(beta, job) == "FAILED")
    # Its outcome decides what waits for it at home.
    alpha.do("escancel", str(blocker))
    until(lambda: shown(alpha, after) == "COMPLETED")
    assert alpha.end(ok) == "CANCELLED"
    assert runs.read_text().split() == ["live"]


def test_a_job_stays_where_it_starts_at_once(cells: Two) -> None:
    alpha, beta = cells
    job = movable(alpha, "true")
    assert alpha.end(job) == "COMPLETED"
    # Accounting has its run here.
    assert len(alpha.runs(job)) == 1
    assert shown(beta, job) == ""


def test_waiting_and_cancelling_follow_the_job(cells: Two) -> None:
    alpha, beta = cells
    fill(alpha)
    job = movable(alpha, "sleep 600")
    until(lambda: shown(alpha, job) == "TRANSFERRED")
    beta.reaches(job, "RUNNING")
    queue = ask(alpha, "esqueue", "-h")
    assert "in cell beta" in queue.out, queue
    # By its number the owner is asked.
    there = ask(alpha, "esqueue", "-h", "-j", str(job))
    assert " R " in there.out, there
    why = ask(alpha, "eswhy", str(job))
    assert why.code == 0, why
    ended = ask(alpha, "escancel", str(job))
    assert ended.code == 0, ended
    until(lambda: shown(beta, job) == "CANCELLED")
    until(lambda: shown(alpha, job) == "CANCELLED")
    waited = ask(
        alpha, "essubmit", "-W", "--cell", "any", "-D", str(alpha.work), "-t", "5", "--wrap", "exit 7"
    )
    assert waited.code == 7, waited


def test_nothing_runs_twice_when_both_leaders_and_the_store_die(cells: Two, store: etcd.Etcd) -> None:
    alpha, beta = cells
    fill(alpha)
    runs = alpha.work / "runs"
    jobs = [movable(alpha, f"echo $SLURM_JOB_ID >> {runs}; sleep 1") for _ in range(12)]
    until(lambda: any(shown(alpha, job) == "TRANSFERRED" for job in jobs))
    store.members[0].send_signal(signal.SIGSTOP)
    for one in (alpha, beta):
        one.kill("esctld")
    until(lambda: alpha.leader() == beta.leader() == "c2")
    store.members[0].send_signal(signal.SIGCONT)
    for one in (alpha, beta):
        one.launch("esctld")
    until(lambda: all(shown(alpha, job) == "COMPLETED" for job in jobs))
    assert sorted(map(int, runs.read_text().split())) == sorted(jobs)


def test_a_cell_without_the_store_keeps_its_jobs(cells: Two, store: etcd.Etcd) -> None:
    alpha, _beta = cells
    blocker = fill(alpha)
    store.members[0].stop()
    job = movable(alpha, "true")
    alpha.do("escancel", str(blocker))
    assert alpha.end(job) == "COMPLETED"


def test_requests_that_do_not_move_are_refused_by_name(cells: Two) -> None:
    alpha, _beta = cells
    for words, name in (
        (("--array", "0-3"), "array"),
        (("--nodelist", "cn0001"), "nodelist"),
        (("-N1", ":", "-N1"), "part"),
    ):
        sent = ask(alpha, "essubmit", "--cell", "any", "-D", str(alpha.work), *words, "--wrap", "true")
        assert sent.code != 0 and "--cell" in sent.err and name in sent.err, sent
    tested = ask(alpha, "essubmit", "--cell", "any", "--test-only", "-D", str(alpha.work), "--wrap", "true")
    assert tested.code == 0 and "alpha" in tested.out + tested.err and "beta" in tested.out + tested.err, (
        tested
    )
