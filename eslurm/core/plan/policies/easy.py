"""EASY backfill."""

from __future__ import annotations

from collections.abc import Generator

from eslurm.core.plan import explain
from eslurm.core.plan.explain import WhyKind
from eslurm.core.plan.policy import Cycle
from eslurm.core.plan.queue import Pending


class Easy:
    """The first blocked job gets a promised start that nothing behind it may delay; others fill the holes.

    Partitions that share no node have a promise each. Who is blocked by a limit, not by others, blocks nobody.
    Where running times are forecast, the shortest of a priority for what they have waited fill the holes first, and those
    in front of a job that has waited for half a day are those that cannot delay it by their limits either.
    """

    name = "easy"

    def plan(self, cycle: Cycle) -> Generator[None, None, None]:
        """See `Policy`."""
        yield from cycle.withdraw()
        # Nodes that are promised, or that a job waits for which may not be promised anything.
        claimed = tries = 0
        behind: list[Pending] = []
        for job in cycle.jobs():
            if cycle.slice_over():
                yield
            members = cycle.members(job)
            if claimed & members and cycle.snapshot.has_estimates:
                if not members & ~claimed:
                    behind.append(job)
                    continue
                # Whether it is in the way of those on its other nodes is to be known: they may be promised something.
                tries = yield from _fill(cycle, behind, tries)
                behind.clear()
            is_untried = cycle.is_untried(job)
            tries += is_untried and cycle.has_failed
            left = yield from cycle.start_now(job)
            if left and is_untried and not cycle.is_full:
                claimed |= _claims(cycle, job, claimed)
            if tries > cycle.limits.tries_max:
                return
        yield from _fill(cycle, behind, tries)


def _fill(cycle: Cycle, behind: list[Pending], tries: int) -> Generator[None, None, int]:
    """Starts what of those behind a blocked job delays nothing that is promised; how many have been tried so far."""
    for job in (yield from cycle.to_fill(behind)):
        if cycle.slice_over():
            yield
        tries += cycle.is_untried(job) and cycle.has_failed
        if cycle.is_saturated:
            cycle.rest = explain.NO_HOLE
        if cycle.is_saturated or cycle.is_full or tries > cycle.limits.tries_max:
            break
        yield from cycle.start_now(job)
    return tries


def _claims(cycle: Cycle, job: Pending, claimed: int) -> int:
    """The nodes that a blocked job claims, with a promise if it is the first that could use them."""
    members = cycle.members(job)
    kind = cycle.waiting[job.job_id].kind
    if claimed & members:
        # A promise past a blocked job ahead would be broken as soon as that job's turn comes.
        return members if kind in (WhyKind.RESOURCES, WhyKind.PRIORITY) else 0
    if kind is WhyKind.RESOURCES and not cycle.is_saturated and cycle.promise(job):
        return members
    return 0
