"""Licences as `--licenses` writes them: `matlab`, `matlab:2,ansys`. They belong to the cluster, not to its nodes."""

from __future__ import annotations

from eslurm.compat.errors import OptionError, quoted, whole_number

COUNT_MAX = 2**31 - 1


def parse_licenses(text: str, option: str = "--licenses") -> tuple[tuple[str, int], ...]:
    """(name, how many) for each licence of the list. Raises OptionError with the column."""
    found: dict[str, int] = {}
    column = 1
    for entry in text.split(","):
        name, colon, number = entry.partition(":")
        count = whole_number(number, 10) if colon else 1
        why = ""
        if "|" in entry:
            why = "asks for one or another licence, which is not supported"
        elif "@" in entry:
            why = "names a licence server, which this cluster does not count by"
        elif (
            not name or not name.isprintable() or " " in name or len(name) > 63 or not 0 < count <= COUNT_MAX
        ):
            why = "is not understood"
        if why:
            raise OptionError(
                option,
                text,
                f"{why} at {quoted(entry)} (column {column})",
                "write NAME[:N], e.g. matlab:2,ansys",
            )
        if name in found:
            raise OptionError(option, text, f"names {name} twice (column {column})", "add them up")
        found[name] = count
        column += len(entry) + 1
    return tuple(found.items())
