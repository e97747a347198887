"""A job over eight cells: the time from its submission, with all nodes free, until its script runs.

Real controllers, one etcd that syncs to disk; eight cells of two nodes each, one job over all sixteen. Each run is submitted
when every cell shows its nodes free again.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.cluster import Cluster
from benchmarks.federation.servers import running_etcd
from benchmarks.federation.transfers import USER_UID, alive, member, pin, states, until
from benchmarks.figures import Figures
from benchmarks.load import Plan, run
from eslurm.api.methods import CANCEL, JOBS
from eslurm.v1 import controller_pb2 as pb

CELLS = tuple(f"cell{number}" for number in range(8))
NODES = 2
RUNS, QUICK_RUNS = 10, 3


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """span_start_s: the median; span_start_max_s: the longest."""
    parent.chmod(0o711)
    with running_etcd(parent) as store:
        cells = {name: member(parent, name, store.endpoints, NODES) for name in CELLS}
        try:
            pin(cells)
            for one in cells.values():
                one.start()
            home = cells[CELLS[0]]
            took = [_once(home, number) for number in range(QUICK_RUNS if quick else RUNS)]
            figures.add("span_start_s", statistics.median(took), "s", len(took))
            figures.add("span_start_max_s", max(took), "s", len(took))
        finally:
            for one in cells.values():
                one.stop()


def _once(home: Cluster, number: int) -> float:
    until(lambda: alive(home, NODES) == len(CELLS), "all cells are alive and free")
    run(
        Plan(
            "submit",
            socket=str(home.socket),
            connections=1,
            first=number,
            jobs=1,
            output="/dev/null",
            uid=USER_UID,
            work_s=600,
            cells=["any"],
            nodes=(NODES * len(CELLS),),
            span=True,
        )
    )
    until(lambda: states(home).get("RUNNING", 0) == 1, "the job runs")
    with home.client() as client:
        (job,) = client.call(JOBS, pb.JobsRequest(), 30).jobs
        client.call(CANCEL, pb.CancelRequest(jobs=[pb.JobRef(job_id=job.job_id)]), 30)
    until(lambda: not states(home).get("RUNNING", 0), "it has ended")
    return float(job.started_us - job.submitted_us) / 1e6
