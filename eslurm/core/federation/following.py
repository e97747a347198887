"""The jobs of the committed view that concern other cells, as changes since the last look."""

from __future__ import annotations

from collections.abc import Callable

from eslurm.core.model.job import Job
from eslurm.core.state.view import View


class ChangedJobs:
    """Each look costs what has changed: the view has the job that changed last at its end."""

    def __init__(self, view: Callable[[], View]) -> None:
        self._view = view
        self._seen: dict[int, Job] = {}

    @property
    def is_empty(self) -> bool:
        """True while no job concerns other cells."""
        return not self._seen

    def take(self) -> tuple[list[Job], list[int]]:
        """The jobs that have changed, in that order, and the ids of those that are gone."""
        present = self._view().transfers
        changed: list[Job] = []
        for job_id in reversed(present):
            job = present[job_id]
            if self._seen.get(job_id) is job:
                break
            changed.append(job)
        changed.reverse()
        self._seen.update((job.job_id, job) for job in changed)
        gone: list[int] = []
        if len(self._seen) > len(present):
            gone = [job_id for job_id in self._seen if job_id not in present]
            for job_id in gone:
                del self._seen[job_id]
        return changed, gone
