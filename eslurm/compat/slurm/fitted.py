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


def listed_names(names: Sequence[str]) -> str:
    """The names of columns, four in a line, as `--helpformat` lists them."""
    rows = [names[at : at + 4] for at in range(0, len(names), 4)]
    return "\n".join(" ".join(name.ljust(19) for name in row).rstrip() + " " for row in rows) + "\n"


def lines(
    heads: Sequence[tuple[str, int]],
    rows: Sequence[Sequence[str]],
    *,
    has_header: bool,
    ending: str | None = None,
    is_ended: bool = False,
) -> list[str]:
    """The lines of these rows, each with its end. `ending` stands between columns without widths, and behind the last if
    `is_ended`.
    """
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(heads)
    return lines_of_columns(heads, columns, has_header=has_header, ending=ending, is_ended=is_ended)


def lines_of_columns(
    heads: Sequence[tuple[str, int]],
    columns: Sequence[Sequence[str]],
    *,
    has_header: bool,
    ending: str | None = None,
    is_ended: bool = False,
) -> list[str]:
    """See `lines`; the cells are given by columns."""
    if ending is not None:
        tail = f"{ending}\n" if is_ended else "\n"
        above = [ending.join([name for name, _ in heads]) + tail] if has_header else []
        return [*above, *(ending.join(row) + tail for row in zip(*columns, strict=True))]
    found = []
    if has_header:
        found.append("".join(f"{_fit(name, width)} " for name, width in heads) + "\n")
        found.append("".join(f"{'-' * abs(width)} " for _, width in heads) + "\n")
    fitted = [_fit_all(texts, width) for (_, width), texts in zip(heads, columns, strict=True)]
    found += [" ".join(line) + " \n" for line in zip(*fitted, strict=True)]
    return found


def _fit_all(texts: Sequence[str], width: int) -> list[str]:
    """The cells of a column; longer ones end with `+`. Equal cells are fitted once."""
    size = abs(width)
    distinct = set(texts)
    if 4 * len(distinct) < len(texts):
        known = dict(zip(distinct, _fit_each(distinct, size, is_left=width < 0), strict=True))
        return list(map(known.__getitem__, texts))
    return _fit_each(texts, size, is_left=width < 0)


def _fit_each(texts: Iterable[str], size: int, *, is_left: bool) -> list[str]:
    if is_left:
        return [text.ljust(size) if len(text) <= size else f"{text[: size - 1]}+" for text in texts]
    return [text.rjust(size) if len(text) <= size else f"{text[: size - 1]}+" for text in texts]


def _fit(text: str, width: int) -> str:
    """A head, cut without a mark."""
    size = abs(width)
    return text[:size].ljust(size) if width < 0 else text[:size].rjust(size)
