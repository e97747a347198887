"""`eslurm status` of a federation: one line for each cell, and its etcd."""

from __future__ import annotations

import os

import msgspec

from escli.local.cells.plan import STORE, CellsLayout, FederationPlan
from escli.local.cells.up import standing_of
from escli.local.status import (
    ClusterStatus,
    DaemonStatus,
    State,
    look,
    look_at,
    not_running,
    table_of,
)
from escli.tables import columns_of, render
from eslurm.compat.errors import escaped

MEMBER = "member"


class CellStatus(msgspec.Struct, frozen=True):
    """A cell; `cluster` is the object of its own `eslurm status --json`, None before it is made.

    `standing`: member, joining, away and so on, as its controller says; empty without an answer. `problem`: why.
    """

    name: str
    state_dir: str
    standing: str
    problem: str
    cluster: ClusterStatus | None

    @property
    def state(self) -> State:
        """Its cluster's state; degraded, too, when it is no member."""
        if self.cluster is None or self.cluster.state == "down":
            return "down"
        return "up" if self.cluster.state == "up" and self.standing == MEMBER else "degraded"


class FederationStatus(msgspec.Struct, frozen=True):
    """The object of `eslurm status --json` in a federation's directory."""

    state: State
    federation: str
    version: str
    state_dir: str
    socket: str
    cells: tuple[CellStatus, ...]
    etcd: tuple[DaemonStatus, ...]


def look_at_cells(layout: CellsLayout, plan: FederationPlan) -> FederationStatus:
    """The status now. Changes nothing."""
    cells = tuple(_look(layout, name) for name in plan.names)
    record = layout.store.find_record()
    etcd = tuple(
        look_at(layout.store, daemon)
        if record is not None and (daemon := record.find(member.name)) is not None
        else not_running(layout.store, member.name, STORE, member.listen)
        for member in plan.members
    )
    return FederationStatus(
        state=_state(cells, etcd),
        federation=plan.name,
        version=plan.version,
        state_dir=str(layout.directory),
        socket=str(layout.socket),
        cells=cells,
        etcd=etcd,
    )


def _look(layout: CellsLayout, name: str) -> CellStatus:
    own = layout.cell(name)
    record = own.find_record()
    if record is None:
        return CellStatus(name, str(own.directory), "", "", None)
    cluster = look(own, record)
    standing, problem = ("", "") if cluster.controller is None else standing_of(own)
    return CellStatus(name, str(own.directory), standing, problem, cluster)


def _state(cells: tuple[CellStatus, ...], etcd: tuple[DaemonStatus, ...]) -> State:
    states = {cell.state for cell in cells}
    if states == {"down"} and not any(one.running for one in etcd):
        return "down"
    return "up" if states == {"up"} and all(one.running for one in etcd) else "degraded"


def describe_cells(status: FederationStatus) -> str:
    """The status as text, every line ended by a newline."""
    head = f"Federation {status.federation} ({status.state_dir}) is {status.state}"
    if status.state == "down":
        return f"{head}; `eslurm up` starts it with the jobs it has.\n"
    rows = [_row(cell) for cell in status.cells]
    heads = columns_of("CELL STATE MEMBER >NODES(U/T) >JOBS(R/W) >DAEMONS >RSS DIRECTORY")
    problems = [f"{cell.name}: {escaped(cell.problem)}\n" for cell in status.cells if cell.problem]
    first, second = status.cells[:2]
    passing = (
        f"root's commands pass to no other cell: `ESLURM_STATE_DIR={status.state_dir}/{second.name} esinfo` asks "
        f"{second.name}"
        if os.geteuid() == 0
        else f"ESLURM_STATE_DIR={status.state_dir}/NAME chooses another cell"
    )
    return (
        f"{head}.\n\n{render(heads, rows)}\n{''.join(problems)}{table_of(status.etcd)}\n"
        f"Commands talk to {first.name}; {passing}, and "
        f"`eslurm status --state-dir {status.state_dir}/NAME` shows its daemons.\n"
    )


def _row(cell: CellStatus) -> list[str]:
    cluster = cell.cluster
    if cluster is None:
        return [cell.name, cell.state, "-", "-", "-", "-", "-", cell.state_dir]
    reply = cluster.controller
    running = [daemon for daemon in cluster.daemons if daemon.running]
    return [
        cell.name,
        cell.state,
        cell.standing or "-",
        f"{reply['nodes_up']}/{reply['nodes']}" if reply else "-",
        f"{reply['jobs_running']}/{reply['jobs_pending']}" if reply else "-",
        f"{len(running)}/{len(cluster.daemons)}" if cluster.daemons else "-",
        f"{sum(daemon.rss_mib for daemon in running):.0f} MiB" if running else "-",
        cell.state_dir,
    ]
