"""Options as GNU getopt_long reads them for Slurm's commands, in the order in which they stand.

A table has a line for each option: `long short kind treatment note`. `short` is `.` for none; `kind` is `-` (no value), `=`
(a value), `?` (a value only in the same word). Treatments are those of `treat`. Invariant: `parse` raises `UsageProblem` and
nothing else, whatever the words.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FLAG, VALUE, OPTIONAL = "-", "=", "?"
DONE, REFUSED, HARMLESS = "yes", "no", "none"


class UsageProblem(Exception):
    """An unusable command line; `text` is Slurm's line on standard error, without the command's name."""

    def __init__(self, text: str, *, has_hint: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.has_hint = has_hint
        """The line that names `--help` follows."""


class Row:
    """An option. `treatment` is `yes`, `no`, `none` (no effect here), `only:A|B` (these values, of no effect), or `as:NAME`
    (another name of that option). `note` is for the reference and for refusals.
    """

    __slots__ = ("kind", "long", "note", "short", "treatment")

    def __init__(self, long: str, short: str, kind: str, treatment: str, note: str) -> None:
        self.long = long
        self.short = short
        self.kind = kind
        self.treatment = treatment
        self.note = note

    @property
    def spelling(self) -> str:
        """The option as messages name it."""
        return f"--{self.long}" if len(self.long) > 1 else f"-{self.long}"


def table(text: str) -> tuple[Row, ...]:
    """The rows of a table's text."""
    rows = []
    for line in text.strip().splitlines():
        long, short, kind, treatment, note = (*line.split(None, 4), "")[:5]
        rows.append(Row(long, "" if short == "." else short, kind, treatment, note))
    return tuple(rows)


class Options:
    """The parsed options: (row, value, spelling) in their order, and the words that are left."""

    __slots__ = ("found", "rest")

    def __init__(self) -> None:
        self.found: list[tuple[Row, str, str]] = []
        self.rest: list[str] = []

    def last(self, long: str, default: str = "") -> str:
        """The value of the option's last occurrence."""
        return next((value for row, value, _ in reversed(self.found) if row.long == long), default)

    def has(self, long: str) -> bool:
        """Check whether the option occurs."""
        return any(row.long == long for row, _, _ in self.found)

    def all(self, long: str) -> list[str]:
        """All values of an option."""
        return [value for row, value, _ in self.found if row.long == long]

    def listed(self, long: str) -> list[str]:
        """The words between commas of all values of an option."""
        return [word for value in self.all(long) for word in value.split(",") if word]

    def add(self, row: Row, value: str, spelling: str) -> None:
        """Append an option."""
        self.found.append((row, value, spelling))


class Parser:
    """Reads words by a table. `stops` ends options at the first other word, as sbatch does."""

    def __init__(self, rows: Sequence[Row], *, stops: bool = False) -> None:
        self._stops = stops
        self._by_long: Mapping[str, Row] = {row.long: row for row in rows if len(row.long) > 1}
        self._by_short = {row.short or row.long: row for row in rows if row.short or len(row.long) == 1}

    def row(self, long: str) -> Row:
        """The option of this name."""
        return self._target(self._by_long[long])

    def parse(self, words: Sequence[str], where: str = "") -> Options:
        """Read the words. `where` stands before an option in messages. Raises UsageProblem."""
        found = Options()
        pending = list(reversed(words))
        while pending:
            word = pending.pop()
            if word == "--":
                found.rest += reversed(pending)
                break
            if word.startswith("--"):
                self._long(word[2:], pending, found, where)
            elif word.startswith("-") and word != "-":
                self._shorts(word, pending, found, where)
            else:
                found.rest.append(word)
                if self._stops:
                    found.rest += reversed(pending)
                    break
        return found

    def _target(self, row: Row) -> Row:
        return self._by_long[row.treatment[3:]] if row.treatment.startswith("as:") else row

    def _long(self, word: str, pending: list[str], found: Options, where: str) -> None:
        name, equals, value = word.partition("=")
        row = self._by_long.get(name) or self._by_beginning(name, where)
        if row.kind == FLAG and equals:
            raise UsageProblem(f"{where}option '--{row.long}' doesn't allow an argument", has_hint=True)
        if row.kind == VALUE and not equals:
            if not pending:
                raise UsageProblem(f"{where}option '--{row.long}' requires an argument", has_hint=True)
            value = pending.pop()
        found.add(self._target(row), value, f"{where}--{row.long}")

    def _by_beginning(self, name: str, where: str) -> Row:
        rows = [row for long, row in self._by_long.items() if name and long.startswith(name)]
        targets = {self._target(row).long for row in rows}
        if not rows:
            raise UsageProblem(f"{where}unrecognized option '--{name}'", has_hint=True)
        if len(targets) > 1:
            several = " ".join(f"'--{row.long}'" for row in rows)
            raise UsageProblem(
                f"{where}option '--{name}' is ambiguous; possibilities: {several}", has_hint=True
            )
        return rows[0]

    def _shorts(self, word: str, pending: list[str], found: Options, where: str) -> None:
        at = 1
        while at < len(word):
            row = self._by_short.get(word[at])
            if row is None:
                raise UsageProblem(f"{where}invalid option -- '{word[at]}'", has_hint=True)
            at += 1
            spelling = f"{where}-{word[at - 1]}"
            if row.kind == FLAG:
                found.add(self._target(row), "", spelling)
                continue
            value = word[at:]
            if not value and row.kind == VALUE:
                if not pending:
                    raise UsageProblem(
                        f"{where}option requires an argument -- '{word[at - 1]}'", has_hint=True
                    )
                value = pending.pop()
            found.add(self._target(row), value, spelling)
            return


def refusal(row: Row, value: str, spelling: str) -> str:
    """The reason for which the option is not taken; empty: it is."""
    if row.treatment == REFUSED:
        return f"{spelling}{'=' + value if value else ''} is not supported: {row.note}"
    if row.treatment.startswith("only:") and value.lower() not in row.treatment[5:].split("|"):
        return f"{spelling}={value} is not supported: {row.note}"
    return ""
