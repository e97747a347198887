"""The one error of all parsers of user-written text.

Invariant: every parser of this package raises `OptionError` and nothing else, whatever the text.
"""

from __future__ import annotations

from eslurm.core.model.wording import escaped, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["OptionError", "escaped", "nearest", "quoted", "whole_number"]


class OptionError(ValueError):
    """An option's value cannot be understood or is impossible.

    `option` is its name as the user wrote it (`--time`), `value` the given value, `why` completes "'value' ...", `way_out`
    is the correct form. With the value None, for a missing one, `why` completes the option. `str()` is always one line.
    """

    def __init__(self, option: str, value: str | None, why: str, way_out: str = "") -> None:
        self.option = option
        self.value = value
        self.why = why
        self.way_out = way_out
        super().__init__(self.render())

    def render(self) -> str:
        """`--time: '5x' is not a time: use e.g. --time 1:30:00`, or `JOB is missing: use e.g. eswhy 17`, in one line."""
        subject = self.option if self.value is None else f"{self.option}: {quoted(self.value)}"
        head = f"{subject} {self.why}"
        return escaped(f"{head}: {self.way_out}" if self.way_out else head)

    def renamed(self, option: str) -> OptionError:
        """The same error under another name: that of a script line, say."""
        return OptionError(option, self.value, self.why, self.way_out)


def whole_number(text: str, digits_max: int = 18) -> int:
    """`text`, all ASCII digits, as a number; else -1. (`int()` also takes signs, blanks and `_`.)"""
    if 0 < len(text) <= digits_max and text.isascii() and text.isdigit():
        return int(text)
    return -1


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word with the fewest edits from `word`, or "" when none is near enough to be meant."""
    best, best_edits = "", (3 if len(word) > 3 else 2)
    if len(word) > 40:
        return ""
    for candidate in known:
        edits = _edits(word, candidate)
        if edits < best_edits:
            best, best_edits = candidate, edits
    return best


def _edits(left: str, right: str) -> int:
    """Number of letters to insert, drop, replace or swap with their neighbour."""
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        above, row = row, [i]
        for j, b in enumerate(right, 1):
            edits = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                edits = min(edits, before[j - 2] + 1)
            row.append(edits)
        before = above
    return row[-1]
