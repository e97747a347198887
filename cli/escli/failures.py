"""Failure of a command: one line of text and an exit code of `exits`."""

from __future__ import annotations

from eslurm.compat.errors import escaped


class CommandFailed(Exception):
    """`text` is one line for the user; `code` the exit code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = escaped(" ".join(text.split()))
