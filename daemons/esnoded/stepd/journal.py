"""The supervisor's journal: begun steps, their ends, and acknowledged ends.

Invariants: an intent is written before its process exists, and an end is on the disk (`commit`) before it is reported. A
crash leaves at most a torn tail, which is cut off when the file is next opened; a record that fails its checksum in the
middle is skipped. The file is rewritten when it is mostly dead records, so its size is bounded by the live steps and
unacknowledged outcomes.

An intent need not be fsynced: it is there for a supervisor that is killed, not for a node that loses power, whose
processes are gone in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from eslurm.core.model.step_key import StepKey
from eslurm.ports.step_runner import StepOutcome
from esnoded.record_log import RecordLog, bodies, frame

_COMPACT_BYTES_MIN = 4 * 1024 * 1024


class Opened(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A supervisor began to write; what follows happened in this boot."""

    boot_id: str


class Intent(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The step's processes may exist from here on."""

    key: StepKey
    at_us: int


class Begun(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The tasks that were started, as (pid, start time in ticks): read only, since 0.2 `procd` keeps them itself."""

    key: StepKey
    tasks: tuple[tuple[int, int], ...]


class Finished(msgspec.Struct, frozen=True, array_like=True, tag=4):
    outcome: StepOutcome


class Acknowledged(msgspec.Struct, frozen=True, array_like=True, tag=5):
    keys: tuple[StepKey, ...]


class Used(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The step was launched by a credential that ends at `until_us` (UTC): read only, `procd` keeps them itself."""

    key: StepKey
    until_us: int


Record = Opened | Intent | Begun | Finished | Acknowledged | Used


class Unfinished(msgspec.Struct, frozen=True):
    """A step of an earlier supervisor that has no ending in the journal."""

    key: StepKey
    boot_id: str
    at_us: int
    tasks: tuple[tuple[int, int], ...] = ()


class Contents(msgspec.Struct):
    """The records of a journal, folded."""

    outcomes: dict[StepKey, StepOutcome] = {}
    unfinished: dict[StepKey, Unfinished] = {}
    used: dict[StepKey, int] = {}
    good_bytes: int = 0
    skipped: int = 0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


def _frame(record: Record) -> bytes:
    return frame(_encoder.encode(record))


def _records(data: bytes) -> Iterator[tuple[int, Record | None]]:
    """Each record with the offset behind it; None for one that is damaged but whose end is known."""
    for end, body in bodies(data):
        try:
            yield end, None if body is None else _decoder.decode(body)
        except msgspec.MsgspecError:
            yield end, None


def read_contents(data: bytes) -> Contents:
    """Replay a journal's bytes."""
    contents = Contents()
    boot_id = ""
    damaged_since_good = 0
    for end, record in _records(data):
        if record is None:
            damaged_since_good += 1
            continue
        contents.skipped += damaged_since_good
        damaged_since_good = 0
        contents.good_bytes = end
        match record:
            case Opened():
                boot_id = record.boot_id
            case Intent(key, at_us):
                contents.unfinished[key] = Unfinished(key, boot_id, at_us)
            case Begun(key, tasks):
                # A Begun outlives its Intent only if the latter was damaged: the step is still owed an ending.
                known = contents.unfinished.get(key) or Unfinished(key, boot_id, 0)
                contents.unfinished[key] = Unfinished(key, known.boot_id, known.at_us, known.tasks + tasks)
            case Finished(outcome):
                contents.unfinished.pop(outcome.key, None)
                contents.outcomes[outcome.key] = outcome
            case Acknowledged(keys):
                for key in keys:
                    contents.outcomes.pop(key, None)
            case Used(key, until_us):
                contents.used[key] = until_us
    return contents


class Journal:
    """The open journal. Records are gathered by `add` and reach the file in `flush` or `commit`."""

    def __init__(self, path: str, boot_id: str, *, compact_bytes_min: int = _COMPACT_BYTES_MIN) -> None:
        """Open or create the file and cut off a torn tail. Raises OSError."""
        self._boot_id = boot_id
        self._compact_bytes_min = compact_bytes_min
        self._log = RecordLog(path)
        data = self._log.read()
        self.contents = read_contents(data)
        if self.contents.good_bytes < len(data):
            self._log.cut(self.contents.good_bytes)
        self._bytes_after_compaction = 0
        self._pending: list[bytes] = []
        self._log.sync_name()
        self.add(Opened(boot_id))

    def add(self, record: Record) -> None:
        """Queue one record."""
        self._pending.append(_frame(record))

    def flush(self) -> None:
        """Hand queued records to the kernel: they survive this process, not a power failure.

        Raises OSError (a full disk); then nothing was written and the records stay queued.
        """
        if self._pending:
            self._log.append(b"".join(self._pending))
            self._pending.clear()

    def drop_queued(self) -> None:
        """Forget the records that a failed `flush` left queued."""
        self._pending.clear()

    def commit(self) -> None:
        """Put queued records on the disk, with one fsync for all of them. Raises OSError: nothing is promised."""
        self.flush()
        self._log.sync()

    @property
    def wants_compaction(self) -> bool:
        """Check whether the file has at least doubled since it last held only live records."""
        return self._log.size > max(self._compact_bytes_min, 2 * self._bytes_after_compaction)

    def compact(self, live: Iterable[Record]) -> None:
        """Replace the file by one that holds only `live`; a crash leaves the old file or the new one."""
        self.flush()
        self._log.replace(b"".join([_frame(Opened(self._boot_id)), *map(_frame, live)]))
        self._bytes_after_compaction = self._log.size

    def close(self) -> None:
        """Write what is queued and close the file."""
        self.flush()
        self._log.close()


def live_records(outcomes: Iterable[StepOutcome], running: Iterable[tuple[StepKey, int]]) -> Iterator[Record]:
    """The records that compaction keeps: running steps as (key, at_us), and unacknowledged outcomes."""
    for key, at_us in running:
        yield Intent(key, at_us)
    for outcome in outcomes:
        yield Finished(outcome)
