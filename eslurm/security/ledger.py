"""The memberships that were issued on a controller's host, and the list of those that are revoked.

`members` holds one JSON line for each, `revoked` the sealed list; both lie beside the site's keys. Invariant: a membership
is in the ledger before anybody has it, so each one that is in use can be revoked by name.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from eslurm.core.node.hostlist import holds
from eslurm.security.files import read_trusted, write_public
from eslurm.security.membership import Role
from eslurm.security.revocation import REVOKED, Revoked, seal_revoked
from eslurm.security.sealing import BadSeal
from eslurm.security.site_keys import SiteKeys

LEDGER = "members"
BYTES_MAX = 64 * 1024 * 1024
"""A line has about 150 bytes."""


class Issued(msgspec.Struct, frozen=True):
    """One membership; `serial` and the `key` that has sealed it are in hexadecimal."""

    serial: str
    role: Role
    names: str
    key: str
    since_us: int
    until_us: int = 0


def append(directory: Path, issued: Issued) -> None:
    """Enter a membership. Raises OSError."""
    fd = os.open(
        directory / LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.encode(issued) + b"\n")
        file.flush()
        os.fsync(fd)


def read(directory: Path) -> list[Issued]:
    """All of them, in order; a line that a crash has cut short is passed over. Raises `UnsafeFile`."""
    path = directory / LEDGER
    found = []
    for line in read_trusted(path, BYTES_MAX).splitlines() if path.exists() else ():
        try:
            found.append(msgspec.json.decode(line, type=Issued))
        except msgspec.MsgspecError:
            continue
    return found


def matching(issued: list[Issued], which: str) -> list[Issued]:
    """Those of a serial (or its beginning, eight digits at least) or of a host's name."""
    by_serial = [one for one in issued if len(which) >= 8 and one.serial.startswith(which.lower())]
    return by_serial or [one for one in issued if holds(one.names, which)]


def read_revoked(directory: Path, keys: SiteKeys) -> Revoked:
    """The list as it is now. Raises `UnsafeFile`, and `BadSeal` when none of the site's keys has sealed it."""
    path = directory / REVOKED
    if not path.exists():
        return Revoked()
    return Revoked().successor(keys.ring, read_trusted(path)) or Revoked()


def revoke(directory: Path, keys: SiteKeys, serials: frozenset[bytes]) -> Revoked:
    """Add memberships to the list, and seal it with the key that signs now. Raises `UnsafeFile`, `BadSeal`, OSError."""
    before = read_revoked(directory, keys)
    sealed = seal_revoked(keys, before.revision + 1, before.serials | serials)
    write_public(directory / REVOKED, sealed)
    after = before.successor(keys.ring, sealed)
    if after is None:
        raise BadSeal("the list of revoked memberships is full: give the site new keys")
    return after
