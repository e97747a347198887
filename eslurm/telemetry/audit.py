"""The audit log: one JSON line for each change and each refusal, in files of its own.

A thread writes what the event loop hands over. Invariant: the loop never waits for the disk; what cannot be written is
counted, and the count is the next line; the files are this process' own, readable by its user only, and bounded.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import msgspec

from eslurm.ports.audit import AuditLine

log = logging.getLogger(__name__)

LINES_WAITING_MAX = 10_000
"""Lines that wait for the writer; about five megabytes."""
BATCH_LINES = 256
GATHER_S = 0.02
"""The writer waits so long for more lines after the first: each time it wakes the loop loses the interpreter to it."""
LINE_BYTES_MAX = 16 * 1024
"""A longer line was not written here."""
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def timestamp(now_us: int) -> str:
    """UTC, to the microsecond, as lines carry it."""
    second, rest_us = divmod(now_us, 1_000_000)
    return f"{_second_text(second)}.{rest_us:06}Z"


@lru_cache(maxsize=16)
def _second_text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()


class AuditLog:
    """Implements `ports.audit.AuditSink`. `size_bytes` bounds each file, `keep` the number of old ones.

    `on_written` and `on_lost` get numbers of lines, from the writer's thread and from the loop.
    """

    def __init__(
        self,
        path: Path,
        size_bytes: int,
        keep: int,
        now_us: Callable[[], int],
        on_written: Callable[[int], None] = lambda _count: None,
        on_lost: Callable[[int], None] = lambda _count: None,
    ) -> None:
        self.path = path
        self._size_bytes = size_bytes
        self._keep = keep
        self._now_us = now_us
        self._on_written = on_written
        self._on_lost = on_lost
        self._waiting: queue.SimpleQueue[AuditLine | None] = queue.SimpleQueue()
        self._counting = threading.Lock()
        self._lost = 0
        # The writer's own.
        self._file = -1
        self._is_torn = False
        self._told = ""
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def write(self, line: AuditLine) -> None:
        """See `AuditSink.write`."""
        if self._waiting.qsize() >= LINES_WAITING_MAX:
            self._lose(1)
        else:
            self._waiting.put(line)

    def close(self, patience_s: float = 5.0) -> None:
        """Write what waits and let the file go; blocks for at most `patience_s`."""
        self._waiting.put(None)
        self._thread.join(patience_s)

    def files(self) -> list[Path]:
        """Paths of all possible files, the newest first."""
        return [self.path, *(self._old(number) for number in range(1, self._keep + 1))]

    # ---- the writer's thread ----

    def _run(self) -> None:
        ended = False
        while not ended:
            lines = [self._waiting.get()]
            if lines[0] is not None and self._waiting.qsize() < BATCH_LINES:
                time.sleep(GATHER_S)
            while len(lines) < BATCH_LINES and not self._waiting.empty():
                lines.append(self._waiting.get())
            ended = None in lines
            self._write([line for line in lines if line is not None])
        if self._file >= 0:
            os.close(self._file)

    def _write(self, lines: list[AuditLine]) -> None:
        with self._counting:
            lost, self._lost = self._lost, 0
        if lost:
            lines.insert(0, AuditLine(timestamp(self._now_us()), result="lost", count=lost))
        if not lines:
            return
        data = b"".join(map(_encoded, lines))
        try:
            self._put(data)
        except OSError as error:
            if self._told != str(error):
                self._told = str(error)
                log.error("the audit log %s cannot be written: %s; lines are lost", self.path, error)
            self._let_go()
            self._lose(len(lines) - bool(lost))
            with self._counting:
                self._lost += lost
            return
        if self._told:
            self._told = ""
            log.warning("the audit log %s is written again", self.path)
        self._on_written(len(lines))

    def _lose(self, count: int) -> None:
        with self._counting:
            self._lost += count
        self._on_lost(count)

    def _put(self, data: bytes) -> None:
        if self._file < 0:
            self._file = _open(self.path)
        size_bytes = os.fstat(self._file).st_size
        if size_bytes and size_bytes + len(data) > self._size_bytes:
            self._rotate()
        if self._is_torn:
            data = b"\n" + data
        while data:
            # Until all of it is there, a line may be torn.
            self._is_torn = True
            data = data[os.write(self._file, data) :]
        self._is_torn = False

    def _rotate(self) -> None:
        self._let_go()
        for number in range(self._keep, 0, -1):
            younger = self._old(number - 1) if number > 1 else self.path
            if younger.exists():
                younger.replace(self._old(number))
        self.path.unlink(missing_ok=True)
        self._file = _open(self.path)
        self._is_torn = False

    def _let_go(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _old(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def _open(path: Path) -> int:
    """The file, this user's own. Raises OSError for a link, a pipe, another user's file, or one with a second name."""
    file = os.open(path, _FLAGS, 0o600)
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
        os.close(file)
        raise OSError(f"{path} is not a file of uid {os.geteuid()} alone: remove it")
    os.fchmod(file, 0o600)
    return file


def _encoded(line: AuditLine) -> bytes:
    """The line as ASCII: control characters are escaped."""
    data = msgspec.json.encode(line)
    if not data.isascii():
        data = json.dumps(msgspec.to_builtins(line), separators=(",", ":")).encode()
    return data + b"\n"


def read_back(
    files: list[Path], is_wanted: Callable[[AuditLine], bool], since: str, limit: int
) -> list[bytes]:
    """The last lines that are wanted, at most `limit`, in order; `since` is a `timestamp`.

    `files` come the newest first. What is no line of an audit log is passed over. Blocks.
    """
    found: deque[bytes] = deque()
    for path in files:
        part: deque[bytes] = deque(maxlen=limit - len(found))
        oldest = ""
        for raw, line in _lines(path):
            oldest = oldest or line.time
            if line.time >= since and is_wanted(line):
                part.append(raw)
        found.extendleft(reversed(part))
        if len(found) >= limit or (oldest and oldest < since):
            break
    return list(found)


_decoder = msgspec.json.Decoder(AuditLine)


def _lines(path: Path) -> Iterator[tuple[bytes, AuditLine]]:
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
    except OSError:
        return
    with file:
        while raw := file.readline(LINE_BYTES_MAX):
            try:
                yield raw.rstrip(b"\n"), _decoder.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
