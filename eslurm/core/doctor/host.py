"""The controller's own host, its log's ends and its keys: measured elsewhere, judged here."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from eslurm.core.doctor.finding import ERROR, WARNING, Finding, Severity, Sliced
from eslurm.core.model.units import SECOND_US

FILES = "files"
DISK = "disk"
KEY = "key"
CLOCK = "clock"
LOG = "log"
CONTROLLERS = "controllers"

FILES_WARNED_SHARE = 0.8
FILES_BAD_SHARE = 0.95
DISK_WARNED_SHARE = 0.05
DISK_WARNED_BYTES = 5 << 30
DISK_BAD_SHARE = 0.01
DISK_BAD_BYTES = 100 << 20
KEY_AGE_WARNED_S = 2 * 365 * 86_400
MEMBERSHIP_WARNED_S = 14 * 86_400
DRIFT_WARNED_US = 2 * SECOND_US
_MIB = 1 << 20


class Disk(msgspec.Struct, frozen=True):
    """A file system. `free_bytes` None: it did not answer in time."""

    path: str
    free_bytes: int | None
    total_bytes: int = 0


class KeyFile(msgspec.Struct, frozen=True):
    """A file with which the controller proves its identity or signs. `problem`: why it is unusable."""

    path: str
    is_secret: bool = True
    mode: int = 0o600
    may_group_read: bool = False
    is_foreign: bool = False
    """True when it belongs to another user except root."""
    age_s: int = 0
    """Age of the signing key."""
    left_s: int | None = None
    """Remaining validity of a membership; None: until it is revoked."""
    problem: str = ""


class Host(msgspec.Struct, frozen=True):
    """Measurements of the controller's host. `state_us` is the time of the last commit."""

    wall_us: int
    state_us: int
    files_open: int
    files_max: int
    disks: Sequence[Disk]
    keys: Sequence[KeyFile]


class LogEnds(msgspec.Struct, frozen=True):
    """The leader row beside what this controller believes: it leads under `epoch` as `name`, and had committed
    `revision_min` before the row was read and no more than `revision_max` after it.

    `last` is the last fact that is stored up to the row's revision (0: none), `gap` and `unreadable` the first revision
    near the log's end that is missing or is no fact; `is_whole`: the log begins at revision 1 or after a base state.
    """

    name: str
    epoch: int
    revision_min: int
    revision_max: int
    row_holder: str
    row_epoch: int
    row_revision: int
    last: int
    gap: int = 0
    unreadable: int = 0
    is_whole: bool = True


def check_host(host: Host) -> Sliced:
    """Check open files, disks, keys, and the clock against the log's time."""
    yield from _files(host)
    for disk in host.disks:
        yield from _disk(disk)
    for key in host.keys:
        yield from _key(key)
    ahead_us = host.state_us - host.wall_us
    if ahead_us > DRIFT_WARNED_US:
        text = f"its clock is {ahead_us / SECOND_US:.1f} s behind the last commit: time stands still for the cluster"
        advice = "let its clock be disciplined: chronyc tracking"
        yield Finding(CLOCK, ERROR, "controller", text, advice)


def _files(host: Host) -> Sliced:
    share = host.files_open / host.files_max if host.files_max else 0.0
    if share > FILES_WARNED_SHARE:
        severity: Severity = ERROR if share > FILES_BAD_SHARE else WARNING
        text = f"{host.files_open} of {host.files_max} files are open"
        yield Finding(FILES, severity, "controller", text, "raise the limit: LimitNOFILE= of its service")


def _disk(disk: Disk) -> Sliced:
    what = f"disk of {disk.path}"
    if disk.free_bytes is None:
        yield Finding(DISK, ERROR, what, "does not answer", "look at the file system and its device")
        return
    share = disk.free_bytes / disk.total_bytes if disk.total_bytes else 0.0
    # A small share of a large disk is plenty, and so are a few MiB of a small one.
    if share >= DISK_WARNED_SHARE or disk.free_bytes >= DISK_WARNED_BYTES:
        return
    bad = disk.free_bytes < DISK_BAD_BYTES or share < DISK_BAD_SHARE
    text = f"{disk.free_bytes // _MIB} MiB ({100 * share:.1f} %) are free"
    advice = "make room: a full disk stops commits, and with them every submission"
    yield Finding(DISK, ERROR if bad else WARNING, what, text, advice)


def _key(key: KeyFile) -> Sliced:
    what = f"key {key.path}"
    is_told = False
    if key.is_foreign:
        is_told = True
        yield Finding(KEY, ERROR, what, "belongs to another user", "chown it to the controller's user")
    forbidden = (0o027 if key.may_group_read else 0o077) if key.is_secret else 0o022
    if key.mode & forbidden:
        is_told = True
        text = f"is open to others (mode {key.mode:04o})"
        advice = "chmod 600 it, then change it: others may have read it" if key.is_secret else "chmod 644 it"
        yield Finding(KEY, ERROR, what, text, advice)
    if key.problem and not is_told:
        advice = "put it back as it was: the controller may not start again without it"
        yield Finding(KEY, ERROR, what, f"is of no use: {key.problem}", advice)
    if key.age_s > KEY_AGE_WARNED_S:
        text = f"signs since {key.age_s // 86_400} days"
        yield Finding(KEY, WARNING, what, text, "replace it, without a restart: eslurm keys rotate")
    if key.left_s is not None and key.left_s < MEMBERSHIP_WARNED_S:
        text = f"is valid for {key.left_s // 3600} hours" if key.left_s > 0 else "has ended"
        advice = "remove it and start the controller again: it issues itself another one"
        yield Finding(KEY, WARNING if key.left_s > 0 else ERROR, what, text, advice)


def check_log(ends: LogEnds) -> Sliced:
    """Check that the leader row, the end of the log and the state agree."""
    if ends.row_epoch != ends.epoch or (ends.row_holder and ends.row_holder != ends.name):
        text = (
            f"the store is led by {ends.row_holder or 'another controller'} under epoch {ends.row_epoch}, "
            f"this is {ends.name} under epoch {ends.epoch}"
        )
        advice = "this controller can commit nothing more and ends by itself"
        yield Finding(CONTROLLERS, ERROR, f"controller {ends.name}", text, advice)
    if not ends.revision_min <= ends.row_revision <= ends.revision_max:
        text = f"its head is at revision {ends.row_revision}, the state at {ends.revision_max}"
        yield Finding(LOG, ERROR, "log", text, _LOG_ADVICE)
    if ends.last != ends.row_revision and (ends.last or ends.row_revision):
        text = f"its last fact is {ends.last or 'missing'}, its head says {ends.row_revision}"
        yield Finding(LOG, ERROR, "log", text, _LOG_ADVICE)
    if ends.gap:
        yield Finding(LOG, ERROR, "log", f"revision {ends.gap} is missing", _LOG_ADVICE)
    if ends.unreadable:
        yield Finding(LOG, ERROR, "log", f"revision {ends.unreadable} cannot be decoded", _LOG_ADVICE)
    if not ends.is_whole:
        text = "its beginning is gone, and no base state says what was before"
        advice = "the cluster works; `esctl log export` does not, until the next base state is made"
        yield Finding(LOG, WARNING, "log", text, advice)


_LOG_ADVICE = (
    "another process has written to the store: stop the controller and restore the database from a backup"
)
