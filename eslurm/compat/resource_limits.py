"""Soft limits of resources (`ulimit`) that tasks get of the process that asks for them (`--propagate`).

They travel as Slurm's do, as variables `SLURM_RLIMIT_STACK=8388608` (-1: unlimited), which a task's process takes out of
its environment.
"""

from __future__ import annotations

import resource

from eslurm.compat.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "SLURM_RLIMIT_"
NAMES = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK")
UNLIMITED = -1
_DIGITS_MAX = 20


def soft_limit(name: str) -> int | None:
    """This process's own soft limit, -1: unlimited; None where the kernel knows none of that name."""
    number = getattr(resource, f"RLIMIT_{name}", None)
    return resource.getrlimit(number)[0] if number is not None else None


def propagated(words: str, option: str) -> dict[str, str]:
    """The variables with this process's limits for `ALL`, `NONE`, or names such as `STACK,CORE`. Raises OptionError."""
    asked = [word.strip().upper().removeprefix("RLIMIT_") for word in (words or "ALL").split(",")]
    if unknown := [word for word in asked if word not in (*NAMES, "ALL", "NONE")]:
        raise OptionError(
            option, words, f"names no limit: {unknown[0]}", f"use ALL, NONE, or {','.join(NAMES)}"
        )
    names = () if "NONE" in asked else NAMES if "ALL" in asked else tuple(asked)
    found = {name: soft_limit(name) for name in names}
    return {f"{PREFIX}{name}": str(value) for name, value in found.items() if value is not None}


def limits_in(variables: Mapping[str, str]) -> dict[str, int]:
    """The limits by name that these variables ask for; what is no limit is ignored."""
    found: dict[str, int] = {}
    for name in NAMES:
        text = variables.get(PREFIX + name, "")
        if len(text) <= _DIGITS_MAX and text.removeprefix("-").isdecimal() and text.isascii():
            found[name] = max(UNLIMITED, int(text))
    return found


def without_limits(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables without those of limits."""
    return {name: value for name, value in variables.items() if not name.startswith(PREFIX)}
