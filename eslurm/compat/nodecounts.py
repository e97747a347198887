"""Numbers of nodes as `--nodes` reads them: `4`, `2-4`, `2k`."""

from __future__ import annotations

from eslurm.compat.errors import OptionError, whole_number
from eslurm.core.model import request_limits as limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_SUFFIXES: Mapping[str, int] = {"k": 1024, "m": 1024**2}


def parse_node_count(text: str, option: str = "--nodes") -> tuple[int, int]:
    """(fewest, most) nodes; a single number is both. Raises OptionError."""
    low_text, dash, high_text = text.partition("-")
    low = _count(low_text)
    high = _count(high_text) if dash else low
    if low < 0 or high < 0:
        raise OptionError(
            option, text, "is not a number of nodes", f"use e.g. {option} 4, {option} 2-4 or {option} 2k"
        )
    if low == 0 or high == 0:
        raise OptionError(option, text, "asks for no node", f"use at least {option} 1")
    if high < low:
        raise OptionError(option, text, "has its ends swapped", f"use {option} {high_text}-{low_text}")
    return low, high


def _count(text: str) -> int:
    factor = _SUFFIXES.get(text[-1:].lower(), 1)
    number = whole_number(text[:-1] if factor > 1 else text, 10)
    return number * factor if 0 <= number * factor <= limits.COUNT_MAX else -1
