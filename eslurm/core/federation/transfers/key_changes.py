"""Changes of a job's owner record, each by comparison of versions.

Only the home cell removes a record. A write of an offer whose answer was lost may be made long after; it must not
bring the record back after a withdrawal. So each write of an offer compares the version of one key of the cell,
`Keys.withdrawals`, and each removal changes that key. The home cell's changes also compare its own word that it is
alive: a former leader, whose view is old, changes nothing.
"""

from __future__ import annotations

from typing import Final

from eslurm.core.federation.actions import StoredEntry, Write
from eslurm.core.federation.membership import Membership
from eslurm.core.federation.swapping import Entries
from eslurm.core.federation.values import Keys, Reader, Unreadable, encode
from eslurm.core.model.federation import FORMAT, JobOwner, Outcome, OwnerStage

_MARK: Final = b"1"
"""Value of the key of withdrawals: its version alone counts."""


class OwnerKey:
    """The key of a job's owner record."""

    def __init__(self, keys: Keys, home: str, job_id: int) -> None:
        self.key = keys.job(home, job_id)
        self.withdrawals = keys.withdrawals(home)
        self._reader = Reader(JobOwner, keys.jobs_of(home))

    def read(self, entry: StoredEntry | None) -> JobOwner | Unreadable | None:
        """The record in an entry; None: there is none."""
        return self._reader.read_entry(entry) if entry is not None else None

    def found(self, current: Entries) -> JobOwner | Unreadable | None:
        """The record among these values."""
        return self.read(current[self.key])


class _HomeChange:
    """A change by the home cell's leader."""

    def __init__(self, at: OwnerKey, membership: Membership) -> None:
        self.at = at
        self.keys = (at.key, at.withdrawals, membership.own.alive_key)
        self._membership = membership

    def _leads(self, current: Entries) -> bool:
        return self._membership.is_alive_word(current[self._membership.own.alive_key])

    def _removal(self) -> tuple[Write, ...]:
        return (Write(self.at.key, None), Write(self.at.withdrawals, _MARK))


class WriteOffer(_HomeChange):
    """Write an offer where there is none, or one that was withdrawn before."""

    def __init__(self, at: OwnerKey, membership: Membership, serial: int, taker: str) -> None:
        super().__init__(at, membership)
        self._offer = JobOwner(FORMAT, serial, taker, OwnerStage.OFFERED)

    def writes(self, current: Entries) -> tuple[Write, ...]:
        """None if the record is of this offer, or cannot be replaced."""
        found = self.at.found(current)
        if not self._leads(current) or isinstance(found, Unreadable):
            return ()
        if found is not None and (
            found.serial >= self._offer.serial or found.stage is not OwnerStage.OFFERED
        ):
            return ()
        return (Write(self.at.key, encode(self._offer)),)

    def is_mine(self, current: Entries) -> bool:
        """The offer stands, or the taker has acted on it."""
        found = self.at.found(current)
        return isinstance(found, JobOwner) and (found.serial, found.taker) == (
            self._offer.serial,
            self._offer.taker,
        )


class Withdraw(_HomeChange):
    """Make sure that an offer can be taken no more."""

    def __init__(self, at: OwnerKey, membership: Membership, serial: int) -> None:
        super().__init__(at, membership)
        self._serial = serial

    def writes(self, current: Entries) -> tuple[Write, ...]:
        """None if the offer is taken, or the record cannot be read."""
        found = self.at.found(current)
        if not self._leads(current) or isinstance(found, Unreadable):
            return ()
        if found is None or found.serial != self._serial:
            # A write of the offer may yet be on its way.
            return (Write(self.at.withdrawals, _MARK),)
        return self._removal() if found.stage is OwnerStage.OFFERED else ()

    def is_mine(self, current: Entries) -> bool:
        """False: what is in the store does not say that no write is on its way; it is withdrawn once more."""
        return False


class Remove(_HomeChange):
    """Remove a record that is of no more use."""

    def __init__(self, at: OwnerKey, membership: Membership, owner: JobOwner) -> None:
        super().__init__(at, membership)
        self._owner = owner

    def writes(self, current: Entries) -> tuple[Write, ...]:
        """None if it has changed."""
        return self._removal() if self._leads(current) and self.at.found(current) == self._owner else ()

    def is_mine(self, current: Entries) -> bool:
        """It is gone."""
        return current[self.at.key] is None


class _TakerChange:
    """A change by the taker."""

    def __init__(self, at: OwnerKey, serial: int, own: str) -> None:
        self.at = at
        self.keys = (at.key,)
        self._serial = serial
        self._own = own

    def is_of_offer(self, found: JobOwner | Unreadable | None) -> bool:
        """Check whether the record is that of the offer to this cell."""
        return isinstance(found, JobOwner) and (found.serial, found.taker) == (self._serial, self._own)


class Take(_TakerChange):
    """Become the owner of an offered job. With `restores`, also where the store has lost the record."""

    def __init__(self, at: OwnerKey, serial: int, own: str, *, restores: bool = False) -> None:
        super().__init__(at, serial, own)
        self._restores = restores

    def writes(self, current: Entries) -> tuple[Write, ...]:
        """None unless it is offered to this cell."""
        found = self.at.found(current)
        is_offered = (
            isinstance(found, JobOwner) and self.is_of_offer(found) and found.stage is OwnerStage.OFFERED
        )
        if not is_offered and not (self._restores and found is None):
            return ()
        return (Write(self.at.key, encode(JobOwner(FORMAT, self._serial, self._own, OwnerStage.OWNED))),)

    def is_mine(self, current: Entries) -> bool:
        """This cell owns it, whichever of its leaders took it."""
        found = self.at.found(current)
        return (
            isinstance(found, JobOwner) and self.is_of_offer(found) and found.stage is not OwnerStage.OFFERED
        )


class Tell(_TakerChange):
    """Tell the outcome of a job that this cell owns."""

    def __init__(self, at: OwnerKey, serial: int, own: str, outcome: Outcome) -> None:
        super().__init__(at, serial, own)
        self._value = encode(JobOwner(FORMAT, serial, own, OwnerStage.ENDED, outcome))

    def writes(self, current: Entries) -> tuple[Write, ...]:
        """None if it is told, or the record is of another offer."""
        found = self.at.found(current)
        if found is not None and (
            not isinstance(found, JobOwner) or not self.is_of_offer(found) or found.stage is OwnerStage.ENDED
        ):
            return ()
        return (Write(self.at.key, self._value),)

    def is_mine(self, current: Entries) -> bool:
        """An outcome is there."""
        found = self.at.found(current)
        return isinstance(found, JobOwner) and self.is_of_offer(found) and found.stage is OwnerStage.ENDED
