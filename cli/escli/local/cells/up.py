"""`eslurm up --cells`: a directory becomes a federation of cells on this machine.

1. the plan 2. every cell's directory and keys 3. certificates 4. etcd 5. the cells, some beside each other 6. until all see
each other. Invariant: a cell that does not come up leaves the others as they are; an interrupted start ends its own daemons.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from escli import exits
from escli.errors import ClusterError, Interrupted, unusable
from escli.interrupts import Interrupts
from escli.local import controller
from escli.local.cells import etcd
from escli.local.cells.beside import PROGRESS_S, Ending, each
from escli.local.cells.plan import (
    STORE,
    CellsLayout,
    FederationPlan,
    check_agreement,
    draw_plan,
    names_of,
)
from escli.local.layout import Layout, locked, make
from escli.local.plan import Programs
from escli.local.record import ClusterRecord
from escli.local.settings import Wishes, load_config
from escli.local.stop import stop_all, take_back
from escli.local.up import TIMEOUT_S, Running, Tell, bring_up, furnish

MEETING_S = 30.0
_POLL_S = 0.1


class RunningCells(msgspec.Struct, frozen=True):
    """A federation that is up, or the part of it that is. `failed`: why a cell is not.

    `met`: each cell is a member, and the first one sees all of them. `started`: daemons that this run has started.
    """

    layout: CellsLayout
    plan: FederationPlan
    store: ClusterRecord
    cells: dict[str, Running]
    failed: dict[str, ClusterError]
    started: tuple[str, ...]
    met: bool = True


def bring_up_cells(
    layout: CellsLayout,
    cells: str | None,
    etcds: int | None,
    given: Wishes,
    programs: Programs,
    interrupts: Interrupts,
    tell: Tell,
    timeout_s: float | None = None,
) -> RunningCells:
    """Make the federation if it is new, and start what is missing of it. Raises `ClusterError`, `Interrupted`."""
    _check(layout, cells, etcds, given)
    if STORE not in programs:
        etcd.find_program(os.environ)
    make(layout)
    with locked(layout, timeout_s or TIMEOUT_S):
        plan = _check(layout, cells, etcds, given)
        if plan is None:
            assert cells is not None
            plan = draw_plan(names_of(cells), given, etcds or 1)
            layout.save_plan(plan)
        programs = etcd.with_etcd(programs, plan, os.environ)
        for cell in plan.cells:
            furnish(layout.cell(cell.name), cell.wishes, programs)
        _link_socket(layout, plan)
        store, etcds_started = etcd.start(
            layout,
            plan,
            programs,
            interrupts,
            timeout_s or TIMEOUT_S,
            lambda name, seconds: tell(f"{name} is ready ({seconds:.1f} s)"),
        )
        starting = _Starting(layout, plan, programs, tell, timeout_s)
        try:
            starting.run(interrupts)
            up = {name: starting.up[name] for name in plan.names if name in starting.up}
            started = (*etcds_started, *(f"{name}/{one}" for name in up for one in up[name].started))
            met = not started or _await_meeting(layout, list(up), interrupts, tell)
        except Interrupted:
            _take_back(layout, starting.up, etcds_started)
            raise
    return RunningCells(layout, plan, store, up, starting.failed, started, met)


def _check(layout: CellsLayout, cells: str | None, etcds: int | None, given: Wishes) -> FederationPlan | None:
    """The federation in the directory, if there is one; the options have to agree with it. Changes nothing."""
    names = None if cells is None else names_of(cells)
    plan = layout.find_plan()
    if plan is not None:
        check_agreement(layout, plan, cells, etcds, given)
        return plan
    if names is None:
        raise unusable(f"--etcds: goes with --cells: there is no federation in {layout.directory}")
    for name in names:
        layout.cell(name)
    return None


def _link_socket(layout: CellsLayout, plan: FederationPlan) -> None:
    """Let commands that are given the directory talk to the first cell."""
    first = plan.names[0]
    for path in layout.cell(first).sockets(layout.cell(first).get_record()):
        name = os.path.basename(path)
        link = layout.directory / name
        target = os.path.join(first, name)
        try:
            if os.path.islink(link) and os.readlink(link) == target:
                continue
            os.symlink(target, link)
        except OSError as error:
            raise ClusterError(f"{link}: {error.strerror}") from None


class _Starting:
    """The cells on their way up."""

    def __init__(
        self,
        layout: CellsLayout,
        plan: FederationPlan,
        programs: Programs,
        tell: Tell,
        timeout_s: float | None,
    ) -> None:
        self.up: dict[str, Running] = {}
        self.failed: dict[str, ClusterError] = {}
        self._layout = layout
        self._plan = plan
        self._programs = programs
        self._tell = tell
        self._timeout_s = timeout_s

    def run(self, interrupts: Interrupts) -> None:
        """Start them; `up` and `failed` have them all then. Raises `Interrupted`: `up` has those that were through."""
        if each(
            self._plan.names,
            self._bring_up,
            interrupts,
            goes_on=False,
            on_end=self._settle,
            on_progress=self._tell_progress,
        ):
            raise Interrupted

    def _bring_up(self, name: str, interrupts: Interrupts, tell: Tell) -> bytes:
        running = bring_up(
            self._layout.cell(name), Wishes(), self._programs, interrupts, tell, self._timeout_s
        )
        return msgspec.json.encode(running.started)

    def _settle(self, name: str, ending: Ending) -> None:
        try:
            started = msgspec.json.decode(ending.get(), type=tuple[str, ...])
            own = self._layout.cell(name)
            record = own.get_record()
            self.up[name] = Running(own, record, load_config(own, record.cluster), started)
        except Interrupted:
            return
        except ClusterError as error:
            self.failed[name] = error
            self._tell(f"{name} did not come up: {error.text}")
            return
        if started:
            self._tell(f"{name} is up ({len(self.up)} of {len(self._plan.names)} cells)")

    def _tell_progress(self, running: Mapping[str, str]) -> None:
        each = ", ".join(f"{name} ({line or 'begins'})" for name, line in running.items())
        self._tell(f"starting {each}")


def _await_meeting(layout: CellsLayout, names: Sequence[str], interrupts: Interrupts, tell: Tell) -> bool:
    """Wait until each of these cells is a member and the first one sees all of them; false when that takes too long."""
    deadline_s = time.monotonic() + MEETING_S
    told_s = time.monotonic()
    left = list(names)
    told = ""
    while time.monotonic() < deadline_s:
        left = [name for name in left if standing_of(layout.cell(name))[0] != "member"]
        if not left and _sees(layout, names):
            return True
        line = f"waiting for {', '.join(left)} to join" if left else "waiting until all cells see each other"
        if line != told and time.monotonic() - told_s >= PROGRESS_S:
            told_s, told = time.monotonic(), line
            tell(line)
        interrupts.wait((), _POLL_S)
    return False


def standing_of(layout: Layout) -> tuple[str, str]:
    """The state that a cell reports (member, away and so on) and the reason; empty without an answer."""
    reply = _federation(layout)
    return ("", "") if reply is None else (reply.state, reply.problem)


def _sees(layout: CellsLayout, names: Iterable[str]) -> bool:
    """Check whether the first of the cells counts all of them as alive, and knows their nodes."""
    first = next(iter(names), "")
    reply = _federation(layout.cell(first)) if first else None
    alive = {one.name for one in reply.cells if one.state == "alive" and one.nodes} if reply else set()
    return alive >= set(names)


def _federation(layout: Layout) -> Any:
    from eslurm.v1 import controller_pb2 as pb

    record = layout.find_record()
    if record is None or not record.daemons:
        return None
    return controller.find_answer(layout.sockets(record), "Federation", pb.FederationRequest())


def _take_back(layout: CellsLayout, up: dict[str, Running], etcds: Sequence[str]) -> None:
    """End what this run has started; cells and etcds that ran before go on."""
    for running in up.values():
        if running.started:
            with locked(running.layout):
                stop_all(running.layout, running.layout.get_record())
    with locked(layout.store):
        take_back(layout.store, layout.store.get_record(), set(etcds))


def failure_of(running: RunningCells) -> ClusterError:
    """Build the error for a federation that is up in part: it names the failed cells, those that are up, and the way out."""
    first = next(iter(running.failed.values()))
    failed = "; ".join(f"{name}: {error.text}" for name, error in running.failed.items())
    up = ", ".join(running.cells) or "no cell"
    count = f"{len(running.failed)} of {len(running.plan.names)} cells"
    return ClusterError(
        f"{count} did not come up: {failed} ({up} and etcd are up; `eslurm up` tries the rest again, `eslurm down` stops "
        "all)",
        exits.FAILED,
        first.tail,
    )
