"""Soft limits of resources that the submitting process had, set for a task (`eslurm.compat.resource_limits`).

As the task's user: no limit rises above what the agent's host allows. Locked memory only rises: what a login host allows to
shells is too little for the networks of nodes.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from eslurm.compat.resource_limits import limits_in, soft_limit

_ONLY_RISES = "MEMLOCK"
_LATER = frozenset(("AS", "CPU", "DATA", "FSIZE", "RSS"))
"""Limits that this process would suffer from if it had them for a moment."""


def set_limits(env: Mapping[str, str]) -> None:
    """Set this process's limits for the program that it is about to become."""
    for name, (soft, hard) in _wanted(env).items():
        _set(0, name, (soft, hard))


@contextmanager
def limits_of_children(env: Mapping[str, str]) -> Iterator[None]:
    """Have them for a moment: a process that is made meanwhile inherits them. `limit_child` follows."""
    wanted = {name: pair for name, pair in _wanted(env).items() if name not in _LATER}
    before = {name: resource.getrlimit(_number(name)) for name in wanted}
    for name, pair in wanted.items():
        _set(0, name, pair)
    try:
        yield
    finally:
        for name, pair in before.items():
            _set(0, name, pair)


def limit_child(pid: int, env: Mapping[str, str]) -> None:
    """Set the others for a process that has just been made."""
    for name, pair in _wanted(env).items():
        if name in _LATER:
            _set(pid, name, pair)


def _wanted(env: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """(soft, hard) by name of what changes."""
    found: dict[str, tuple[int, int]] = {}
    for name, asked in limits_in(env).items():
        if soft_limit(name) is None:
            continue
        soft, hard = resource.getrlimit(_number(name))
        if hard != resource.RLIM_INFINITY:
            asked = hard if asked == resource.RLIM_INFINITY else min(asked, hard)
        if name == _ONLY_RISES and asked != resource.RLIM_INFINITY:
            asked = soft if soft == resource.RLIM_INFINITY else max(asked, soft)
        if asked != soft:
            found[name] = (asked, hard)
    return found


def _number(name: str) -> int:
    return int(getattr(resource, f"RLIMIT_{name}"))


def _set(pid: int, name: str, pair: tuple[int, int]) -> None:
    # A limit beyond what the kernel takes is as good as none.
    with suppress(OSError, ValueError, OverflowError):
        resource.prlimit(pid, _number(name), pair)
