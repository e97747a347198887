"""The standard input of a step's tasks."""

from __future__ import annotations

from typing import Final

import msgspec

EVERY_RANK: Final = -1


class StepInput(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The step's command passes its own input on to the task of this rank, or to each task (`EVERY_RANK`).

    With `path`, a pattern (`compat.filenames`), each task reads a file of its node instead. A step without a `StepInput` has
    no input.
    """

    rank: int = EVERY_RANK
    path: str = ""

    def is_streamed_to(self, rank: int) -> bool:
        """Check whether the task of this rank reads what the command passes on."""
        return not self.path and self.rank in (EVERY_RANK, rank)


def problem_of(given: StepInput | None, tasks: int) -> str:
    """The reason why a step of so many tasks cannot have this input; empty: it can."""
    if given is None or given.path or given.rank == EVERY_RANK or 0 <= given.rank < tasks:
        return ""
    return f"--input: there is no task {given.rank}: the step has {tasks} (0-{tasks - 1})"
