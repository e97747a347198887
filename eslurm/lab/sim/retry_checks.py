"""Invariants of retries by the server from outside: by what jobs asked for and by the log, fact by fact.

R1: a job has at most as many retries as it asked for: attempts are those, its requeues and the first one. R2: each retry has
a cause that the job named and by which its attempt ended; a stop by its user is none. R3: an attempt is placed only when
nothing of the one before it is held, and that one had not ended for good. R4: grown limits are above the old ones, within
the job's bounds, and those with which the next attempt is launched. Nothing here is shared with the controller but facts
and launches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from eslurm.core.model import facts
from eslurm.core.model.job import JobSpec, Stop
from eslurm.core.model.job_states import JobState, StopCause
from eslurm.core.model.protocol import JobLaunch
from eslurm.core.model.retry import RetryRequest
from eslurm.lab.sim.coverage import Coverage
from eslurm.lab.sim.violation import require

OF_RETRIES: Final = frozenset(
    (
        *("JobSubmitted", "JobChanged", "JobPlaced", "TimeChanged", "StopRequested"),
        *("AttemptEnded", "NodesReleased", "JobFinished"),
    )
)
"""Kinds of facts that say something of a retried job."""
_FOR_GOOD: Final = (StopCause.CANCEL, StopCause.EVICT)


class _Job(msgspec.Struct):
    """`limit_s` is the next attempt's, `grown_s` waits until the nodes of the last one (`held`) are free."""

    wish: RetryRequest
    limit_s: int
    attempts: int = 0
    retries: int = 0
    others: int = 0
    """Attempts that were followed by another one without being retried."""
    held: set[int] = set()
    residue: bool = False
    running_s: int = 0
    grown_s: int = 0
    stop: Stop | None = None
    waits: bool = True


