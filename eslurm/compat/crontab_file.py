"""The text of a crontab: lines of five times (or `@daily`) and a command, options in `#SCRON` lines above them, settings.

As in scrontab(1). Invariant: every problem names its line, and one in the times its column. Lines that were disabled are
comments.
"""

from __future__ import annotations

from eslurm.compat.cron import parse_cron
from eslurm.compat.errors import OptionError, nearest
from eslurm.compat.script import Directive, split_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MARKS = ("#SCRON", "#ESLURM")
NICKNAMES: Mapping[str, str] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
    "@elevenses": "0 11 * * *",
    "@fika": "0 15 * * *",
    "@teatime": "0 16 * * *",
}
_FIELDS = 5
_WAY_OUT = "write five times and a command, e.g. 30 8 * * mon-fri ~/report.sh"


class CronEntry:
    """A line of a crontab. Lines count from 1; `first` is that of its first option line, else its own."""

    __slots__ = ("command", "directives", "first", "line", "schedule", "settings")

    def __init__(self, line: int, schedule: str, command: str, settings: Mapping[str, str]) -> None:
        self.line = self.first = line
        self.schedule = schedule
        self.command = command
        self.settings = settings
        self.directives: tuple[Directive, ...] = ()


def read_crontab(text: str) -> list[CronEntry]:
    """The entries. Raises OptionError for the first line that is none."""
    if "\0" in text:
        raise OptionError("crontab", None, "contains a NUL character", "remove it")
    found: list[CronEntry] = []
    options: list[Directive] = []
    settings: dict[str, str] = {}
    for number, row in enumerate(text.split("\n"), 1):
        line = row.strip()
        mark = next((one for one in MARKS if line == one or line.startswith((f"{one} ", f"{one}\t"))), "")
        if mark:
            options.append(Directive(number, mark, split_words(line[len(mark) :], f"line {number}")))
        elif line and not line.startswith("#"):
            if _set(line, settings, options, number):
                continue
            entry = _entry(row, number, dict(settings))
            entry.directives = tuple(options)
            entry.first = options[0].line if options else number
            found.append(entry)
            options = []
    if options:
        raise OptionError(f"line {options[0].line}", None, "has options for no line below it", "remove it")
    return found


def _set(line: str, settings: dict[str, str], options: list[Directive], number: int) -> bool:
    """Take `NAME=value`, or `NAME = "value"`, for the lines below."""
    name, equals, value = line.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or not name.isidentifier():
        return False
    if options:
        way_out = "put it above the options of that line"
        raise OptionError(f"line {number}", name, "stands between options and their line", way_out)
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    settings[name] = value
    return True


def _entry(row: str, number: int, settings: Mapping[str, str]) -> CronEntry:
    where = f"line {number}"
    start = len(row) - len(row.lstrip())
    if row[start] == "@":
        word = row[start:].split(maxsplit=1)[0]
        schedule = NICKNAMES.get(word.lower())
        if schedule is None:
            near = nearest(word.lower(), NICKNAMES)
            way_out = f"did you mean {near}?" if near else f"use one of {', '.join(NICKNAMES)}"
            raise OptionError(where, word, f"is no time (column {start + 1})", way_out)
        command = row[start + len(word) :].strip()
    else:
        end = _end_of_times(row, start)
        schedule = _times(row[start:end], where, row, start)
        command = row[end:].strip()
    if not command:
        raise OptionError(where, row.strip(), "has no command", _WAY_OUT)
    return CronEntry(number, schedule, command, settings)


def _end_of_times(row: str, start: int) -> int:
    """The index behind the fifth word."""
    at, words = start, 0
    while at < len(row) and words < _FIELDS:
        while at < len(row) and row[at].isspace():
            at += 1
        while at < len(row) and not row[at].isspace():
            at += 1
        words += 1
    return at


def _times(text: str, where: str, row: str, start: int) -> str:
    try:
        return parse_cron(text, where, whole=row, at=start).text
    except OptionError as error:
        raise OptionError(where, error.value, error.why, _WAY_OUT) from None
