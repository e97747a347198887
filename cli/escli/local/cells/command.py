"""`eslurm up`, `status` and `down` in the directory of a federation: what they print."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

from escli import exits
from escli.console import say, tell, to_json
from escli.errors import ClusterError, unusable
from escli.interrupts import Interrupts
from escli.local.cells import etcd
from escli.local.cells.down import StoppedCells, take_down_cells
from escli.local.cells.plan import CellsLayout, FederationPlan
from escli.local.cells.status import describe_cells, look_at_cells
from escli.local.cells.up import RunningCells, bring_up_cells, failure_of
from escli.local.layout import Layout, choose, supervising
from escli.local.plan import Programs
from escli.local.processes import usage_of
from escli.local.record import DaemonRecord
from escli.local.settings import Wishes
from escli.local.stop import ended_text
from escli.local.supervise import Watch, watch


def up(
    plain: Layout,
    cells: str | None,
    etcds: int | None,
    wishes: Wishes,
    programs: Programs,
    *,
    timeout_s: float | None,
    detach: bool,
    as_json: bool,
) -> int:
    """Start the federation, or what is missing of it; without `detach` watch it until Ctrl-C. Raises `ClusterError`."""
    if wishes.emulated or wishes.store is not None:
        option = "--emulate" if wishes.emulated else "--store"
        raise unusable(f"{option}: cannot go with --cells: every cell has nodes and a store of its own")
    layout = CellsLayout(plain.directory)
    with Interrupts() as interrupts:
        running = bring_up_cells(layout, cells, etcds, wishes, programs, interrupts, tell, timeout_s)
        if running.failed:
            raise failure_of(running)
        if not running.met:
            tell("not all cells have joined yet: `eslurm status` and `esinfo --federation` tell more")
        say(to_json(_summary(running)) if as_json else _greeting(running, detach))
        if detach or not running.started:
            return exits.OK
        with supervising(layout) as is_first:
            if not is_first:
                tell("another `eslurm up` watches this federation; this one returns")
                return exits.OK
            if _watch(layout, running.plan, etcd.with_etcd(programs, running.plan, os.environ), interrupts):
                tell("the federation was stopped by another command")
                return exits.OK
        tell("stopping the federation (again: at once)")
        stopped = take_down_cells(
            layout, None, keep_jobs=False, purge=False, tell=tell, interrupts=interrupts
        )
        tell(_stopped_text(stopped, layout))
    return exits.OK


def _watch(layout: CellsLayout, plan: FederationPlan, programs: Programs, interrupts: Interrupts) -> bool:
    """Keep etcd and the cells running; cells that another `eslurm up` watches are its own."""
    with ExitStack() as stack:
        watches = [
            Watch(layout.store, programs, interrupts, tell, lambda *_: etcd.planned_of(layout, plan)),
        ]
        for name in plan.names:
            own = layout.cell(name)
            if stack.enter_context(supervising(own)):
                watches.append(Watch(own, programs, interrupts, _named(name)))
        return watch(watches, interrupts)


def _named(name: str) -> Any:
    return lambda line: tell(f"{name}: {line}")


def _daemons(running: RunningCells) -> list[DaemonRecord]:
    return [
        *running.store.daemons,
        *(daemon for one in running.cells.values() for daemon in one.record.daemons),
    ]


def _summary(running: RunningCells) -> dict[str, Any]:
    layout = running.layout
    return {
        "federation": running.plan.name,
        "state_dir": str(layout.directory),
        "socket": str(layout.socket),
        "already_running": not running.started,
        "started": running.started,
        "cells": [
            {
                "name": name,
                "cluster": one.record.cluster,
                "state_dir": str(one.layout.directory),
                "socket": str(one.layout.socket),
                "nodes": ",".join(section.names for section in one.config.nodes),
                "daemons": [_shown(daemon) for daemon in one.record.daemons],
            }
            for name, one in running.cells.items()
        ],
        "etcd": [_shown(daemon) for daemon in running.store.daemons],
    }


def _shown(daemon: DaemonRecord) -> dict[str, Any]:
    return {"name": daemon.name, "kind": daemon.kind, "pid": daemon.identity.pid, "listen": daemon.listen}


def _greeting(running: RunningCells, detach: bool) -> str:
    layout, plan = running.layout, running.plan
    first = plan.names[0]
    if not running.started:
        return f"Federation {plan.name} is already running: {len(plan.names)} cells ({layout.directory})."
    width = max(map(len, plan.names))
    daemons = _daemons(running)
    usages = [usage for daemon in daemons if (usage := usage_of(daemon.identity)) is not None]
    lines = [f"Federation {plan.name} is up: {len(plan.names)} cells."]
    for name, one in running.cells.items():
        nodes = ",".join(section.names for section in one.config.nodes)
        lines.append(f"  {name:{width}}  {nodes}")
    memory = sum(usage.rss_mib for usage in usages)
    lines.append(f"  {len(daemons)} daemons, {len(plan.members)} of them etcd, {memory:.0f} MiB")
    if choose(None, os.environ).directory != layout.directory:
        lines.append(f"  export ESLURM_STATE_DIR={layout.directory}   # first, so that the commands find it")
    named = os.environ.get("ESLURM_SOCKET", "")
    if named:
        lines.append(f"  unset ESLURM_SOCKET   # it names another cluster: {named}")
    lines += [
        "  esinfo --federation          all cells, and what is free in each",
        f"  essubmit --wrap hostname     submit a job to {first}",
        _in_another(layout, plan.names[1]),
        "  eslurm status                how cells, daemons and etcd do",
        "  eslurm down                  stop; jobs are kept for the next `eslurm up`",
    ]
    if not detach:
        lines.append("This command watches the daemons. Ctrl-C stops the federation.")
    return "\n".join(lines)


def _in_another(layout: CellsLayout, name: str) -> str:
    """The line on work in another cell: a cell passes no command of root's on."""
    if os.geteuid() == 0:
        return f"  ESLURM_STATE_DIR={layout.directory / name} essubmit --wrap hostname   and to {name}"
    return f"  essubmit --cell {name} --wrap hostname   and to {name}; also esqueue, escancel, esinfo --cell"


