"""Words that commands of Slurm's accounting take abbreviated: settings, conditions and columns of sacctmgr and sreport.

A table has a line for each word: `name least key note`. Any beginning of `name` with at least `least` letters is the word,
and the first such line counts. `key` is the word's name here, or `no`: it is refused, and `note` says why.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


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
