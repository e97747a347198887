"""The exception of every check of the simulator.

Invariant: it is never caught on the way; the run adds its seed.
"""

from __future__ import annotations


class CheckFailed(AssertionError):
    """An invariant does not hold: the run has failed."""


def require(condition: bool, what: str) -> None:
    """Raises `CheckFailed` unless the condition holds."""
    if not condition:
        raise CheckFailed(what)
