"""Daemons' logs on standard error: a readable line per event, or one JSON object per line on request.

Ids of jobs, attempts, broadcasts and the like become fields of their own: they are the words before a message's
placeholders ("broadcast %d: ..."), or come as `extra`. Invariants: a message is one line unless it has an error's
traceback; of messages of one kind (logger, level, template) only some a second are written, the others are counted and
reported; secrets that were named to `hide`, callers' tokens, and passwords in URLs, never leave.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TextIO

import msgspec

FORMS: Final = ("text", "json")
BURST: Final = 50
"""Number of messages of one kind at once, then `PER_S` a second."""
PER_S: Final = 2.0
KINDS_MAX: Final = 512
SUMMARY_EVERY_S: Final = 10.0
IDS: Final = ("job", "attempt", "step", "epoch", "broadcast", "trace", "revision", "node", "satellite")
HIDDEN: Final = "***"

_PLACEHOLDER = re.compile(rf"(?:\b({'|'.join(IDS)}) )?%(?:%|[-+ #0]*\d*(?:\.\d+)?[a-zA-Z])")
_TOKEN = re.compile(
    r"\bes(?:[12]|j1)\.[A-Za-z0-9_-]{16,}|\beyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"
)
"""Tokens of callers, the cluster's and those of other issuers."""
_URL_PASSWORD = re.compile(r"(://[^\s:/@]*):[^\s/@]+@")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that move a terminal's cursor, end a line, or turn the direction of writing; not the tabulator and the line
feed.
"""
_LEVELS: Final = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
}
_encode = msgspec.json.Encoder().encode


class LogCounts:
    """Counts of log lines since the start, for metrics. `by_level` includes suppressed ones."""

    def __init__(self) -> None:
        self.by_level: dict[str, float] = dict.fromkeys(_LEVELS.values(), 0)
        self.left_out = 0


counts = LogCounts()
_secrets: list[str] = []
_always: dict[str, Any] = {}


def hide(secret: bytes | str) -> None:
    """From now on this text is never written."""
    text = secret.decode(errors="replace") if isinstance(secret, bytes) else secret
    if text and text not in _secrets:
        _secrets.append(text)


def set_always(**fields: Any) -> None:
    """Fields of every JSON line from now on: the daemon, its epoch. None takes one away."""
    for name, value in fields.items():
        if value is None:
            _always.pop(name, None)
        else:
            _always[name] = value


def redacted(text: str) -> str:
    """The text without what is to be hidden."""
    for secret in _secrets:
        text = text.replace(secret, HIDDEN)
    if "es2." in text or "es1." in text or "eyJ" in text:
        text = _TOKEN.sub(HIDDEN, text)
    return _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", text) if "://" in text else text


def printable(text: str) -> str:
    """The text with control characters escaped, line ends and those of terminals among them."""
    return text if text.isprintable() else _UNPRINTABLE.sub(_escape, text.replace("\n", "\\n"))


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


@lru_cache(maxsize=1_024)
def _places(template: str) -> tuple[tuple[str, int], ...]:
    """The arguments that are ids: (name, index)."""
    found: list[tuple[str, int]] = []
    number = 0
    for match in _PLACEHOLDER.finditer(template):
        if match[0].endswith("%%"):
            continue
        if match[1]:
            found.append((match[1], number))
        number += 1
    return tuple(found)


def ids_of(record: logging.LogRecord) -> dict[str, Any]:
    """The ids that a message names; the first of each kind."""
    found: dict[str, Any] = {}
    arguments = record.args if isinstance(record.args, tuple) else ()
    for name, at in _places(str(record.msg)):
        if at < len(arguments) and isinstance(arguments[at], (int, str)):
            found.setdefault(name, arguments[at])
    for name in IDS:
        if record.__dict__.get(name):
            found[name] = record.__dict__[name]
    return found


class TextFormatter(logging.Formatter):
    """A line for people. `name` is put behind the logger's, where several processes share a log."""

    def __init__(self, name: str = "") -> None:
        super().__init__(f"%(asctime)s %(levelname)-7s %(name)s{f' {name}' if name else ''}: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record) + _alike(record)

    def format(self, record: logging.LogRecord) -> str:
        # A traceback may hold a user's text, too; its own line ends stay.
        return redacted(_UNPRINTABLE.sub(_escape, super().format(record)))


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "at": f"{whole}.{int(record.created % 1 * 1e6):06d}Z",
            "level": level_of(record),
            "logger": record.name,
            "message": record.getMessage(),
            **_always,
            **ids_of(record),
        }
        if left_out := record.__dict__.get("left_out"):
            line["left_out"] = left_out
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        # JSON escapes what is below a blank by itself.
        return redacted(_UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", _encode(line).decode()))


def level_of(record: logging.LogRecord) -> str:
    """One of four words."""
    return _LEVELS.get(min(record.levelno, logging.ERROR), "info")


def _alike(record: logging.LogRecord) -> str:
    left_out = record.__dict__.get("left_out", 0)
    return f" ({left_out} like it were left out)" if left_out else ""


class _Kind:
    __slots__ = ("at_s", "left_out", "record", "room")

    def __init__(self, now_s: float) -> None:
        self.room = float(BURST)
        self.at_s = now_s
        self.left_out = 0
        self.record: logging.LogRecord | None = None


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes to `stream` up to a rate. Debugging messages, which are on request, are all written."""

    def __init__(
        self,
        stream: TextIO,
        count: LogCounts = counts,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(stream)
        self._count = count
        self._now_s = now_s
        self._kinds: OrderedDict[tuple[str, int, str], _Kind] = OrderedDict()
        self._summary_s = now_s()

    def emit(self, record: logging.LogRecord) -> None:
        self._count.by_level[level_of(record)] += 1
        now_s = self._now_s()
        if record.levelno <= logging.DEBUG or self._has_room(record, now_s):
            super().emit(record)
        if now_s - self._summary_s >= SUMMARY_EVERY_S:
            self._summarise(now_s)

    def close(self) -> None:
        """Tell of what was left out last."""
        self.acquire()
        try:
            self._summarise(self._now_s())
        finally:
            self.release()
        super().close()

    def _has_room(self, record: logging.LogRecord, now_s: float) -> bool:
        key = (record.name, record.levelno, str(record.msg))
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(now_s)
            if len(self._kinds) > KINDS_MAX:
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(key)
        kind.room = min(float(BURST), kind.room + (now_s - kind.at_s) * PER_S)
        kind.at_s = now_s
        if kind.room < 1:
            self._count.left_out += 1
            kind.left_out += 1
            kind.record = record
            return False
        kind.room -= 1
        record.__dict__["left_out"], kind.left_out, kind.record = kind.left_out, 0, None
        return True

    def _summarise(self, now_s: float) -> None:
        """The last one of each kind that was left out, with how many there were."""
        self._summary_s = now_s
        for kind in self._kinds.values():
            if kind.record is not None:
                kind.record.__dict__["left_out"] = kind.left_out - 1
                super().emit(kind.record)
                kind.left_out, kind.record = 0, None


def formatter(form: str, name: str = "") -> logging.Formatter:
    """The formatter of this form; lines of text name `name`."""
    return JsonFormatter() if form == "json" else TextFormatter(name)


def _is_news(record: logging.LogRecord) -> bool:
    """False for the traceback that gRPC logs when a peer has gone before its status was sent."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or kind.__name__ != "ExecuteBatchError"


def set_up(level: int, form: str) -> None:
    """Log to standard error, unless logging is configured already."""
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_news)
    handler = LogHandler(sys.stderr)
    handler.setFormatter(formatter(form))
    logging.basicConfig(level=level, handlers=[handler])


def name_lines(node: str) -> None:
    """Several processes share one log: each line names its node."""
    set_always(node=node)
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, TextFormatter):
            handler.setFormatter(TextFormatter(node))