class RetryChecks:
    """Kept by the run's `Checks`."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._jobs: dict[int, _Job] = {}
        self._launched_s: dict[tuple[int, int], int] = {}
        self.seen: dict[str, int] = {}
        """Number of checks of each kind: a check that never runs finds nothing."""

    def on_durable(self, batch: Iterable[facts.Fact]) -> None:
        """The facts of one commit, in order; of the kinds in `OF_RETRIES`."""
        for fact in batch:
            match fact:
                case facts.JobSubmitted():
                    self._on_submitted(fact.job_id, fact.spec)
                case facts.JobPlaced():
                    self._on_placed(fact)
                case _:
                    job = self._jobs.get(getattr(fact, "job_id", 0))
                    if job is not None:
                        self._on_fact(job, fact)

    def on_launch(self, launch: JobLaunch) -> None:
        """An agent is about to start this script."""
        expected_s = self._launched_s.get((launch.job_id, launch.attempt))
        if expected_s is None:
            return
        self._count("launch")
        limit_s = launch.spec.time_limit_s
        require(
            limit_s == expected_s,
            f"attempt {launch.attempt} of job {launch.job_id} is launched with a limit of {limit_s} s, not {expected_s} s",
        )

    def _on_submitted(self, job_id: int, spec: JobSpec) -> None:
        if spec.retry is not None:
            self._jobs[job_id] = _Job(spec.retry, spec.time_limit_s)

    def _on_placed(self, fact: facts.JobPlaced) -> None:
        array = self._jobs.get(fact.array_job_id) if fact.array_job_id else None
        if array is not None:
            self._jobs[fact.job_id] = _Job(array.wish, array.limit_s)
        job = self._jobs.get(fact.job_id)
        if job is None:
            return
        name = f"job {fact.job_id}"
        require(job.waits, f"{name} is placed again after an end for good, or beside its live attempt")
        require(
            job.residue or not job.held, f"{name} is placed while attempt {job.attempts} holds {job.held}"
        )
        require(
            fact.attempt == job.attempts + 1, f"{name}: attempt {fact.attempt} follows attempt {job.attempts}"
        )
        most = 1 + job.wish.retries_max + job.others
        require(fact.attempt <= most, f"{name}: attempt {fact.attempt} of at most {most} by its retries")
        job.attempts, job.waits, job.residue, job.stop = fact.attempt, False, False, None
        job.held = {span.node for span in fact.spans}
        job.running_s = job.limit_s
        self._launched_s[fact.job_id, fact.attempt] = job.limit_s
        self._count("attempt")

    def _on_fact(self, job: _Job, fact: facts.Fact) -> None:
        match fact:
            case facts.JobChanged():
                job.limit_s = fact.spec.time_limit_s
            case facts.TimeChanged():
                job.running_s = fact.time_limit_s
                # An agent that starts anew has the limit that it was told of since.
                self._launched_s.pop((fact.job_id, fact.attempt), None)
            case facts.StopRequested():
                job.stop = fact.stop
                if job.retries and fact.stop.cause is StopCause.CANCEL:
                    self._coverage.count("retried job cancelled")
            case facts.AttemptEnded():
                self._on_ended(job, fact)
                job.residue = fact.residue
                self._released(job, fact.released)
            case facts.NodesReleased() if fact.attempt == job.attempts:
                self._released(job, fact.nodes)
            case facts.JobFinished():
                job.waits = False
                if job.retries:
                    self._coverage.count("retried job cancelled")
            case _:
                pass

    def _on_ended(self, job: _Job, fact: facts.AttemptEnded) -> None:
        job.waits = fact.outcome is JobState.PENDING
        name = f"attempt {fact.attempt} of job {fact.job_id}"
        retry = fact.retry
        timed_out = fact.end is not None and fact.end.cause == "time_limit"
        if retry is None:
            require(
                not (timed_out and job.waits), f"{name} ran into its limit and waits again without a retry"
            )
            job.others += job.waits
            if job.retries == job.wish.retries_max and timed_out:
                self._coverage.count("retries used up")
            return
        self._count("retry")
        require(job.waits, f"{name} is retried and has ended for good")
        job.retries += 1
        most = job.wish.retries_max
        require(job.retries <= most, f"{name} is retried {job.retries} times of at most {most}")
        require(
            retry.cause in job.wish.causes, f"{name} is retried by {retry.cause}, which was not asked for"
        )
        for_good = job.stop is not None and (job.stop.cause in _FOR_GOOD or job.stop.is_final)
        require(not for_good, f"{name} is retried though it was told to end for good")
        if retry.cause == "timeout":
            require(timed_out, f"{name} is retried by timeout and ended by {fact.end}")
            self._check_growth(job, retry.time_limit_s, name)
            self._coverage.count("job retried after a timeout")
        else:
            lost = fact.end is None or fact.end.cause in ("orphaned", "lost")
            lost |= job.stop is not None and job.stop.cause is StopCause.NODE_LOST
            require(lost and not retry.time_limit_s, f"{name} is retried by a lost node: {fact.end}")
            self._coverage.count("job retried after a node failure")
        job.grown_s = retry.time_limit_s

    def _check_growth(self, job: _Job, limit_s: int, name: str) -> None:
        """Check a grown limit against what the job's factor could reach at most, one step at a time."""
        wish, old_s = job.wish, job.running_s
        most_s = old_s
        for _ in range(wish.retries_max - job.retries + 1):
            most_s = (most_s * wish.grow_time_percent + 99) // 100
        most_s = wish.max_time_s or most_s
        grows = limit_s > old_s or (wish.grow_time_percent == 100 and limit_s == old_s)
        require(
            grows and limit_s <= most_s, f"{name} of {old_s} s is retried for {limit_s} s, at most {most_s} s"
        )

    def _released(self, job: _Job, nodes: Iterable[int]) -> None:
        job.held.difference_update(nodes)
        if not job.held and job.grown_s:
            job.limit_s, job.grown_s = job.grown_s if job.waits else job.limit_s, 0

    def _count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1
