"""Number of unfinished jobs by consumer: user, group, account, QOS, partition.

An index of the jobs' records: it only follows `State.put_job`. Invariant: a key without such a job is not in it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from eslurm.core.model import ranges
from eslurm.core.model.job import Job, JobSpec
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.parts import partitions_of

if TYPE_CHECKING:
    from eslurm.core.plan.rules.limits import Consumer, LimitIndex


class Submitter(msgspec.Struct, frozen=True, gc=False):
    """A job's owner and associations, as limits see them."""

    user: str
    groups: tuple[str, ...]
    account: str
    qos: str
    partition: str


class JobCounts:
    """Number of unfinished jobs by consumer; each task of an array counts, and a job of several parts once in each of
    its partitions.

    An account's count has the jobs that name it, not those of the accounts below it, because the tree may change.
    """

    def __init__(self) -> None:
        self.counts: dict[Consumer, int] = {}

    def follow(self, old: Job | None, new: Job) -> None:
        """Follow the replacement of a job's record."""
        if old is not None and old.state not in FINAL:
            if old.spec is new.spec and jobs_in(old) == jobs_in(new):
                return
            self._add(old.spec, -jobs_in(old))
        self._add(new.spec, jobs_in(new))

    def count(self, consumer: Consumer, index: LimitIndex) -> int:
        """The jobs of one consumer; of an account, with those of all accounts below it."""
        kind, name = consumer
        if kind != "account":
            return self.counts.get(consumer, 0)
        return sum(self.counts.get((kind, below), 0) for below in index.accounts_in(name))

    def _add(self, spec: JobSpec, jobs: int) -> None:
        if jobs:
            user = spec.user
            for consumer in _consumers(
                user.name, user.gid, user.groups, spec.account, spec.qos, partitions_of(spec)
            ):
                left = self.counts.get(consumer, 0) + jobs
                if left:
                    self.counts[consumer] = left
                else:
                    del self.counts[consumer]


def jobs_in(job: Job) -> int:
    """Number of jobs that a record stands for: an array's for the tasks without records of their own, a growth for none."""
    if job.state in FINAL or job.grows is not None:
        return 0
    return 1 if job.tasks_left is None else ranges.count(job.tasks_left)


def groups_of(spec: JobSpec) -> tuple[str, ...]:
    """The submitter's groups as policies name them, the primary one first."""
    return _group_names(spec.user.gid, spec.user.groups)


def _group_names(gid: int, groups: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(number) for number in (gid, *groups)))


@lru_cache(maxsize=1024)
def _consumers(
    user: str, gid: int, groups: tuple[int, ...], account: str, qos: str, partitions: tuple[str, ...]
) -> tuple[Consumer, ...]:
    return (
        ("user", user),
        *[("group", group) for group in _group_names(gid, groups)],
        ("account", account),
        ("qos", qos),
        *[("partition", partition) for partition in partitions],
    )


def submitters_of(spec: JobSpec) -> list[Submitter]:
    """The submitter of a job, once for each partition that it has parts in."""
    groups = groups_of(spec)
    return [
        Submitter(spec.user.name, groups, spec.account, spec.qos, partition)
        for partition in partitions_of(spec)
    ]
