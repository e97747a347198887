"""Text tables: aligned columns as wide as their widest cell, or of given widths.

Invariant: a cell is shown on its one line, whatever it holds; control characters, which could move the cursor or worse,
are escaped.
"""

from __future__ import annotations

from eslurm.compat.errors import escaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Column:
    """A column's head and shape. `width` 0 fits its cells; `cut` shortens cells that are longer than `width`.

    A `ragged` column is not padded at all, as programs want it.
    """

    __slots__ = ("cut", "head", "ragged", "right", "width")

    def __init__(
        self, head: str, *, right: bool = False, width: int = 0, cut: bool = False, ragged: bool = False
    ) -> None:
        self.head = head
        self.right = right
        self.width = width
        self.cut = cut
        self.ragged = ragged


def columns_of(heads: str) -> list[Column]:
    """Columns that fit their cells, by their heads between blanks; those of numbers, after `>`, end together."""
    return [Column(head.removeprefix(">"), right=head.startswith(">")) for head in heads.split()]


def render(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, header: bool = True, gap: str = " "
) -> str:
    """The table, each line ended by a newline; no trailing blanks. Empty without header and rows."""
    if not columns:
        return ""
    cells = [[column.head for column in columns], *rows] if header else list(rows)
    if not cells:
        return ""
    cells = [list(map(escaped, line)) for line in cells]
    aligned = []
    last = len(columns) - 1
    for index, (column, texts) in enumerate(zip(columns, zip(*cells, strict=True), strict=True)):
        width = column.width or max(map(len, texts))
        if column.cut:
            texts = tuple([text[:width] for text in texts])
        if column.ragged:
            aligned.append(list(texts))
        elif column.right:
            aligned.append([text.rjust(width) for text in texts])
        elif index == last and not column.width:
            aligned.append(list(texts))
        else:
            aligned.append([text.ljust(width) for text in texts])
    return "".join([gap.join(line).rstrip() + "\n" for line in zip(*aligned, strict=True)])


def separated(heads: Sequence[str], rows: Sequence[Sequence[str]], *, header: bool = True) -> str:
    """Lines with `|` between the cells, for programs."""
    lines = [heads, *rows] if header else rows
    return "".join(["|".join(map(escaped, line)) + "\n" for line in lines])