def status(plain: Layout, as_json: bool) -> int:
    """Show cells and etcd. Exit code: 0 up, 1 degraded, 3 down."""
    layout = CellsLayout(plain.directory)
    plan = layout.find_plan()
    if plan is None:
        raise ClusterError(f"{layout.federation_file} is gone: was the federation removed meanwhile?")
    found = look_at_cells(layout, plan)
    say(to_json(found) if as_json else describe_cells(found).rstrip("\n"))
    return {"up": exits.OK, "degraded": exits.FAILED, "down": exits.UNREACHABLE}[found.state]


def down(plain: Layout, cell: str | None, *, keep_jobs: bool, purge: bool, as_json: bool) -> int:
    """Stop the federation or one cell of it. Raises `ClusterError`."""
    if cell is not None and purge:
        raise unusable(
            "--purge: removes the whole federation, whose other cells know the cell: leave --cell out, or --purge"
        )
    layout = CellsLayout(plain.directory)
    with Interrupts() as interrupts:
        stopped = take_down_cells(
            layout, cell, keep_jobs=keep_jobs, purge=purge, tell=tell, interrupts=interrupts
        )
    if as_json:
        say(to_json({"state_dir": str(layout.directory), "purged": purge, "stopped": stopped}))
    else:
        say(_stopped_text(stopped, layout, cell, purge))
    return exits.OK


def _stopped_text(
    stopped: StoppedCells | None, layout: CellsLayout, cell: str | None = None, purged: bool = False
) -> str:
    if stopped is None:
        return f"No federation in {layout.directory}; nothing to stop."
    if purged:
        return f"The federation is down and {layout.directory} is removed."
    what = "The federation" if cell is None else f"Cell {cell}"
    ended = ended_text(stopped.daemons, stopped.supervisors, stopped.job_processes)
    if not ended:
        return f"{what} was down already."
    kept = layout.directory if cell is None else layout.directory / cell
    others = "" if cell is None else " The other cells go on; `eslurm up` starts it again."
    return f"{what} is down ({ended} ended); its jobs are kept in {kept}.{others}"
