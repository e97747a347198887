"""Numbers and user-given texts in sentences.

Invariants: one thing is singular; a given text stays on its line, and quotes are never empty.
"""

from __future__ import annotations

_SHOWN_MAX = 60


def counted(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`, `0 jobs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def are(count: int) -> str:
    """`is` or `are`, for this number."""
    return "is" if count == 1 else "are"


def quoted(value: str) -> str:
    """`value` in quotes, on one line, control characters escaped and long texts cut; in words when empty."""
    if not value:
        return "an empty value"
    if len(value) > _SHOWN_MAX:
        value = value[: _SHOWN_MAX - 3] + "..."
    return f"'{escaped(value)}'"


def escaped(text: str) -> str:
    """`text` with control characters escaped, so that it cannot move the terminal's cursor."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def printable_line(text: str) -> str:
    """The words of `text` on one line, without what is not printable."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
