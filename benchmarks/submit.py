"""Submitting: how many durable jobs a second through each API server, beside what a bare group commit could do.

Conditions: a queue that is being planned while jobs come in, because something else holds every node.
"""

from __future__ import annotations

import os
import pwd
import time
from pathlib import Path

import msgspec

from benchmarks import floors
from benchmarks.cluster import Cluster, Shape, running
from benchmarks.figures import Figures, median, percentile
from benchmarks.jobs import request
from benchmarks.load import Load, Plan, Result, run
from benchmarks.occupy import occupied
from eslurm.api.methods import CREATE_TOKEN, SUBMIT
from eslurm.api.unix_client import Client
from eslurm.v1 import controller_pb2 as pb

CONNECTIONS = 8
JOBS_PER_BULK_CALL = 1000
WARM_UP_JOBS = 200
BEARER = pwd.getpwuid(os.getuid() or pwd.getpwnam("nobody").pw_uid)
"""The user of the token for the gRPC server: root gets none."""
PARTS = 100
SUBMITTED_IN_PARTS = 200
SHAPE = Shape(nodes=64, cores=8, operators=(os.getuid(), BEARER.pw_uid))


class Way(msgspec.Struct, frozen=True):
    """One way to submit: the figure it gives, the kind of load, how many jobs a round and a call."""

    name: str
    kind: str
    jobs: int
    jobs_per_call: int = 1


class Sizes(msgspec.Struct, frozen=True):
    """Amounts of a run; `rounds` repetitions, of which the median counts."""

    rounds: int
    floor_rows: int
    unix_jobs: int
    grpc_jobs: int
    bulk_jobs: int


FULL = Sizes(rounds=5, floor_rows=32_000, unix_jobs=6_000, grpc_jobs=2_000, bulk_jobs=40_000)
QUICK = Sizes(rounds=3, floor_rows=8_000, unix_jobs=2_000, grpc_jobs=600, bulk_jobs=16_000)


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """submit_parts_100_p50_ms, commit_floor_8, submit_rate_8conn, ..._grpc_8conn, ..._bulk, dispatcher_stall_ms_max."""
    sizes = QUICK if quick else FULL
    with running(parent, SHAPE) as cluster, occupied(cluster):
        submit_parts(cluster, figures)
        Rounds(cluster, sizes).run(figures)


def submit_parts(cluster: Cluster, figures: Figures) -> None:
    """Submit held jobs of 100 parts, one after another: the time of an answer, and the controller's CPU time for it."""
    waits_ms = []
    cpu_s = cluster.controller.cpu_s()
    with cluster.client() as client:
        for number in range(SUBMITTED_IN_PARTS):
            job = request(number, str(cluster.directory), held=True)
            for _ in range(1, PARTS):
                job.components.append(job.components[0])
            began = time.perf_counter()
            client.call(SUBMIT, pb.SubmitRequest(jobs=[job]), 60, os.urandom(16))
            waits_ms.append(1000 * (time.perf_counter() - began))
    figures.add("submit_parts_100_p50_ms", percentile(waits_ms, 0.5), "ms", len(waits_ms))
    cpu_ms = 1000 * (cluster.controller.cpu_s() - cpu_s) / len(waits_ms)
    figures.add("submit_parts_100_esctld_cpu_ms", cpu_ms, "ms", len(waits_ms))


class Rounds:
    """All loads in turns, so that a busy moment of the machine hits all of them alike."""

    def __init__(self, cluster: Cluster, sizes: Sizes) -> None:
        self._cluster = cluster
        self._sizes = sizes
        self._ways = (
            Way("submit_rate_8conn", "submit", sizes.unix_jobs),
            Way("submit_rate_bulk", "submit", sizes.bulk_jobs, JOBS_PER_BULK_CALL),
            Way("submit_rate_grpc_8conn", "grpc", sizes.grpc_jobs),
        )
        self._next_job = 0
        self._token = bearers_token(cluster)

    def run(self, figures: Figures) -> None:
        """Warm up, measure, print."""
        rounds = self._sizes.rounds
        for way in self._ways:
            self._load(way, way.jobs_per_call if way.jobs_per_call > 1 else WARM_UP_JOBS)
        floor: list[float] = []
        rates: dict[str, list[float]] = {way.name: [] for way in self._ways}
        cpu_s = dict.fromkeys(rates, 0.0)
        for _ in range(rounds):
            floor.append(floors.commits(self._cluster.directory, self._sizes.floor_rows).rate)
            for way in self._ways:
                before_s = self._cluster.controller.cpu_s()
                result = self._load(way, way.jobs)
                cpu_s[way.name] += self._cluster.controller.cpu_s() - before_s
                rates[way.name].append(result.done / result.took_s)
        waits_ms = self._waits_ms()
        figures.add("commit_floor_8", median(floor), "1/s", self._sizes.floor_rows * rounds)
        for way in self._ways:
            figures.add(way.name, median(rates[way.name]), "1/s", way.jobs * rounds)
        shares = [100 * rate / bare for rate, bare in zip(rates["submit_rate_8conn"], floor, strict=True)]
        figures.add("submit_rate_8conn_of_floor", median(shares), "%", rounds)
        for way in self._ways:
            n = way.jobs * rounds
            figures.add(f"{way.name}_esctld_cpu_ms_per_job", cpu_s[way.name] * 1000 / n, "ms", n)
        figures.add("dispatcher_stall_ms_max", max(waits_ms), "ms", len(waits_ms))
        figures.add("dispatcher_stall_ms_p99", percentile(waits_ms, 0.99), "ms", len(waits_ms))

    def _waits_ms(self) -> list[float]:
        """Waits of a Ping every millisecond, in a round of its own: answering it costs the others time."""
        probe = Load(Plan("ping", socket=str(self._cluster.socket)))
        probe.go()
        for way in self._ways:
            self._load(way, way.jobs)
        return probe.result().waits_ms

    def _load(self, way: Way, jobs: int) -> Result:
        cluster = self._cluster
        first = self._next_job
        self._next_job += jobs
        return run(
            Plan(
                way.kind,
                socket=str(cluster.socket),
                endpoint=cluster.endpoint,
                token=self._token,
                connections=CONNECTIONS,
                first=first,
                jobs=jobs,
                jobs_per_call=way.jobs_per_call,
                work_dir=str(cluster.directory),
            )
        )


def bearers_token(cluster: Cluster) -> str:
    """A token for the gRPC server, with an operator's rights, which fewer limits bind."""
    with Client([str(cluster.socket)]) as client:
        asked = pb.CreateTokenRequest(user=BEARER.pw_name, scope="admin")
        return str(client.call(CREATE_TOKEN, asked, 10.0).token)
