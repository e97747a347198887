"""Times at which a started job must leave its nodes: maintenance, reservations of others, nodes of pools (C-41, C-15).

The planner keeps jobs out of these before they start. Later changes of the end - an extension, a resume - are checked
against the same rules here.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from eslurm.core.control.accounts.submission import rules_now
from eslurm.core.model.job import Attempt, Job
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.placement.compiled_request import compile_job
from eslurm.core.plan.rules.pools import Inside
from eslurm.core.state.cluster import State
from eslurm.core.state.queue_entries import pending_of


class ClosedTime(msgspec.Struct, frozen=True):
    """The obstacle: its begin, its text, and one of the nodes concerned."""

    from_us: int
    what: str
    node: str


def shut(
    state: State, job: Job, attempt: Attempt, stay: tuple[int, int], time_limit_s: int, now_us: int
) -> ClosedTime | None:
    """The first obstacle for a started job with that time limit (0: none) on its nodes in [from, until)."""
    if not state.policies["reservation"] and not state.policies["pool"]:
        return None
    from_us, until_us = stay
    topology = state.ledger.topology
    who = replace(
        pending_of(job, 1, is_placed=True, use_forecasts=False), time_limit_us=time_limit_s * SECOND_US
    )
    asked = who.parts or (who,)
    need = compile_job(
        [one.request for one in asked],
        [state.partition_views.get(one.partition) or PartitionView(one.partition) for one in asked],
        topology,
        time_limit_us=who.time_limit_us,
    )
    rules = rules_now(state, now_us).of(who, need)
    held = topology.mask_of_numbers(attempt.held)
    found = [
        ClosedTime(max(closure.start_us, from_us), closure.why, _first_name(state, attempt, closure.mask))
        for closure in rules.closed
        if closure.mask & held and closure.start_us < until_us and closure.stop_us > from_us
    ]
    for inside in rules.constraints:
        if isinstance(inside, Inside):
            end_us = inside.end_us(now_us)
            if end_us < until_us:
                what = f"the end of reservation {who.reservation}, which it runs in"
                found.append(ClosedTime(max(end_us, from_us), what, _first_name(state, attempt, held)))
    return min(found, key=lambda one: one.from_us, default=None)


def longest_s(attempt: Attempt, before: ClosedTime) -> int:
    """The longest time limit in seconds with which a running attempt ends before that."""
    begun_us = (attempt.started_us or attempt.placed_us) + attempt.paused_us
    return max(0, before.from_us - begun_us) // SECOND_US


def _first_name(state: State, attempt: Attempt, mask: int) -> str:
    positions = state.ledger.topology.positions
    held = sorted(number for number in attempt.held if number in positions and mask >> positions[number] & 1)
    return state.node_names(held[:1])[0] if held else ""
