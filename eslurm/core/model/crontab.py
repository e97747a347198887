"""A user's crontab: the text as the user wrote it, and the waiting or running job of each of its lines.

Invariant: a job repeats only while a crontab has it, so a line that is gone, or disabled, is not run again.
"""

from __future__ import annotations

from typing import Final

import msgspec

CRONTAB: Final = "crontab"
"""The kind of its row; the row's name is the user's number."""
BYTES_MAX: Final = 64 * 1024
ENTRIES_MAX: Final = 100
DISABLED: Final = "#DISABLED: "
"""Stands before a line that was taken out of service because its job was cancelled."""


class CronLine(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The job of a line. Lines count from 1; `first` is that of its first option, else its own."""

    line: int
    job_id: int
    first: int


class Crontab(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The crontab of the user `uid`, who was called `user` when it was set."""

    uid: int
    user: str
    text: str
    lines: tuple[CronLine, ...] = ()

    def has(self, job_id: int) -> bool:
        """Check whether the job is one of its lines."""
        return any(one.job_id == job_id for one in self.lines)

    def without(self, job_ids: frozenset[int]) -> Crontab:
        """The crontab with the lines of these jobs disabled."""
        gone = [one for one in self.lines if one.job_id in job_ids]
        numbers = {number for one in gone for number in range(one.first, one.line + 1)}
        rows = self.text.split("\n")
        text = "\n".join(DISABLED + row if at in numbers else row for at, row in enumerate(rows, 1))
        return Crontab(self.uid, self.user, text, tuple(one for one in self.lines if one not in gone))
