"""Fifty clients that ask for the queue at full speed, and what the others' jobs lose by it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks import jobs
from benchmarks.cluster import Cluster, Shape, running
from benchmarks.figures import Figures, median
from benchmarks.load import Load, Plan, Result
from eslurm.api.methods import SUBMIT, WAIT_JOBS
from eslurm.v1 import controller_pb2 as pb

CLIENTS = 50
FLOODER_UID = 65_534
SETTLE_S = 3.0
"""A flood lasts so long before its effect is measured: what its user had saved up is gone by then."""
JOBS_PER_CALL = 500
WAIT_S = 60
END_S = 300.0
NO_LIMITS = "read_share_percent = 0\nread_share_user_percent = 0\nread_share_operators_percent = 0"


class Sizes(msgspec.Struct, frozen=True):
    """Jobs a run, and how many runs with the flood and without."""

    jobs: int
    rounds: int


FULL = Sizes(jobs=4_000, rounds=5)
QUICK = Sizes(jobs=1_000, rounds=1)


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """poll_flood_slowdown_percent, and in a long run the same without limits."""
    sizes = QUICK if quick else FULL
    _measure(figures, parent, "poll_flood", "", sizes)
    if not quick:
        _measure(figures, parent, "poll_flood_unlimited", NO_LIMITS, sizes)


def _measure(figures: Figures, parent: Path, name: str, controller: str, sizes: Sizes) -> None:
    shape = Shape(nodes=64, cores=8, controller=controller)
    alone: list[float] = []
    flooded: list[float] = []
    answers: list[float] = []
    refused: list[float] = []
    with running(parent, shape) as cluster:
        (cluster.directory / "work").mkdir()
        _rate(cluster, sizes.jobs // 4)
        for _ in range(sizes.rounds):
            alone.append(_rate(cluster, sizes.jobs))
            with _flood(cluster) as results:
                time.sleep(SETTLE_S)
                flooded.append(_rate(cluster, sizes.jobs))
            result = results[0]
            answers.append(result.done / result.took_s)
            refused.append(result.refused / result.took_s)
    n = sizes.jobs * sizes.rounds
    slowdowns = [100 * (1 - with_ / without) for with_, without in zip(flooded, alone, strict=True)]
    figures.add(f"{name}_slowdown_percent", median(slowdowns), "%", n)
    figures.add(f"{name}_jobs_rate_alone", median(alone), "1/s", n)
    figures.add(f"{name}_jobs_rate", median(flooded), "1/s", n)
    figures.add(f"{name}_answers_rate", median(answers), "1/s", sizes.rounds)
    figures.add(f"{name}_refused_rate", median(refused), "1/s", sizes.rounds)


@contextmanager
def _flood(cluster: Cluster) -> Iterator[list[Result]]:
    """The flood, for as long as the block runs; its result after it."""
    results: list[Result] = []
    load = Load(Plan("poll", socket=str(cluster.socket), connections=CLIENTS, uid=FLOODER_UID))
    load.go()
    try:
        yield results
    finally:
        results.append(load.result())


def _rate(cluster: Cluster, count: int) -> float:
    """Jobs a second from the first submission until the last has ended. Asks nothing meanwhile, it only waits."""
    ids: list[int] = []
    work_dir = str(cluster.directory / "work")
    calls = jobs.calls(0, count, JOBS_PER_CALL, work_dir, output="/dev/null")
    requests = [pb.SubmitRequest.FromString(call) for call in calls]
    began = time.perf_counter()
    with cluster.client() as client:
        for request in requests:
            ids += client.call(SUBMIT, request, 60).job_ids
        wait = pb.WaitJobsRequest(jobs=[pb.JobRef(job_id=one) for one in ids], timeout_s=WAIT_S)
        while time.perf_counter() - began < END_S:
            reply = client.call(WAIT_JOBS, wait, WAIT_S + 30)
            took_s = time.perf_counter() - began
            states = {job.state for job in reply.jobs}
            if not states & {"PENDING", "LAUNCHING", "RUNNING", "COMPLETING"}:
                if states != {"COMPLETED"}:
                    raise RuntimeError(f"jobs ended as {states}")
                return count / took_s
    raise TimeoutError(f"{count} jobs did not end in {END_S:g} s")
