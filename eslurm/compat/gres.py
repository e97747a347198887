"""Generic resources of nodes as `--gres` writes them (`gpu:a100:2,fpga`), and numbers of GPUs (`2`, `a100:2`)."""

from __future__ import annotations

from eslurm.compat.errors import OptionError, quoted, whole_number
from eslurm.core.model import request_limits as limits

GPU = "gpu"
_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
_WAY_OUT = "write NAME[:TYPE][:N], e.g. gpu:2 or gpu:a100:2"


def parse_gres(text: str, option: str = "--gres") -> tuple[tuple[str, str, int], ...]:
    """(name, type or "", number) for each resource of the list. Raises OptionError with the column."""
    found: list[tuple[str, str, int]] = []
    column = 1
    for entry in text.split(","):
        found.append(_entry(entry, column, text, option))
        column += len(entry) + 1
    seen: set[str] = set()
    for name, _, _ in found:
        if name in seen:
            raise OptionError(option, text, f"names {name} twice", "add them up, or ask for one type")
        seen.add(name)
    if len(found) > limits.RESOURCES_MAX:
        raise OptionError(option, text, f"names more than {limits.RESOURCES_MAX} resources", "ask for fewer")
    return tuple(found)


def parse_gpus(text: str, option: str = "--gpus") -> tuple[str, int]:
    """(type or "", number) of `2` or `a100:2`. Raises OptionError."""
    kind, colon, number = text.rpartition(":")
    count = whole_number(number, 10)
    if not 0 < count <= limits.COUNT_MAX or (colon and not _is_name(kind)):
        raise OptionError(
            option, text, "is not a number of GPUs", f"write [TYPE:]N, e.g. {option} 2 or {option} a100:2"
        )
    return kind, count


def typed(name: str, kind: str) -> str:
    """The feature of nodes whose resource is of that type; "" for any type."""
    return f"{name}:{kind}" if kind else ""


def _entry(entry: str, column: int, text: str, option: str) -> tuple[str, str, int]:
    name, *more = entry.removeprefix("gres/").split(":")
    count, kind = 1, ""
    if more and (number := whole_number(more[-1], 10)) >= 0:
        count = number
        more.pop()
    elif more and not _is_name(more[-1]):
        count = 0
    if len(more) == 1:
        kind = more.pop()
    if more or not _is_name(name) or (kind and not _is_name(kind)) or not 0 < count <= limits.COUNT_MAX:
        raise OptionError(option, text, f"is not understood at {quoted(entry)} (column {column})", _WAY_OUT)
    return name, kind, count


def _is_name(text: str) -> bool:
    return (
        text[:1].isalnum()
        and len(text) <= limits.RESOURCE_CHARS_MAX
        and all(char in _NAME_CHARS for char in text)
    )
