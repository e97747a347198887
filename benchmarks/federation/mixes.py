"""Small, medium and big jobs on cells of 50 nodes, beside one controller with as many nodes (S-22 to S-27).

Real controllers with agents that are shared by a cell's nodes, one etcd that syncs to disk; all on this machine, which the
papers had 500 hosts for. Each cell is given its own jobs by a client of its own, all at once. Jobs run /bin/true. Medium and
big jobs may span cells; small ones stay. FEDERATION_CELLS="1 5" in the environment: only so many cells.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.cluster import Cluster, Shape
from benchmarks.federation.servers import running_etcd
from benchmarks.federation.transfers import USER_UID, alive, member, pin, until
from benchmarks.figures import Figures
from benchmarks.load import Load, Plan
from benchmarks.processes import cpu_s
from benchmarks.scrape import scraped
from eslurm.api.methods import JOBS
from eslurm.core.model.job_states import FINAL
from eslurm.v1 import controller_pb2 as pb

CELLS, QUICK_CELLS = (1, 2, 5, 10), (2,)
ENDED = {state.value for state in FINAL}
NODES = 50
"""Of a cell: the papers' partition for HPC."""
SEED = 19
KEPT = "[policy]\nfinished_retention_s = 3600\n"
"""Jobs that have ended are counted after all have."""


class Mix(msgspec.Struct, frozen=True):
    """So many jobs a cell, each on between `least` and `most` nodes; no more than there are."""

    jobs: int
    least: int
    most: int


MIXES: Final = {"small": Mix(50, 1, 1), "medium": Mix(50, 1, 50), "big": Mix(20, 25, 75)}


class Ran(msgspec.Struct, frozen=True):
    """Number, first start and last end of the jobs of one cell, in microseconds."""

    jobs: int
    first_us: int
    last_us: int

    @property
    def rate(self) -> float:
        """Jobs a second, from the first start to the last end."""
        return self.jobs / max(self.last_us - self.first_us, 1) * 1e6


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """For each mix and number of cells: MIX_CELLS_rate (all jobs), _sum (of each cell's rate), _cpu_ms a job, and of jobs
    that may span, _calls between cells and _store requests a job; with `one` in place of cells: one controller.
    """
    parent.chmod(0o711)
    given = tuple(map(int, os.environ.get("FEDERATION_CELLS", "").split()))
    for count in given or (QUICK_CELLS if quick else CELLS):
        _on_cells(figures, parent, count)
        _on_one(figures, parent, count)
        for kind in (f"cells{count}", f"one{count}"):
            small, big = figures.find(f"small_{kind}_rate"), figures.find(f"big_{kind}_rate")
            if small and big:
                figures.add(f"slowdown_{kind}", small / big, "", 1)


def _on_cells(figures: Figures, parent: Path, count: int) -> None:
    directory = parent / f"cells{count}"
    directory.mkdir(mode=0o711)
    with ExitStack() as stack, running_etcd(directory) as store:
        names = [f"cell{one}" for one in range(count)]
        cells = {name: member(directory, name, store.endpoints, NODES, watched=True) for name in names}
        for one in cells.values():
            one.shape = msgspec.structs.replace(one.shape, sections=one.shape.sections + KEPT)
        pin(cells)
        for one in cells.values():
            stack.callback(one.stop)
            one.start()
        all_cells = list(cells.values())
        until(lambda: alive(all_cells[0], NODES) == count, "all cells are alive and free")
        etcd = store.members[0]
        for name, mix in MIXES.items():
            spans = mix.most > 1 and count > 1
            before = _calls(all_cells), _handled(etcd.endpoint), cpu_s(etcd.pid)
            what = f"{name}_cells{count}"
            jobs = _run(figures, what, all_cells, mix, [mix.jobs] * count, NODES * count, spans=spans)
            figures.add(f"{what}_etcd_cpu_ms", (cpu_s(etcd.pid) - before[2]) / jobs * 1000, "ms", jobs)
            if spans:
                figures.add(f"{what}_calls", (_calls(all_cells) - before[0]) / jobs, "", jobs)
                figures.add(f"{what}_store", (_handled(etcd.endpoint) - before[1]) / jobs, "", jobs)
            until(lambda: alive(all_cells[0], NODES) == count, "all nodes are free again")


