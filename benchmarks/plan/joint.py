"""Jobs of many parts on a machine whose time is planned (D-02): all nodes at one instant, and the first instant.

    python -m benchmarks.plan.joint        the figures, as JSON lines; QUICK=1 for fewer of them

The parts are drawn sizes, half of them in each of two modules of the machine or all on all of its nodes. Invariant: what
was found is checked against what is free. Times are of the processor.
"""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.figures import Figures
from benchmarks.plan.ops import MACHINES, Plan
from benchmarks.plan.workload import CORES, PARTITION, POLICIES
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.placement.compiled_request import CompiledRequest, compile_job
from eslurm.core.plan.placement.feasible import empty_ledger
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.plan.placement.protocols import Assignment
from eslurm.core.plan.profile.profile import ResourceProfile
from eslurm.core.resources.nodes import NodeView, Topology
from eslurm.core.resources.vector import fits

PARTS: Final = 128
HOUR_US: Final = 3_600_000_000


def machine(plan: Plan) -> Topology:
    """The plan's nodes, each half of them a module beside the partition of all."""
    views = plan.desk.snapshot.ledger.topology
    half = views.size // 2
    return Topology(
        [
            NodeView(
                number,
                views.names[position],
                views.totals[position],
                True,
                (PARTITION, _module(position, half)),
            )
            for position, number in enumerate(views.numbers)
        ]
    )


def _module(position: int, half: int) -> str:
    return "cluster" if position < half else "booster"


def request(rng: random.Random) -> Request:
    """A part: some cores of one node, or one to eight nodes, a fifth of these whole."""
    if rng.random() < 0.5:
        return Request(cpus_per_task=rng.choice((1, 2, 4, 8)), memory_per_cpu_mib=rng.choice((1_000, 2_000)))
    nodes = rng.choice((1, 2, 4, 8))
    return Request(
        tasks=nodes,
        cpus_per_task=rng.choice((8, CORES)),
        nodes_min=nodes,
        nodes_max=nodes,
        exclusive=rng.random() < 0.2,
    )


def job(
    rng: random.Random, topology: Topology, names: tuple[str, ...], parts: int = PARTS
) -> CompiledRequest:
    """A job of so many parts in these partitions."""
    return compile_job(
        [request(rng) for _ in range(parts)],
        [PartitionView(names[number % len(names)]) for number in range(parts)],
        topology,
    )


def timed_ms(asked: Callable[[], Assignment | None]) -> tuple[float, Assignment | None]:
    """The time of one question, and its answer."""
    began = time.thread_time()
    found = asked()
    return (time.thread_time() - began) * 1e3, found


def measure(figures: Figures, _directory: Path, *, quick: bool) -> None:
    """joint_choose_616_ms (two modules, one), joint_first_616_ms and joint_none_616_ms."""
    nodes, hours = MACHINES["plan_ops_616"]
    plan = Plan(nodes, 20 if quick else hours, POLICIES)
    topology = machine(plan)
    empty = empty_ledger(topology)
    book = _copied(plan, topology)
    rng = random.Random(PARTS)
    count = 10 if quick else 40
    gc.collect()
    for figure, names in (("modules", ("cluster", "booster")), ("shared", (PARTITION,))):
        placed: list[float] = []
        started: list[float] = []
        for _ in range(count):
            need = job(rng, topology, names)
            taken_ms, chosen = timed_ms(partial(choose, empty, need))
            assert chosen is not None
            assert all(fits(amounts, topology.totals[position]) for position, amounts, _ in chosen)
            placed.append(taken_ms)
            began = time.thread_time()
            found = book.earliest(need, HOUR_US, book.now_us)
            started.append((time.thread_time() - began) * 1e3)
            assert found is not None
        figures.add(f"joint_choose_616_{figure}_ms", median(placed), "ms", PARTS)
        figures.add(f"joint_choose_616_{figure}_most_ms", max(placed), "ms", PARTS)
        figures.add(f"joint_first_616_{figure}_ms", median(started), "ms", book.slots)
        figures.add(f"joint_first_616_{figure}_most_ms", max(started), "ms", book.slots)
    large = [job(rng, topology, (PARTITION,), PARTS * 4) for _ in range(count)]
    missed = [timed_ms(partial(choose, empty, need)) for need in large]
    assert all(chosen is None for _, chosen in missed)
    missed_ms = [taken_ms for taken_ms, _ in missed]
    figures.add("joint_none_616_most_ms", max(missed_ms), "ms", PARTS * 4)


def _copied(plan: Plan, topology: Topology) -> ResourceProfile:
    """The plan's bookings on a machine of modules."""
    schedule = plan.desk.schedule
    book = ResourceProfile(topology, now_us=schedule.book.now_us)
    for bookings in schedule.bookings.values():
        for one in bookings:
            book.book(one.pairs, one.start_us, one.stop_us)
    return book


if __name__ == "__main__":
    measure(Figures(), Path(), quick=bool(os.environ.get("QUICK")))
