"""Reserve the cores of suspended attempts for their return.

They are booked from the expected end of the jobs that use them now, for the remaining time of the suspended work. So other
jobs may use them until then and no longer, and plans behind them hold. Invariant: these bookings are in the profile from
the end of preemption in one cycle until the next cycle begins; they displace plans, never running or late attempts. Rules
count them for the suspended job: it may go on while a plan is under way.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeAlias

from eslurm.core.model.job import Span
from eslurm.core.plan.cycle.policy import TRY_STEPS, Cycle
from eslurm.core.plan.cycle.schedule import Booking, Return, Schedule
from eslurm.core.plan.cycle.snapshot import Running
from eslurm.core.plan.profile.profile import ProfileError
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import CORES

_Ends: TypeAlias = dict[int, list[tuple[int, int]]]
"""Node number -> (expected end, cores)."""


def forget(schedule: Schedule) -> Generator[None, None, None]:
    """Remove all of them from the profile: the next cycle finds other times."""
    while schedule.returns:
        one = schedule.returns.pop()
        yield from schedule.giving(one.job, one.booking)


def foresee(cycle: Cycle) -> Generator[None, None, None]:
    """Book them anew, beside running attempts and the starts of this cycle."""
    schedule = cycle.schedule
    found: list[Return] = []
    ends: _Ends | None = None
    for one in cycle.snapshot.lenders:
        # Room that is being made is held for whom it is made: that one's own end is not known before it begins.
        if one.room_for in schedule.preemptors:
            continue
        ends = ends if ends is not None else _ends(schedule)
        at_us = _free_us(cycle, one, ends)
        if at_us >= INFINITY_US:
            continue
        lent = one.lent_parts or [(0, *pair) for pair in one.lent]
        spans = tuple([Span(node, amounts, 0, part) for part, node, amounts in lent])
        stop_us = min(at_us + one.left_us, INFINITY_US)
        booking = Booking(one.job_id, at_us, stop_us, spans, (), cycle.now_us, is_return=True)
        try:
            yield from schedule.claiming(one.job, booking)
        except ProfileError:
            # Another one lent the same: it comes after that one.
            continue
        found.append(Return(one.job, booking))
        cycle.spend(TRY_STEPS)
        if cycle.slice_over():
            yield
    schedule.returns += found


def _ends(schedule: Schedule) -> _Ends:
    """Expected ends and cores of running and just started attempts, by node, the earliest first."""
    found: _Ends = {}
    here = [held.booking for held in schedule.held.values()]
    for booking in [*here, *(booking for _, booking in schedule.starting)]:
        for span in booking.spans:
            found.setdefault(span.node, []).append((booking.stop_us, span.amounts[CORES]))
    for ends in found.values():
        ends.sort()
    return found


def _free_us(cycle: Cycle, one: Running, ends: _Ends) -> int:
    """Time at which all lent cores are expected to be free on all nodes."""
    ledger = cycle.ledger
    positions = ledger.topology.positions
    at_us = cycle.now_us + 1
    for node, amounts in one.lent:
        if node in positions:
            free = ledger.free_on(positions[node])[CORES]
            at_us = max(at_us, _free_on_us(free, ends.get(node, ()), amounts[CORES]))
    return at_us


def _free_on_us(free: int, ends: Sequence[tuple[int, int]], cores: int) -> int:
    """Time at which this many cores are free, starting with `free` of them now."""
    at_us = 0
    for stop_us, given in ends:
        if free >= cores:
            break
        free += given
        at_us = stop_us
    return at_us if free >= cores else INFINITY_US
