"""Numbers in sentences for people.

Invariant: one of a thing is told in the singular.
"""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`, `0 jobs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def are(count: int) -> str:
    """`is` or `are`, whichever goes with so many."""
    return "is" if count == 1 else "are"
