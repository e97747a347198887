"""The standard input of a step's tasks."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

EVERY_RANK: Final = -1
SIZE_MAX: Final = 65_535

_Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=SIZE_MAX)]
TerminalSize: TypeAlias = tuple[_Size, _Size]
"""Rows and columns."""


class StepInput(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The step's command passes its own input on to the task of this rank, or to each task (`EVERY_RANK`).

    With `path`, a pattern (`compat.filenames`), each task reads a file of its node instead. With `terminal` task 0 has a
    terminal of this size for all three streams. A step without a `StepInput` has no input.
    """

    rank: int = EVERY_RANK
    path: str = ""
    terminal: TerminalSize | None = None

    def is_streamed_to(self, rank: int) -> bool:
        """Check whether the task of this rank reads what the command passes on."""
        return not self.path and self.rank in (EVERY_RANK, rank)


def problem_of(given: StepInput | None, tasks: int) -> str:
    """The reason why a step of so many tasks cannot have this input; empty: it can."""
    if given is None:
        return ""
    if given.terminal is not None and (given.rank or given.path):
        return "--pty: the terminal is task 0's, which alone has input"
    if given.path or given.rank == EVERY_RANK or 0 <= given.rank < tasks:
        return ""
    return f"--input: there is no task {given.rank}: the step has {tasks} (0-{tasks - 1})"
