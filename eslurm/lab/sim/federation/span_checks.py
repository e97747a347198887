"""Jobs that span cells, judged from outside by the logs of all cells.

A job starts with guests that have all held their nodes; a guest ends with its job, and none is left in the end. Guests of
jobs that meet while all is calm hold no nodes for long before their jobs start. Each violation raises `CheckFailed`. Nothing
here is shared with the product but facts and records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from eslurm.core.model import facts
from eslurm.core.model.facts import decode_fact
from eslurm.core.model.guests import Guest, GuestOf
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.step_key import BATCH_STEP, StepKey
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.rows import decode_job
from eslurm.lab.sim.federation.cell import Cell
from eslurm.lab.sim.federation.coverage import (
    GATHERED,
    GIVEN_UP,
    GUEST_KEPT,
    GUEST_LOST,
    GUEST_UNKEPT,
    MET,
    SPAN_MOVED,
)
from eslurm.lab.sim.violation import require
from eslurm.ports import store
from eslurm.ports.store import JobRow

WATCHED = frozenset(
    {
        "JobSubmitted",
        "AttemptStarted",
        "AttemptEnded",
        "GuestsAsked",
        "GuestsHeld",
        "GuestsGivenUp",
        "GuestGone",
        "GuestKept",
        "StopRequested",
        "JobFinished",
        "JobPlaced",
    }
)
LATE_US = 400 * SECOND_US
"""More than all faults last together, and less than the silence after which a cell ends a guest by itself."""
HELD_MAX_US = 12 * SECOND_US
"""Time for which a guest holds nodes for a job that does not start: limits of both kinds of wait, and some calls."""


class SpanChecks:
    """Told of every durable batch, and of the end."""

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        # Guests by their cell and id; those that have begun.
        self._guests: dict[tuple[str, int], GuestOf] = {}
        self._begun: dict[tuple[str, int], int] = {}
        self._kept: set[tuple[str, int]] = set()
        self._meeting_us: int | None = None
        # Nodes that jobs are to start on by themselves, by cell and id, while guests hold the others.
        self._own_nodes: dict[tuple[str, int], int] = {}
        self._asked: dict[tuple[str, int], int] = {}
        self._running: set[tuple[str, int]] = set()
        # Ends of jobs with guests, by cell and id.
        self._over_us: dict[tuple[str, int], int] = {}
        self._at_us = 0

    def on_durable(self, cell: Cell, epoch: int, batch: store.Batch) -> None:
        """A batch is in the cell's log."""
        # Clocks of cells differ by more than a guest may stay.
        self._at_us = cell.world.scheduler.at_us
        for row in batch.facts:
            if row.kind in WATCHED:
                self._take(cell, decode_fact(row.kind, row.version, row.blob))

    def _take(self, cell: Cell, fact: facts.Fact) -> None:
        match fact:
            case facts.JobSubmitted(job_id=job_id, guest_of=GuestOf() as given):
                self._guests[cell.name, job_id] = given
            case facts.AttemptStarted(job_id=job_id) if (cell.name, job_id) in self._guests:
                self._begun[cell.name, job_id] = self._at_us
            case facts.GuestsAsked(job_id, own_nodes):
                self._asked[cell.name, job_id] = own_nodes
            case facts.GuestsHeld(job_id, serial, guests):
                self._count(GATHERED)
                self._check_held(cell, job_id, serial, guests)
                self._own_nodes[cell.name, job_id] = self._asked[cell.name, job_id]
            case facts.JobPlaced(job_id, _, spans) if (cell.name, job_id) in self._own_nodes:
                own = self._own_nodes[cell.name, job_id]
                nodes = len({span.node for span in spans})
                require(
                    nodes == own, f"job {job_id} of {cell.name} starts on {nodes} nodes, its own are {own}"
                )
                self._running.add((cell.name, job_id))
            case facts.GuestsGivenUp(job_id):
                self._count(GIVEN_UP)
                self._own_nodes.pop((cell.name, job_id), None)
                self._running.discard((cell.name, job_id))
            case facts.GuestGone(job_id) if (cell.name, job_id) in self._running:
                job = cell.stored_job(job_id)
                if job is not None and job.state not in FINAL and job.outcome is None:
                    self._count(GUEST_LOST)
            case facts.GuestKept(job_id=job_id):
                self._kept.add((cell.name, job_id))
                self._count(GUEST_KEPT)
            case facts.AttemptEnded(job_id=job_id, outcome=outcome):
                if (cell.name, job_id) in self._guests:
                    self._check_over(cell, job_id, self._guests[cell.name, job_id])
                    self._check_idle(cell, job_id, self._guests[cell.name, job_id])
                elif (cell.name, job_id) in self._running and outcome is not JobState.PENDING:
                    self._over_us[cell.name, job_id] = self._at_us
            case facts.StopRequested(job_id, _, stop) if (cell.name, job_id) in self._guests:
                if "did not start in time" in stop.by:
                    self._count(GUEST_UNKEPT)
            case _:
                pass

    def _check_held(self, cell: Cell, job_id: int, serial: int, guests: Iterable[Guest]) -> None:
        for guest in guests:
            given = self._guests.get((guest.cell, guest.job_id))
            what = f"job {job_id} of {cell.name} counts on {guest}"
            require(given is not None, f"{what}, which that cell does not have")
            assert given is not None
            is_its = (given.home, given.job_id, given.serial) == (cell.name, job_id, serial)
            require(is_its, f"{what}, which is for {given}")
            require((guest.cell, guest.job_id) in self._begun, f"{what}, which has not begun")

    def _check_over(self, cell: Cell, job_id: int, given: GuestOf) -> None:
        """A guest ends with its job, as soon as their cells hear of each other again."""
        over_us = self._over_us.get((given.home, given.job_id))
        if over_us is not None:
            late_us = self._at_us - over_us
            require(
                late_us < LATE_US,
                f"job {job_id} of {cell.name} held nodes for {given} for {late_us / 1e6:.0f} s after its end",
            )

    def meet(self, at_us: int) -> None:
        """From now on all is calm, and spanning jobs meet."""
        self._meeting_us = at_us

    def _check_idle(self, cell: Cell, job_id: int, given: GuestOf) -> None:
        """Nodes that are held for a job that does not start are given back soon: another job waits for them."""
        begun_us = self._begun.get((cell.name, job_id))
        if begun_us is None or (cell.name, job_id) in self._kept:
            return
        if self._meeting_us is not None and begun_us >= self._meeting_us:
            idle_us = self._at_us - begun_us
            self._count(MET)
            require(
                idle_us <= HELD_MAX_US,
                f"job {job_id} of {cell.name} held nodes idle for {idle_us / 1e6:.0f} s for {given}",
            )

    def on_spawn(self, cell: Cell, key: StepKey) -> None:
        """A step begins on a node of the cell: a guest runs no script but its own."""
        if key.step == BATCH_STEP and not key.is_phase and (cell.name, key.job_id) in self._guests:
            given = self._guests[cell.name, key.job_id]
            require(given.home != cell.name, f"job {key.job_id} of {cell.name} is its own guest")

    def on_leader_gone(self, cell: Cell, transfers: Sequence[Job]) -> None:
        """A leader that showed these jobs has ended."""
        if any(job.guests is not None and job.guests.guests for job in transfers):
            self._count(SPAN_MOVED)

    def at_end(self, cells: Sequence[Cell]) -> None:
        """All is calm and every job has ended: no node is held for another cell, and no home has a guest."""
        for cell in cells:
            for row in cell.world.disk.rows(cell.world.owner)[JobRow.TABLE].values():
                assert isinstance(row, JobRow)
                job = decode_job(row.blob)
                what = f"job {job.job_id} of {cell.name}"
                if job.guest_of is not None:
                    require(job.state in FINAL, f"{what} still holds nodes for {job.guest_of}: {job.state}")
                if job.guests is not None:
                    require(not job.guests.guests, f"{what} still has {job.guests}")
