"""The ledger of memberships issued on a controller's host, and the list of revoked ones.

`members` holds one JSON line for each, `revoked` the sealed list; both lie beside the site's keys, and those of
controllers that are not root in directories below. Invariant: a membership is in the ledger before a host has it, so each
one in use can be revoked by name.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from eslurm.core.model.hostlist import holds
from eslurm.security.account import Account
from eslurm.security.files import FILE_BYTES_MAX, read_trusted, write_public
from eslurm.security.home import CONTROLLER, read_in_home, share
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
    """All of them, in order; a line cut short by a crash is skipped. Raises `UnsafeFile`."""
    path = directory / LEDGER
    lines = read_trusted(path, BYTES_MAX).splitlines() if path.exists() else []
    lines += read_in_home(directory, CONTROLLER, LEDGER, BYTES_MAX).splitlines()
    found = []
    for line in lines:
        try:
            issued = msgspec.json.decode(line, type=Issued)
            bytes.fromhex(issued.serial + issued.key)
        except (msgspec.MsgspecError, ValueError):
            continue
        if issued.names.isprintable():
            found.append(issued)
    return found


def open_for(directory: Path, account: Account) -> None:
    """Let a controller that is not root read root's entries. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    os.close(os.open(directory / LEDGER, flags, 0o600))
    share(directory / LEDGER, account)


def matching(issued: list[Issued], which: str) -> list[Issued]:
    """The entries with a serial (or its beginning, eight digits at least) or a host's name."""
    by_serial = [one for one in issued if len(which) >= 8 and one.serial.startswith(which.lower())]
    return by_serial or [one for one in issued if holds(one.names, which)]


def read_revoked(directory: Path, keys: SiteKeys) -> Revoked:
    """The current list. Raises `UnsafeFile`, and `BadSeal` when none of the site's keys has sealed it."""
    path = directory / REVOKED
    found = Revoked()
    if path.exists():
        found = found.successor(keys.ring, read_trusted(path)) or found
    # Of a key that is retired meanwhile: the leading controller seals it anew.
    with suppress(BadSeal):
        found = (
            found.successor(
                keys.ring, read_in_home(directory, CONTROLLER, REVOKED, FILE_BYTES_MAX) or found.sealed
            )
            or found
        )
    return found


def revoke(directory: Path, keys: SiteKeys, serials: frozenset[bytes]) -> Revoked:
    """Add memberships to the list, and seal it with the signing key. Raises `UnsafeFile`, `BadSeal`, OSError."""
    before = read_revoked(directory, keys)
    sealed = seal_revoked(keys, before.revision + 1, before.serials | serials)
    write_public(directory / REVOKED, sealed)
    after = before.successor(keys.ring, sealed)
    if after is None:
        raise BadSeal("the list of revoked memberships is full: give the site new keys")
    return after
