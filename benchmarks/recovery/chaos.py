"""Minutes of faults in every daemon and the store while jobs come and go: is each acknowledged job accounted once?

CHAOS_S seconds (default 600; QUICK: 15), CHAOS_SEED for another run of moments.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec

from benchmarks import jobs
from benchmarks.cluster import HOST, Cluster, Shape, free_ports
from benchmarks.figures import Figures
from benchmarks.recovery.faults import Faults
from benchmarks.recovery.postgres import running_server
from benchmarks.recovery.submitters import Acknowledged, Submitters
from benchmarks.recovery.wires import Wires
from benchmarks.recovery.witness import Sightings, Witness
from eslurm.api.methods import ACCOUNTING, PING
from eslurm.ports.api import ApiRefused, ApiUnreachable
from eslurm.v1 import controller_pb2 as pb

SHAPE = Shape(nodes=16, cores=4, agents=2, satellites=2, controllers=2, chaos=True)
CLIENTS = 4
FULL_S, QUICK_S = 600.0, 15.0
FULL_JOBS, QUICK_JOBS = 3_000, 400
RUN_S = (0.05, 0.2, 1.0, 3.0)
LONG_S = 90.0
"""So long runs every LONG_EVERYth job of a run that takes LONG_FROM_S or more: over the loss of its node."""
LONG_EVERY = 50
LONG_FROM_S = 300.0
SUBMITTING_SHARE = 0.9
END_S = 180.0
TICK_S = 0.02
PAGE = 10_000
POLICY = "\n[policy]\norphan_timeout_s = 20\nkill_grace_s = 2\nnode_lost_after_s = 60\n"


class Verdict(msgspec.Struct, frozen=True):
    """Every acknowledged job is in exactly one of `lost` and the states; `twice` counts jobs."""

    lost: int
    twice: int
    reran: int
    states: dict[str, int]


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """chaos_jobs, chaos_lost, chaos_twice, and what was done to the cluster."""
    seconds = float(os.environ.get("CHAOS_S") or (QUICK_S if quick else FULL_S))
    seed = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(1_000_000))
    count = max(QUICK_JOBS, int(FULL_JOBS * min(1.0, seconds / FULL_S)))
    directory = parent / secrets.token_hex(3)
    directory.mkdir(mode=0o711)
    witness = Witness(directory / "seen")
    endpoints = [f"{HOST}:{port}" for port in free_ports(SHAPE.controllers)]
    wires = Wires(endpoints)
    try:
        with running_server() as server:
            shape = msgspec.structs.replace(SHAPE, store_url=server.url(server.create()), sections=POLICY)
            cluster = Cluster(directory, shape, endpoints, wires.endpoints)
            try:
                cluster.start()
                faults = Faults(cluster, wires, server, seed)
                run = _Run(cluster, witness, faults, has_long=seconds >= LONG_FROM_S)
                acknowledged = run.submit_in_chaos(seconds, count)
                drained_s = run.drain()
                verdict = judge(acknowledged, run.accounted(), witness.sightings())
            finally:
                cluster.stop()
    finally:
        wires.close()
    figures.add("chaos_jobs", len(acknowledged), "jobs", len(acknowledged))
    figures.add("chaos_lost", verdict.lost, "jobs", len(acknowledged))
    figures.add("chaos_twice", verdict.twice, "jobs", len(acknowledged))
    figures.add("chaos_reran", verdict.reran, "jobs", len(acknowledged))
    figures.add("chaos_faults", run.faults.counts.total(), "1", run.faults.counts.total())
    for state, number in sorted(verdict.states.items()):
        figures.add(f"chaos_{state.lower()}", number, "jobs", len(acknowledged))
    figures.add("chaos_drained_s", drained_s, "s", 1)
    figures.add("chaos_seed", seed, "1", 1)
    for name, number in sorted((run.faults.counts + run.faults.ended_alone).items()):
        sys.stderr.write(f"chaos: {number:4} x {name}\n")


class _Run:
    def __init__(self, cluster: Cluster, witness: Witness, faults: Faults, *, has_long: bool) -> None:
        self.faults = faults
        self._has_long = has_long
        self._cluster = cluster
        self._witness = witness

    def submit_in_chaos(self, seconds: float, count: int) -> list[Acknowledged]:
        """Strike for so long, while so many jobs are submitted."""
        period_s = seconds * SUBMITTING_SHARE * CLIENTS / count
        submitters = Submitters(
            self._cluster, clients=CLIENTS, period_s=period_s, request=self._request, most=count
        )
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.faults.tick()
            time.sleep(TICK_S)
        self.faults.heal_all()
        while not submitters.done and time.monotonic() < until_s + END_S:
            self.faults.tick(strike=False)
            time.sleep(TICK_S)
        return submitters.stop()

    def _request(self, number: int) -> pb.JobRequest:
        work_dir = str(self._cluster.directory)
        job = jobs.request(number, work_dir, output="/dev/null")
        is_long = self._has_long and number % LONG_EVERY == 0
        job.script = self._witness.script(LONG_S if is_long else RUN_S[number % len(RUN_S)])
        return job

    def drain(self) -> float:
        """Wait until nothing waits or runs any more; how long it took."""
        began = time.monotonic()
        with self._cluster.client() as client:
            while time.monotonic() < began + END_S:
                self.faults.tick(strike=False)
                try:
                    reply = client.call(PING, pb.PingRequest(), 10)
                except (ApiRefused, ApiUnreachable):
                    continue
                if not reply.jobs_pending and not reply.jobs_running:
                    return time.monotonic() - began
                time.sleep(TICK_S)
        raise TimeoutError(f"after {END_S:g} s of peace the cluster stands at\n{reply}")

    def accounted(self) -> list[pb.AttemptInfo]:
        """Every attempt that the store knows."""
        found: list[pb.AttemptInfo] = []
        page = 0
        with self._cluster.client() as client:
            while True:
                reply = client.call(ACCOUNTING, pb.AccountingRequest(limit=PAGE, page=page, since_us=1), 60)
                found += reply.attempts
                page = reply.next_page
                if not page:
                    return found


def judge(acknowledged: list[Acknowledged], accounted: list[pb.AttemptInfo], seen: Sightings) -> Verdict:
    """Lost: not accounted with a last state under its name, or completed without having come to its end. Twice: two
    jobs of one name, two last states, one job running beside itself, or one attempt begun twice."""
    last: dict[int, list[pb.AttemptInfo]] = {}
    for attempt in accounted:
        if attempt.state != "REQUEUED":
            last.setdefault(attempt.job_id, []).append(attempt)
    lost = 0
    states: Counter[str] = Counter()
    for one in acknowledged:
        ends = last.get(one.job_id, [])
        completed = any(end.state == "COMPLETED" for end in ends)
        if not ends or ends[0].name != one.name or (completed and not seen.ended[one.job_id]):
            lost += 1
        else:
            states[ends[0].state] += 1
    names = Counter(ends[0].name for ends in last.values())
    twice = sum(count > 1 for count in names.values()) + sum(len(ends) > 1 for ends in last.values())
    twice += len(seen.twice) + seen.restarted_alike
    reran = sum(count > 1 for count in seen.began.values())
    return Verdict(lost, twice, reran, dict(states))
