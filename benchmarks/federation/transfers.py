"""Waiting jobs of a full cell on the idle nodes of two others: how soon they start there, and what a transfer costs.

Real controllers, one etcd that syncs to disk. FEDERATION_JOBS short jobs (default 400; QUICK: 60) then measure the rate.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks.cluster import Cluster, Shape
from benchmarks.federation.servers import running_etcd
from benchmarks.figures import Figures
from benchmarks.load import Plan, run
from benchmarks.processes import cpu_s
from eslurm.api.methods import FEDERATION, JOBS
from eslurm.security.joining import fingerprint
from eslurm.v1 import controller_pb2 as pb

NAMES = ("alpha", "beta", "gamma")
LEASE_S = 2.0
NODES, CORES = 4, 4
FEW = 20
RATE_JOBS, QUICK_RATE_JOBS = 400, 60
USER_UID = 65_534
"""Root's jobs stay in their cell."""
POLL_S = 0.02
PATIENCE_S = 240.0


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """transfer_few_s: 20 one-core jobs until the last runs; transfer_per_s and the CPU a job of the three controllers."""
    parent.chmod(0o711)
    with running_etcd(parent) as store:
        cells = [member(parent, name, store.endpoints) for name in NAMES]
        try:
            pin(dict(zip(NAMES, cells, strict=True)))
            for one in cells:
                one.start()
            alpha = cells[0]
            until(lambda: alive(alpha) == len(NAMES), "all cells are alive")
            _load(alpha, NODES, work_s=600, tasks=CORES)
            until(lambda: states(alpha).get("RUNNING", 0) == NODES, "alpha is full")
            began = time.perf_counter()
            _load(alpha, FEW, work_s=600, cells=["any"])
            until(lambda: sum(states(one).get("RUNNING", 0) for one in cells) == NODES + FEW, "the jobs run")
            figures.add("transfer_few_s", time.perf_counter() - began, "s", FEW)
            count = int(os.environ.get("FEDERATION_JOBS") or (QUICK_RATE_JOBS if quick else RATE_JOBS))
            _rate(figures, cells, store.members[0].pid, count)
        finally:
            for one in cells:
                one.stop()


def _rate(figures: Figures, cells: list[Cluster], etcd: int, count: int) -> None:
    """Jobs that end at once: from the first submission until the home cell knows all outcomes."""
    alpha = cells[0]
    before = sum(one.controller.cpu_s() for one in cells), cpu_s(etcd)
    began = time.perf_counter()
    _load(alpha, count, cells=["any"])
    until(lambda: states(alpha).get("COMPLETED", 0) == count, "all outcomes are known at home")
    took_s = time.perf_counter() - began
    after = sum(one.controller.cpu_s() for one in cells), cpu_s(etcd)
    figures.add("transfer_per_s", count / took_s, "1/s", count)
    figures.add("transfer_controllers_cpu_ms", (after[0] - before[0]) / count * 1000, "ms", count)
    figures.add("transfer_etcd_cpu_ms", (after[1] - before[1]) / count * 1000, "ms", count)


def member(
    parent: Path, name: str, endpoints: tuple[str, ...], nodes: int = NODES, *, watched: bool = False
) -> Cluster:
    """A cell that is not started."""
    directory = parent / name
    directory.mkdir(mode=0o711)
    section = f'[federation]\nname = "bench"\ncell = "{name}"\nendpoints = {json.dumps(endpoints)}\nlease_s = {LEASE_S}\n'
    shape = Shape(nodes=nodes, cores=CORES, agents=1, satellites=0, sections=section, watched=watched)
    return Cluster(directory, shape)


def pin(cells: dict[str, Cluster]) -> None:
    """Let each cell trust the keys of the others."""
    keys = {name: fingerprint(one.site.signing.public) for name, one in cells.items()}
    for name, one in cells.items():
        others = [(other, key) for other, key in keys.items() if other != name]
        peers = "".join(f'[[federation.peer]]\nname = "{other}"\nkey = "{key}"\n' for other, key in others)
        one.shape = msgspec.structs.replace(one.shape, sections=one.shape.sections + peers)


def _load(
    cell: Cluster, count: int, *, work_s: int = 0, tasks: int = 1, cells: list[str] | None = None
) -> None:
    plan = Plan(
        "submit",
        socket=str(cell.socket),
        connections=1,
        jobs=count,
        jobs_per_call=min(count, 20),
        output="/dev/null",
        uid=USER_UID,
        work_s=work_s,
        tasks=tasks,
        cells=cells or [],
    )
    run(plan)


def states(cell: Cluster) -> dict[str, int]:
    """Number of jobs that the cell shows in each state, those that have ended too."""
    found: dict[str, int] = {}
    with cell.client() as client:
        for info in client.call(JOBS, pb.JobsRequest(finished_too=True), 30).jobs:
            found[info.state] = found.get(info.state, 0) + 1
    return found


def alive(cell: Cluster, nodes: int = NODES) -> int:
    """Number of cells that are alive and have so many nodes free."""
    with cell.client() as client:
        reply = client.call(FEDERATION, pb.FederationRequest(), 30)
    return sum(one.state == "alive" and one.nodes_free == nodes for one in reply.cells)


def until(fits: Callable[[], bool], what: str) -> None:
    """Wait until it fits. Raises TimeoutError."""
    deadline = time.perf_counter() + PATIENCE_S
    while not fits():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"after {PATIENCE_S:g} s: {what}: not so")
        time.sleep(POLL_S)
