"""Counts of one term of the leader for people: jobs, planning cycles, and calls by method and by user.

The metrics have more and are kept over terms; these are small, and any user may read them. Invariant: there is a row for
each method of the table and for at most `USERS_MAX` users; calls of further users are counted together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from eslurm.core.model import facts
from eslurm.core.model.facts import Fact
from eslurm.core.model.job import Principal
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.plan.cycle.plan import Plan

USERS_MAX = 200


class CallCount:
    """Calls of one kind: how many, and their CPU seconds on the event loop."""

    __slots__ = ("calls", "name", "spent_s")

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0
        self.spent_s = 0.0

    def charge(self, spent_s: float) -> None:
        """Add the time of one step of a call."""
        self.spent_s += spent_s


class CycleCount:
    """Planning cycles: figures of the last one, and sums over all. Times are CPU seconds."""

    __slots__ = (
        *("bounded", "cycles", "depth_last", "depth_sum", "last_at_us", "last_s", "max_s", "queue_last"),
        *("queue_sum", "slots_last", "slots_sum", "sum_s"),
    )

    def __init__(self) -> None:
        self.cycles = self.bounded = self.last_at_us = 0
        self.depth_last = self.depth_sum = 0
        self.queue_last = self.queue_sum = 0
        self.slots_last = self.slots_sum = 0
        self.last_s = self.max_s = self.sum_s = 0.0

    def add(self, plan: Plan, spent_s: float, *, queue: int, slots: int, at_us: int) -> None:
        """A cycle has ended. `queue` is the number of waiting jobs."""
        self.cycles += 1
        self.bounded += plan.is_unfinished
        self.last_at_us = at_us
        self.last_s = spent_s
        self.max_s = max(self.max_s, spent_s)
        self.sum_s += spent_s
        self.depth_last, self.queue_last, self.slots_last = plan.examined, queue, slots
        self.depth_sum += plan.examined
        self.queue_sum += queue
        self.slots_sum += slots


class Statistics:
    """The counts since `since_us`."""

    def __init__(self, since_us: int) -> None:
        self.since_us = since_us
        self.submitted = 0
        self.started = 0
        self.ended: Counter[str] = Counter()
        """Jobs that ended, by final state; each task of an array is one."""
        self.cycles = CycleCount()
        self.by_method: dict[str, CallCount] = {}
        self.by_user: dict[int, CallCount] = {}
        self.users_skipped = 0

    def called(self, method: str, by: Principal) -> tuple[CallCount, ...]:
        """Count a call; returns the rows to charge for it."""
        row = self.by_method.get(method)
        if row is None:
            row = self.by_method[method] = CallCount(method)
        row.calls += 1
        user = self.by_user.get(by.uid)
        if user is None:
            if len(self.by_user) >= USERS_MAX:
                self.users_skipped += 1
                return (row,)
            user = self.by_user[by.uid] = CallCount(by.name)
        user.calls += 1
        return row, user

    def on_committed(self, batch: Iterable[Fact]) -> None:
        """These facts are durable."""
        for fact in batch:
            match fact:
                case facts.JobSubmitted():
                    self.submitted += 1
                case facts.AttemptStarted():
                    self.started += 1
                case facts.AttemptEnded(outcome=outcome) if outcome in FINAL:
                    self.ended[outcome.value] += 1
                # A growth that has joined its job is no job.
                case facts.JobFinished(state=state) if state is not JobState.COMPLETED:
                    self.ended[state.value] += 1
