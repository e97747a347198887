"""EASY backfill."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from eslurm.core.plan.cycle import reasons
from eslurm.core.plan.cycle.policy import Cycle
from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.cycle.reasons import WhyKind

WAITS_FOR_NODES: Final = frozenset({WhyKind.RESOURCES, WhyKind.PRIORITY})
WAITS_FOR_RULE: Final = frozenset({WhyKind.POOL, WhyKind.RESERVATION, WhyKind.LICENCE})


class Easy:
    """The first blocked job gets a promised start that no job behind it may delay; others backfill.

    Partitions that share no node have a promise each. A job that a pool, a licence or another user's reservation blocks
    has a promise as well, beside that of the first job that waits for nodes. A job at its limit blocks no other. A promise
    holds until its job starts, whatever blocks the job meanwhile; only jobs ahead of it may take its place. With
    forecasts, backfill prefers the shortest jobs of a priority in relation to their wait, and a job that has waited for
    half a day is only overtaken by jobs that cannot delay it by their limits either.
    """

    name = "easy"

    def plan(self, cycle: Cycle) -> Generator[None, None, None]:
        """See `Policy`."""
        yield from cycle.withdraw()
        claims = _Claims(cycle)
        tries = 0
        behind: list[Pending] = []
        for job in cycle.jobs():
            if cycle.slice_over():
                yield
            members = cycle.members(job)
            if claims.nodes & members and cycle.snapshot.has_estimates:
                if not members & ~claims.nodes and not cycle.was_promised(job):
                    behind.append(job)
                    continue
                # It may hold a promise, or delay jobs on its other nodes: those ahead of it come first.
                tries = yield from _fill(cycle, behind, tries)
                behind.clear()
            is_untried = cycle.is_untried(job)
            tries += is_untried and cycle.has_failed
            left = yield from cycle.start_now(job)
            if left and not cycle.is_full and (is_untried or cycle.was_promised(job)):
                claims.add(job)
            if tries > cycle.limits.tries_max:
                return
        yield from _fill(cycle, behind, tries)


class _Claims:
    """Nodes claimed by blocked jobs: by those that wait for `nodes`, and by those that wait for a rule (`ruled`)."""

    __slots__ = ("_cycle", "nodes", "ruled")

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self.nodes = 0
        self.ruled = 0

    def add(self, job: Pending) -> None:
        """Promise a blocked job its start if it is the first that could use its nodes, or has a promise already."""
        cycle = self._cycle
        members = cycle.members(job)
        kind = cycle.waiting[job.job_id].kind
        for_nodes = kind in WAITS_FOR_NODES
        # A job that waits for its own reservation to begin is not in the way of others.
        for_rule = kind in WAITS_FOR_RULE and not job.reservation
        # A promise past a blocked job ahead would be broken as soon as that job's turn comes.
        before = self.nodes if for_nodes else self.nodes | self.ruled
        # Room that is being made for one job may be a place for the other only until then.
        is_passing = kind is WhyKind.PRIORITY and bool(cycle.schedule.preemptors or cycle.schedule.returns)
        is_blocked = (for_nodes or for_rule) and not is_passing
        is_first = is_blocked and not before & members and not cycle.is_saturated
        is_promised = (is_first or cycle.was_promised(job)) and cycle.promise(job)
        if for_nodes and (is_promised or self.nodes & members):
            self.nodes |= members
        elif is_promised:
            self.ruled |= members


def _fill(cycle: Cycle, behind: list[Pending], tries: int) -> Generator[None, None, int]:
    """Start jobs behind a blocked one that delay no promise; returns the number of jobs tried so far."""
    for job in (yield from cycle.to_fill(behind)):
        if cycle.slice_over():
            yield
        tries += cycle.is_untried(job) and cycle.has_failed
        if cycle.is_saturated:
            cycle.rest = reasons.NO_HOLE
        if cycle.is_saturated or cycle.is_full or tries > cycle.limits.tries_max:
            break
        yield from cycle.start_now(job)
    return tries
