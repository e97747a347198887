"""Messages to the cell's own core, each repeated until the committed view shows what it was for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eslurm.core.model.messages import TransferMessage

COMMIT_AGAIN_US: Final = 2_000_000


class Commits:
    """At most one message for each job. `settle` ends the wait for it: the job's record has changed."""

    def __init__(self, commit: Callable[[TransferMessage], None]) -> None:
        self._commit = commit
        self._posted: dict[int, tuple[TransferMessage, int]] = {}

    @property
    def is_waiting(self) -> bool:
        """True while a message has not shown its effect."""
        return bool(self._posted)

    def wish(self, job_id: int, message: TransferMessage, now_us: int) -> int:
        """Pass the message on, unless that was done a moment ago. Returns the time of the next try."""
        posted = self._posted.get(job_id)
        if posted is None or posted[0] != message or now_us >= posted[1] + COMMIT_AGAIN_US:
            posted = self._posted[job_id] = message, now_us
            self._commit(message)
        return posted[1] + COMMIT_AGAIN_US

    def settle(self, job_id: int) -> None:
        """Wait no more for a message about this job."""
        self._posted.pop(job_id, None)
