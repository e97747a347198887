"""Signals as users write them: `USR1`, `SIGUSR1`, `10`; and sbatch's `--signal=[B:]SIG[@SECONDS]`.

Pure text work: a signal's number is what travels, and it is Linux's.
"""

from __future__ import annotations

from eslurm.compat.errors import OptionError, nearest, quoted, whole_number
from eslurm.core.model import request_limits as limits
from eslurm.core.model.values import signal_problem

BEFORE_DEFAULT_S = 60
_NAMES = (
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
)  # fmt: skip
NUMBERS = {name: number for number, name in enumerate(_NAMES, start=1)}
_WAY_OUT = "write [B:]SIGNAL[@SECONDS], e.g. B:USR1@120"


def parse_signal(text: str, option: str = "--signal") -> int:
    """The number of `USR1`, `SIGUSR1`, `usr1` or `10`. Raises OptionError."""
    word = text.upper().removeprefix("SIG")
    number = NUMBERS.get(word, whole_number(text, 3))
    if signal_problem(number):
        near = nearest(word, NUMBERS)
        way_out = f"did you mean {near}?" if near else "use e.g. USR1 or 10"
        raise OptionError(option, text, "is not a signal", way_out)
    return number


def parse_warning(text: str, option: str = "--signal") -> tuple[int, int, bool]:
    """(signal, seconds before the time limit, only to the batch shell) of `[B:]SIG[@SECONDS]` (C-40).

    Without seconds it is a minute. Raises OptionError with the column.
    """
    head, colon, rest = text.partition(":")
    if not colon:
        head, rest = "", text
    elif head.upper() != "B":
        why = f"is not understood at {quoted(head + ':')} (column 1)"
        raise OptionError(option, text, why, "B: signals the batch shell alone; there is no other prefix")
    name, at, seconds = rest.partition("@")
    start = len(head) + len(colon) + 1
    try:
        number = parse_signal(name, option)
    except OptionError as error:
        why = f"is not understood at {quoted(name)} (column {start}), which {error.why}"
        raise OptionError(option, text, why, error.way_out if name else _WAY_OUT) from None
    before_s = whole_number(seconds, 5) if at else BEFORE_DEFAULT_S
    if not 0 <= before_s <= limits.WARN_BEFORE_MAX_S:
        why = f"is not understood at {quoted(seconds)} (column {start + len(name) + 1})"
        raise OptionError(option, text, why, f"give seconds from 0 to {limits.WARN_BEFORE_MAX_S}: {_WAY_OUT}")
    return number, before_s, bool(colon)
