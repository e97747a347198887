"""The home cell's side of a transfer: the owner record of each job that it offers, from the offer to the outcome.

Invariants: an offer ends only after a change of the store that leaves no way to take it, or before its record was ever
written; a record of a job that another cell owns is removed only when the home cell's log has the outcome.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from eslurm.core.federation.actions import (
    Action,
    CancelThere,
    CellAnswer,
    DeliverJob,
    Failure,
    StoredEntry,
    SwapAnswer,
    SwapKeys,
)
from eslurm.core.federation.membership import Membership
from eslurm.core.federation.mirror import Mirror
from eslurm.core.federation.swapping import Entries, Result, Swap
from eslurm.core.federation.transfers.agenda import Agenda
from eslurm.core.federation.transfers.commits import Commits
from eslurm.core.federation.transfers.key_changes import OwnerKey, Remove, Withdraw, WriteOffer
from eslurm.core.federation.transfers.key_swaps import KeySwaps
from eslurm.core.federation.values import Keys, Unreadable, first_id_in
from eslurm.core.model.federation import JobOwner, OwnerStage
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.messages import EndOffer, NoteOutcome, NoteTransferred, TransferMessage
from eslurm.core.model.transfer import TransferStage

PATIENCE_US: Final = 10_000_000
"""Time from an offer to its withdrawal, unless the cell has taken the job."""
SWAPS_MAX: Final = 32
STEPS_MAX: Final = 256
"""Jobs that are looked at in one tick."""
AGAIN_US: Final = 1_000_000
ROOM_US: Final = 20_000
DELIVERY_AGAIN_MAX_US: Final = 4_000_000
CANCEL_AGAIN_US: Final = 5_000_000
CANCEL_AGAIN_MAX_US: Final = 60_000_000


class _Stage(enum.Enum):
    WRITING = enum.auto()
    WAITING = enum.auto()
    """The record is written: the other cell may take the job."""
    WITHDRAWING = enum.auto()
    ENDING = enum.auto()
    """The offer cannot be taken any more; the log does not know yet."""


class _Offer(msgspec.Struct, gc=False):
    """An offer, or a job that another cell owns (`is_owned`). `is_fresh`: this machine has made the offer."""

    job: Job
    cell: str
    serial: int
    began_us: int
    is_fresh: bool
    stage: _Stage = _Stage.WRITING
    is_owned: bool = False
    may_be_written: bool = False
    is_accepted: bool = False
    refusal: str | None = None
    call: DeliverJob | CancelThere | None = None
    calls: int = 0
    call_at_us: int = 0

    @property
    def is_cancelled(self) -> bool:
        """Check whether the job is to be cancelled in the cell that turns out to own it."""
        return self.job.transfer is not None and bool(self.job.transfer.cancel_by)


class Owners:
    """Follows the records of this cell's jobs. Feed it with jobs, noted keys and answers, and `tick` it.

    `find` gives a job of the committed view. `on_withdrawn` is called for each offer that has ended with nothing taken: job,
    cell, reason.
    """

    def __init__(
        self,
        keys: Keys,
        membership: Membership,
        mirror: Mirror,
        commits: Commits,
        on_withdrawn: Callable[[int, str, str], None],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.unreadable: dict[str, Unreadable] = {}
        """Records that are skipped, by key."""
        self.is_new_store = False
        """The store has been replaced: an offer of before may have been taken, whatever the store says."""
        self.open: dict[int, str] = {}
        """Jobs that are offered now, and the cells."""
        self._keys = keys
        self._home = membership.own.name
        self._membership = membership
        self._mirror = mirror
        self._commits = commits
        self._on_withdrawn = on_withdrawn
        self._offers: dict[int, _Offer] = {}
        self._made: dict[int, tuple[str, int]] = {}
        self._swaps: KeySwaps[WriteOffer | Withdraw | Remove] = KeySwaps(SWAPS_MAX)
        self._agenda = Agenda()
        self._can_write = False
        # What the latest answer said of a key: newer than the mirror until that has come to this revision.
        self._answers: dict[str, StoredEntry | None] = {}
        self._answered_revision = 0

    @property
    def size(self) -> int:
        """Number of jobs that are offered, or owned by other cells."""
        return len(self._offers)

    @property
    def owned_elsewhere(self) -> int:
        """Number of jobs that other cells own."""
        return len(self._offers) - len(self.open)

    # ---- inputs ----

    def made(self, job_id: int, cell: str, revision: int) -> None:
        """This machine passes an offer to the log, which is at this revision."""
        self._made[job_id] = cell, revision

    def unmade(self, job_id: int) -> None:
        """The log has not taken the offer in useful time. If it does so yet, the offer counts as that of another leader."""
        self._made.pop(job_id, None)

    def show(self, job: Job, now_us: int) -> None:
        """The record of a job of this cell has changed."""
        transfer = job.transfer
        if transfer is None or job.state in FINAL:
            self.drop(job.job_id, now_us)
            return
        offer = self._offers.get(job.job_id)
        if offer is None or offer.serial != transfer.serial:
            self._swaps.drop(job.job_id)
            cell, revision = self._made.pop(job.job_id, ("", 0))
            is_fresh = cell == transfer.cell and transfer.serial > revision
            offer = _Offer(job, transfer.cell, transfer.serial, now_us, is_fresh)
            self._offers[job.job_id] = offer
            self.counts["offered"] += is_fresh
        offer.job = job
        was_owned, offer.is_owned = offer.is_owned, transfer.stage is TransferStage.TRANSFERRED
        if offer.is_owned:
            self.open.pop(job.job_id, None)
            if not was_owned:
                offer.calls, offer.call, offer.call_at_us = 0, None, now_us
                self.counts["transferred"] += 1
        else:
            self.open[job.job_id] = offer.cell
        self._agenda.put(job.job_id, now_us)

    def drop(self, job_id: int, now_us: int) -> None:
        """The job is neither offered nor owned by another cell. A record that is left is removed."""
        if self._offers.pop(job_id, None) is not None:
            self._swaps.drop(job_id)
            self.open.pop(job_id, None)
        if self._keys.job(self._home, job_id) in self._mirror.words:
            self._agenda.put(job_id, now_us)

    def note_keys(self, keys: set[str], now_us: int) -> None:
        """These keys have changed. Those that are no job's are counted."""
        for key in keys:
            if job_id := first_id_in(self._mirror.prefix, key):
                if key not in self._mirror.words:
                    self.unreadable.pop(key, None)
                self._agenda.put(job_id, now_us)
            elif key != self._keys.withdrawals(self._home):
                self.counts["skipped"] += 1

    def called(self, action: DeliverJob | CancelThere, answer: CellAnswer, now_us: int) -> None:
        """The other cell has answered, or did not in useful time."""
        offer = self._offers.get(action.job_id)
        if offer is None or offer.call is not action:
            return
        offer.call = None
        if isinstance(action, CancelThere):
            self.counts["cancelled there"] += answer.is_done
            offer.call_at_us = now_us + min(CANCEL_AGAIN_MAX_US, CANCEL_AGAIN_US << min(offer.calls - 1, 8))
        elif answer.is_done:
            offer.is_accepted = True
        elif answer.is_refused:
            offer.refusal = answer.text
            self.counts["refused"] += 1
        else:
            offer.call_at_us = now_us + min(DELIVERY_AGAIN_MAX_US, AGAIN_US << min(offer.calls - 1, 8))
        self._agenda.put(action.job_id, now_us)

    def swapped(self, action: SwapKeys, answer: SwapAnswer) -> None:
        """The answer to a swap of this machine; others are ignored."""
        self._swaps.swapped(action, answer)

    def failed(self, action: SwapKeys, failure: Failure) -> None:
        """The call failed."""
        self._swaps.failed(action, failure)

    # ---- what next ----

    def tick(self, now_us: int, draw: float, *, can_write: bool) -> list[Action]:
        """The next requests, each once. Without `can_write` nothing is asked of the store."""
        self._can_write = can_write
        if self._mirror.revision >= self._answered_revision:
            self._answers.clear()
        for job_id, change, swap in self._swaps.take_ended():
            self._take_result(job_id, change, swap, now_us)
        actions: list[Action] = []
        for job_id in self._agenda.take(now_us, STEPS_MAX):
            if self._swaps.is_busy(job_id):
                continue
            if (offer := self._offers.get(job_id)) is None:
                self._clear(job_id, now_us, can_write=can_write)
            elif (call := self._step(offer, now_us, can_write=can_write)) is not None:
                actions.append(call)
        if can_write:
            actions += self._swaps.tick(now_us, draw)
        return actions

    def due_us(self, now_us: int) -> int | None:
        """The next instant at which `tick` has something to do, as far as it depends on time; None: no such instant."""
        times = [self._agenda.due_us]
        if self._can_write:
            times.append(self._swaps.due_us(now_us))
        return min((at_us for at_us in times if at_us is not None), default=None)

    # ---- within ----

    def _step(self, offer: _Offer, now_us: int, *, can_write: bool) -> DeliverJob | CancelThere | None:
        at = OwnerKey(self._keys, self._home, offer.job.job_id)
        owner = self._read(at)
        if (
            isinstance(owner, JobOwner)
            and (owner.serial, owner.taker) == (offer.serial, offer.cell)
            and owner.stage is not OwnerStage.OFFERED
        ):
            return self._follow_owner(offer, owner, now_us)
        if offer.is_owned:
            # The store lacks it: the cell that owns the job will write it.
            return self._pass_cancel(offer, now_us)
        if offer.stage is _Stage.WRITING:
            if self._must_withdraw(offer, now_us) and offer.is_fresh and not offer.may_be_written:
                self._end(offer)
            elif self._may_begin(offer, now_us, can_write=can_write):
                offer.may_be_written = True
                self._begin(at, WriteOffer(at, self._membership, offer.serial, offer.cell))
        if offer.stage is _Stage.WAITING:
            if self._must_withdraw(offer, now_us):
                offer.stage = _Stage.WITHDRAWING
            else:
                return self._deliver(offer, now_us)
        if offer.stage is _Stage.WITHDRAWING and self._may_begin(offer, now_us, can_write=can_write):
            self._begin(at, Withdraw(at, self._membership, offer.serial))
        if offer.stage is _Stage.ENDING:
            self._wish(offer, EndOffer(offer.job.job_id, offer.serial), now_us)
        return None

    def _follow_owner(self, offer: _Offer, owner: JobOwner, now_us: int) -> CancelThere | None:
        job_id = offer.job.job_id
        if not offer.is_owned:
            self._wish(offer, NoteTransferred(job_id, offer.serial), now_us)
        elif owner.outcome is not None:
            self._wish(offer, NoteOutcome(job_id, offer.serial, owner.outcome), now_us)
        else:
            return self._pass_cancel(offer, now_us)
        return None

    def _pass_cancel(self, offer: _Offer, now_us: int) -> CancelThere | None:
        if not offer.is_cancelled or offer.call is not None:
            return None
        if now_us < offer.call_at_us:
            self._agenda.put(offer.job.job_id, offer.call_at_us)
            return None
        offer.calls += 1
        offer.call = CancelThere(offer.job.job_id, offer.cell)
        return offer.call

    def _deliver(self, offer: _Offer, now_us: int) -> DeliverJob | None:
        call = None
        if not offer.is_accepted and offer.call is None and now_us >= offer.call_at_us:
            # A leader before this one may have delivered it.
            is_repeated = offer.calls > 0 or not offer.is_fresh
            offer.calls += 1
            call = offer.call = DeliverJob(offer.job.job_id, offer.cell, offer.serial, is_repeated)
        ends_us = offer.began_us + PATIENCE_US
        if ends_us <= now_us:
            # Without an end of patience, after a change of the store, it is looked at again all the same.
            ends_us = now_us + AGAIN_US
        is_waiting = offer.is_accepted or offer.call is not None
        self._agenda.put(offer.job.job_id, ends_us if is_waiting else min(ends_us, offer.call_at_us))
        return call

    def _must_withdraw(self, offer: _Offer, now_us: int) -> bool:
        if offer.refusal is not None:
            return True
        if self.is_new_store and not offer.is_fresh:
            # It may have been taken in the store of before.
            return False
        return offer.is_cancelled or now_us >= offer.began_us + PATIENCE_US

    def _may_begin(self, offer: _Offer, now_us: int, *, can_write: bool) -> bool:
        """Check whether a change may begin now; if not, the job is looked at again."""
        if can_write and self._swaps.has_room:
            return True
        self._agenda.put(offer.job.job_id, now_us + (ROOM_US if can_write else AGAIN_US))
        return False

    def _begin(self, at: OwnerKey, change: WriteOffer | Withdraw | Remove) -> None:
        alive_key = self._membership.own.alive_key
        known: Entries = {
            at.key: self._entry(at.key),
            at.withdrawals: self._entry(at.withdrawals),
            alive_key: self._membership.alive_entry,
        }
        self._swaps.begin(first_id_in(self._mirror.prefix, at.key), change, known)

    def _take_result(
        self, job_id: int, change: WriteOffer | Withdraw | Remove, swap: Swap, now_us: int
    ) -> None:
        if swap.revision:
            self._answered_revision = max(self._answered_revision, swap.revision)
            self._answers[change.at.key] = swap.current[change.at.key]
            self._answers[change.at.withdrawals] = swap.current[change.at.withdrawals]
        at_us = now_us if swap.result is Result.DONE else now_us + AGAIN_US
        offer = self._offers.get(job_id)
        if offer is not None and isinstance(change, WriteOffer):
            if swap.result is Result.DONE or change.is_mine(swap.current):
                offer.stage = _Stage.WAITING
                at_us = now_us
            elif self._must_withdraw(offer, now_us):
                offer.stage = _Stage.WITHDRAWING
        elif offer is not None and isinstance(change, Withdraw):
            if swap.result is Result.DONE:
                self._end(offer)
            elif swap.result is Result.NEEDLESS:
                # Taken meanwhile: that is known at once.
                at_us = now_us if self._is_taken(offer, change.at, swap.current) else at_us
        elif swap.result is Result.NEEDLESS:
            return
        self._agenda.put(job_id, at_us)

    def _is_taken(self, offer: _Offer, at: OwnerKey, current: Entries) -> bool:
        owner = at.found(current)
        return (
            isinstance(owner, JobOwner)
            and owner.serial == offer.serial
            and owner.stage is not OwnerStage.OFFERED
        )

    def _end(self, offer: _Offer) -> None:
        offer.stage = _Stage.ENDING
        self.counts["withdrawn"] += 1
        if offer.is_cancelled:
            why = "the job is cancelled"
        elif offer.refusal is not None:
            why = offer.refusal
        else:
            why = f"it has not taken the job within {PATIENCE_US // 1_000_000} s"
        self._on_withdrawn(offer.job.job_id, offer.cell, why)

    def _wish(self, offer: _Offer, message: TransferMessage, now_us: int) -> None:
        self._agenda.put(offer.job.job_id, self._commits.wish(offer.job.job_id, message, now_us))

    def _clear(self, job_id: int, now_us: int, *, can_write: bool) -> None:
        """Remove a record that no job needs any more. That of a job which another cell owns stays: it tells its end."""
        at = OwnerKey(self._keys, self._home, job_id)
        owner = self._read(at)
        if not isinstance(owner, JobOwner) or owner.stage is OwnerStage.OWNED:
            return
        if can_write and self._swaps.has_room:
            self._begin(at, Remove(at, self._membership, owner))
        else:
            self._agenda.put(job_id, now_us + (ROOM_US if can_write else AGAIN_US))

    def _read(self, at: OwnerKey) -> JobOwner | Unreadable | None:
        owner = at.read(self._entry(at.key))
        if isinstance(owner, Unreadable):
            self.unreadable[at.key] = owner
        else:
            self.unreadable.pop(at.key, None)
        return owner

    def _entry(self, key: str) -> StoredEntry | None:
        return self._answers[key] if key in self._answers else self._mirror.words.get(key)
