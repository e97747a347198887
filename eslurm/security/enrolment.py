"""Enrolment of a daemon on a host with the site's private keys: a controller's host.

Invariant: an existing identity stays, and a valid membership is not issued anew.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from eslurm.security.credentials import Credentials, check_own
from eslurm.security.files import read_trusted, write_public
from eslurm.security.ledger import Issued, append
from eslurm.security.membership import (
    IDENTITY,
    MEMBERSHIP,
    Members,
    Membership,
    NotAMember,
    Role,
    find_identity,
    issue,
)
from eslurm.security.site_keys import SITE_PUB, SiteKeys, write_ring

SERIAL_BYTES = 16


def new_membership(
    keys: SiteKeys,
    public: bytes,
    role: Role,
    names: str,
    now_us: int,
    until_us: int = 0,
    ledger: Path | None = None,
) -> bytes:
    """A sealed membership for the holder of a key, entered in the `ledger` of the controller's directory. Raises OSError."""
    serial = secrets.token_bytes(SERIAL_BYTES)
    if ledger is not None:
        append(ledger, Issued(serial.hex(), role, names, keys.signing.id.hex(), now_us, until_us))
    return issue(keys, Membership(keys.cluster, serial, role, names, public, now_us, until_us))


def is_current(keys: SiteKeys, credentials: Credentials, role: Role, names: str, now_us: int) -> bool:
    """Check whether the membership is under the key that signs now and for this role and exactly these names."""
    if credentials.membership[: len(keys.signing.id)] != keys.signing.id:
        return False
    try:
        return check_own(credentials, role, (), now_us).names == names
    except NotAMember:
        return False


def enrol(
    keys: SiteKeys,
    directory: Path,
    role: Role,
    names: str,
    now_us: int,
    until_us: int = 0,
    ledger: Path | None = None,
) -> None:
    """Write the files that a daemon reads at its start into its directory, which exists. Raises `UnsafeFile`, OSError."""
    identity = find_identity(directory / IDENTITY)
    path = directory / MEMBERSHIP
    sealed = read_trusted(path) if path.exists() else b""
    if not is_current(keys, Credentials(identity, sealed, Members(keys.ring)), role, names, now_us):
        write_public(path, new_membership(keys, identity.public, role, names, now_us, until_us, ledger))
    write_ring(directory / SITE_PUB, keys.ring)
