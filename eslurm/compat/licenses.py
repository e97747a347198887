"""Licences as `--licenses` writes them: `matlab`, `matlab:2,ansys`. They are cluster-wide."""

from __future__ import annotations

from eslurm.compat.errors import OptionError, quoted, whole_number
from eslurm.core.model import request_limits as limits


def parse_licenses(text: str, option: str = "--licenses") -> tuple[tuple[str, int], ...]:
    """(name, number) for each licence of the list. Raises OptionError with the column."""
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
            not name
            or not name.isprintable()
            or " " in name
            or len(name) > limits.RESOURCE_CHARS_MAX
            or not 0 < count <= limits.COUNT_MAX
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
    if len(found) > limits.RESOURCES_MAX:
        raise OptionError(option, text, f"names more than {limits.RESOURCES_MAX} licences", "ask for fewer")
    return tuple(found.items())


def _is_name(text: str) -> bool:
    return 0 < len(text) <= limits.RESOURCE_CHARS_MAX and text.isprintable() and " " not in text
