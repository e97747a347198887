"""Whom the daemons of a cluster become that root brings up: no process that speaks with the network is root's on a node."""

from __future__ import annotations

import pwd
import secrets

from escli.cluster.errors import unusable

ACCOUNT = "eslurm"
_FIRST, _LAST = 61_184, 65_519
"""Numbers that systemd gives to services without an account of their own, and no distribution to users."""
_TRIES = 1_000


def choose_uid() -> int:
    """The account `eslurm` where there is one, else a number that no account has. Raises `ClusterError`."""
    try:
        return pwd.getpwnam(ACCOUNT).pw_uid
    except KeyError:
        pass
    for _ in range(_TRIES):
        uid = _FIRST + secrets.randbelow(_LAST - _FIRST + 1)
        try:
            pwd.getpwuid(uid)
        except KeyError:
            return uid
    raise unusable(
        f"all user ids from {_FIRST} to {_LAST} are accounts: make one for the daemons: useradd --system {ACCOUNT}"
    )
