"""Loops: the cost of a chunk decision, the efficiency on two cores, and 64 workers that are killed.

Conditions: workers on this machine; an iteration is a computation of about 10 us. Three efficiencies, because other
processes may use the machine: `busy` is the share of the workers' time until the last end that is spent in the
function; `cpu` is the CPU time of the iterations in one process alone over that of all processes of the loop, their
start included; `wall` compares that time with cores and makespan, so that it says something on a machine that does
nothing else.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from benchmarks.figures import Figures, median
from eslurm import loops
from eslurm.loops.technique import Technique
from eslurm.loops.techniques import technique_of

DECISION_WORKERS = 64
DECISIONS = 20_000
ITERATION_S = 10e-6
WORKERS = 2
ROUNDS = 3
PART_ALONE = 20
"""One of so many iterations is timed in one process alone."""
KILLED_WORKERS = 64
KILL_EVERY = 97
OPTIONS: dict[str, dict[str, Any]] = {
    "FSC": {"sigma": 1e-6, "h": 1e-4},
    "FAC": {"mu": ITERATION_S, "sigma": ITERATION_S},
}


def measure(figures: Figures, directory: Path, *, quick: bool) -> None:
    """loops_decision_us_max, loops_busy_share_*, loops_wall_efficiency_*, loops_64_workers_killed,
    loops_64_workers_wrong.
    """
    costs = {name: _decision_us(name) for name in loops.TECHNIQUES}
    figures.add("loops_decision_us_max", max(costs.values()), "us", DECISIONS * len(costs))
    figures.add("loops_decision_us_gss", costs["GSS"], "us", DECISIONS)
    figures.add("loops_decision_us_af", costs["AF"], "us", DECISIONS)
    steps = _steps_of(ITERATION_S)
    n = 200_000 if quick else 1_000_000
    _efficiency(figures, n, steps)
    _killed(figures, directory)


def _decision_us(name: str) -> float:
    """CPU time of one `next_chunk` and the `record` of its chunk, the median of some rounds."""
    return median(_decision_round(name) for _ in range(5))


def _decision_round(name: str) -> float:
    options = OPTIONS.get(name, {})
    # Chunks of few iterations, so that no technique is at its end before all decisions are made.
    technique: Technique = technique_of(name, 50 * DECISIONS, DECISION_WORKERS, largest=50, **options)
    count = 0
    began = time.process_time()
    while count < DECISIONS and (size := technique.next_chunk(count % DECISION_WORKERS)):
        technique.record(count % DECISION_WORKERS, size, size * ITERATION_S * (1 + count % 3), 1e-4)
        count += 1
    return (time.process_time() - began) / count * 1e6


def iteration(index: int, steps: int) -> int:
    """A computation that takes `steps` turns."""
    value = index
    for _ in range(steps):
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
    return value


def _steps_of(seconds: float) -> int:
    """Turns that take so long, in CPU time."""
    began = time.process_time()
    iteration(0, 1_000_000)
    return max(round(seconds / (time.process_time() - began) * 1e6), 1)


def _efficiency(figures: Figures, n: int, steps: int) -> None:
    busy, cpu, wall = [], [], []
    for _ in range(ROUNDS):
        began = time.process_time()
        for index in range(n // PART_ALONE):
            iteration(index, steps)
        alone_s = (time.process_time() - began) * PART_ALONE
        before = _cpu_s()
        found = loops.run(
            iteration,
            n,
            technique="FAC",
            workers=WORKERS,
            arguments=(steps,),
            launch="local",
            progress=False,
            **OPTIONS["FAC"],
        )
        busy.append(found.record.efficiency)
        cpu.append(alone_s / (_cpu_s() - before))
        wall.append(alone_s / (WORKERS * found.record.makespan))
    figures.add("loops_busy_share", median(busy), "", ROUNDS)
    figures.add("loops_cpu_efficiency", median(cpu), "", ROUNDS)
    figures.add("loops_wall_efficiency", median(wall), "", ROUNDS)


def _cpu_s() -> float:
    """CPU time of this process and of its children that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def mortal(index: int, directory: str, every: int) -> int:
    """Kill the worker at each `every`th index, for the first time that it is computed."""
    if index % every == 0:
        try:
            os.close(os.open(Path(directory, str(index)), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return index * index
        os.kill(os.getpid(), signal.SIGKILL)
    return index * index


def _killed(figures: Figures, parent: Path) -> None:
    n = 4000
    directory = parent / "loops"
    directory.mkdir()
    with loops.stream(
        mortal,
        n,
        technique="AWF-C",
        workers=KILLED_WORKERS,
        arguments=(str(directory), KILL_EVERY),
        launch="local",
        progress=False,
        retries=100,
    ) as going:
        counts = [0] * n
        wrong = 0
        for index, value in going:
            counts[index] += 1
            wrong += value != index * index
    figures.add("loops_64_workers_killed", len(going.record.left), "workers", n)
    figures.add("loops_64_workers_wrong", wrong + sum(count != 1 for count in counts), "iterations", n)
