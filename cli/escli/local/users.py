"""The users of a cluster's daemons that root brings up: no process with network access is root's.

Agents, satellites and controllers are different users: none of them can read the others' files or signal them.
"""

from __future__ import annotations

import grp
import pwd
import secrets
from collections.abc import Collection

import msgspec

from escli.errors import unusable
from escli.local.record import ClusterRecord
from escli.local.settings import Cell

ACCOUNT = "eslurm"
_FIRST, _LAST = 61_184, 65_519
"""Numbers that systemd gives to services without an account of their own, and no distribution to users."""
_TRIES = 1_000


def with_users(record: ClusterRecord, *, is_up: bool, cell: Cell | None = None) -> ClusterRecord:
    """The record with the daemons' users, the same for the cluster's whole life. Raises `ClusterError`.

    Missing ones are chosen while it is down: daemons that share files have one user.
    """
    if record.owner_uid != 0 or is_up:
        return record
    if cell is not None and cell.uids is not None:
        agents, satellites, controllers = cell.uids
        return msgspec.structs.replace(
            record, daemon_uid=agents, satellite_uid=satellites, controller_uid=controllers
        )
    agents = record.daemon_uid or _account() or _free_uid(())
    satellites = record.satellite_uid or _free_uid((agents,))
    controllers = record.controller_uid or _free_uid((agents, satellites))
    return msgspec.structs.replace(
        record, daemon_uid=agents, satellite_uid=satellites, controller_uid=controllers
    )


def free_uids(count: int) -> tuple[int, ...]:
    """So many different ones that no account and no group has. Raises `ClusterError`."""
    found: list[int] = []
    for _ in range(count):
        found.append(_free_uid(found))
    return tuple(found)


def _account() -> int | None:
    try:
        return pwd.getpwnam(ACCOUNT).pw_uid
    except KeyError:
        return None


def _free_uid(taken: Collection[int]) -> int:
    """A number that no account and no group has."""
    for _ in range(_TRIES):
        uid = _FIRST + secrets.randbelow(_LAST - _FIRST + 1)
        if uid not in taken and _is_free(uid):
            return uid
    raise unusable(
        f"all user ids from {_FIRST} to {_LAST} are accounts: make one for the daemons: useradd --system {ACCOUNT}"
    )


def _is_free(number: int) -> bool:
    for find in (pwd.getpwuid, grp.getgrgid):
        try:
            find(number)
            return False
        except KeyError:
            continue
    return True
