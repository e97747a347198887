"""Keys and values of a federation in the shared store.

Other cells wrote what is read here: a value that is too large, does not decode, is of another format or stands under a key
that is not its own is `Unreadable`, with the reason, and never an exception.
"""

from __future__ import annotations

import re
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from eslurm.core.federation import pools
from eslurm.core.federation.actions import StoredEntry
from eslurm.core.model.federation import (
    FORMAT,
    Alive,
    CellRecord,
    CellUsage,
    IdBlock,
    JobOwner,
    NextId,
    NextNumber,
    OwnerStage,
    Pool,
    Summary,
)
from eslurm.core.model.job_ids import JOB_ID_MAX

VALUE_BYTES_MAX: Final = 16 * 1024
"""The largest bound of all kinds."""

Value: TypeAlias = CellRecord | NextNumber | Alive | Summary | Pool | IdBlock | NextId | JobOwner | CellUsage
V = TypeVar("V", bound=Value)

_BYTES_MAX: Final[dict[type, int]] = {
    CellRecord: 8 * 1024,
    NextNumber: 64,
    IdBlock: 128,
    NextId: 64,
    Alive: 2 * 1024,
    Summary: VALUE_BYTES_MAX,
    Pool: VALUE_BYTES_MAX,
    JobOwner: 2 * 1024,
    CellUsage: VALUE_BYTES_MAX,
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_ID_DIGITS: Final = 10
_ID = re.compile(rf"[0-9]{{{_ID_DIGITS}}}")
_ENCODER = msgspec.msgpack.Encoder()


class Unreadable(msgspec.Struct, frozen=True):
    """A value that cannot be used, and why."""

    key: str
    reason: str


class Keys:
    """The paths of a federation.

    `number` is beside the records, and `next_id` beside the blocks of ids, so that one watch shows both at one revision.
    """

    def __init__(self, federation: str) -> None:
        self.cells = f"/eslurm/{federation}/cells/"
        self.alive = f"/eslurm/{federation}/alive/"
        self.summary = f"/eslurm/{federation}/summary/"
        self.pool = f"/eslurm/{federation}/pool/"
        self.number = f"{self.cells}+number"
        self.ids = f"/eslurm/{federation}/ids/"
        self.next_id = f"{self.ids}+next"
        self.jobs = f"/eslurm/{federation}/jobs/"
        self.usage = f"/eslurm/{federation}/usage/"

    def id_block(self, first: int) -> str:
        """The key of the block that begins with this id."""
        return f"{self.ids}{first:0{_ID_DIGITS}}"

    def jobs_of(self, home: str) -> str:
        """The prefix of the owner records of this cell's jobs."""
        return f"{self.jobs}{home}/"

    def withdrawals(self, home: str) -> str:
        """The key that each removal of an owner record of this cell's jobs changes."""
        return f"{self.jobs_of(home)}+withdrawals"

    def job(self, home: str, job_id: int) -> str:
        """The key of the owner record of a job of this cell."""
        return f"{self.jobs_of(home)}{job_id:0{_ID_DIGITS}}"


def name_in(prefix: str, key: str) -> str:
    """The cell that a key below `prefix` belongs to; empty: none."""
    name = key.removeprefix(prefix)
    return name if name != key and _NAME.fullmatch(name) else ""


def first_id_in(prefix: str, key: str) -> int:
    """The job id, or the first id of the block, whose key this is; 0: it is none's."""
    digits = key.removeprefix(prefix)
    return int(digits) if digits != key and _ID.fullmatch(digits) else 0


def encode(value: Value) -> bytes:
    """The bytes of a value. Raises `ValueError` above the bound of its kind."""
    body = _ENCODER.encode(value)
    most = _BYTES_MAX[type(value)]
    if len(body) > most:
        raise ValueError(f"a {type(value).__name__} of {len(body)} bytes: at most {most}")
    return body


class Reader(Generic[V]):
    """Decodes values of one kind below `prefix`."""

    def __init__(self, kind: type[V], prefix: str) -> None:
        self._kind = kind
        self._prefix = prefix
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._latest: tuple[str, bytes, int] | None = None
        self._read: V | Unreadable = Unreadable("", "")

    def read(self, key: str, value: bytes, size: int = 0) -> V | Unreadable:
        """The value of a key; `size` is its size in the store, if larger than what is here."""
        # The machines read the same words again and again.
        if (key, value, size) != self._latest:
            self._read = self._judge(key, value, size)
            self._latest = key, value, size
        return self._read

    def read_entry(self, entry: StoredEntry) -> V | Unreadable:
        """The value of an entry."""
        return self.read(entry.key, entry.value)

    def _judge(self, key: str, value: bytes, size: int) -> V | Unreadable:
        size = max(size, len(value))
        if size > _BYTES_MAX[self._kind]:
            return Unreadable(key, f"{size} bytes: at most {_BYTES_MAX[self._kind]}")
        try:
            decoded = self._decoder.decode(value)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return Unreadable(key, str(error)[:200])
        if decoded.format != FORMAT:
            return Unreadable(key, f"format {decoded.format}: this release reads {FORMAT}")
        if reason := self._faulty(key, decoded):
            return Unreadable(key, reason)
        return decoded

    def _faulty(self, key: str, value: Value) -> str:
        if isinstance(value, NextNumber | NextId):
            return ""
        if isinstance(value, IdBlock):
            first = first_id_in(self._prefix, key)
            fits = first > 0 and first + value.count <= JOB_ID_MAX
            return "" if fits else "the key names no ids"
        if isinstance(value, JobOwner):
            return _faulty_owner(first_id_in(self._prefix, key), value)
        name = name_in(self._prefix, key)
        if not name:
            return "the key names no cell"
        if isinstance(value, CellRecord) and value.name != name:
            return f"the record of cell {value.name} under the key of {name}"
        if isinstance(value, Summary):
            return _faulty_summary(value)
        if isinstance(value, Pool):
            return pools.faults(value)
        return ""


def _faulty_owner(job_id: int, owner: JobOwner) -> str:
    if not 0 < job_id < JOB_ID_MAX:
        return "the key names no job"
    if (owner.stage is OwnerStage.ENDED) != (owner.outcome is not None):
        return "an outcome belongs to a job that has ended, and to no other"
    return ""


def _faulty_summary(summary: Summary) -> str:
    for one in summary.classes:
        if one.free > one.total or one.cores_free > one.total * one.cores:
            return f"{one.free} of {one.total} nodes and {one.cores_free} cores are free in one class"
    width = len(summary.classes)
    if any(len(free) != width for _, free in summary.horizon):
        return "a horizon of other classes than it has"
    return ""
