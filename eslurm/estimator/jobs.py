"""The live jobs of an estimator, and the run time of each ended one.

Invariant: memory is held for jobs that have not ended.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from eslurm.core.model.forecast import NO_LIMIT, Submitted

DEFAULT_S: Final = 3_600
"""The answer when no limit was given and no job has ended yet."""


class Ended(NamedTuple):
    """A job that has run, and its run time in seconds, above 0."""

    job: Submitted
    runtime_s: int


class Jobs:
    """The live jobs, and the mean run time of ended ones."""

    def __init__(self) -> None:
        self._live: dict[int, Submitted] = {}
        self._began_s: dict[int, int] = {}
        self._limits_s: dict[int, int] = {}
        """Limits that were changed while the jobs ran."""
        self._seen = 0
        self._seen_s = 0

    def submitted(self, job: Submitted) -> None:
        """Add a job."""
        self._live[job.job_id] = job
        self._began_s.pop(job.job_id, None)
        self._limits_s.pop(job.job_id, None)

    def started(self, job_id: int, at_s: int) -> None:
        """Note that it runs (again)."""
        if job_id in self._live:
            self._began_s[job_id] = at_s

    def limit_changed(self, job_id: int, limit_s: int) -> None:
        """Note another time limit."""
        if job_id in self._live:
            self._limits_s[job_id] = limit_s

    def ended(self, job_id: int, runtime_s: int) -> Ended | None:
        """Forget a job that ended. Returns it with its run time; None when it was unknown or never ran."""
        job = self._live.pop(job_id, None)
        self._began_s.pop(job_id, None)
        self._limits_s.pop(job_id, None)
        if job is None or runtime_s <= 0:
            return None
        self._seen += 1
        self._seen_s += runtime_s
        return Ended(job, runtime_s)

    def get(self, job_id: int) -> Submitted:
        """The job as submitted, with the limit that it has now. It must live."""
        job, limit_s = self._live[job_id], self._limits_s.get(job_id)
        return job if limit_s is None else replace(job, limit_s=limit_s)

    def elapsed_s(self, job_id: int, at_s: int) -> int:
        """Seconds since its start; 0 before."""
        return max(0, at_s - self._began_s.get(job_id, at_s))

    def otherwise_s(self, job: Submitted) -> int:
        """The estimate without a model: the limit, else the mean run time so far, else `DEFAULT_S`."""
        if job.limit_s != NO_LIMIT:
            return job.limit_s
        return round(self._seen_s / self._seen) if self._seen else DEFAULT_S
