"""A log of facts as one file: written by `esctl log export`, read by `eslurm replay`.

The file is a magic line and frames, each {length, CRC-32, zlib-compressed MessagePack}: one header, the base state in
pieces if the log does not begin at revision 1, facts in order, one end mark. Invariants: revisions are contiguous from the
header's `first_revision`; a file without its end mark, or with a damaged frame, is reported with the offset and with what
could be read before it, never taken for a whole one.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TypeAlias

import msgspec

from eslurm.ports.store import LoggedFact

MAGIC = b"eslurm-log-1\n"
FORMAT_VERSION = 1
FACTS_PER_FRAME = 1_000
FRAME_BYTES_MAX = 64 << 20
"""Of a frame, packed or not: what claims more is damaged."""
BASE_PIECE_BYTES = 4 << 20

_FRAME = struct.Struct(">II")


class DamagedLog(Exception):
    """The file cannot be read further. The text names the file, the offset, and the readable part."""


class Header(msgspec.Struct, frozen=True, array_like=True, tag="header"):
    """Contents of the file. `first_revision` is of the first fact; `base_bytes` 0: the log begins empty."""

    version: int
    cluster: str
    owner: str
    first_revision: int
    last_revision: int
    since_us: int
    exported_us: int
    build: str
    base_bytes: int = 0
    anonymised: bool = False


class _BasePiece(msgspec.Struct, frozen=True, array_like=True, tag="base"):
    data: bytes


class _Facts(msgspec.Struct, frozen=True, array_like=True, tag="facts"):
    facts: list[LoggedFact]


class End(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """The mark of a whole file: the number of its facts and their last revision."""

    facts: int
    last_revision: int
    last_us: int


_Frame: TypeAlias = Header | _BasePiece | _Facts | End

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[_Frame] = msgspec.msgpack.Decoder(_Frame)


class LogWriter:
    """Writes a file, front to back. `header.last_revision` is the intended end."""

    def __init__(self, file: IO[bytes], header: Header, base: bytes = b"") -> None:
        self._file = file
        self._facts: list[LoggedFact] = []
        self._count = 0
        self._next = header.first_revision
        self._last_us = 0
        file.write(MAGIC)
        self._put(msgspec.structs.replace(header, base_bytes=len(base)))
        for at in range(0, len(base), BASE_PIECE_BYTES):
            self._put(_BasePiece(base[at : at + BASE_PIECE_BYTES]))

    def add(self, fact: LoggedFact) -> None:
        """The next fact. Raises ValueError for one out of sequence."""
        if fact.revision != self._next:
            raise ValueError(f"revision {fact.revision} where {self._next} comes next")
        self._next += 1
        self._last_us = fact.at_us
        self._facts.append(fact)
        if len(self._facts) >= FACTS_PER_FRAME:
            self._flush()

    def finish(self) -> End:
        """Write the end mark. The caller flushes and closes the file."""
        self._flush()
        end = End(self._count, self._next - 1, self._last_us)
        self._put(end)
        return end

    def _flush(self) -> None:
        if self._facts:
            self._put(_Facts(self._facts))
            self._count += len(self._facts)
            self._facts = []

    def _put(self, frame: _Frame) -> None:
        packed = zlib.compress(_encoder.encode(frame), 6)
        self._file.write(_FRAME.pack(len(packed), zlib.crc32(packed)) + packed)


class LogFile:
    """A file opened for reading; may be played several times. Raises `DamagedLog` when not even its header can be read,
    OSError when there is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # What the last reading came to, for the report of a damage.
        self._last_revision = 0
        with open(path, "rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise DamagedLog(
                    f"{path}: offset 0: this is no exported log: `esctl log export --output FILE` writes one"
                )
            frames = self._frames(file)
            self.header = self._header(next(frames, None))
            self.base = self._read_base(frames)

    def facts(self) -> Iterator[LoggedFact]:
        """All facts in order. Raises `DamagedLog` where they cannot be read on."""
        with open(self.path, "rb") as file:
            file.seek(len(MAGIC))
            expected = self.header.first_revision
            self._last_revision = expected - 1
            count = 0
            for offset, frame in self._frames(file):
                match frame:
                    case _Facts(facts):
                        for fact in facts:
                            if fact.revision != expected:
                                raise self._damage(
                                    offset, f"revision {fact.revision} where {expected} comes next"
                                )
                            yield fact
                            self._last_revision = expected
                            expected += 1
                            count += 1
                    case End():
                        if (frame.facts, frame.last_revision) != (count, expected - 1):
                            raise self._damage(offset, f"{frame.facts} facts were written, {count} are here")
                        return
                    case _:
                        continue
            raise self._damage(self.path.stat().st_size, "the file ends before its end mark")

    def find_end(self) -> End | None:
        """The end mark, found without unpacking the facts; None when it cannot be found."""
        last: bytes | None = None
        with open(self.path, "rb") as file:
            file.seek(len(MAGIC))
            while len(head := file.read(_FRAME.size)) == _FRAME.size:
                length, crc = _FRAME.unpack(head)
                if length > FRAME_BYTES_MAX:
                    return None
                at = file.tell()
                if length < 1024:
                    last = file.read(length)
                    if zlib.crc32(last) != crc:
                        return None
                file.seek(at + length)
        if last is None:
            return None
        try:
            frame = _decoder.decode(_inflate(last))
        except (msgspec.MsgspecError, zlib.error):
            return None
        return frame if isinstance(frame, End) else None

    def _header(self, first: tuple[int, _Frame] | None) -> Header:
        offset, frame = first if first is not None else (len(MAGIC), None)
        if not isinstance(frame, Header):
            raise self._damage(offset, "the header is missing")
        if frame.version > FORMAT_VERSION:
            raise DamagedLog(
                f"{self.path}: the file has format version {frame.version}, this release reads up to "
                f"{FORMAT_VERSION}: use the release that wrote it, or a newer one"
            )
        self._last_revision = frame.first_revision - 1
        return frame

    def _read_base(self, frames: Iterator[tuple[int, _Frame]]) -> bytes:
        pieces: list[bytes] = []
        have = 0
        while have < self.header.base_bytes:
            offset, frame = next(frames, (self.path.stat().st_size, None))
            if not isinstance(frame, _BasePiece):
                raise self._damage(offset, "the base state is cut short")
            pieces.append(frame.data)
            have += len(frame.data)
        return b"".join(pieces)

    def _frames(self, file: IO[bytes]) -> Iterator[tuple[int, _Frame]]:
        """(offset, frame) one by one."""
        while True:
            offset = file.tell()
            head = file.read(_FRAME.size)
            if not head:
                return
            if len(head) < _FRAME.size:
                raise self._damage(offset, "a frame is cut short")
            length, crc = _FRAME.unpack(head)
            if length > FRAME_BYTES_MAX:
                raise self._damage(offset, f"a frame claims {length} bytes")
            packed = file.read(length)
            if len(packed) < length:
                raise self._damage(offset, "a frame is cut short")
            if zlib.crc32(packed) != crc:
                raise self._damage(offset, "the checksum of a frame is wrong")
            try:
                yield offset, _decoder.decode(_inflate(packed))
            except (zlib.error, msgspec.MsgspecError) as error:
                raise self._damage(offset, f"a frame cannot be decoded: {error}") from None

    def _damage(self, offset: int, what: str) -> DamagedLog:
        header = getattr(self, "header", None)
        if header is None or self._last_revision < header.first_revision:
            read = "nothing could be read before it"
        else:
            read = f"facts {header.first_revision} to {self._last_revision} could be read before it"
        return DamagedLog(f"{self.path}: damaged at offset {offset}: {what}; {read}")


def _inflate(packed: bytes) -> bytes:
    """Decompressed, up to the bound: a damaged file must not fill the memory."""
    inflate = zlib.decompressobj()
    data = inflate.decompress(packed, FRAME_BYTES_MAX)
    if not inflate.eof:
        raise zlib.error("a frame is larger than any that is written, or cut short")
    return data
