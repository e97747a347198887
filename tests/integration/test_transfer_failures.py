"""Jobs that may move while controllers and the shared store fail: each runs once, by its own record."""

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
