"""The list of revoked memberships, a sealed statement of the site that any host may pass on.

Invariant: a host replaces its list only by one of a higher revision that a key of its ring has sealed.
"""

from __future__ import annotations

import msgspec

from eslurm.security.sealing import UNREADABLE, BadSeal, Purpose
from eslurm.security.site_keys import Ring, SiteKeys

REVOKED = "revoked"
SERIALS_MAX = 65_536
"""Of a list that is taken; controllers revoke no more than `core.model.member.REVOKED_MAX`."""


class RevokedStatement(msgspec.Struct, frozen=True, array_like=True):
    """The serials of revoked memberships from this revision on."""

    cluster: str
    revision: int
    serials: tuple[bytes, ...]


class Revoked:
    """The list as one host knows it; revision 0: none."""

    def __init__(self, statement: RevokedStatement | None = None, sealed: bytes = b"") -> None:
        self.revision = statement.revision if statement is not None else 0
        self.serials = frozenset(statement.serials) if statement is not None else frozenset[bytes]()
        self.sealed = sealed

    def successor(self, ring: Ring, sealed: bytes) -> Revoked | None:
        """The list that replaces this one; None when it is no newer. Raises `BadSeal`."""
        if sealed == self.sealed:
            return None
        try:
            body = ring.keys.open(Purpose.REVOKED, sealed)
            statement = msgspec.msgpack.decode(body, type=RevokedStatement)
        except UNREADABLE:
            raise BadSeal("not a list of revoked memberships") from None
        if statement.cluster != ring.cluster:
            raise BadSeal(f"a list of cluster {statement.cluster!r}, not {ring.cluster!r}")
        if statement.revision <= self.revision or len(statement.serials) > SERIALS_MAX:
            return None
        return Revoked(statement, sealed)


def seal_revoked(keys: SiteKeys, revision: int, serials: frozenset[bytes]) -> bytes:
    """The sealed list."""
    statement = RevokedStatement(keys.cluster, revision, tuple(sorted(serials)))
    return keys.seal(Purpose.REVOKED, msgspec.msgpack.encode(statement))
