"""Two controllers on one PostgreSQL: how soon the next submission is accepted when the leader is killed, or hands over.

Measured by a client that submits all the time, over whichever socket answers.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks import jobs
from benchmarks.cluster import Cluster, Shape, running
from benchmarks.figures import Figures, median
from benchmarks.recovery.postgres import running_server
from benchmarks.recovery.submitters import Submitters
from eslurm.api.methods import CONTROLLERS, JOBS, TAKEOVER
from eslurm.v1 import controller_pb2 as pb

SHAPE = Shape(nodes=8, cores=8, agents=1, satellites=2, controllers=2)
SETTLE_S = 1.0
FOLLOW_S = 30.0
PERIOD_S = 0.005
KILLED_S = 0.002
"""A killed leader's last messages may take so long to arrive."""


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """failover_s, takeover_s: from the event to the next accepted submission; and what was lost or doubled by them."""
    rounds = 1 if quick else 9
    with running_server() as server:
        shape = msgspec.structs.replace(SHAPE, store_url=server.url(server.create()))
        with running(parent, shape) as cluster, _submitting(cluster) as submitters:
            takeovers = [_takeover_s(cluster, submitters) for _ in range(rounds)]
            failovers = [_failover_s(cluster, submitters) for _ in range(rounds)]
            acknowledged = submitters.stop()
            with cluster.client() as client:
                stored = client.call(JOBS, pb.JobsRequest(), 60).jobs
    names = {job.job_id: job.name for job in stored}
    lost = sum(names.get(one.job_id) != one.name for one in acknowledged)
    doubled = len(names) - len(set(names.values()))
    for name, seconds in (("failover", failovers), ("takeover", takeovers)):
        figures.add(f"{name}_s", median(seconds), "s", rounds)
        figures.add(f"{name}_s_max", max(seconds), "s", rounds)
    figures.add("failover_lost", lost, "jobs", len(acknowledged))
    figures.add("failover_doubled", doubled, "jobs", len(acknowledged))


@contextlib.contextmanager
def _submitting(cluster: Cluster) -> Iterator[Submitters]:
    submitters = Submitters(cluster, clients=2, period_s=PERIOD_S, request=_held)
    try:
        yield submitters
    finally:
        submitters.stop()


def _held(number: int) -> pb.JobRequest:
    return jobs.request(number, "/tmp", held=True)


def _takeover_s(cluster: Cluster, submitters: Submitters) -> float:
    """From the call until, after the longest pause that followed, a submission was accepted."""
    leader = _settled(cluster)
    with cluster.client() as client:
        at = time.monotonic()
        client.call(TAKEOVER, pb.TakeoverRequest(), FOLLOW_S)
    _wait_for_another(cluster, leader)
    moments = [at, *sorted(one.at_s for one in submitters.acknowledged if one.at_s > at)]
    _pause_s, after = max((after - before, after) for before, after in itertools.pairwise(moments))
    return after - at


def _failover_s(cluster: Cluster, submitters: Submitters) -> float:
    """From the kill until a submission was accepted that was begun after it: only another leader can have done that."""
    leader = _settled(cluster)
    daemon = cluster.controllers[cluster.names.index(leader)]
    at = time.monotonic()
    daemon.kill()
    _wait_for_another(cluster, leader)
    daemon.start()
    return min(one.at_s for one in submitters.acknowledged if one.at_s > at + KILLED_S) - at


def _wait_for_another(cluster: Cluster, leader: str) -> None:
    deadline = time.monotonic() + FOLLOW_S
    while _leader(cluster) in ("", leader):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{leader} still leads")
        time.sleep(0.05)
    time.sleep(SETTLE_S / 2)


def _settled(cluster: Cluster) -> str:
    """Wait until one controller leads and the other follows it; the leader's name."""
    deadline = time.monotonic() + FOLLOW_S
    while time.monotonic() < deadline:
        if sorted(one.role for one in _controllers(cluster)) == ["leader", "standby"]:
            time.sleep(SETTLE_S / 2)
            return _leader(cluster)
        time.sleep(0.05)
    raise TimeoutError(f"no standby follows:\n{_controllers(cluster)}")


def _leader(cluster: Cluster) -> str:
    return next((one.name for one in _controllers(cluster) if one.role == "leader"), "")


def _controllers(cluster: Cluster) -> list[pb.ControllerInfo]:
    with cluster.client() as client:
        return list(client.call(CONTROLLERS, pb.ControllersRequest(), FOLLOW_S).controllers)
