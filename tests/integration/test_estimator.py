"""A real cluster with an estimator beside it. Goal: forecasts come by themselves, and whatever becomes of `esestd` or of
the controllers, jobs are submitted and run as if there were none, and forecasts come again.

Method: two controllers on one store, jobs of two kinds, `esestd` over gRPC with a token; it is killed, stopped, and left
alone while the other controller takes over.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster
from tests.kits.daemons import Daemon

ESTIMATOR = "esestd"
PORT = "127.0.0.1:0"
LIMIT_S = 600
SECTION = '[estimator]\nname = "last-2"\nrefresh_s = 0.5'


@pytest.fixture(scope="module")
def estimated_cluster() -> Iterator[LiveCluster]:
    # Only who is killed loses the lead.
    controllers: dict[str, Any] = {"controllers": 2, "controller": {"lease_s": 5}}
    with running(nodes=4, agents=1, satellites=1, sections=SECTION, **controllers) as cluster:
        words = [ESTIMATOR, "--config", str(cluster.directory / "eslurm.toml")]
        words += ["--state-dir", str(cluster.directory / ESTIMATOR)]
        token = cluster.write_token(cluster.directory / "estimator.token", "estimator")
        words += ["--token-file", str(token)]
        words += ["--controllers", ",".join(cluster.endpoints), "--log-level", "debug"]
        cluster.daemons[ESTIMATOR] = Daemon(ESTIMATOR, words, cluster.directory / f"{ESTIMATOR}.log")
        yield cluster


@pytest.fixture
def estimated(estimated_cluster: LiveCluster) -> Iterator[LiveCluster]:
    """The module's cluster, whole and idle at the start of each test."""
    estimated_cluster.start()
    estimated_cluster.wait_standbys()
    yield estimated_cluster
    for daemon in estimated_cluster.daemons.values():
        if daemon.process is not None:
            daemon.send(signal.SIGCONT)
    estimated_cluster.start()
    estimated_cluster.clear()
    estimated_cluster.hang_up()


def run_both(cluster: LiveCluster, seconds: float) -> None:
    """Two jobs of one kind, to their ends."""
    jobs = [cluster.wrap(f"sleep {seconds}", "--time", str(LIMIT_S // 60)) for _ in range(2)]
    assert cluster.ended(*jobs) == ["COMPLETED"] * 2


def forecast_of(cluster: LiveCluster, job_id: int) -> int:
    """The estimate of a waiting job, once there is one."""
    return int(cluster.until(lambda: cluster.job(job_id).forecast.estimate_s, f"a forecast of job {job_id}"))


def held(cluster: LiveCluster) -> int:
    """A job that waits."""
    return cluster.wrap("sleep 1", "--time", str(LIMIT_S // 60), "--hold")


def test_it_learns_and_says_so(estimated: LiveCluster) -> None:
    first = held(estimated)
    # Nothing was learnt yet: the user's own limit.
    assert forecast_of(estimated, first) == LIMIT_S
    run_both(estimated, 0.1)
    second = held(estimated)
    assert forecast_of(estimated, second) < LIMIT_S
    estimated.until(lambda: estimated.job(first).forecast.estimate_s < LIMIT_S, "what waits is forecast anew")
    assert estimated.job(first).first_estimate_s == LIMIT_S
    run_both(estimated, 3)
    third = held(estimated)
    assert 3 <= forecast_of(estimated, third) < LIMIT_S
    estimated.do("esctl", "release", str(second))
    # Accounting says what was expected of it.
    run = estimated.only_run(second)
    assert 1 <= run.first_estimate_s < LIMIT_S and run.HasField("forecast")


def test_killed_and_started_again_it_knows_what_ended(estimated: LiveCluster) -> None:
    run_both(estimated, 0.1)
    estimated.kill(ESTIMATOR)
    while_away = held(estimated)
    assert estimated.job(while_away).forecast.estimate_s == 0
    estimated.launch(ESTIMATOR)
    assert forecast_of(estimated, while_away) < LIMIT_S


def test_while_it_hangs_jobs_come_and_go(estimated: LiveCluster) -> None:
    run_both(estimated, 0.1)
    estimated.daemons[ESTIMATOR].send(signal.SIGSTOP)
    run_both(estimated, 0.1)
    waiting = held(estimated)
    assert estimated.job(waiting).forecast.estimate_s == 0
    estimated.daemons[ESTIMATOR].send(signal.SIGCONT)
    assert forecast_of(estimated, waiting) < LIMIT_S


def test_it_finds_the_controller_that_leads(estimated: LiveCluster) -> None:
    run_both(estimated, 0.1)
    leader = estimated.leader()
    estimated.do("esctl", "takeover")
    after_takeover = held(estimated)
    assert forecast_of(estimated, after_takeover) < LIMIT_S
    assert estimated.leader() != leader
    estimated.kill(*(name for name in ("esctld", "esctld-c2") if name.endswith("c2") != (leader == "c2")))
    after_death = held(estimated)
    assert forecast_of(estimated, after_death) < LIMIT_S


def test_it_ends_when_told_and_says_when_it_may_not(estimated: LiveCluster) -> None:
    estimated.terminate(ESTIMATOR)
    assert estimated.call("Ping", pb.PingRequest()).nodes_up == 4
    log = (estimated.directory / f"{ESTIMATOR}.log").read_text()
    assert "following the controller's feed" in log
    assert f"operators = [{os.getuid()}]" in (estimated.directory / "eslurm.toml").read_text()
