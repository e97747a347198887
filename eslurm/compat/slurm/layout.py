"""Lines as Slurm's commands print them: cells of a width, formats of letters (`%.18i`), and of names (`JobID:12`)."""

from __future__ import annotations

from eslurm.compat.errors import whole_number
from eslurm.compat.slurm.getopt import UsageProblem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

LONG_WIDTH = 20
"""Of a column that is given by its name alone."""
WIDTH_MAX = 4096


class Column:
    """A column as a format gives it. `key` is a letter or a name; `before` and `after` are texts around the cell."""

    __slots__ = ("after", "before", "is_right", "key", "width")

    def __init__(self, key: str, width: int, *, is_right: bool, before: str = "", after: str = "") -> None:
        self.key = key
        self.width = width
        self.is_right = is_right
        self.before = before
        self.after = after

    def show(self, text: str, *, is_cut: bool = True) -> str:
        """A cell: cut to the width, unless it stands right and is not to be, and padded; as it is without a width."""
        if self.width:
            text = text[: self.width] if is_cut or not self.is_right else text
            text = text.rjust(self.width) if self.is_right else text.ljust(self.width)
        return f"{self.before}{text}{self.after}"


def letters(text: str) -> list[Column]:
    """The columns of `%.18i %.9P`. A `%` without a letter behind it ends the format."""
    before, _, rest = text.partition("%")
    columns: list[Column] = []
    for token in rest.split("%"):
        if not token:
            continue
        at = 1 if token[0] == "." else 0
        end = at
        while end < len(token) and "0" <= token[end] <= "9":
            end += 1
        if end >= len(token):
            continue
        width = _width(token[at:end], text)
        columns.append(Column(token[end], width, is_right=at == 1, before=before, after=token[end + 1 :]))
        before = ""
    if before and not columns:
        columns.append(Column("", 0, is_right=False, before=before))
    return columns


def names(text: str) -> list[Column]:
    """The columns of `JobID:12,Name:.20,State:0|`: `name[:[.][width][suffix]]`; 20 wide unless a width is given."""
    columns = []
    for token in text.split(","):
        if not token:
            continue
        name, colon, shape = token.partition(":")
        at = 1 if shape[:1] == "." else 0
        end = at
        while end < len(shape) and "0" <= shape[end] <= "9":
            end += 1
        width = _width(shape[at:end], text) if colon else LONG_WIDTH
        columns.append(Column(name, width, is_right=at == 1, after=shape[end:]))
    return columns


def fields(
    text: str, by_letter: Mapping[str, str], by_lower: Mapping[str, str], what: str, *, are_letters: bool
) -> list[Column]:
    """The columns of a format, each by the name of its field; `what` the fields describe. Raises UsageProblem."""
    columns = letters(text) if are_letters else names(text)
    for column in columns:
        if are_letters and not column.key:
            continue
        known = by_letter.get(column.key) if are_letters else by_lower.get(column.key.lower())
        if known is None:
            raise UsageProblem(f"error: Invalid {what} format specification: {column.key}")
        column.key = known
    return columns


def _width(digits: str, text: str) -> int:
    width = whole_number(digits, 6) if digits else 0
    if not 0 <= width <= WIDTH_MAX:
        raise UsageProblem(f"error: a column of the format is wider than {WIDTH_MAX}: {text}")
    return width


def clock_text(seconds: int) -> str:
    """`0:05`, `1:00:00`, `1-02:00:00`: time in squeue and sinfo."""
    if seconds < 0:
        return "INVALID"
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}-{hour:02}:{minute:02}:{second:02}"
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def padded_clock(seconds: int) -> str:
    """`00:00:05`, `1-02:00:00`: time in scontrol and sacct."""
    hours, rest = divmod(max(0, seconds), 3600)
    days, hour = divmod(hours, 24)
    clock = f"{hour:02}:{rest // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def memory_text(mib: int) -> str:
    """`1G`, `1536M`, `0`: the largest unit that keeps an amount of MiB whole."""
    if not mib:
        return "0"
    unit = 0
    while mib % 1024 == 0 and unit < 3:
        mib //= 1024
        unit += 1
    return f"{mib}{'MGTP'[unit]}"
