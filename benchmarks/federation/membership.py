"""Cells that come and go: how soon another cell knows, and what being a member costs at rest.

FEDERATION_REPEATS times (default 100; QUICK: 4) a whole cell is ended by SIGKILL and started again.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from benchmarks.cluster import Cluster, Shape
from benchmarks.federation.servers import running_etcd
from benchmarks.figures import Figures, percentile
from benchmarks.processes import cpu_s
from eslurm.api.methods import FEDERATION
from eslurm.api.unix_client import Client
from eslurm.v1 import controller_pb2 as pb

LEASE_S = 2.0
REPEATS, QUICK_REPEATS = 100, 4
REST_S, QUICK_REST_S = 60.0, 5.0
POLL_S = 0.005
PATIENCE_S = 60.0


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """cell_join_*_s, cell_death_*_s (asked for: lease + 1 s), member_cpu_ms_per_s beside a cluster that is no member."""
    with running_etcd(parent) as store:
        cells = [_cell(parent, name, store.endpoints) for name in ("alpha", "beta")]
        plain = _cell(parent, "plain", ())
        try:
            for one in (*cells, plain):
                one.start()
            alpha, beta = cells
            with alpha.client() as client:
                _until(client, "beta", "alive")
                pid = store.members[0].pid
                _rest(figures, alpha, plain, pid, QUICK_REST_S if quick else REST_S)
                repeats = int(os.environ.get("FEDERATION_REPEATS") or (QUICK_REPEATS if quick else REPEATS))
                _deaths(figures, client, beta, repeats)
        finally:
            for one in (*cells, plain):
                one.stop()


def _cell(parent: Path, name: str, endpoints: tuple[str, ...]) -> Cluster:
    directory = parent / name
    directory.mkdir(mode=0o711)
    section = f'[federation]\nname = "bench"\ncell = "{name}"\nendpoints = {json.dumps(endpoints)}\nlease_s = {LEASE_S}\n'
    # Its one agent waits for a node's work: a whole cell.
    return Cluster(directory, Shape(nodes=2, agents=1, satellites=0, sections=section if endpoints else ""))


def _until(client: Client, name: str, state: str) -> float:
    """Seconds until the cell is seen in this state."""
    began = time.perf_counter()
    while True:
        reply = client.call(FEDERATION, pb.FederationRequest(), 30)
        now = time.perf_counter()
        if any(one.name == name and one.state == state for one in reply.cells):
            return now - began
        if now - began > PATIENCE_S:
            raise TimeoutError(f"cell {name} is not seen to be {state}:\n{reply}")
        time.sleep(POLL_S)


def _rest(figures: Figures, member: Cluster, plain: Cluster, etcd: int, seconds: float) -> None:
    """CPU at rest: of a member's controller, of one that is no member, of etcd with two cells."""
    before = member.controller.cpu_s(), plain.controller.cpu_s(), cpu_s(etcd)
    time.sleep(seconds)
    after = member.controller.cpu_s(), plain.controller.cpu_s(), cpu_s(etcd)
    for name, first, last in zip(("member", "plain", "etcd"), before, after, strict=True):
        figures.add(f"{name}_cpu_ms_per_s", (last - first) / seconds * 1000, "ms", 1)


def _deaths(figures: Figures, client: Client, cell: Cluster, repeats: int) -> None:
    deaths: list[float] = []
    joins: list[float] = []
    for _ in range(repeats):
        for daemon in (cell.controller, *cell.agents):
            daemon.kill()
        deaths.append(_until(client, "beta", "silent"))
        # From the moment at which its controller serves.
        cell.controller.start()
        joins.append(_until(client, "beta", "alive"))
        for agent in cell.agents:
            agent.start()
    for name, took in (("death", deaths), ("join", joins)):
        figures.add(f"cell_{name}_p50_s", percentile(took, 0.5), "s", repeats)
        figures.add(f"cell_{name}_p99_s", percentile(took, 0.99), "s", repeats)
        figures.add(f"cell_{name}_max_s", max(took), "s", repeats)