def _on_one(figures: Figures, parent: Path, count: int) -> None:
    directory = parent / f"one{count}"
    directory.mkdir(mode=0o711)
    # As many processes for the nodes as the cells have.
    shape = Shape(nodes=NODES * count, cores=4, agents=count, satellites=0, sections=KEPT)
    cluster = Cluster(directory, shape)
    try:
        cluster.start()
        for name, mix in MIXES.items():
            _run(
                figures, f"{name}_one{count}", [cluster], mix, [mix.jobs * count], NODES * count, spans=False
            )
    finally:
        cluster.stop()


def _run(
    figures: Figures,
    name: str,
    cells: Sequence[Cluster],
    mix: Mix,
    counts: Sequence[int],
    nodes_max: int,
    *,
    spans: bool,
) -> int:
    """Run so many jobs of each cell, all cells at once; returns the number of all."""
    draw = random.Random(f"{SEED}/{name.partition('_')[0]}")
    known = [_ended(one) for one in cells]
    before = _cpu_s(cells)
    loads = [
        Load(
            Plan(
                "submit",
                socket=str(cell.socket),
                connections=1,
                jobs=count,
                output="/dev/null",
                uid=USER_UID,
                nodes=tuple(min(draw.randint(mix.least, mix.most), nodes_max) for _ in range(count)),
                cells=["any"] if spans else [],
                span=spans,
            )
        )
        for cell, count in zip(cells, counts, strict=True)
    ]
    for load in loads:
        load.go()
    for load in loads:
        load.result()
    total = sum(counts)
    # A count is asked for, not the jobs: their records would be what the controllers work at most.
    until(lambda: not any(_unfinished(one.ping()) for one in cells), f"{name}: all jobs have ended")
    after = _cpu_s(cells)
    until(
        lambda: sum(len(_ended(one)) for one in cells) == total + sum(map(len, known)),
        f"{name}: all nodes are given back",
    )
    ran = [_ran(_ended(one), those) for one, those in zip(cells, known, strict=True)]
    all_of_them = Ran(total, min(one.first_us for one in ran), max(one.last_us for one in ran))
    figures.add(f"{name}_rate", all_of_them.rate, "1/s", total)
    figures.add(f"{name}_sum", sum(one.rate for one in ran), "1/s", total)
    for kind, prefix in (("esctld", ""), ("esnoded", "agents_")):
        figures.add(f"{name}_{prefix}cpu_ms", (after[kind] - before[kind]) / total * 1000, "ms", total)
    return total


def _cpu_s(cells: Sequence[Cluster]) -> dict[str, float]:
    """CPU seconds of the daemons of all cells so far, by kind."""
    found = [one.cpu_s() for one in cells]
    return {kind: sum(one[kind] for one in found) for kind in ("esctld", "esnoded")}


def _unfinished(reply: pb.PingReply) -> int:
    return reply.jobs_pending + reply.jobs_running


def _ended(cell: Cluster) -> Mapping[int, pb.JobInfo]:
    """The cell's own jobs that have ended: neither those of other cells nor those that hold nodes for them."""
    with cell.client() as client:
        infos = client.call(JOBS, pb.JobsRequest(finished_too=True), 30).jobs
    own = {one.job_id: one for one in infos if not one.home and not one.guest_of and one.state in ENDED}
    failed = [f"{one.job_id} {one.state} {one.exit_text}" for one in own.values() if one.state != "COMPLETED"]
    if failed:
        raise RuntimeError(f"{cell.directory.name}: jobs have not ended well: {', '.join(failed[:5])}")
    return own


def _ran(ended: Mapping[int, pb.JobInfo], known: Mapping[int, pb.JobInfo]) -> Ran:
    new = [one for job_id, one in ended.items() if job_id not in known]
    return Ran(len(new), min(one.started_us for one in new), max(one.ended_us for one in new))


def _calls(cells: Sequence[Cluster]) -> float:
    """Calls between cells so far."""
    return sum(
        scraped(f"http://{one.watched[0]}", 'eslurm_federation_calls_total{way="out"}') for one in cells
    )


def _handled(endpoint: str) -> float:
    """Requests that the store has handled so far; what its watches deliver is not counted."""
    return scraped(endpoint, "grpc_server_handled_total{")
