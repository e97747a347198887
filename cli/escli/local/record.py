"""`cluster.json`: the cluster of a state directory, and the processes of its daemons.

Invariant: the file appears whole or not at all, and is changed only under the directory's lock. A daemon is recorded as
soon as it exists, so that a crashed command leaves no unknown process.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from escli.errors import unusable
from escli.local.processes import Identity

FORMAT = 2
"""Of the directory: names of its files and what they mean. Raised when an older `eslurm` could not use it."""
FORMAT_SHARED_KEY = 1
"""Daemons of one shared key. `eslurm convert` makes the present format of it."""


class AgentRecord(msgspec.Struct, frozen=True):
    """The nodes of one agent process, for good: their spools are in its directory."""

    name: str
    nodes: str
    listen: str


class StandbyRecord(msgspec.Struct, frozen=True):
    """A controller beside the first one, which is called main and listens where the configuration says."""

    name: str
    listen: str


class DaemonRecord(msgspec.Struct, frozen=True):
    """A daemon that was started."""

    name: str
    kind: str
    listen: str
    identity: Identity
    started_us: int


class ClusterRecord(msgspec.Struct, frozen=True):
    """The whole file. `version` is the newest that has used the directory; `estimator`: whether it has an `esestd`."""

    format: int
    version: str
    cluster: str
    owner_uid: int
    created_us: int
    agents_wanted: int
    agents: tuple[AgentRecord, ...] = ()
    daemons: tuple[DaemonRecord, ...] = ()
    standbys: tuple[StandbyRecord, ...] = ()
    estimator: bool = False
    daemon_uid: int = 0
    """Uid of root's agents; 0 without root."""
    satellite_uid: int = 0
    """The same for its satellites."""
    controller_uid: int = 0
    """The same for its controllers, and its estimator, which reads their configuration and is their operator."""

    @property
    def is_old(self) -> bool:
        """Check whether an older release has made the cluster, and `eslurm convert` has not run yet."""
        return self.format != FORMAT

    def find(self, name: str) -> DaemonRecord | None:
        """The daemon of this name, if it was started."""
        return next((daemon for daemon in self.daemons if daemon.name == name), None)

    def with_daemon(self, daemon: DaemonRecord) -> ClusterRecord:
        """This record with the daemon in the place of an earlier one of its name, else at the end."""
        if self.find(daemon.name) is None:
            return msgspec.structs.replace(self, daemons=(*self.daemons, daemon))
        daemons = tuple(daemon if other.name == daemon.name else other for other in self.daemons)
        return msgspec.structs.replace(self, daemons=daemons)

    def without_daemons(self, names: set[str]) -> ClusterRecord:
        """This record with these daemons forgotten."""
        left = tuple(daemon for daemon in self.daemons if daemon.name not in names)
        return msgspec.structs.replace(self, daemons=left)


class _Head(msgspec.Struct):
    """The fields of every version of the file."""

    format: int
    version: str
    owner_uid: int


def write_record(path: Path, record: ClusterRecord) -> None:
    """Replace the file atomically."""
    fresh = path.with_suffix(".json.new")
    data = msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"
    with open(fresh, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def read_record(path: Path, version: str, uid: int) -> ClusterRecord | None:
    """The record, checked to be this user's and usable by `version`; None when there is none.

    Raises `ClusterError`, with nothing changed.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(f"{path}: cannot be read: {error.strerror}") from None
    directory = path.parent
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.owner_uid != uid:
            raise unusable(
                f"{directory}: is the cluster of user id {head.owner_uid}, you are {uid}: "
                "use a directory of your own (--state-dir)"
            )
        if head.format not in (FORMAT_SHARED_KEY, FORMAT) or version_key(head.version) > version_key(version):
            raise unusable(
                f"{directory}: was made by eslurm {head.version}, this is {version}: use that version, "
                "or another directory (--state-dir)"
            )
        return msgspec.json.decode(data, type=ClusterRecord)
    except msgspec.MsgspecError as error:
        raise unusable(
            f"{path}: is not a record of a cluster ({error}): put it back, or use another directory (--state-dir)"
        ) from None


def version_key(version: str) -> tuple[int, ...]:
    """Sort key of versions: the numbers before anything else (`0.2.1rc1` counts as 0.2)."""
    numbers = []
    for part in version.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
