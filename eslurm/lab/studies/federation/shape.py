"""The subject of a study: cells, their nodes, and jobs drawn from a seed.

The mixes are the published ones, with sizes as parts of a cell: there a cell has 50 nodes, small jobs ask for 1, medium ones
for 1 to 50, big ones for 25 to 75 (S-23, S-25, S-26). Invariant: the same shape gives the same jobs, whatever finds their
nodes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

MIXES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {"small": (0.02, 0.02), "medium": (0.02, 1.0), "big": (0.5, 1.5)}
)
"""Least and most nodes of a job, as parts of a cell."""
SPREAD: Final = (0.5, 1.5)
"""Of run times around their mean."""


class Shape(msgspec.Struct, frozen=True):
    """A federation and its jobs. `load` is what the jobs ask for, as a part of all node-seconds; 0: all come at once.

    `at_once`: jobs for which a cell looks for nodes at the same time, the first of its queue. `patience` ends the run so
    many mean run times, and as long as all nodes need for all jobs, after the last job has come; jobs that have no nodes by
    then are counted as not started.
    """

    cells: int = 100
    nodes: int = 1_000
    jobs: int = 20
    mix: str = "medium"
    load: float = 0.9
    run_s: float = 60.0
    at_once: int = 1
    seed: int = 1
    patience: float = 20.0

    @property
    def sizes(self) -> tuple[int, int]:
        """Least and most nodes of a job."""
        least, most = MIXES[self.mix]
        highest = self.cells * self.nodes
        return max(1, round(least * self.nodes)), max(1, min(highest, round(most * self.nodes)))


class Job(msgspec.Struct, frozen=True):
    """A job as it is submitted."""

    serial: int
    cell: int
    at_us: int
    nodes: int
    run_us: int


class Running(msgspec.Struct, frozen=True):
    """A job that already runs when the study begins: on nodes of its own cell, from `first` on."""

    cell: int
    first: int
    nodes: int
    until_us: int


def draw_jobs(shape: Shape) -> list[Job]:
    """All jobs in the order of their submission."""
    draws = random.Random(f"jobs {shape.seed} {shape.mix}")
    least, most = shape.sizes
    mean_nodes = (least + most) / 2
    found = []
    for cell in range(shape.cells):
        at_s = 0.0
        for _ in range(shape.jobs):
            if shape.load:
                at_s += draws.expovariate(shape.load * shape.nodes / (mean_nodes * shape.run_s))
            run_s = shape.run_s * draws.uniform(*SPREAD)
            found.append((at_s, cell, draws.randint(least, most), run_s))
    found.sort()
    return [
        Job(serial, cell, int(at_s * 1e6), nodes, int(run_s * 1e6))
        for serial, (at_s, cell, nodes, run_s) in enumerate(found, 1)
    ]


def draw_running(shape: Shape) -> list[Running]:
    """Jobs that make up the load at the beginning. Jobs larger than a cell run as parts in several."""
    draws = random.Random(f"running {shape.seed} {shape.mix}")
    least, most = shape.sizes
    found = []
    for cell in range(shape.cells):
        first, used = 0, round(min(shape.load, 1.0) * shape.nodes)
        while first < used:
            nodes = min(draws.randint(least, most), used - first)
            found.append(Running(cell, first, nodes, int(draws.uniform(0, shape.run_s) * 1e6)))
            first += nodes
    return found
