"""The keys of other cells of a federation, and why they are trusted.

A cell's identity is its site's ring of keys, which its record in the shared store has. Invariant: a ring is trusted when a
pinned key has sealed it, when a key of the ring known before has, or when the configuration believes the store; what one
cell says of keys and revocations changes nothing of another, and nothing of this site.
"""

from __future__ import annotations

from collections.abc import Mapping

from eslurm.security.joining import fingerprint
from eslurm.security.membership import Members
from eslurm.security.revocation import Revoked
from eslurm.security.sealing import BadSeal, KeyRing, Purpose, key_id
from eslurm.security.site_keys import Ring


class CellKeys:
    """One cell's ring, and its list of revoked memberships as far as it has told."""

    def __init__(self, name: str, ring: Ring, cells: Mapping[str, CellKeys]) -> None:
        """`cells` are all that are trusted: none takes a key of another one into its ring."""
        self.name = name
        self.members = Members(ring)
        self.revoked = Revoked()
        self._cells = cells
        self.check(ring)

    def check(self, ring: Ring) -> None:
        """Raise `BadSeal` for a ring with a key of another cell: its peers would pass for this one's."""
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


class CellTrust:
    """Decides which cells are trusted. `pins` are fingerprints of keys by cell; `believes_store`: a cell without a pin is
    who its record says.
    """

    def __init__(self, pins: Mapping[str, frozenset[str]], *, believes_store: bool) -> None:
        self._pins = pins
        self._believes_store = believes_store
        self.cells: dict[str, CellKeys] = {}
        self.refused: dict[str, str] = {}
        """By cell, the reason why it is not trusted, with the way out."""

    def follow(self, rings: Mapping[str, bytes]) -> bool:
        """Look at the sealed rings that the cells' records have now. Returns whether links have to be checked again."""
        before = dict(self.cells)
        for name in [name for name in self.cells if name not in rings]:
            del self.cells[name]
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
        return changed or before != self.cells

    def _learn(self, name: str, sealed: bytes) -> bool:
        known = self.cells.get(name)
        if known is not None:
            try:
                return known.learn_ring(sealed)
            except BadSeal:
                # Its site may have begun anew: what holds for a cell that was never seen holds for it.
                pass
        try:
            ring = Ring.from_sealed(sealed)
        except BadSeal as error:
            raise BadSeal(f"its record has no keys of a site: {error}") from None
        pins = self._pins.get(name)
        if pins is None:
            if not self._believes_store:
                raise BadSeal("it is not pinned here: " + self._way_out(name, ring))
        elif not any(
            fingerprint(public) in pins and _has_sealed(public, sealed) for public in ring.keys.publics
        ):
            raise BadSeal("no pinned key has sealed its keys: " + self._way_out(name, ring))
        self.cells[name] = CellKeys(name, ring, self.cells)
        return True

    @staticmethod
    def _way_out(name: str, ring: Ring) -> str:
        oldest = next(public for public in ring.keys.publics if _has_sealed(public, ring.sealed))
        return (
            f'if its administrators confirm {fingerprint(oldest)}, add [[federation.peer]] name = "{name}", '
            f'key = "{fingerprint(oldest)}"'
        )


def _has_sealed(public: bytes, sealed: bytes) -> bool:
    try:
        KeyRing((public,)).open(Purpose.RING, sealed)
    except BadSeal:
        return False
    return True
