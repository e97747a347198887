"""The options of retries by the server: one set of checks for commands and API."""

from __future__ import annotations

from eslurm.compat.errors import OptionError, nearest, whole_number
from eslurm.core.model.request_limits import MEMORY_MAX_MIB, TIME_LIMIT_MAX_S
from eslurm.core.model.retry_words import (
    CAUSES,
    GROW_MAX_PERCENT,
    OOM,
    RETRIES,
    RETRIES_MAX,
    SAME_PERCENT,
    TIMEOUT,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

RETRY_ON = "--retry-on"
NEEDED = {
    "--grow-time": TIMEOUT,
    "--max-time": TIMEOUT,
    "--grow-mem": OOM,
    "--max-mem": OOM,
}
"""The cause without which an option says nothing."""


def parse_retry_on(text: str, option: str = RETRY_ON) -> tuple[tuple[str, ...], int]:
    """`timeout,node-fail:2` as the causes, each once, and the number of retries. Raises OptionError."""
    words, colon, number = text.partition(":")
    count = RETRIES
    if colon:
        count = whole_number(number, 4)
        if not 1 <= count <= RETRIES_MAX:
            raise OptionError(
                option, text, f"asks for no number from 1 to {RETRIES_MAX}", f"use e.g. {option}=timeout:2"
            )
    return checked_causes([word.strip().lower() for word in words.split(",")], option), count


def checked_causes(words: Sequence[str], option: str = RETRY_ON) -> tuple[str, ...]:
    """Check the causes; each counts once. Raises OptionError."""
    for word in words[: len(CAUSES) + 1]:
        if word not in CAUSES:
            near = nearest(word, CAUSES)
            way_out = f"did you mean {near}?" if near else f"use {', '.join(CAUSES)}, e.g. {option}=timeout:2"
            raise OptionError(option, word[:256], "is no cause of a retry", way_out)
    if len(words) > len(CAUSES):
        raise OptionError(
            option, words[0], f"and the rest are more than {len(CAUSES)} causes", "name each once"
        )
    return tuple(dict.fromkeys(words))


def parse_factor(text: str, option: str) -> int:
    """`1.5x` or `1.5` as whole percent. Raises OptionError."""
    whole, point, part = text.strip().lower().removesuffix("x").partition(".")
    hundredths = whole_number(part.ljust(2, "0"), 2) if point else 0
    percent = whole_number(whole, 4) * SAME_PERCENT + hundredths if hundredths >= 0 else -1
    return checked_factor(percent, option, text)


def checked_factor(percent: int, option: str, text: str = "") -> int:
    """Check a factor: from one to ten."""
    if not SAME_PERCENT <= percent <= GROW_MAX_PERCENT:
        most = GROW_MAX_PERCENT // SAME_PERCENT
        raise OptionError(
            option, text or f"{percent} %", f"is no factor from 1x to {most}x", f"use e.g. {option}=1.5x"
        )
    return percent


def checked_maxima(max_time_s: int, max_memory_mib: int) -> None:
    """Check the two maxima; 0 is none."""
    if not 0 <= max_time_s <= TIME_LIMIT_MAX_S:
        raise OptionError("--max-time", f"{max_time_s} s", "is no time limit", "use e.g. --max-time=12:00:00")
    if not 0 <= max_memory_mib <= MEMORY_MAX_MIB:
        raise OptionError("--max-mem", f"{max_memory_mib} MiB", "is no size", "use e.g. --max-mem=64G")
