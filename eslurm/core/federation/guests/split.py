"""Division of a spanning job's nodes among cells, by what their summaries show free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from eslurm.core.federation.transfers.candidates import takes_work
from eslurm.core.federation.view import CellView, FederationView
from eslurm.core.model.federation import NodeClass
from eslurm.core.model.guests import GUESTS_MAX, Guest, nodes_of
from eslurm.core.model.job import JobSpec
from eslurm.core.model.transfer import ANY_CELL

TAKES_GUESTS: Final = 2
"""The first release that tells a guest from a submission: see `CELL_PROTOCOL`."""


class Split(msgspec.Struct, frozen=True):
    """The parts of the nodes: the own ones, and those of each guest. Without guests `text` says what is missing."""

    own_nodes: int = 0
    guests: tuple[Guest, ...] = ()
    text: str = ""


def split(
    spec: JobSpec,
    view: FederationView,
    taken: Mapping[str, int],
    avoided: Iterable[str] = (),
    own_max: int = 0,
) -> Split:
    """As many own nodes as are free, at least one, then those of few other cells, freest first.

    `taken` are free nodes of each cell that are meant for other jobs already. Cells in `avoided` are not asked.
    `own_max` bounds the own nodes, unless it is 0.
    """
    wanted = nodes_of(spec.components[0])
    avoided = frozenset(avoided)
    free = {
        cell.name: max(0, free_of(spec, cell) - taken.get(cell.name, 0))
        for cell in view.cells
        if cell.name == view.cell or (_may_host(spec, cell) and cell.name not in avoided)
    }
    own = min(free.pop(view.cell, 0), wanted - 1, own_max or wanted)
    if not own:
        return Split(text="no node is free here, where its script runs")
    guests: list[Guest] = []
    left = wanted - own
    for name, nodes in sorted(free.items(), key=lambda one: (-one[1], one[0])):
        if not left or not nodes or len(guests) == GUESTS_MAX:
            break
        guests.append(Guest(name, min(nodes, left)))
        left -= guests[-1].nodes
    if left:
        found = ", ".join([f"here {own}", *(f"{name} {nodes}" for name, nodes in sorted(free.items()))][:8])
        return Split(text=f"too few nodes are free at once: {found} of {wanted}")
    return Split(own, tuple(guests))


def free_of(spec: JobSpec, cell: CellView) -> int:
    """Idle nodes of a cell that look large enough for this job."""
    if cell.summary is None:
        return 0
    return sum(one.free for one in cell.summary.classes if _fits(spec, one))


def _fits(spec: JobSpec, one: NodeClass) -> bool:
    request = spec.components[0]
    tasks = max(1, request.tasks // nodes_of(request))
    cores = tasks * request.cpus_per_task
    memory_mib = request.memory_per_node_mib or request.memory_per_cpu_mib * cores
    amounts = dict(one.extra)
    wanted = [(name, items) for name, items in request.per_node]
    wanted += [(name, items * tasks) for name, items in request.per_task]
    return (
        one.cores >= cores
        and (not one.memory_mib or one.memory_mib >= memory_mib)
        and (not spec.partition or spec.partition in one.partitions)
        and all(amounts.get(name, 0) >= items for name, items in wanted)
    )


def _may_host(spec: JobSpec, cell: CellView) -> bool:
    if not takes_work(cell) or cell.alive is None or cell.alive.protocol < TAKES_GUESTS:
        return False
    return ANY_CELL in spec.cells or cell.name in spec.cells
