"""Several controllers on one store: one leads, the others follow. Goal: whatever happens to the leader, nothing that was
acknowledged is lost or done twice, running jobs go on, and submissions are accepted again within seconds.

Method: real processes on SQLite and on PostgreSQL; the leader is killed, stopped in mid-load or told to hand over while
clients submit all the time; scripts leave a line for each time they ran.
"""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from eslurm.api.methods import SUBMIT
from eslurm.api.unix_client import Client
from eslurm.ports.api import ApiRefused, Status
from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster, daemon_of
from tests.kits.outages import Gated
from tests.kits.submitters import Submitters
from tests.support import postgres

# Far above what they take on a busy machine, far below a client's patience: `make bench-recovery` measures.
FAILOVER_MAX_S = 40.0
EXIT_FENCED = 3
CLIENTS = 4
PAUSE_S = 0.05


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def pair_cluster(request: pytest.FixtureRequest) -> Iterator[LiveCluster]:
    """Two controllers on one database."""
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(postgres.database()) if request.param == "postgresql" else ""
        shape = {"nodes": 8, "agents": 2, "satellites": 2, "controllers": 2}
        # A leader whose disk is slow for a moment keeps the lead: tests tell when it changes hands.
        lease = {"lease_s": 4.0}
        yield stack.enter_context(running(**shape, controller=lease, store_url=url))


@pytest.fixture
def pair(pair_cluster: LiveCluster) -> Iterator[LiveCluster]:
    """The module's cluster, whole and idle at the start of each test."""
    pair_cluster.empty_work()
    pair_cluster.start()
    pair_cluster.wait_standbys()
    yield pair_cluster
    for daemon in pair_cluster.daemons.values():
        if daemon.process is not None:
            daemon.send(signal.SIGCONT)
    pair_cluster.start()
    pair_cluster.clear()
    pair_cluster.hang_up()


def other_of(cluster: LiveCluster, name: str) -> str:
    return next(one for one in cluster.controllers if one != name)


class Clients(Submitters):
    """Users who submit through whichever door answers, all the time."""

    def __init__(self, cluster: LiveCluster) -> None:
        sockets = [str(path) for path in cluster.sockets]
        super().__init__(sockets, cluster.work, threads=CLIENTS, pause_s=PAUSE_S)
        self._cluster = cluster

    def wait_more(self, count: int) -> None:
        """Wait until so many more were accepted."""
        goal = len(self.acknowledged) + count
        enough = f"{count} more submissions"
        self._cluster.until(lambda: len(self.acknowledged) >= goal or self.failures, enough)
        assert not self.failures, self.failures


def check_each_ran_once(cluster: LiveCluster, clients: Clients) -> None:
    """Every accepted job is known, has run to its end, and exactly once."""
    assert not clients.failures, clients.failures
    job_ids = clients.acknowledged
    assert len(set(job_ids)) == len(job_ids), "a job id was given out twice"
    assert set(cluster.ended(*job_ids)) == {"COMPLETED"}
    assert clients.ran() == Counter(job_ids)


def test_the_standby_answers_for_the_leader(pair: LiveCluster) -> None:
    leader = pair.leader()
    infos = {one.name: one for one in pair.controller_infos()}
    assert infos[leader].role == "leader" and infos[leader].epoch > 0
    standby = infos[other_of(pair, leader)]
    assert standby.role == "standby" and standby.endpoint in pair.endpoints
    socket = pair.sockets[pair.controllers.index(standby.name)]
    ran = pair.run("essubmit", "--parsable", "-D", str(pair.work), "--wrap", "true", socket=socket)
    assert ran.code == 0, ran
    assert pair.end(int(ran.out)) == "COMPLETED"
    assert pair.run("esctl", "update", "node", "cn0001", "drain", "--reason", "x", socket=socket).code in (
        0,
        2,
    )


def test_a_large_request_goes_through_the_standby_as_well(pair: LiveCluster) -> None:
    standby = other_of(pair, pair.leader())
    script = b"#!/bin/sh\n" + b"# padding\n" * 10_000
    jobs = [pb.JobRequest(script=script, work_dir=str(pair.work)) for _ in range(40)]
    with Client(pair.sockets[pair.controllers.index(standby)]) as client:
        reply = client.call(SUBMIT, pb.SubmitRequest(jobs=jobs, test_only=True), 20.0)
    assert reply.test_answer == "would be accepted and start at once"


