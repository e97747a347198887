"""The agent's spool: one append-only file of checksummed records per process.

Invariant: a record that was appended survives the death of the process; one appended with `durable` survives the
host's. Reading stops at the first record that is torn or damaged, and what follows is cut off: nothing that
relied on it had been said to anybody. One process at a time owns the file (flock).
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from eslurm.core.agent.records import Folded, Record, unfold
from eslurm.core.model.earlier_launch import decode

log = logging.getLogger(__name__)

MAGIC = b"eslurm-spool-1\n"
COMPACT_BYTES_MIN = 8 << 20
RECORD_BYTES_MAX = 16 << 20
PROBE_BYTES = 4_096

_HEADER = struct.Struct(">II")
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


class SpoolError(Exception):
    """The spool cannot be used; the text names the file and the way out."""


class Spool:
    """An open spool. `state` is what was read when it was opened; appending does not change it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = _open_locked(path)
        try:
            self.state, self._size = self._read()
        except BaseException:
            os.close(self._fd)
            raise
        self._is_torn = False
        self._compact_above = max(COMPACT_BYTES_MIN, 4 * self._size)

    @property
    def size_bytes(self) -> int:
        """How large the file is."""
        return self._size

    @property
    def wants_compaction(self) -> bool:
        """Whether the file has grown to several times what it has to hold."""
        return self._size > self._compact_above

    def append(self, records: Iterable[Record], durable: bool = False) -> None:
        """Write records in one go. Raises OSError; then none of them is in the spool."""
        data = b"".join(map(_frame, records))
        self._mend()
        try:
            _write_all(self._fd, data)
            if durable:
                os.fdatasync(self._fd)
        except OSError:
            self._cut_off()
            raise
        self._size += len(data)

    def probe(self) -> None:
        """Raise OSError if records of the usual size could not be appended now."""
        self._mend()
        try:
            _write_all(self._fd, bytes(PROBE_BYTES))
            os.fdatasync(self._fd)
        finally:
            self._cut_off()

    def compact(self, state: Folded) -> None:
        """Replace the file by the fewest records that say the same. Raises OSError; then nothing is lost."""
        data = MAGIC + b"".join(map(_frame, unfold(state)))
        fresh = self.path.with_suffix(".new")
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write_all(fd, data)
            os.fsync(fd)
            os.rename(fresh, self.path)
        except BaseException:
            os.close(fd)
            fresh.unlink(missing_ok=True)
            # There is no room for it now, and trying takes long.
            self._compact_above = self._size + COMPACT_BYTES_MIN
            raise
        os.close(self._fd)
        self._fd = fd
        self._size = len(data)
        self._is_torn = False
        self._compact_above = max(COMPACT_BYTES_MIN, 4 * self._size)
        _sync_directory(self.path.parent)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def _read(self) -> tuple[Folded, int]:
        data = self.path.read_bytes()
        if not data:
            _write_all(self._fd, MAGIC)
            os.fsync(self._fd)
            _sync_directory(self.path.parent)
            return Folded(), len(MAGIC)
        if not data.startswith(MAGIC):
            if MAGIC.startswith(data):
                # The very first write was torn: nothing had been said yet.
                os.ftruncate(self._fd, 0)
                return self._read()
            raise SpoolError(f"{self.path} is not a spool of this version: move it away or use its version")
        state = Folded()
        end = len(MAGIC)
        while (body := _find_body(data, end)) is not None:
            try:
                state.add(decode(_decoder, body))
            except msgspec.DecodeError as error:
                raise SpoolError(f"{self.path} holds a record this version does not know: {error}") from None
            end += _HEADER.size + len(body)
        if end < len(data):
            log.warning("%s: the last %d bytes are torn and were cut off", self.path, len(data) - end)
            os.ftruncate(self._fd, end)
            os.fsync(self._fd)
        return state, end

    def _cut_off(self) -> None:
        """Remove what a failed write left behind, or later records would be taken for its rest."""
        try:
            os.ftruncate(self._fd, self._size)
            self._is_torn = False
        except OSError as error:
            self._is_torn = True
            log.error("%s cannot be cut back to its good part: %s", self.path, error)

    def _mend(self) -> None:
        """Whatever is appended to a torn file is not read again."""
        if self._is_torn:
            self._cut_off()
        if self._is_torn:
            raise OSError(errno.EIO, "the file cannot be cut back to its good part")


def _frame(record: Record) -> bytes:
    body = _encode(record)
    return _HEADER.pack(len(body), zlib.crc32(body)) + body


def _find_body(data: bytes, at: int) -> bytes | None:
    """The record's bytes at this place, None where there is no whole one."""
    start = at + _HEADER.size
    if start > len(data):
        return None
    length, checksum = _HEADER.unpack_from(data, at)
    body = data[start : start + length]
    # A file system may leave zeros where the host lost its power: they are no record without fields.
    if not 0 < length <= RECORD_BYTES_MAX or len(body) < length or zlib.crc32(body) != checksum:
        return None
    return body


def _open_locked(path: Path) -> int:
    # Appending keeps the position right after the file was cut.
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise SpoolError(f"{path} is in use: another agent serves this state directory") from None
    return fd


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = os.write(fd, view)
        if not written:
            raise OSError(errno.EIO, "nothing was written")
        view = view[written:]


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
