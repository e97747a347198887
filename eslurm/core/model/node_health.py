"""Health checks of a node: programs of the site that say, by their exit code, whether the node may take new work (F-03).

A failing check is a fault of its node (`node.NodeFault`) of the kind `health`. Names and texts come from nodes, which
nobody trusts here: `bounded` makes of them what may be kept and shown.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from eslurm.core.model.wording import printable_line

CHECKS_MAX: Final = 8
"""Checks of a node."""
NAME_CHARS_MAX: Final = 32
TEXT_CHARS_MAX: Final = 200
SERIAL_MAX: Final = 1 << 48
KIND: Final = "health"
"""Kind of the faults by checks, of which there may be several."""
_NAME_CHARS = frozenset(string.ascii_letters + string.digits + "_.-")

When = Literal["any", "idle", "allocated"]
"""States of a node in which a check runs: jobs are there, none is, or both."""


class CheckTerms(msgspec.Struct, frozen=True):
    """Turns of a check. One that fails runs in any state of its node until it passes, so that its fault can end."""

    name: str
    interval_s: int
    when: When = "any"


class FailingCheck(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, order=True, gc=False):
    """A check that failed when it ran last; `text` says how it failed first."""

    name: str
    text: str = ""


def is_check_name(name: str) -> bool:
    """Check whether a check may be called so: letters, digits, `_`, `.` and `-`."""
    return 0 < len(name) <= NAME_CHARS_MAX and _NAME_CHARS.issuperset(name)


def bounded_text(text: str) -> str:
    """The text on one line, printable and cut."""
    return printable_line(text[: 8 * TEXT_CHARS_MAX])[:TEXT_CHARS_MAX]


def bounded(failing: Iterable[FailingCheck]) -> tuple[FailingCheck, ...]:
    """As many of these as a node may have, sorted, one of each name, with bounded texts; what has no right name is left
    out.
    """
    named = {one.name: bounded_text(one.text) for one in failing if is_check_name(one.name)}
    return tuple(FailingCheck(name, named[name]) for name in sorted(named)[:CHECKS_MAX])
