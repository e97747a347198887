"""Join tokens, members and revocations, and the indexes over them."""

from __future__ import annotations

from eslurm.core.model.hostlist import unfold
from eslurm.core.model.member import JoinToken, Member, Revocation


class Members:
    """Join tokens, members and revocations by id and serial. Written by `apply` and `restore` only.

    `of_key` (identity key -> serial) and `taken` (token -> names that joined with it) are indexes of `issued`.
    """

    def __init__(self) -> None:
        self.tokens: dict[bytes, JoinToken] = {}
        self.issued: dict[bytes, Member] = {}
        self.revoked: dict[bytes, Revocation] = {}
        self.of_key: dict[bytes, bytes] = {}
        self.taken: dict[bytes, set[str]] = {}

    def enter(self, member: Member) -> None:
        self.issued[member.serial] = member
        self.of_key[member.public] = member.serial
        if member.token:
            self.taken.setdefault(member.token, set()).update(unfold(member.names))

    def remove(self, serial: bytes) -> bool:
        """Check whether it was present."""
        member = self.issued.pop(serial, None)
        if member is None:
            return False
        del self.of_key[member.public]
        if member.token:
            left = self.taken[member.token]
            left.difference_update(unfold(member.names))
            if not left:
                del self.taken[member.token]
        return True
