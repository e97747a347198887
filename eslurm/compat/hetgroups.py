"""Parts of a job of several parts, as `--het-group` names them: `0,2-3`."""

from __future__ import annotations

from eslurm.compat.errors import OptionError, whole_number
from eslurm.core.model.request_limits import PARTS_MAX


def parse_het_group(text: str, option: str = "--het-group") -> tuple[int, ...]:
    """The numbers, as they are listed. Raises OptionError, also for a part that is named twice."""
    found: list[int] = []
    for word in text.split(","):
        low_text, dash, high_text = word.partition("-")
        low = whole_number(low_text, 3)
        high = whole_number(high_text, 3) if dash else low
        if low < 0 or high < low:
            raise OptionError(option, text, "is not a list of parts", f"use e.g. {option} 0,2-3")
        if high >= PARTS_MAX:
            raise OptionError(
                option, text, f"names part {high}, above the last one", f"parts are 0 to {PARTS_MAX - 1}"
            )
        if twice := set(found).intersection(range(low, high + 1)):
            raise OptionError(option, text, f"names part {min(twice)} twice", "name each part once")
        found += range(low, high + 1)
    return tuple(found)
