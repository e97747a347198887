"""Words that commands of Slurm's accounting take abbreviated: settings, conditions and columns of sacctmgr and sreport.

A table has a line for each word: `name least key note`. Any beginning of `name` with at least `least` letters is the word,
and the first such line counts. `key` is the word's name here, or `no`: it is refused, and `note` says why.
"""

from __future__ import annotations

from eslurm.compat.errors import whole_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    Field: TypeAlias = tuple[str, int, int, str]
    """Name, letters that are enough, width, head."""

_WIDTH_DIGITS = 4


class Unusable(Exception):
    """Words that ask for nothing possible; `lines` are those on standard error."""

    def __init__(self, *lines: str) -> None:
        super().__init__(lines)
        self.lines = lines


class Word:
    """A word that sacctmgr knows. `key` names the setting; `no` refuses it with `note`."""

    __slots__ = ("key", "least", "name", "note")

    def __init__(self, name: str, least: int, key: str, note: str) -> None:
        self.name = name
        self.least = least
        self.key = key
        self.note = note


class Phrase:
    """A setting or a condition as given: `sign` is `+`, `-` or empty, `written` the whole word."""

    __slots__ = ("sign", "value", "word", "written")

    def __init__(self, word: Word, sign: str, value: str, written: str) -> None:
        self.word = word
        self.sign = sign
        self.value = value
        self.written = written

    @property
    def key(self) -> str:
        """The setting's name here."""
        return self.word.key


def table(text: str) -> tuple[Word, ...]:
    """The words of a table's text."""
    words = []
    for line in text.strip().splitlines():
        name, least, key, note = (*line.split(None, 3), "")[:4]
        words.append(Word(name, int(least), key, note))
    return tuple(words)


def find(words: Sequence[Word], name: str) -> Word | None:
    """The word that a name means."""
    lowered = name.lower()
    return next(
        (word for word in words if len(name) >= word.least and word.name.lower().startswith(lowered)), None
    )


def listed(text: str) -> list[str]:
    """The names between commas."""
    return [name for part in text.split(",") if (name := part.strip().strip("'\""))]


def fields(text: str) -> tuple[Field, ...]:
    """The columns of a table's text: `name least width head`, with `_` for blanks in heads."""
    return tuple(
        (name, int(least), int(width), head.replace("_", " "))
        for name, least, width, head in (line.split() for line in text.strip().splitlines())
    )


def columns(known: Sequence[Field], text: str, problem: str) -> list[tuple[str, int, bool]]:
    """(head, width, whether the width is given) of `user,account%-20`; a negative width begins at the left.

    Raises Unusable with `problem` and the wrong word.
    """
    found = []
    for token in filter(None, text.split(",")):
        name, percent, width = token.strip().partition("%")
        lowered = name.lower()
        field = next(
            (one for one in known if len(name) >= one[1] and one[0].lower().startswith(lowered)), None
        )
        size = whole_number(width.removeprefix("-"), _WIDTH_DIGITS) if percent else 0
        if field is None or size < 0:
            raise Unusable(f"{problem} '{token.strip()}'")
        if size and width.startswith("-"):
            size = -size
        found.append((field[3], size or field[2], size != 0))
    return found
