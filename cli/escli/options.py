"""The parser of all commands: getopt's rules over the rows of `option_table`.

`--name value`, `--name=value`, `-n value`, `-nvalue`, joined flags, unique beginnings of long names, and `--`. It does not
interpret values: they stay texts, with their spelling for errors. Invariant: the parser raises `OptionError` and nothing
else, whatever the words.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError, nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FLAG = "flag"
VALUE = "value"
OPTIONAL = "optional"  # a value only in the same word: --exclusive[=user]
IGNORED = "ignored"  # known from Slurm, has a value, harmless to leave out
REFUSED = "refused"  # known from Slurm, not to be left out silently


class Option:
    """One row of the table: an option of the named commands. `group` heads it in the help text."""

    __slots__ = ("commands", "example", "group", "help", "kind", "long", "metavar", "short")

    def __init__(
        self,
        commands: str,
        long: str,
        short: str = "",
        metavar: str = "",
        help: str = "",
        kind: str = "",
        group: str = "Options",
        example: str = "",
    ) -> None:
        self.commands = commands
        self.long = long
        self.short = short
        self.metavar = metavar
        self.help = help
        self.kind = kind or (VALUE if metavar else FLAG)
        self.group = group
        self.example = example


class Words:
    """The parsed options as texts by long name, and the remaining words (`rest`).

    A flag's text is "". `spelling` is the option's name for errors, `line` its script line. `is_final` after `--`: none of
    the remaining words means anything to the command.
    """

    __slots__ = ("_given", "ignored", "is_final", "rest")

    def __init__(self) -> None:
        self._given: dict[str, tuple[str, str]] = {}
        self.rest: list[str] = []
        self.ignored: list[str] = []
        self.is_final = False

    def has(self, long: str) -> bool:
        return long in self._given

    def text(self, long: str, default: str = "") -> str:
        given = self._given.get(long)
        return default if given is None else given[0]

    def spelling(self, long: str) -> str:
        given = self._given.get(long)
        return f"--{long}" if given is None else given[1]

    def put(self, long: str, text: str, spelling: str) -> None:
        self._given[long] = (text, spelling)

    def drop(self, longs: Iterable[str]) -> None:
        for long in longs:
            self._given.pop(long, None)

    def names(self) -> tuple[str, ...]:
        return tuple(self._given)

    def overlay(self, other: Words) -> None:
        """Take all options of `other`; they win."""
        self._given.update(other._given)
        self.ignored += other.ignored


class Parser:
    """Reads words by a set of rows. `excludes` gives, per option, the options that an occurrence removes."""

    def __init__(
        self,
        rows: Sequence[Option],
        *,
        options_end_at_first_word: bool = False,
        excludes: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._by_long = {row.long: row for row in rows}
        self._by_short = {row.short: row for row in rows if row.short}
        self._ends_early = options_end_at_first_word
        self._excludes = excludes or {}

    def parse(self, words: Sequence[str], where: str = "") -> Words:
        """Read the words. `where` names their place, such as a script line, in errors. Raises OptionError."""
        found = Words()
        pending = list(reversed(words))
        while pending:
            word = pending.pop()
            if word == "--":
                found.is_final = True
                found.rest += reversed(pending)
                break
            if word.startswith("--"):
                self._long(word, pending, found, where)
            elif word.startswith("-") and word != "-":
                self._shorts(word, pending, found, where)
            else:
                found.rest.append(word)
                if self._ends_early:
                    found.rest += reversed(pending)
                    break
        return found

    def _long(self, word: str, pending: list[str], found: Words, where: str) -> None:
        name, equals, value = word[2:].partition("=")
        row = self._by_long.get(name) or self._by_beginning(name, word, where)
        spelling = f"{where}--{row.long}"
        if row.kind == FLAG:
            if equals:
                raise OptionError(
                    spelling, value, "is a value, but the option takes none", f"use --{row.long}"
                )
            self._put(row, "", spelling, found)
        elif equals or row.kind == OPTIONAL or (row.kind == REFUSED and not row.metavar):
            self._put(row, value, spelling, found)
        else:
            self._put(row, self._next(row, spelling, pending), spelling, found)

    def _shorts(self, word: str, pending: list[str], found: Words, where: str) -> None:
        at = 1
        while at < len(word):
            row = self._by_short.get(word[at])
            if row is None:
                raise OptionError(
                    f"{where}-{word[at]}", word, "is not an option", "see --help for the options there are"
                )
            at += 1
            spelling = f"{where}-{row.short}"
            if row.kind in (FLAG, OPTIONAL):
                self._put(row, "", spelling, found)
                continue
            value = word[at:] or self._next(row, spelling, pending)
            self._put(row, value, spelling, found)
            return

    def _next(self, row: Option, spelling: str, pending: list[str]) -> str:
        if not pending:
            example = f"use e.g. {row.example}" if row.example else f"use {spelling} {row.metavar}"
            raise OptionError(spelling, None, "needs a value", example)
        return pending.pop()

    def _put(self, row: Option, value: str, spelling: str, found: Words) -> None:
        if row.kind == REFUSED:
            raise OptionError(
                spelling, value or None, "cannot be met: this option is not supported", row.help
            )
        if row.kind == IGNORED:
            found.ignored.append(spelling)
            return
        if "\0" in value:
            raise OptionError(spelling, value, "holds a NUL character", "remove it")
        found.drop(self._excludes.get(row.long, ()))
        found.put(row.long, value, spelling)

    def _by_beginning(self, name: str, word: str, where: str) -> Option:
        matches = [row for long, row in self._by_long.items() if name and long.startswith(name)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            options = " or ".join(sorted(f"--{row.long}" for row in matches))
            raise OptionError(f"{where}--{name}", word, "could be several options", f"write {options}")
        near = nearest(name, self._by_long)
        way_out = f"did you mean --{near}?" if near else "see --help for the options there are"
        raise OptionError(f"{where}--{name[:40]}", word, "is not an option", way_out)
