"""The values of default and force settings (C-29): in the administrators' form, and in the stored one.

Stored are plain numbers where an option means one: `time` in seconds, `mem-per-cpu` in MiB. Invariant:
`read_default(option, show_default(option, kept))` is `kept`.
"""

from __future__ import annotations

from eslurm.compat.constraints import parse_constraint
from eslurm.compat.errors import OptionError, whole_number
from eslurm.compat.lengths import length_text, parse_length
from eslurm.compat.sizes import format_memory, parse_memory

NICE_MAX = 2**31 - 1
_YES = {"yes": "yes", "true": "yes", "1": "yes", "no": "no", "false": "no", "0": "no"}


def read_default(option: str, text: str, key: str) -> str:
    """The stored form of a value. Raises `OptionError`."""
    if option == "time":
        return str(parse_length(text, key))
    if option == "mem-per-cpu":
        return str(parse_memory(text, key))
    if option == "constraint":
        return parse_constraint(text, key)
    if option == "nice":
        number = whole_number(text.removeprefix("-"), 10)
        if not 0 <= number <= NICE_MAX:
            raise OptionError(key, text, "is not a whole number", f"use e.g. {key}=100")
        return text
    if option == "requeue":
        if text.lower() not in _YES:
            raise OptionError(key, text, "is neither yes nor no", f"use {key}=yes or {key}=no")
        return _YES[text.lower()]
    if not text.isprintable() or len(text) > 200:
        raise OptionError(key, text, "is not a short text on one line", "use at most 200 characters")
    return text


def show_default(option: str, kept: str) -> str:
    """The written form of a stored value."""
    if option == "time":
        return length_text(int(kept))
    if option == "mem-per-cpu":
        return format_memory(int(kept))
    return kept
