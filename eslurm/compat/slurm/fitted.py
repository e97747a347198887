"""Tables of the accounting commands (sacct, sacctmgr, sshare): cells of a width, or separated for programs."""

from __future__ import annotations

from eslurm.compat.slurm.getopt import UsageProblem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


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
        found.append("".join(f"{_fit(name, width)} " for name, width in heads) + "\n")
        found.append("".join(f"{'-' * abs(width)} " for _, width in heads) + "\n")
    if rows:
        shown = zip(heads, zip(*rows, strict=True), strict=True)
        fitted = [_fit_all(texts, width) for (_, width), texts in shown]
        found += [" ".join(line) + " \n" for line in zip(*fitted, strict=True)]
    return found


def _fit_all(texts: Iterable[str], width: int) -> list[str]:
    """The cells of a column; longer ones end with `+`."""
    size = abs(width)
    if width < 0:
        return [text.ljust(size) if len(text) <= size else f"{text[: size - 1]}+" for text in texts]
    return [text.rjust(size) if len(text) <= size else f"{text[: size - 1]}+" for text in texts]


def _fit(text: str, width: int) -> str:
    """A head, cut without a mark."""
    size = abs(width)
    return text[:size].ljust(size) if width < 0 else text[:size].rjust(size)