def test_a_killed_leader_is_followed_within_seconds(pair: LiveCluster) -> None:
    leader = pair.leader()
    running_job = Gated(pair, "long", 0)
    with Clients(pair) as clients:
        clients.wait_more(20)
        pair.kill(daemon_of(leader))
        clients.wait_more(20)
    assert clients.longest_s < FAILOVER_MAX_S
    assert pair.leader() == other_of(pair, leader)
    check_each_ran_once(pair, clients)
    running_job.let_go()
    running_job.check("COMPLETED", 0)


def test_a_stopped_leader_that_wakes_up_does_no_harm(pair: LiveCluster) -> None:
    """On SQLite it may have been stopped in a commit, with the file's lock: then whoever follows ends it."""
    leader = pair.leader()
    old = pair.daemons[daemon_of(leader)]
    with Clients(pair) as clients:
        clients.wait_more(20)
        old.send(signal.SIGSTOP)
        clients.wait_more(20)
        assert pair.leader() == other_of(pair, leader)
        old.send(signal.SIGCONT)
        ended_with = old.wait()
        clients.wait_more(20)
    check_each_ran_once(pair, clients)
    if ended_with == -signal.SIGKILL:
        follower = pair.daemons[daemon_of(other_of(pair, leader))]
        assert "was stopped while it held the lock" in follower.log.read_text()
    else:
        assert ended_with == EXIT_FENCED
        assert "another controller leads" in old.tail()


def log_of(cluster: LiveCluster, leader: str) -> str:
    return cluster.daemons[daemon_of(leader)].log.read_text(errors="replace")


def let_go(cluster: LiveCluster, leader: str, before: str, word: str = "let go of the lead") -> bool:
    """Check that the leader has handed over since its log was `before`, so that no standby had to wait for its lease to run
    out."""
    return word in log_of(cluster, leader).removeprefix(before)


def test_a_planned_switch_waits_for_no_lease(pair: LiveCluster) -> None:
    leader = pair.leader()
    before = log_of(pair, leader)
    to = other_of(pair, leader)
    with Clients(pair) as clients:
        clients.wait_more(50)
        reply = pair.call("Takeover", pb.TakeoverRequest(to=to))
        clients.wait_more(50)
    assert (getattr(reply, "from"), reply.to) == (leader, to)
    # The other one may lead before this one has said so.
    pair.until(lambda: let_go(pair, leader, before, f"let go of the lead: {to} follows"), "it is let go")
    assert clients.longest_s < FAILOVER_MAX_S
    assert pair.leader() == to
    assert pair.daemons[daemon_of(leader)].process is not None
    check_each_ran_once(pair, clients)
    pair.wait_standbys()
    pair.call("Takeover", pb.TakeoverRequest())
    pair.until(lambda: pair.leader() == leader, "the lead comes back")


def test_both_controllers_killed_and_started_again(pair: LiveCluster) -> None:
    with Clients(pair) as clients:
        clients.wait_more(10)
        pair.kill(*(daemon_of(name) for name in pair.controllers))
        pair.start()
        clients.wait_more(10)
    pair.wait_standbys()
    check_each_ran_once(pair, clients)


def test_a_clean_stop_lets_the_standby_follow_at_once(pair: LiveCluster) -> None:
    leader = pair.leader()
    before = log_of(pair, leader)
    with Clients(pair) as clients:
        clients.wait_more(10)
        pair.terminate(daemon_of(leader))
        clients.wait_more(10)
    assert let_go(pair, leader, before)
    assert clients.longest_s < FAILOVER_MAX_S
    check_each_ran_once(pair, clients)


def test_a_switch_to_nobody_is_refused(pair: LiveCluster) -> None:
    leader = pair.leader()
    with pytest.raises(ApiRefused, match="not linked") as unknown:
        pair.call("Takeover", pb.TakeoverRequest(to="c9"))
    assert unknown.value.status is Status.NOT_FOUND
    with pytest.raises(ApiRefused, match="leads already"):
        pair.call("Takeover", pb.TakeoverRequest(to=leader))
    pair.kill(daemon_of(other_of(pair, leader)))
    pair.until(lambda: len(pair.controller_infos()) == 1, "the standby is gone")
    with pytest.raises(ApiRefused, match="no standby is linked"):
        pair.call("Takeover", pb.TakeoverRequest())
    assert pair.leader() == leader
