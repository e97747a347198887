"""Logs of real machines in the Standard Workload Format: read line by line, plain or gzip, and written again.

One job a line, 18 numbers, -1 for what is not known; lines that begin with `;` are comments, those in front the header.
Invariant: every line is either read as it stands or named by its number and column; nothing is guessed, and nothing left out
unless the reader asks for it.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, Final, cast

import msgspec

from eslurm.compat.errors import escaped, quoted

UNKNOWN: Final = -1
FIELDS: Final = 18
LINE_BYTES_MAX: Final = 65_536
NUMBER_MAX: Final = 10**11
"""Three thousand years in seconds: what lies beyond is no time, count or size of a log."""

CANCELLED: Final = 5
"""The status of a job that was cancelled; with a run time of 0: before it started."""

_GZIP_MAGIC = b"\x1f\x8b"
_FIELD = re.compile(r"\s*(\w+):\s*(.*?)\s*$")
_LEADING_NUMBER = re.compile(r"-?\d{1,11}(?!\d)")
_PLAIN = re.compile(r"[0-9.\s-]+", re.ASCII)
_PLAIN_DIGITS_MAX = len(str(NUMBER_MAX)) - 1
_TOKEN = re.compile(r"\S+")


class SwfError(Exception):
    """The file cannot be used. The text names the file, the place, the value and the way out, in one line."""

    def __init__(self, text: str) -> None:
        super().__init__(escaped(text))


class Record(msgspec.Struct, frozen=True, gc=False):
    """One job of a log: times in seconds, `submit_s` from the log's start, memory in KiB a processor."""

    job_id: int
    submit_s: int
    wait_s: int = UNKNOWN
    run_s: int = UNKNOWN
    allocated: int = UNKNOWN
    cpu_s: float = UNKNOWN
    used_kib: float = UNKNOWN
    requested: int = UNKNOWN
    requested_s: int = UNKNOWN
    requested_kib: float = UNKNOWN
    status: int = UNKNOWN
    user: int = UNKNOWN
    group: int = UNKNOWN
    program: int = UNKNOWN
    queue: int = UNKNOWN
    partition: int = UNKNOWN
    preceding: int = UNKNOWN
    think_s: int = UNKNOWN


_DECIMAL = frozenset(("cpu_s", "used_kib", "requested_kib"))
_NAMES = Record.__struct_fields__


class Header(msgspec.Struct, frozen=True):
    """A log's description of itself: the comment lines in front, without their semicolons."""

    lines: tuple[str, ...] = ()

    def find(self, field: str) -> str | None:
        """The value of the first line `field: value`."""
        return next(self._values(field), None)

    def find_number(self, field: str) -> int | None:
        """The number that this value begins with (`338 (batch partition)` is 338); None without one."""
        match = _LEADING_NUMBER.match(self.find(field) or "")
        return int(match.group()) if match is not None else None

    def names_of(self, field: str) -> dict[int, str]:
        """Names of the numbers of `Queue` or `Partition`: the first word after each."""
        found: dict[int, str] = {}
        for value in self._values(field):
            words = value.split(maxsplit=2)
            if len(words) > 1 and _LEADING_NUMBER.fullmatch(words[0]):
                found.setdefault(int(words[0]), words[1])
        return found

    def _values(self, field: str) -> Iterator[str]:
        for line in self.lines:
            match = _FIELD.match(line)
            if match is not None and match.group(1).lower() == field.lower():
                yield match.group(2)


