"""Guests of other cells here: one that its home does not name for long ends, so no node is held for a cell that is gone.

Invariant: a guest ends here only after its home has been silent about it for all of `SILENCE_US` under one leader.
"""

from __future__ import annotations

from typing import Final

from eslurm.core.federation.transfers.agenda import Agenda
from eslurm.core.federation.transfers.commits import Commits
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.messages import KeepGuest

SILENCE_US: Final = 600_000_000
STEPS_MAX: Final = 64


class Hosting:
    """Feed it with the guests of other cells, tell it of calls about them, and `tick` it."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._guests: dict[int, Job] = {}
        self._agenda = Agenda()

    @property
    def size(self) -> int:
        """Number of guests here."""
        return len(self._guests)

    def has_elder(self, age: tuple[int, str, int]) -> bool:
        """Check whether a guest here is for an older job that has not started."""
        found = (job.guest_of for job in self._guests.values())
        return any(one is not None and one.until_us and one.since_us and one.age < age for one in found)

    def show(self, job: Job, now_us: int) -> None:
        """The job holds nodes for another cell's."""
        if job.state in FINAL:
            self.drop(job.job_id)
        elif job.job_id in self._guests:
            self._guests[job.job_id] = job
        else:
            self._guests[job.job_id] = job
            self.heard(job.job_id, now_us)

    def heard(self, job_id: int, now_us: int) -> None:
        """The home cell has named the guest."""
        if job_id in self._guests:
            self._agenda.put(job_id, now_us + SILENCE_US)

    def drop(self, job_id: int) -> None:
        """It has ended."""
        self._guests.pop(job_id, None)
        self._agenda.drop(job_id)

    def tick(self, now_us: int) -> None:
        """End those whose home is silent."""
        for job_id in self._agenda.take(now_us, STEPS_MAX):
            given = self._guests[job_id].guest_of
            assert given is not None
            end = KeepGuest(job_id, given.home, given.job_id, given.serial, keep=False)
            self._agenda.put(job_id, self._commits.wish(job_id, end, now_us))

    @property
    def due_us(self) -> int | None:
        """The next instant at which `tick` has something to do; None: no such instant."""
        return self._agenda.due_us
