"""Cells that may take a job, by what their summaries show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eslurm.core.federation.view import CellState, CellView, FederationView
from eslurm.core.model.job import JobSpec
from eslurm.core.model.transfer import ANY_CELL

TAKES_JOBS: Final = 1
"""The first release that tells an arrival from a submission: see `CELL_PROTOCOL`."""


class Candidates:
    """The other cells that take work, freest first; made anew from each view."""

    def __init__(self, view: FederationView) -> None:
        cells = [one for one in view.cells if one.name != view.cell and takes_work(one)]
        self.cells: Sequence[CellView] = sorted(
            cells, key=lambda one: (-one.nodes_free, -one.cores_free, one.name)
        )
        self.free = {one.name: (one.nodes_free, one.cores_free) for one in self.cells}

    def of(self, spec: JobSpec) -> list[str]:
        """The cells that the job names and that have enough nodes and cores in all. Each decides for itself in the end."""
        is_any = ANY_CELL in spec.cells
        nodes, cores = least_of(spec)
        return [
            one.name
            for one in self.cells
            if (is_any or one.name in spec.cells) and one.nodes >= nodes and one.cores >= cores
        ]


def takes_work(cell: CellView) -> bool:
    """Check whether a cell takes jobs of others."""
    if cell.state is not CellState.ALIVE or cell.summary is None:
        return False
    if cell.alive is None or cell.alive.protocol < TAKES_JOBS:
        return False
    return cell.record is not None and not cell.record.draining and not cell.record.left


def least_of(spec: JobSpec) -> tuple[int, int]:
    """Nodes and cores that a job needs at least."""
    nodes = cores = 0
    for one in spec.components:
        nodes += max(one.nodes_min, 1)
        if one.chunks:
            cores += sum(chunk.count * chunk.cores for chunk in one.chunks)
        else:
            cores += one.tasks * one.cpus_per_task
    return nodes, cores
