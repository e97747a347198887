"""The keys of other cells of a federation, and why they are trusted.

A cell's identity is its site's ring of keys, which its record in the shared store has. Invariants: a ring is trusted when a
pinned key has sealed it, when a key of the ring known before has, or when the configuration believes the store; what one
cell says of keys and revocations changes nothing of another, and nothing of this site; no record brings back a key that a
pinned cell has retired, or takes back its revocations.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from eslurm.security.joining import fingerprint
from eslurm.security.membership import Members
from eslurm.security.revocation import Revoked
from eslurm.security.sealing import BadSeal, KeyRing, Purpose, key_id
from eslurm.security.site_keys import Ring

log = logging.getLogger(__name__)

GONE_MAX: Final = 256
"""Cells without a pin whose record is gone and whose revocations are kept: who writes into the store can name many."""


class CellKeys:
    """One cell's ring, and its list of revoked memberships as far as it has told."""

    def __init__(
        self,
        name: str,
        ring: Ring,
        cells: Mapping[str, CellKeys],
        pins: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        """`cells` are all that are trusted, `pins` those of all cells: none takes a key of another one into its ring."""
        self.name = name
        self.members = Members(ring)
        self.revoked = Revoked()
        self.retired: frozenset[bytes] = frozenset()
        """Ids of keys that were in its ring and that a later ring does not have."""
        self._cells = cells
        self._pins = pins or {}
        self.check(ring)

    def check(self, ring: Ring) -> None:
        """Raise `BadSeal` for a ring with a key of another cell: its peers would pass for this one's."""
        # Before the look at rings: a cell whose record comes first does not shut out the one that has the key's pin.
        own = self._pins.get(self.name, frozenset())
        for pin in {fingerprint(public) for public in ring.keys.publics} - own:
            for name, pins in self._pins.items():
                if pin in pins:
                    raise BadSeal(f"one of its keys is pinned for cell {name}")
        for other in self._cells.values():
            if other.name != self.name and any(
                key_id(one) in other.members.ring.keys for one in ring.keys.publics
            ):
                raise BadSeal(f"one of its keys is that of cell {other.name}")

    def learn_ring(self, sealed: bytes) -> bool:
        """Trust the cell's newer keys from now on; False when they are not newer. Raises `BadSeal`."""
        ring = self.members.ring.successor(sealed)
        if ring is None:
            return False
        self.check(ring)
        now = _ids(ring)
        self.retired = (self.retired | _ids(self.members.ring)) - now
        self.members.ring = ring
        return True

    def learn_revoked(self, sealed: bytes) -> bool:
        """Refuse more of its memberships from now on; False when the list is not newer. Raises `BadSeal`."""
        revoked = self.revoked.successor(self.members.ring, sealed)
        if revoked is None:
            return False
        self.revoked = revoked
        self.members.revoked = revoked.serials
        return True

    def continue_from(self, known: CellKeys) -> None:
        """Keep what is known of the cell by keys that this ring does not follow. Raises `BadSeal` for a ring of the past."""
        ring, before = self.members.ring, known.members.ring
        returned = _ids(ring) & known.retired
        if returned:
            raise BadSeal(f"key {min(returned).hex()} is in its record again, which its site has retired")
        is_same_site = bool(_ids(ring) & _ids(before))
        if is_same_site and ring.revision <= before.revision:
            raise BadSeal(f"its record has revision {ring.revision} of its keys, {before.revision} is known")
        self.retired = (known.retired | _ids(before)) - _ids(ring)
        self.members.revoked = known.members.revoked
        if is_same_site:
            self.revoked = known.revoked


class CellTrust:
    """Decides which cells are trusted. `pins` are fingerprints of keys by cell; `believes_store`: a cell without a pin is
    who its record says.
    """

    def __init__(self, pins: Mapping[str, frozenset[str]], *, believes_store: bool) -> None:
        self._pins = pins
        self._believes_store = believes_store
        self.cells: dict[str, CellKeys] = {}
        self._gone: dict[str, CellKeys] = {}
        self.refused: dict[str, str] = {}
        """By cell, the reason why it is not trusted, with the way out."""

    def follow(self, rings: Mapping[str, bytes]) -> bool:
        """Look at the sealed rings that the cells' records have now. Returns whether links have to be checked again."""
        before = dict(self.cells)
        for name in [name for name in self.cells if name not in rings]:
            self._gone[name] = self.cells.pop(name)
        for name in [name for name in self._gone if name not in self._pins][:-GONE_MAX]:
            del self._gone[name]
        self.refused = {}
        changed = False
        for name, sealed in rings.items():
            known = self.cells.get(name)
            if known is not None and sealed == known.members.ring.sealed:
                continue
            try:
                changed |= self._learn(name, sealed)
            except BadSeal as error:
                self.refused[name] = str(error)
            except Exception as error:
                # A fault of our own concerns this cell, and none of the others.
                log.exception("the record of cell %s could not be followed", name)
                self.refused[name] = f"its record could not be followed: {error!r}"
        return changed or before != self.cells

    def _learn(self, name: str, sealed: bytes) -> bool:
        known = self.cells.get(name)
        pins = self._pins.get(name)
        before = known or self._gone.get(name)
        if before is not None and known is None and sealed == before.members.ring.sealed:
            return self._enter(before)
        # What the store alone has said of a cell ends with its record.
        if before is not None and (known is not None or pins is not None):
            try:
                return before.learn_ring(sealed) if known is not None else self._return(before, sealed)
            except BadSeal:
                # Its site may have begun anew: what holds for a cell that was never seen holds for it.
                pass
        try:
            ring = Ring.from_sealed(sealed)
        except BadSeal as error:
            raise BadSeal(f"its record has no keys of a site: {error}") from None
        if pins is None:
            if not self._believes_store:
                raise BadSeal("it is not pinned here: " + self._way_out(name, ring))
        elif not any(
            fingerprint(public) in pins and _has_sealed(public, sealed) for public in ring.keys.publics
        ):
            raise BadSeal("no pinned key has sealed its keys: " + self._way_out(name, ring))
        fresh = CellKeys(name, ring, self.cells, self._pins)
        if before is not None and pins is not None:
            fresh.continue_from(before)
        return self._enter(fresh)

    def _return(self, gone: CellKeys, sealed: bytes) -> bool:
        """Trust a cell again whose record has come back with newer keys. Raises `BadSeal`."""
        if not gone.learn_ring(sealed):
            raise BadSeal("its record has keys that are older than those known")
        return self._enter(gone)

    def _enter(self, keys: CellKeys) -> bool:
        """Trust these keys from now on. Raises `BadSeal` when another cell has one of them by now."""
        keys.check(keys.members.ring)
        self.cells[keys.name] = keys
        self._gone.pop(keys.name, None)
        return True

    @staticmethod
    def _way_out(name: str, ring: Ring) -> str:
        oldest = next(public for public in ring.keys.publics if _has_sealed(public, ring.sealed))
        return (
            f'if its administrators confirm {fingerprint(oldest)}, add [[federation.peer]] name = "{name}", '
            f'key = "{fingerprint(oldest)}"'
        )


def _ids(ring: Ring) -> frozenset[bytes]:
    return frozenset(key_id(public) for public in ring.keys.publics)


def _has_sealed(public: bytes, sealed: bytes) -> bool:
    try:
        KeyRing((public,)).open(Purpose.RING, sealed)
    except BadSeal:
        return False
    return True
