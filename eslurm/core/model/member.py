"""The controller's records of joined hosts: identity, join token, revocation.

Invariant: a membership is a fact before its host gets it, and a revoked serial stays revoked.
"""

from __future__ import annotations

from typing import Final

import msgspec

JOIN_TOKEN: Final = "join-token"
MEMBER: Final = "member"
REVOCATION: Final = "revocation"
"""Kinds of rows; their names are the id or the serial in hexadecimal digits."""

ROLES: Final = ("agent", "satellite", "login", "estimator")
"""Roles of joining hosts. Controllers have the site's keys and issue their own memberships."""
ID_BYTES: Final = 16
SERIAL_BYTES: Final = 16
PUBLIC_BYTES: Final = 32
HASH_BYTES: Final = 32
NAMES_CHARS_MAX: Final = 1024
NAMES_MAX: Final = 4096
"""Names of one membership."""
JOIN_TOKENS_MAX: Final = 1_000
USES_MAX: Final = 10_000
LIFE_MAX_S: Final = 7 * 86_400
MEMBERS_MAX: Final = 65_536
REVOKED_MAX: Final = 50_000
"""The sealed list of so many serials is below a megabyte, which is what a host reads of a file."""


class JoinToken(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Lets `uses_left` more hosts join as `role`. `names` is a host list; empty: any name. Times are UTC microseconds.

    `secret_hash` is the SHA-256 of the secret. A token that is used up is kept until its end, for hosts that ask again.
    """

    id: bytes
    secret_hash: bytes
    role: str
    names: str
    uses_left: int
    issued_us: int
    expires_us: int
    by: str
    by_uid: int


class Member(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One membership that was issued over the network. `by` is the responsible administrator, `token` the token's id.

    `public` is the host's identity key, `address` the address of its request.
    """

    serial: bytes
    role: str
    names: str
    public: bytes
    since_us: int
    by: str
    address: str = ""
    token: bytes = b""


class Revocation(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A membership that is no longer valid. `role` and `names` are for people; empty: not known."""

    serial: bytes
    role: str
    names: str
    by: str
    at_us: int
