"""The agent's spool: one append-only file of checksummed records per process.

Invariant: an appended record survives the death of the process; one appended with `durable` survives the host's. Reading
stops at the first torn or damaged record, and the rest is cut off: no message that relied on it had been sent. One process
at a time owns the file (flock).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from eslurm.core.agent.records import Folded, Record, unfold
from eslurm.core.model.earlier_launch import decode
from esnoded.record_log import RecordLog, bodies, frame

log = logging.getLogger(__name__)

MAGIC = b"eslurm-spool-1\n"
COMPACT_BYTES_MIN = 8 << 20
PROBE_BYTES = 4_096

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


class SpoolError(Exception):
    """The spool cannot be used; the text names the file and the way out."""


class Spool:
    """An open spool. `state` is what was read when it was opened; appending does not change it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._log = RecordLog(path, lock=True)
        except BlockingIOError:
            raise SpoolError(f"{path} is in use: another agent serves this state directory") from None
        try:
            self.state = self._read()
        except BaseException:
            self._log.close()
            raise
        self._compact_above = max(COMPACT_BYTES_MIN, 4 * self._log.size)

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self._log.size

    @property
    def wants_compaction(self) -> bool:
        """Check whether the file has grown to several times what it has to hold."""
        return self._log.size > self._compact_above

    def append(self, records: Iterable[Record], durable: bool = False) -> None:
        """Write records in one go. Raises OSError; then none of them is in the spool."""
        self._log.append(b"".join(map(_frame, records)), durable=durable)

    def probe(self) -> None:
        """Raise OSError if records of the usual size could not be appended now."""
        self._log.probe(PROBE_BYTES)

    def compact(self, state: Folded) -> None:
        """Replace the file by the fewest records that say the same. Raises OSError; then nothing is lost."""
        # Where there is no room for it now, trying takes long.
        self._compact_above = self._log.size + COMPACT_BYTES_MIN
        self._log.replace(MAGIC + b"".join(map(_frame, unfold(state))))
        self._compact_above = max(COMPACT_BYTES_MIN, 4 * self._log.size)

    def close(self) -> None:
        """Let go of the file."""
        self._log.close()

    def _read(self) -> Folded:
        data = self._log.read()
        if MAGIC.startswith(data):
            # New, or its very first write was torn: nothing had been said yet.
            self._log.cut(0)
            self._log.append(MAGIC, durable=True)
            self._log.sync_name()
            return Folded()
        if not data.startswith(MAGIC):
            raise SpoolError(f"{self.path} is not a spool of this version: move it away or use its version")
        state = Folded()
        end = len(MAGIC)
        for behind, body in bodies(data, end):
            if body is None:
                break
            try:
                state.add(decode(_decoder, body))
            except msgspec.DecodeError as error:
                raise SpoolError(f"{self.path} holds a record this version does not know: {error}") from None
            end = behind
        if end < len(data):
            log.warning("%s: the last %d bytes are torn and were cut off", self.path, len(data) - end)
            self._log.cut(end)
            self._log.sync()
        return state


def _frame(record: Record) -> bytes:
    return frame(_encode(record))
