"""A file of records that is only appended to: the agent's spool, the step supervisor's journal.

A record is its length and CRC-32, 32 bits each, and its bytes. Invariants: records that could not be appended as a whole
leave nothing behind, or nothing more is appended; a crash leaves at most a torn tail, and the old file or the new one when
the records are replaced.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import struct
import zlib
from collections.abc import Iterator

log = logging.getLogger(__name__)

RECORD_BYTES_MAX = 16 << 20
_HEADER = struct.Struct(">II")
# Appending keeps the position right after the file was cut.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


def frame(body: bytes) -> bytes:
    """A record of these bytes."""
    return _HEADER.pack(len(body), zlib.crc32(body)) + body


def bodies(data: bytes, at: int = 0) -> Iterator[tuple[int, bytes | None]]:
    """Each record's bytes with the offset behind it, up to a torn one; None for bytes that fail their checksum."""
    while at + _HEADER.size <= len(data):
        length, checksum = _HEADER.unpack_from(data, at)
        at += _HEADER.size + length
        # A file system may leave zeros where the host lost its power: they are no record without fields.
        if not 0 < length <= RECORD_BYTES_MAX or at > len(data):
            return
        body = data[at - length : at]
        yield at, body if zlib.crc32(body) == checksum else None


class RecordLog:
    """The open file. `size` are its good bytes; with `lock` it is this process' alone, else BlockingIOError is raised."""

    def __init__(self, path: str | os.PathLike[str], *, lock: bool = False) -> None:
        self._path = os.fspath(path)
        self._lock = lock
        self._is_torn = False
        self._fd = self._open(self._path)
        self.size = os.fstat(self._fd).st_size

    def read(self) -> bytes:
        """The whole content of the file."""
        data = bytearray()
        while piece := os.pread(self._fd, 1 << 20, len(data)):
            data += piece
        return bytes(data)

    def cut(self, size: int) -> None:
        """Keep so many bytes. Raises OSError."""
        os.ftruncate(self._fd, size)
        self.size = size

    def append(self, data: bytes, *, durable: bool = False) -> None:
        """Write records in one go. Raises OSError; then none of them is in the file."""
        self._mend()
        try:
            _write_all(self._fd, data)
            if durable:
                os.fdatasync(self._fd)
        except OSError:
            self._cut_off()
            raise
        self.size += len(data)

    def probe(self, size: int) -> None:
        """Raise OSError when so many bytes could not be appended now."""
        self._mend()
        try:
            _write_all(self._fd, bytes(size))
            os.fdatasync(self._fd)
        finally:
            self._cut_off()

    def sync(self) -> None:
        """Put on the disk what was appended. Raises OSError."""
        os.fdatasync(self._fd)

    def sync_name(self) -> None:
        """Make the name of a new file as durable as its contents. Raises OSError."""
        fd = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, data: bytes) -> None:
        """Put these records in the place of all. Raises OSError; until the name is synced nothing is lost."""
        fresh = f"{self._path}.new"
        fd = self._open(fresh, os.O_TRUNC)
        try:
            _write_all(fd, data)
            os.fsync(fd)
            os.rename(fresh, self._path)
        except BaseException:
            os.close(fd)
            os.unlink(fresh)
            raise
        os.close(self._fd)
        self._fd, self.size, self._is_torn = fd, len(data), False
        self.sync_name()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def _open(self, path: str, flags: int = 0) -> int:
        fd = os.open(path, _FLAGS | flags, 0o600)
        try:
            if self._lock:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return fd

    def _cut_off(self) -> None:
        """Remove what a failed write left behind, or later records would be taken for its rest."""
        try:
            os.ftruncate(self._fd, self.size)
            self._is_torn = False
        except OSError as error:
            self._is_torn = True
            log.error("%s cannot be cut back to its good part: %s", self._path, error)

    def _mend(self) -> None:
        """Cut a torn file back before the next append: records after the tear would not be read again."""
        if self._is_torn:
            self._cut_off()
        if self._is_torn:
            raise OSError(errno.EIO, "the file cannot be cut back to its good part")


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = os.write(fd, view)
        if not written:
            raise OSError(errno.EIO, "nothing was written")
        view = view[written:]
