"""Durations as administrators write them: `4d3h`, `90m`, `500h`, and Slurm's `1-12:00:00`.

Invariant: `parse_length(length_text(seconds)) == seconds`.
"""

from __future__ import annotations

from eslurm.compat.durations import parse_time_limit
from eslurm.compat.errors import OptionError, whole_number

UNITS_S = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
_SHOWN = ("d", "h", "m", "s")
_NONE = frozenset({"none", "unlimited"})
LENGTH_MAX_S = 2**53


def parse_length(text: str, option: str) -> int:
    """Seconds; 0 for `none`. A number alone is minutes, as for `--time`. Raises `OptionError` with the column."""
    lowered = text.strip().lower()
    if lowered in _NONE:
        return 0
    if lowered.startswith("-"):
        raise OptionError(option, text, "is below 0", "write `none` for no bound")
    if not lowered or lowered.isdigit() or ":" in lowered or "-" in lowered:
        return parse_time_limit(lowered, option)
    seconds, start = 0, 0
    for index, char in enumerate(lowered):
        if char.isdigit():
            continue
        count = whole_number(lowered[start:index], 12)
        if char not in UNITS_S or count < 0:
            raise _wrong(option, text, index)
        seconds += count * UNITS_S[char]
        start = index + 1
    if start < len(lowered):
        raise _wrong(option, text, len(lowered))
    if seconds > LENGTH_MAX_S:
        raise OptionError(option, text, "is longer than anything lasts", "write `none` for no bound")
    return seconds


def length_text(seconds: int) -> str:
    """`4d3h`; 0 is `none`."""
    if seconds <= 0:
        return "none"
    words = []
    for unit in _SHOWN:
        count, seconds = divmod(seconds, UNITS_S[unit])
        if count:
            words.append(f"{count}{unit}")
    return "".join(words)


def _wrong(option: str, text: str, index: int) -> OptionError:
    return OptionError(
        option,
        text,
        f"is not a length of time: column {index + 1} should be a number and one of w, d, h, m, s",
        "write e.g. 4d3h, 90m or 1-12:00:00",
    )
