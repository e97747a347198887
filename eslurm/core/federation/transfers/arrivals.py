"""The taker's side of a transfer: jobs of other cells, from their arrival to the word of their end.

Invariants: a job that has arrived is confirmed only when the store says that this cell owns it, and dropped only when its
offer can be taken no more; the outcome is told of a job that has ended in the committed view.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from eslurm.core.federation.actions import Failure, SwapAnswer, SwapKeys
from eslurm.core.federation.swapping import Result, Swap
from eslurm.core.federation.transfers.agenda import Agenda
from eslurm.core.federation.transfers.commits import Commits
from eslurm.core.federation.transfers.key_changes import OwnerKey, Take, Tell
from eslurm.core.federation.transfers.key_swaps import KeySwaps
from eslurm.core.federation.values import Keys, Unreadable
from eslurm.core.model.federation import Outcome
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.messages import ConfirmArrival, DropArrival, NoteTold
from eslurm.core.model.transfer import Transfer, TransferStage

SWAPS_MAX: Final = 32
STEPS_MAX: Final = 256
AGAIN_US: Final = 1_000_000
UNREADABLE_US: Final = 10_000_000
ROOM_US: Final = 20_000
TEXT_MAX: Final = 255


class _Arrival(msgspec.Struct, gc=False):
    """A job of another cell. `verdict` is the message that the store calls for."""

    job: Job
    transfer: Transfer
    verdict: ConfirmArrival | DropArrival | NoteTold | None = None
    is_checked: bool = False
    """The store has said that this cell owns it, since this controller leads."""


class Arrivals:
    """Follows jobs of other cells. Feed it with jobs and answers, and `tick` it."""

    def __init__(self, keys: Keys, own: str, commits: Commits) -> None:
        self.counts: Counter[str] = Counter()
        self.unreadable: dict[int, Unreadable] = {}
        """Records that cannot be read, by job."""
        self._keys = keys
        self._own = own
        self._commits = commits
        self._arrivals: dict[int, _Arrival] = {}
        self._swaps: KeySwaps[Take | Tell] = KeySwaps(SWAPS_MAX)
        self._agenda = Agenda()
        self._can_write = False

    @property
    def size(self) -> int:
        """Number of jobs of other cells that are not told yet."""
        return len(self._arrivals)

    # ---- inputs ----

    def show(self, job: Job, now_us: int) -> None:
        """The record of a job of another cell has changed."""
        transfer = job.transfer
        if transfer is None or transfer.stage not in (TransferStage.ARRIVING, TransferStage.OWNED):
            self.drop(job.job_id)
            return
        known = self._arrivals.get(job.job_id)
        if known is None or known.transfer.serial != transfer.serial or known.transfer.cell != transfer.cell:
            self._swaps.drop(job.job_id)
            known = self._arrivals[job.job_id] = _Arrival(job, transfer)
        known.job = job
        if known.transfer.stage is not transfer.stage or job.state in FINAL:
            # What it was about has come about.
            known.verdict = None
        known.transfer = transfer
        self._agenda.put(job.job_id, now_us)

    def drop(self, job_id: int) -> None:
        """Nothing is owed about this job."""
        if self._arrivals.pop(job_id, None) is not None:
            self._swaps.drop(job_id)
            self._agenda.drop(job_id)
            self.unreadable.pop(job_id, None)

    def check_again(self, now_us: int) -> None:
        """The store may have lost what it had."""
        for job_id, arrival in self._arrivals.items():
            arrival.is_checked = False
            self._agenda.put(job_id, now_us)

    def swapped(self, action: SwapKeys, answer: SwapAnswer) -> None:
        """The answer to a swap of this machine; others are ignored."""
        self._swaps.swapped(action, answer)

    def failed(self, action: SwapKeys, failure: Failure) -> None:
        """The call failed."""
        self._swaps.failed(action, failure)

    # ---- what next ----

    def tick(self, now_us: int, draw: float, *, can_write: bool) -> list[SwapKeys]:
        """The next requests, each once. Without `can_write` nothing is asked of the store."""
        self._can_write = can_write
        for job_id, change, swap in self._swaps.take_ended():
            if (arrival := self._arrivals.get(job_id)) is not None:
                self._take_result(arrival, change, swap, now_us)
        for job_id in self._agenda.take(now_us, STEPS_MAX):
            arrival = self._arrivals.get(job_id)
            if arrival is not None and not self._swaps.is_busy(job_id):
                self._step(arrival, now_us, can_write=can_write)
        return self._swaps.tick(now_us, draw) if can_write else []

    def due_us(self, now_us: int) -> int | None:
        """The next instant at which `tick` has something to do, as far as it depends on time; None: no such instant."""
        times = [self._agenda.due_us]
        if self._can_write:
            times.append(self._swaps.due_us(now_us))
        return min((at_us for at_us in times if at_us is not None), default=None)

    # ---- within ----

    def _step(self, arrival: _Arrival, now_us: int, *, can_write: bool) -> None:
        job_id = arrival.job.job_id
        if arrival.verdict is not None:
            self._agenda.put(job_id, self._commits.wish(job_id, arrival.verdict, now_us))
            return
        is_owned = arrival.transfer.stage is TransferStage.OWNED
        is_over = is_owned and arrival.job.state in FINAL
        if is_owned and arrival.is_checked and not is_over:
            return
        if not can_write or not self._swaps.has_room:
            self._agenda.put(job_id, now_us + (ROOM_US if can_write else AGAIN_US))
            return
        at = OwnerKey(self._keys, arrival.transfer.cell, job_id)
        serial = arrival.transfer.serial
        change: Take | Tell
        if is_over:
            change = Tell(at, serial, self._own, outcome_of(arrival.job))
        else:
            change = Take(at, serial, self._own, restores=is_owned)
        self._swaps.begin(job_id, change, None)

    def _take_result(self, arrival: _Arrival, change: Take | Tell, swap: Swap, now_us: int) -> None:
        job_id, serial = arrival.job.job_id, arrival.transfer.serial
        found = change.at.found(swap.current)
        at_us = now_us
        if isinstance(found, Unreadable):
            self.unreadable[job_id] = found
            at_us = now_us + UNREADABLE_US
        elif swap.result is Result.FAILED:
            at_us = now_us + AGAIN_US
        else:
            self.unreadable.pop(job_id, None)
            is_done = swap.result is Result.DONE or change.is_mine(swap.current)
            if isinstance(change, Tell):
                # A record of another offer: its home has given the job up, and waits for nothing.
                self.counts["told" if is_done else "told in vain"] += 1
                arrival.verdict = NoteTold(job_id, serial)
            elif arrival.transfer.stage is TransferStage.OWNED:
                arrival.is_checked = True
                self.counts["restored"] += swap.result is Result.DONE
            elif is_done:
                self.counts["taken"] += 1
                arrival.verdict = ConfirmArrival(job_id, serial)
            else:
                self.counts["dropped"] += 1
                arrival.verdict = DropArrival(job_id, serial)
        self._agenda.put(job_id, at_us)


def outcome_of(job: Job) -> Outcome:
    """The end of a job, for its home."""
    text = "".join(char if char.isprintable() else "?" for char in job.exit_text[:TEXT_MAX])
    return Outcome(
        job.state.value,
        min(max(job.exit_code, 0), 255),
        min(max(job.exit_signal, 0), 127),
        max(job.started_us, 0),
        max(job.ended_us, 0),
        text,
    )
