"""Seeds that failed once: a file of lines `SEED/NODES  # what failed`, which run again each time.

A federation is `SEED/NODES/CELLS`.

Invariant: a seed with a size stands in a file once, and none is ever taken out by a program.
"""

from __future__ import annotations

from pathlib import Path

from eslurm.lab.sim.run import Failure, Scenario

WHAT_MAX = 100


def load(path: Path) -> list[Scenario]:
    """The runs of a file, in its order; none if it is not there. Raises `ValueError` naming the line it cannot read."""
    if not path.exists():
        return []
    found: list[Scenario] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        run = line.partition("#")[0].strip()
        if not run:
            continue
        parts = run.split("/")
        if len(parts) not in (2, 3) or not all(part.isdecimal() for part in parts):
            raise ValueError(
                f"{path}, line {number}: {run!r} is no run: write SEED/NODES, for example 1483/20, "
                "or SEED/NODES/CELLS"
            )
        found.append(Scenario(int(parts[0]), int(parts[1]), cells=int(parts[2]) if len(parts) > 2 else 0))
    return found


def keep(path: Path, failure: Failure) -> bool:
    """Adds what has failed, unless it is there or is more than a seed and a size. Whether it was added."""
    scenario = failure.scenario
    run = Scenario(scenario.seed, scenario.nodes, cells=scenario.cells)
    if run != scenario or run in load(path):
        return False
    with path.open("a") as file:
        cells = f"/{run.cells}" if run.cells else ""
        file.write(f"{run.seed}/{run.nodes}{cells}  # {' '.join(failure.what.split())[:WHAT_MAX]}\n")
    return True