class SwfFile:
    """An open log: its header is read, its records come one by one. Raises `SwfError`, `OSError` where it cannot be read.

    With `on_bad`, an invalid line goes there instead, and the next one is read.
    """

    def __init__(self, path: Path, on_bad: Callable[[SwfError], None] | None = None) -> None:
        self.path = path
        self._on_bad = on_bad
        self.line = 0
        """The number of the line read last, from 1."""
        self._file: IO[bytes] = _opened(path)
        self._ahead: str | None = None
        lines: list[str] = []
        try:
            while (text := self._next_line()) is not None:
                stripped = text.strip()
                if stripped and not stripped.startswith(";"):
                    self._ahead = text
                    break
                if stripped:
                    lines.append(stripped[1:])
        except BaseException:
            self._file.close()
            raise
        self.header = Header(tuple(lines))

    def __enter__(self) -> SwfFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Record]:
        text, self._ahead = self._ahead, None
        while text is not None:
            stripped = text.strip()
            if stripped and not stripped.startswith(";"):
                record = self._find_record(text)
                if record is not None:
                    yield record
            text = self._next_line()

    def _next_line(self) -> str | None:
        try:
            raw = self._file.readline(LINE_BYTES_MAX + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise SwfError(
                f"{self.path}: line {self.line + 1}: the compressed file is damaged: {error}"
            ) from None
        if not raw:
            return None
        self.line += 1
        if len(raw) > LINE_BYTES_MAX:
            raise SwfError(
                f"{self.path}: line {self.line}: is longer than {LINE_BYTES_MAX} bytes: this is no workload log"
            )
        return raw.decode("utf-8", "replace")

    def _find_record(self, text: str) -> Record | None:
        try:
            return self._record(text)
        except SwfError as error:
            if self._on_bad is None:
                raise
            self._on_bad(error)
            return None

    def _record(self, text: str) -> Record:
        tokens = text.split()
        try:
            # fmt: off
            (job_id, submit_s, wait_s, run_s, allocated, cpu_s, used_kib, requested, requested_s, requested_kib,
             status, user, group, program, queue, partition, preceding, think_s) = tokens
            # fmt: on
            record = Record(
                int(job_id),
                int(submit_s),
                int(wait_s),
                int(run_s),
                int(allocated),
                float(cpu_s),
                float(used_kib),
                int(requested),
                int(requested_s),
                float(requested_kib),
                int(status),
                int(user),
                int(group),
                int(program),
                int(queue),
                int(partition),
                int(preceding),
                int(think_s),
            )  # fmt: skip
        except ValueError:
            return self._carefully(text)
        if not _PLAIN.fullmatch(text) or max(map(len, tokens)) > _PLAIN_DIGITS_MAX:
            return self._carefully(text)
        return record

    def _carefully(self, text: str) -> Record:
        """The same, number by number, to read what is unusual and to say where a line goes wrong."""
        tokens = list(_TOKEN.finditer(text))
        values: list[int | float] = []
        for name, token in zip(_NAMES, tokens, strict=False):
            values.append(self._number(name, token))
        if len(tokens) != FIELDS:
            column = tokens[FIELDS].start() + 1 if len(tokens) > FIELDS else len(text.rstrip()) + 1
            raise self._error(column, f"{len(tokens)} numbers: a job has {FIELDS}, -1 for what is not known")
        return msgspec.convert(dict(zip(_NAMES, values, strict=True)), Record)

    def _number(self, name: str, token: re.Match[str]) -> int | float:
        text = token.group()
        if not re.fullmatch(r"[+-]?(\d{1,20}(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", text, re.ASCII):
            way_out = "write -1 for what is not known"
            raise self._error(token.start() + 1, f"{quoted(text)} is not a number ({name}): {way_out}")
        value = float(text)
        if abs(value) > NUMBER_MAX:
            raise self._error(token.start() + 1, f"{quoted(text)} is out of range ({name}): the most is 1e11")
        if name in _DECIMAL:
            return value
        if value != int(value):
            raise self._error(token.start() + 1, f"{quoted(text)} is not a whole number ({name})")
        return int(value)

    def _error(self, column: int, text: str) -> SwfError:
        return SwfError(f"{self.path}: line {self.line}, column {column}: {text}")


def write_swf(path: Path, header: Iterable[str], records: Iterable[Record]) -> None:
    """Writes a log, gzip when the name ends in `.gz`; the same records give the same bytes. Raises `OSError`."""
    with path.open("wb") as raw:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
                _write(cast(BinaryIO, packed), header, records)
        else:
            _write(raw, header, records)


def _write(out: BinaryIO, header: Iterable[str], records: Iterable[Record]) -> None:
    text = io.TextIOWrapper(out, encoding="utf-8", newline="\n")
    for line in header:
        text.write(f";{line}\n")
    for record in records:
        text.write(" ".join(_shown(value) for value in msgspec.structs.astuple(record)) + "\n")
    text.flush()
    text.detach()


def _shown(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.2f}"


def _opened(path: Path) -> IO[bytes]:
    raw = path.open("rb")
    try:
        magic = raw.read(2)
        raw.seek(0)
    except BaseException:
        raw.close()
        raise
    if magic != _GZIP_MAGIC:
        return raw
    raw.close()
    return cast(IO[bytes], gzip.open(path, "rb"))
