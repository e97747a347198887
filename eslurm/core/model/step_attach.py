"""Messages between the command of a step and those that are attached to it, msgpack in the frames of `security.step_stream`.

The one that attaches connects and begins with `AttachHello`; from then on it only reads: `AttachWelcome`, then `AttachFrame`
until one that is an `end`.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

EVERY_TASK: Final = -1
ATTACHED_MAX: Final = 16
"""Commands that are attached to one step at a time."""
BEHIND_BYTES_MAX: Final = 16 * 1024 * 1024
"""Output that waits for one of them. It is cut off when there is more: no task waits for it."""

_Filter = Annotated[int, msgspec.Meta(ge=EVERY_TASK, lt=2**31)]


class AttachHello(msgspec.Struct, frozen=True, array_like=True):
    """The task whose standard output is wanted, and the one for standard error; `EVERY_TASK`: of each."""

    output: _Filter = EVERY_TASK
    error: _Filter = EVERY_TASK

    def wants(self, task: int, stream: int) -> bool:
        """Check whether what a task writes to this stream is wanted."""
        wanted = self.output if stream == 1 else self.error
        return wanted in (EVERY_TASK, task)


class AttachWelcome(msgspec.Struct, frozen=True, array_like=True):
    """The number of the step's tasks, and (rank, exit code or negated signal) of those that have ended.

    With `refused`, the reason, nothing follows.
    """

    tasks: int
    ended: tuple[tuple[int, int], ...] = ()
    refused: str = ""


class AttachFrame(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of one stream (1, 2) of one task, its end (`eof`), or how a task has ended (`exit_status`).

    The last frame has an `end`: empty, the step is over, else the reason why no more comes.
    """

    task: int
    stream: int
    data: bytes = b""
    eof: bool = False
    exit_status: int | None = None
    end: str | None = None
