"""Jobs that change their cell, judged from outside: by scripts that begin, by the store's bytes and by the cells' logs.

A job runs in one cell, which the store names; its home tells the end that it had there; nothing is left in the store. Each
violation raises `CheckFailed`. Nothing here is shared with the product but facts and records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from eslurm.core.federation.actions import CellAnswer, CellCall, DeliverJob
from eslurm.core.model import facts
from eslurm.core.model.facts import decode_fact
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.step_key import BATCH_STEP, StepKey
from eslurm.core.model.transfer import TransferStage
from eslurm.lab.kv.image import KvImage
from eslurm.lab.sim.federation.cell import Cell
from eslurm.lab.sim.federation.coverage import (
    ARRIVAL_DROPPED,
    CANCELLED_BETWEEN,
    DELIVERY_REFUSED,
    HOME_CHANGED,
    OFFERED,
    TAKEN,
    TAKER_DIED,
    TOLD_LATER,
    WITHDRAWN,
)
from eslurm.lab.sim.violation import require
from eslurm.ports import store

COUNTED: Final = {
    "JobOffered": OFFERED,
    "ArrivalConfirmed": TAKEN,
    "OfferEnded": WITHDRAWN,
    "ArrivalDropped": ARRIVAL_DROPPED,
    "OfferCancelled": CANCELLED_BETWEEN,
}
WATCHED: Final = frozenset({*COUNTED, "JobSubmitted", "OutcomeTold"})


class TransferChecks:
    """Told of every durable batch, of every script that begins, and of the end."""

    def __init__(self, image: KvImage, federation: str, count: Callable[[str], None]) -> None:
        self._image = image
        self._jobs = f"/eslurm/{federation}/jobs/"
        self._ids = f"/eslurm/{federation}/ids/"
        self._count = count
        self._movable: list[tuple[Cell, int]] = []
        self._ran: dict[int, Cell] = {}
        self._taken_under: dict[tuple[str, int], int] = {}
        self._blocks: list[tuple[int, int, str]] = []
        self._blocks_seen = -1

    # ---- what happens ----

    def on_durable(self, cell: Cell, epoch: int, batch: store.Batch) -> None:
        """A batch is in the cell's log."""
        for row in batch.facts:
            if row.kind not in WATCHED:
                continue
            fact = decode_fact(row.kind, row.version, row.blob)
            if row.kind in COUNTED:
                self._count(COUNTED[row.kind])
            match fact:
                case facts.JobSubmitted(job_id, spec) if spec.cells:
                    self._movable.append((cell, job_id))
                case facts.ArrivalConfirmed(job_id):
                    self._taken_under[cell.site, job_id] = epoch
                case facts.OutcomeTold(job_id):
                    if self._taken_under.get((cell.site, job_id)) != epoch:
                        self._count(TOLD_LATER)
                case _:
                    pass

    def on_spawn(self, cell: Cell, key: StepKey) -> None:
        """A step begins on a node of the cell."""
        job_id = key.job_id
        home = self._home_of(job_id) if key.step == BATCH_STEP and not key.is_phase else ""
        if not home:
            return
        first = self._ran.setdefault(job_id, cell)
        require(first is cell, f"job {job_id} runs in cell {cell.name} and ran in cell {first.name}")
        owner = self._owner(home, job_id)
        if cell.name == home:
            require(
                owner is None, f"job {job_id} runs in its home cell {home} and the store says {owner} of it"
            )
        else:
            is_owned = owner is not None and owner[2] == cell.name and owner[3] in ("owned", "ended")
            require(
                is_owned, f"job {job_id} of cell {home} runs in cell {cell.name} and the store says {owner}"
            )

    def on_leader_gone(self, cell: Cell, transfers: Sequence[Job]) -> None:
        """A leader that showed these jobs has ended."""
        stages = {job.transfer.stage for job in transfers if job.transfer is not None}
        if TransferStage.OWNED in stages:
            self._count(TAKER_DIED)
        if TransferStage.OFFERED in stages:
            self._count(HOME_CHANGED)

    def on_called(self, action: CellCall, answer: CellAnswer) -> None:
        """A call to another cell has an answer."""
        if isinstance(action, DeliverJob) and answer.is_refused:
            self._count(DELIVERY_REFUSED)

    # ---- the end ----

    def at_end(self) -> None:
        """All is calm and every job has ended."""
        for cell, job_id in self._movable:
            job = cell.stored_job(job_id)
            require(
                job is not None and job.state in FINAL,
                f"job {job_id} of cell {cell.name} has not ended: {job}",
            )
            ran = self._ran.get(job_id)
            if ran is None or ran is cell or job is None:
                continue
            there = ran.stored_job(job_id)
            ends = [
                (one.state, one.exit_code, one.exit_signal) if one is not None else None
                for one in (job, there)
            ]
            require(
                ends[0] == ends[1],
                f"job {job_id} ended in cell {ran.name} as {ends[1]}, its home {cell.name} says {ends[0]}",
            )
        left = [
            entry.key
            for entry in self._image.list(self._jobs, "", 0, 10_000).entries
            if not entry.key.endswith("/+withdrawals")
        ]
        require(not left, f"the store still has {left[:5]}")

    # ---- the store, read anew ----

    def _owner(self, home: str, job_id: int) -> list[Any] | None:
        entry = self._image.get(f"{self._jobs}{home}/{job_id:010}").entry
        return msgspec.msgpack.decode(entry.value) if entry is not None else None

    def _home_of(self, job_id: int) -> str:
        if self._image.revision != self._blocks_seen:
            self._blocks_seen = self._image.revision
            self._blocks = [
                (int(digits), int(digits) + value[2], value[1])
                for entry in self._image.list(self._ids, "", 0, 10_000).entries
                if (digits := entry.key.removeprefix(self._ids)).isdigit()
                for value in [msgspec.msgpack.decode(entry.value)]
            ]
        return next((cell for first, end, cell in self._blocks if first <= job_id < end), "")
