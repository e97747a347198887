"""Attendance: an allocation lives as long as the command that has asked for it is heard of (ADR 44).

What was heard is memory of this leader alone: one that takes over gives each command the whole limit anew. Invariant: only
time in which this leader looked counts as silence, so its own pauses end no allocation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.messages import EndUnattended
from eslurm.core.model.units import SECOND_US

LOOK_US: Final = SECOND_US
"""Interval of looks; a longer one counts as two of these."""


class Attended(Protocol):
    """The part of the state that is looked at."""

    @property
    def config(self) -> ClusterConfig: ...

    @property
    def attended(self) -> Collection[int]: ...


class Attendance:
    """Tell it of each call of a command, and `look` every `LOOK_US`."""

    def __init__(self) -> None:
        self._looked_us: int | None = None
        self._served_us = 0
        self._heard_us: dict[int, int] = {}

    @property
    def heard(self) -> Mapping[int, int]:
        """By job the served time at which its command was heard of last."""
        return self._heard_us

    def hear(self, job_id: int) -> None:
        """The command of a job is there. Of jobs that are not attended the next look forgets it."""
        self._heard_us[job_id] = self._served_us

    def look(self, state: Attended, now_us: int) -> EndUnattended | None:
        """Time has passed: the jobs to end, if any. They are named again until they have ended."""
        if self._looked_us is not None:
            self._served_us += min(max(0, now_us - self._looked_us), 2 * LOOK_US)
        self._looked_us = now_us
        attended = state.attended
        heard = {job_id: self._heard_us.get(job_id, self._served_us) for job_id in attended}
        self._heard_us = heard
        limit_s = state.config.inactive_limit_s
        if not limit_s or not heard:
            return None
        oldest_us = self._served_us - int(limit_s * SECOND_US)
        silent = tuple(sorted([job_id for job_id, at_us in heard.items() if at_us <= oldest_us]))
        return EndUnattended(silent, limit_s) if silent else None
