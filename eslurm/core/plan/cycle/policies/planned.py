"""Full planning."""

from __future__ import annotations

from collections.abc import Generator
from itertools import chain

from eslurm.core.plan.cycle.dependents import plan_later
from eslurm.core.plan.cycle.expected import shortest_first
from eslurm.core.plan.cycle.forward import ForwardPlanner
from eslurm.core.plan.cycle.policy import Cycle
from eslurm.core.plan.cycle.recovery import by_priority, recover
from eslurm.core.plan.cycle.snapshot import Snapshot


class Planned:
    """Every accepted job has a planned start, or is in the waiting room with a reason (C-01, C-04).

    Arrivals displace no job (C-59). Released resources are offered to the planned jobs by priority, then age, or length
    with forecasts: first fit, and each keeps the earlier of its places (C-37). Jobs of lower priority bear the loss from
    an attempt that outlives its limit (C-39).
    """

    name = "planned"

    def plan(self, cycle: Cycle) -> Generator[None, None, None]:
        """See `Policy`."""
        ahead = ForwardPlanner(cycle)
        snapshot = cycle.snapshot
        yield from ahead.start_due()
        yield from recover(ahead, chain(snapshot.pending, snapshot.later), by_priority)
        if (yield from ahead.improve(lambda: _in_turn(snapshot))):
            yield from ahead.plan_new(snapshot.pending)
            yield from plan_later(ahead)


def _in_turn(snapshot: Snapshot) -> Generator[None, None, list[int]]:
    """Job ids in the order in which released resources are offered."""
    everybody = [*snapshot.pending, *snapshot.later]
    if snapshot.has_estimates:
        everybody = yield from shortest_first(everybody, snapshot.now_us)
    return [entry.job_id for entry in everybody]
