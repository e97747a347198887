"""Failures of `eslurm` commands."""

from __future__ import annotations

from collections.abc import Sequence

from escli import exits


class ClusterError(Exception):
    """`text` is one line that names the thing and the way out, `code` the exit code, `tail` lines of a log."""

    def __init__(self, text: str, code: int = exits.FAILED, tail: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        self.tail = tuple(tail)


class Interrupted(ClusterError):
    """The user (or the system) asked this command to stop."""

    def __init__(self) -> None:
        super().__init__("interrupted", exits.INTERRUPTED)


def unusable(text: str) -> ClusterError:
    """The error for an unusable command line or state directory; nothing was changed."""
    return ClusterError(text, exits.USAGE)
