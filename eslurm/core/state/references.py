"""Number of unfinished jobs that name an account, a QOS or a reservation.

An index of the jobs' records: it only follows `State.put_job`. Invariant: a name without such a job is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from eslurm.core.model.job import Job, JobSpec
from eslurm.core.model.job_states import FINAL

Mention = tuple[str, str]
"""(kind, name) of a policy."""


class References:
    """Counts of jobs by referenced name; an array counts once, and so does each of its tasks with a record."""

    def __init__(self) -> None:
        self.counts: dict[Mention, int] = {}

    def follow(self, old: Job | None, new: Job) -> None:
        """Follow the replacement of a job's record."""
        was_open = old is not None and old.state not in FINAL
        is_open = new.state not in FINAL
        if old is not None and was_open == is_open and old.spec is new.spec:
            return
        if old is not None and was_open:
            for mention in mentioned(old.spec):
                left = self.counts[mention] - 1
                if left:
                    self.counts[mention] = left
                else:
                    del self.counts[mention]
        if is_open:
            for mention in mentioned(new.spec):
                self.counts[mention] = self.counts.get(mention, 0) + 1

    def count(self, kind: str, name: str) -> int:
        """Number of unfinished jobs that name it."""
        return self.counts.get((kind, name), 0)


def mentioned(spec: JobSpec) -> Iterator[Mention]:
    """The references of a job."""
    if spec.account:
        yield "account", spec.account
    if spec.qos:
        yield "qos", spec.qos
    if spec.reservation:
        yield "reservation", spec.reservation
