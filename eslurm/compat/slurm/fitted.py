"""Tables of the accounting commands (sacct, sacctmgr, sshare): cells of a width, or separated for programs."""

from __future__ import annotations

from eslurm.compat.slurm.getopt import UsageProblem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def columns(text: str, known: Mapping[str, int]) -> list[tuple[str, int]]:
    """(name, width) of `user,account%-20`; beginnings of names are enough. Raises UsageProblem.

    A negative width begins at the left.
    """
    found = []
    for word in filter(None, text.split(",")):
        name, percent, width = word.strip().partition("%")
        named = [one for one in known if one.lower() == name.lower()]
        named += [one for one in known if name and one.lower().startswith(name.lower())]
        if not named or (percent and not width.removeprefix("-").isdecimal()):
            raise UsageProblem(f'error: Invalid field requested: "{name}"')
        found.append((named[0], int(width) if percent and int(width) else known[named[0]]))
    return found


def lines(
    heads: Sequence[tuple[str, int]],
    rows: Sequence[Sequence[str]],
    *,
    has_header: bool,
    ending: str | None = None,
    is_ended: bool = False,
) -> list[str]:
    """The lines, each with its end. `ending` stands between columns without widths, and behind the last if `is_ended`."""
    if ending is not None:
        tail = f"{ending}\n" if is_ended else "\n"
        above = [[name for name, _ in heads]] if has_header else []
        return [ending.join(row) + tail for row in (*above, *rows)]
    found = []
    if has_header:
        found.append("".join(f"{_fit(name, width, '')} " for name, width in heads) + "\n")
        found.append("".join(f"{'-' * abs(width)} " for _, width in heads) + "\n")
    found += [
        "".join(f"{_fit(text, width)} " for (_, width), text in zip(heads, row, strict=True)) + "\n"
        for row in rows
    ]
    return found


def _fit(text: str, width: int, mark: str = "+") -> str:
    """A text in so many characters; one that is longer ends with the mark."""
    size = abs(width)
    if len(text) > size:
        return text[: size - len(mark)] + mark
    return text.ljust(size) if width < 0 else text.rjust(size)
