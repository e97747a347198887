"""Live jobs: the forecast of each, and the next ones to ask about.

Invariant: a job is held from its submission to its end only (an estimator keeps what it needs of ended jobs), waiting jobs
in the order of their last question, each running job with the one instant at which it outlives its estimate; everything
else is bounded by the number of live jobs.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from typing import Final

from eslurm.core.forecast.accuracy import accuracy
from eslurm.core.model.forecast import Forecast, Submitted

SCORED_MAX: Final = 1_000
CHANGED_SHARE: Final = 0.05
"""Forecasts that differ by less are not worth a new plan."""
_PAUSE_MIN_S: Final = 30
_PAUSE_SHARE: Final = 0.05
"""A job that outlives estimate after estimate is asked about after such a share of its run time, not every second."""
_SPARE_ENDS: Final = 1_000
YOUNG_RUNS: Final = 512
"""With fewer runs to go by each tells much: whenever they have doubled, all forecasts are looked at again."""


class LiveJob:
    """A live job. `runs_since_s` and `ran_s` are None before its start and before its end."""

    __slots__ = ("asked_s", "due_s", "first_s", "job", "ran_s", "runs_since_s", "sent")

    def __init__(self, job: Submitted) -> None:
        self.job = job
        self.runs_since_s: int | None = None
        self.ran_s: int | None = None
        self.first_s = 0
        """The first point estimate; 0: none yet."""
        self.sent: Forecast | None = None
        """The forecast that the controller has."""
        self.asked_s = 0
        self.due_s = 0
        """Time of its next question if it still runs."""


class Scores:
    """Accuracy of first estimates, over the last jobs that ended after they ran."""

    def __init__(self) -> None:
        self._last: deque[tuple[float, bool]] = deque(maxlen=SCORED_MAX)

    def add(self, estimate_s: int, ran_s: int) -> None:
        """Add an ended job. Both above 0."""
        self._last.append((accuracy(estimate_s, ran_s), estimate_s < ran_s))

    def as_dict(self) -> dict[str, float]:
        """`jobs`, `aea` and `under`; nothing before the first job."""
        jobs = len(self._last)
        if not jobs:
            return {}
        aea = sum(one for one, _ in self._last) / jobs
        return {
            "jobs": jobs,
            "aea": round(aea, 4),
            "under": round(sum(bad for _, bad in self._last) / jobs, 4),
        }


class LiveJobs:
    """Live jobs by id."""

    def __init__(self) -> None:
        self._jobs: dict[int, LiveJob] = {}
        self._waiting: dict[int, None] = {}
        self._ends: list[tuple[int, int]] = []
        self._all_asked_after_s = 0
        self._runs = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[LiveJob]:
        return iter(list(self._jobs.values()))

    def find(self, job_id: int) -> LiveJob | None:
        """The job, None when it is not live."""
        return self._jobs.get(job_id)

    def submitted(self, job: Submitted) -> LiveJob:
        """Add a job, or replace a changed one: its former forecast still counts as sent."""
        known = LiveJob(job)
        before = self._jobs.get(job.job_id)
        if before is not None:
            known.sent, known.first_s = before.sent, before.first_s
        self._jobs[job.job_id] = known
        self._waiting[job.job_id] = None
        return known

    def started(self, known: LiveJob, at_s: int) -> None:
        """Note that it runs."""
        known.runs_since_s = at_s
        self._waiting.pop(known.job.job_id, None)

    def ended(self, known: LiveJob, at_s: int, ran_s: int) -> None:
        """Forget a job that ended; 0 seconds: it never ran."""
        known.ran_s = ran_s
        self._jobs.pop(known.job.job_id, None)
        self._waiting.pop(known.job.job_id, None)
        if ran_s:
            self._runs += 1
            if self._runs <= YOUNG_RUNS and self._runs.bit_count() == 1:
                self.renew(at_s)

    def asked(self, known: LiveJob, at_s: int) -> None:
        """Note a question: a waiting job goes to the end of the queue."""
        known.asked_s = at_s
        job_id = known.job.job_id
        if job_id in self._waiting:
            del self._waiting[job_id]
            self._waiting[job_id] = None

    def answered(self, known: LiveJob, forecast: Forecast) -> bool:
        """Note a forecast. Returns whether it differs enough to be sent to the controller."""
        known.first_s = known.first_s or forecast.estimate_s
        if self._jobs.get(known.job.job_id) is not known:
            # It has ended meanwhile, or is another job by now.
            return False
        if known.runs_since_s is not None:
            elapsed_s = known.asked_s - known.runs_since_s
            pause_s = max(_PAUSE_MIN_S, int(elapsed_s * _PAUSE_SHARE))
            due_s = max(known.runs_since_s + forecast.estimate_s + 1, known.asked_s + pause_s)
            self._expect(known, due_s)
        if known.sent is not None and not has_changed(known.sent, forecast):
            return False
        known.sent = forecast
        return True

    def renew(self, at_s: int) -> None:
        """Make all forecasts due again."""
        self._all_asked_after_s = at_s
        for known in self._jobs.values():
            known.due_s = at_s
        self._tidy_ends()

    def _expect(self, known: LiveJob, due_s: int) -> None:
        """Make a running job due at this instant, and at no earlier set one."""
        known.due_s = due_s
        heapq.heappush(self._ends, (due_s, known.job.job_id))
        if len(self._ends) > 2 * len(self._jobs) + _SPARE_ENDS:
            self._tidy_ends()

    def _tidy_ends(self) -> None:
        """Leave out jobs that ended or got another instant."""
        self._ends = sorted(
            (known.due_s, job_id) for job_id, known in self._jobs.items() if known.runs_since_s is not None
        )

    def due(self, at_s: int, refresh_s: float, most: int) -> list[LiveJob]:
        """Up to `most` jobs to ask about again: running ones that outlived their estimate, then the longest unasked."""
        found: dict[int, LiveJob] = {}
        while self._ends and self._ends[0][0] <= at_s and len(found) < most:
            due_s, job_id = heapq.heappop(self._ends)
            known = self._jobs.get(job_id)
            if known is not None and known.runs_since_s is not None and known.due_s == due_s:
                found[job_id] = known
        asked_before_s = max(at_s - refresh_s, self._all_asked_after_s)
        for job_id in self._waiting:
            known = self._jobs[job_id]
            if known.asked_s > asked_before_s or len(found) >= most:
                break
            if known.asked_s < at_s:
                found[job_id] = known
        return list(found.values())


def has_changed(before: Forecast, now: Forecast) -> bool:
    """True when any of the four numbers has changed by more than a twentieth."""
    return any(
        abs(new_s - old_s) > CHANGED_SHARE * old_s
        for old_s, new_s in (
            (before.estimate_s, now.estimate_s),
            (before.p10_s, now.p10_s),
            (before.p50_s, now.p50_s),
            (before.p90_s, now.p90_s),
        )
    )
