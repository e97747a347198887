"""Bugs to plant into the part of a cell in its federation: each breaks one rule that a federated world must notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from eslurm.core.federation.actions import AskGuest, CellAnswer, TellGuest, Write
from eslurm.core.federation.guests.gatherings import Gatherings
from eslurm.core.federation.member_changes import Join, Own
from eslurm.core.federation.membership import Membership
from eslurm.core.federation.mirror import Mirror
from eslurm.core.federation.swapping import Entries, Swap
from eslurm.core.federation.transfers.arrivals import Arrivals
from eslurm.core.federation.transfers.key_changes import Take
from eslurm.core.federation.values import encode
from eslurm.core.model.federation import FORMAT, JobOwner, OwnerStage
from eslurm.core.model.messages import ConfirmArrival
from eslurm.core.model.transfer import TransferStage
from eslurm.lab.sim.federation.part import Part

Plant = Callable[[pytest.MonkeyPatch], None]


def keep_what_a_listing_lacks(patch: pytest.MonkeyPatch) -> None:
    """A listing adds to a mirror and removes nothing."""
    replace = Mirror._replace

    def keeping(self: Mirror, revision: int, now_us: int) -> None:
        self._pages = {**self._words, **self._pages}
        replace(self, revision, now_us)

    patch.setattr(Mirror, "_replace", keeping)


def lease_kept_by_a_former_leader(patch: pytest.MonkeyPatch) -> None:
    """The part of a controller in the federation goes on when its controller has ended."""
    patch.setattr(Part, "leave", lambda self: setattr(self, "is_leaving", True))
    patch.setattr(Part, "end", lambda self: None)


def number_taken_without_reading(patch: pytest.MonkeyPatch) -> None:
    """A cell that joins takes the number that its own copy shows as free and does not compare the counter."""

    def writes(self: Join, current: Entries) -> Any:
        if current[self._own.record_key] is not None:
            return ()
        record = msgspec.structs.replace(self._record, number=self._choose(None))
        return (Write(self._own.record_key, encode(record)),)

    def keys(self: Join, own: Own, record: Any, cells: Mirror) -> None:
        init(self, own, record, cells)
        self.keys = (own.record_key,)  # type: ignore[assignment]

    init = Join.__init__
    patch.setattr(Join, "__init__", keys)
    patch.setattr(Join, "writes", writes)


def name_of_another_taken(patch: pytest.MonkeyPatch) -> None:
    """Every record is taken for one's own."""
    patch.setattr(Own, "is_own", lambda self, record: True)


def lease_granted_once(patch: pytest.MonkeyPatch) -> None:
    """A lease that has ended is taken for a living one: the word that the cell is alive is not written again."""
    patch.setattr(Membership, "_drop_lease", lambda self: None)


def owner_changed_without_comparison(patch: pytest.MonkeyPatch) -> None:
    """A cell makes itself the owner of a job that has arrived, whatever the record and its version are by now."""
    versions = Swap._versions

    def compared(self: Swap) -> tuple[tuple[str, int], ...]:
        return () if isinstance(self.change, Take) else versions(self)

    def writes(self: Take, current: Entries) -> tuple[Write, ...]:
        owner = JobOwner(FORMAT, self._serial, self._own, OwnerStage.OWNED)
        return () if self.is_mine(current) else (Write(self.at.key, encode(owner)),)

    patch.setattr(Swap, "_versions", compared)
    patch.setattr(Take, "writes", writes)


def started_before_the_store_says_so(patch: pytest.MonkeyPatch) -> None:
    """A job that has arrived may start: its delivery is taken for its owner's word."""

    def step(self: Arrivals, arrival: Any, now_us: int, *, can_write: bool) -> None:
        if arrival.transfer.stage is TransferStage.ARRIVING:
            arrival.verdict = ConfirmArrival(arrival.job.job_id, arrival.transfer.serial)
        before(self, arrival, now_us, can_write=can_write)

    before = Arrivals._step
    patch.setattr(Arrivals, "_step", step)


def nodes_counted_on_before_they_are_held(patch: pytest.MonkeyPatch) -> None:
    """A guest that has been accepted in its cell is taken for one that holds its nodes."""
    called = Gatherings.called

    def believing(self: Gatherings, action: AskGuest | TellGuest, answer: CellAnswer, now_us: int) -> None:
        called(self, action, answer, now_us)
        known = self._jobs.get(action.job_id)
        part = known.parts.get(action.cell) if known is not None else None
        if part is not None and part.job_id and not part.is_ended:
            part.node_list = part.node_list or "cn0000"

    patch.setattr(Gatherings, "called", believing)


def nodes_held_while_others_wait(patch: pytest.MonkeyPatch) -> None:
    """A gathering that holds nodes waits for the others for as long as it takes."""
    patch.setattr(Gatherings, "_is_idle_for", lambda self, known, limit_us, now_us: False)
