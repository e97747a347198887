"""`eslurm down` of a federation: cells first, their etcd last; or one cell alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

import msgspec

from escli.errors import ClusterError, unusable
from escli.interrupts import Interrupts
from escli.local.cells.beside import Ending, Tell, each
from escli.local.cells.plan import CellsLayout, FederationPlan
from escli.local.down import take_down
from escli.local.layout import Layout, foreign_names, locked
from escli.local.stop import Stopped, leftovers, stop_all


class StoppedCells(msgspec.Struct, frozen=True):
    """The processes that were ended, by cell, and the number of etcds. A cell that there is not has no entry."""

    cells: dict[str, Stopped]
    etcds: int = 0

    @property
    def daemons(self) -> int:
        """Of all cells, and the etcds."""
        return self.etcds + sum(one.daemons for one in self.cells.values())

    @property
    def supervisors(self) -> int:
        """Step supervisors of all cells."""
        return sum(one.supervisors for one in self.cells.values())

    @property
    def job_processes(self) -> int:
        """Processes of jobs in all cells."""
        return sum(one.job_processes for one in self.cells.values())


def take_down_cells(
    layout: CellsLayout,
    cell: str | None,
    *,
    keep_jobs: bool,
    purge: bool,
    tell: Tell,
    interrupts: Interrupts,
) -> StoppedCells | None:
    """Stop the federation, or one cell of it; None when there is none. Idempotent. Raises `ClusterError`."""
    if layout.find_plan() is None:
        return None
    with locked(layout):
        plan = layout.find_plan()
        if plan is None:
            return None
        if cell is not None:
            _check_name(layout, plan, cell)
        if purge:
            _check_purgeable(layout, plan)
        names = plan.names if cell is None else (cell,)
        stopping = _Stopping(layout, keep_jobs, tell)
        is_hurried = stopping.run(names, interrupts)
        etcds = _stop_etcd(layout, is_hurried) if cell is None else 0
        if purge:
            _remove(layout, plan)
    return StoppedCells(stopping.stopped, etcds)


def _check_name(layout: CellsLayout, plan: FederationPlan, cell: str) -> None:
    if cell not in plan.names:
        raise unusable(
            f"--cell: '{cell[:40]}' is no cell of the federation in {layout.directory}: use one of {', '.join(plan.names)}"
        )


class _Stopping:
    """The cells on their way down; a cell that cannot be stopped keeps none of the others from it."""

    def __init__(self, layout: CellsLayout, keep_jobs: bool, tell: Tell) -> None:
        self.stopped: dict[str, Stopped] = {}
        self._failed: ClusterError | None = None
        self._layout = layout
        self._keep_jobs = keep_jobs
        self._tell = tell

    def run(self, names: Sequence[str], interrupts: Interrupts) -> bool:
        """Stop them, at once when that is interrupted; returns whether it was. Raises `ClusterError`."""
        is_hurried = each(
            names,
            self._take_down,
            interrupts,
            goes_on=True,
            on_end=self._settle,
            on_progress=lambda running: self._tell(f"stopping {', '.join(running)}"),
        )
        if self._failed is not None:
            raise self._failed
        return is_hurried

    def _take_down(self, name: str, interrupts: Interrupts, tell: Tell) -> bytes:
        told: list[str] = []
        stopped = take_down(
            self._layout.cell(name),
            keep_jobs=self._keep_jobs,
            purge=False,
            tell=told.append,
            hurry=interrupts.is_hurried(),
        )
        return msgspec.json.encode((stopped, told))

    def _settle(self, name: str, ending: Ending) -> None:
        try:
            stopped, told = msgspec.json.decode(ending.get(), type=tuple[Stopped | None, list[str]])
        except ClusterError as error:
            self._failed = ClusterError(f"{name}: {error.text}", error.code, error.tail)
            return
        for line in told:
            self._tell(f"{name}: {line}")
        if stopped is not None:
            self.stopped[name] = stopped


def _stop_etcd(layout: CellsLayout, is_hurried: bool) -> int:
    store = layout.store
    if not store.directory.exists():
        return 0
    with locked(store):
        record = store.find_record()
        return 0 if record is None else stop_all(store, record, hurry=lambda: is_hurried).daemons


def _check_purgeable(layout: CellsLayout, plan: FederationPlan) -> None:
    """Check that the directories hold nothing but a federation's own files."""
    if os.path.islink(layout.directory):
        raise unusable(f"{layout.directory}: is a symbolic link: --purge the directory it leads to")
    found: list[tuple[Layout, list[str]]] = [(layout, layout.foreign_names(plan))]
    found += [(own, foreign_names(own)) for own in map(layout.cell, plan.names) if own.directory.exists()]
    for own, foreign in found:
        if foreign:
            raise unusable(
                f"{own.directory}: holds {foreign[0]}, which is not the federation's: move it away, then --purge again"
            )


def _remove(layout: CellsLayout, plan: FederationPlan) -> None:
    for own in (*map(layout.cell, plan.names), layout.store):
        record = own.find_record()
        if record is not None and leftovers(own, record):
            raise ClusterError(
                f"{own.directory}: processes of it are still there: {layout.directory} is kept"
            )
    shutil.rmtree(layout.directory)
