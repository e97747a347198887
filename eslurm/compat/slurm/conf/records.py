"""The records of a line: its pairs by their keys, under the `DEFAULT` lines of their kind before it."""

from __future__ import annotations

from eslurm.compat.errors import nearest
from eslurm.compat.slurm.conf.draft import LEFT
from eslurm.compat.slurm.conf.keys import YES
from eslurm.compat.slurm.conf.scalars import treat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import TypeAlias

    from eslurm.compat.slurm.conf.draft import Draft
    from eslurm.compat.slurm.conf.keys import Row
    from eslurm.compat.slurm.conf.lines import Line, Pair

    Values: TypeAlias = Mapping[str, tuple[Line, Pair]]

DEFAULT = "default"


class Record:
    """A node line, a partition and so on: `name` as written, and the settings by their keys in lower letters."""

    __slots__ = ("line", "name", "settings")

    def __init__(self, line: Line, name: str, settings: Values) -> None:
        self.line = line
        self.name = name
        self.settings = settings

    def value(self, *keys: str) -> str:
        """The value of the first of these keys that is given; empty: none of them."""
        return next((self.settings[key][1].value for key in keys if key in self.settings), "")

    def at(self, *keys: str) -> tuple[Line, Pair]:
        """The place of the first of these keys that is given, a `DEFAULT` line's too; else that of the name."""
        return next(
            (self.settings[key] for key in keys if key in self.settings), (self.line, self.line.pairs[0])
        )


def read_records(draft: Draft, lines: Iterable[Line], table: Mapping[str, Row]) -> Iterator[Record]:
    """The records of lines that begin with the same key. What a table refuses is reported where it stands, once."""
    usual: dict[str, tuple[Line, Pair]] = {}
    for line in lines:
        name = line.pairs[0].value
        own = read_settings(draft, line, line.pairs[1:], table)
        if name.lower() == DEFAULT:
            usual.update(own)
            continue
        yield Record(line, name, {**usual, **own})


def read_settings(
    draft: Draft, line: Line, pairs: Iterable[Pair], table: Mapping[str, Row]
) -> dict[str, tuple[Line, Pair]]:
    """The pairs of a line by their keys. What a table refuses, and what it does not know, is reported."""
    own: dict[str, tuple[Line, Pair]] = {}
    for pair in pairs:
        key = pair.key.lower()
        row = table.get(key)
        if key in own:
            draft.add(LEFT, line, pair, "is given twice in this line: give it once")
        elif row is None:
            near = nearest(pair.key, [one.name for one in table.values()])
            meant = f"did you mean {near}?" if near else f"lines of {line.pairs[0].key} have none"
            draft.add(LEFT, line, pair, f"is no key that is known here: {meant}")
        elif row.how != YES:
            treat(draft, row, line, pair)
        own[key] = (line, pair)
    return own
