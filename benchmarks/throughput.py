"""Small jobs through all tiers: submitted, placed, launched, ended, accounted; beside bare processes of the same scripts."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from benchmarks import floors, jobs
from benchmarks.cluster import Cluster, Shape, running
from benchmarks.figures import Figures, median, percentile
from benchmarks.load import Load, Plan
from eslurm.api.methods import ACCOUNTING, SUBMIT
from eslurm.v1 import controller_pb2 as pb

SHAPE = Shape(nodes=64, cores=8)
JOBS_PER_CALL = 100
CONNECTIONS = 2
PAGE = 10_000
END_S = 600.0
PROBED_JOBS_MIN = 1_000
POLL_S = 0.05


class Sizes(msgspec.Struct, frozen=True):
    """The number of jobs and of parts, with a floor of `spawned` processes before and after each."""

    jobs: int
    parts: int
    spawned: int


FULL = Sizes(jobs=20_000, parts=4, spawned=3_000)
QUICK = Sizes(jobs=4_000, parts=1, spawned=1_000)


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """spawn_floor_rate, e2e_rate, array_rate and the CPU time they took by daemon."""
    sizes = QUICK if quick else FULL
    with running(parent, SHAPE) as cluster:
        Rounds(cluster, sizes).run(figures)


class Rounds:
    """Floor, single jobs, floor, array, floor: in turns."""

    def __init__(self, cluster: Cluster, sizes: Sizes) -> None:
        self._cluster = cluster
        self._sizes = sizes
        self._next_job = 0
        self._work_dir = cluster.directory / "work"
        self._work_dir.mkdir()

    def run(self, figures: Figures) -> None:
        """Warm up, measure, print."""
        sizes = self._sizes
        each = sizes.jobs // sizes.parts
        self.single_jobs(500)
        floor = [self._floor()]
        single: list[float] = []
        array: list[float] = []
        cpu: dict[str, dict[str, float]] = {"e2e": {}, "array": {}}
        for _ in range(sizes.parts):
            for name, rates, work in (("e2e", single, self.single_jobs), ("array", array, self._array)):
                before = self._cluster.cpu_s()
                rates.append(work(each))
                for kind, seconds in self._cluster.cpu_s().items():
                    cpu[name][kind] = cpu[name].get(kind, 0.0) + seconds - before[kind]
                floor.append(self._floor())
        waits_ms = self._waits_ms(max(PROBED_JOBS_MIN, each // 4))
        bare = median(floor)
        figures.add("spawn_floor_rate", bare, "1/s", sizes.spawned * len(floor))
        for name, rates in (("e2e", single), ("array", array)):
            rate = sizes.jobs / sum(each / rate for rate in rates)
            figures.add(f"{name}_rate", rate, "1/s", sizes.jobs)
            figures.add(f"{name}_rate_of_floor", 100 * rate / bare, "%", sizes.jobs)
            for kind, seconds in cpu[name].items():
                figures.add(f"{name}_{kind}_cpu_ms_per_job", seconds * 1000 / sizes.jobs, "ms", sizes.jobs)
        figures.add("e2e_stall_ms_max", max(waits_ms), "ms", len(waits_ms))
        figures.add("e2e_stall_ms_p99", percentile(waits_ms, 0.99), "ms", len(waits_ms))

    def _waits_ms(self, count: int) -> list[float]:
        """Waits of a Ping every millisecond while jobs run; apart, for answering it costs the jobs time."""
        probe = Load(Plan("ping", socket=str(self._cluster.socket)))
        probe.go()
        self.single_jobs(count)
        return probe.result().waits_ms

    def _floor(self) -> float:
        return floors.spawns(self._cluster.directory, self._sizes.spawned).rate

    def single_jobs(self, count: int) -> float:
        """Jobs a second from the first call until the last one is accounted."""
        load = Load(
            Plan(
                "submit",
                socket=str(self._cluster.socket),
                connections=CONNECTIONS,
                first=self._next_job,
                jobs=count,
                jobs_per_call=JOBS_PER_CALL,
                work_dir=str(self._work_dir),
            )
        )
        self._next_job += count
        since_us = time.time_ns() // 1000
        began = time.perf_counter()
        load.go()
        load.result()
        return self._until_accounted(count, began, since_us)

    def _array(self, count: int) -> float:
        """The same as one array."""
        job = jobs.request(self._next_job, str(self._work_dir))
        self._next_job += 1
        job.array.append(pb.TaskRange(first=0, last=count - 1, step=1))
        since_us = time.time_ns() // 1000
        began = time.perf_counter()
        with self._cluster.client() as client:
            client.call(SUBMIT, pb.SubmitRequest(jobs=[job]), 30)
        return self._until_accounted(count + 1, began, since_us)

    def _until_accounted(self, count: int, began: float, since_us: int) -> float:
        self._cluster.wait_for(lambda reply: not reply.jobs_pending and not reply.jobs_running, END_S, POLL_S)
        took_s = time.perf_counter() - began
        accounted = self._accounted(since_us)
        completed = accounted.get("COMPLETED", 0)
        if completed != count:
            raise RuntimeError(f"{count} jobs were submitted, accounted are {accounted}")
        return count / took_s

    def _accounted(self, since_us: int) -> dict[str, int]:
        found: dict[str, int] = {}
        page = 0
        with self._cluster.client() as client:
            while True:
                request = pb.AccountingRequest(since_us=since_us, limit=PAGE, page=page)
                reply = client.call(ACCOUNTING, request, 60)
                for attempt in reply.attempts:
                    if attempt.submitted_us >= since_us:
                        found[attempt.state] = found.get(attempt.state, 0) + 1
                page = reply.next_page
                if not page:
                    return found
