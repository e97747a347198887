"""Those who stand still to make room get their cores back: the time from which on nobody else may have them.

They are booked from when what runs on them now has ended, as long as the work takes that is to go on there. So others may
use them until then and no longer, and plans behind them hold. Invariant: these bookings are in the book from the moment
who is made room for has had its turn in a cycle until the next cycle begins; they displace plans, never what runs or
what is late.
"""

from __future__ import annotations

from collections.abc import Generator

from eslurm.core.plan.book import BookError
from eslurm.core.plan.mapping import Span
from eslurm.core.plan.policy import TRY_STEPS, Cycle
from eslurm.core.plan.schedule import Booking, Schedule
from eslurm.core.plan.snapshot import Running
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import CORES


def forget(schedule: Schedule) -> Generator[None, None, None]:
    """Takes all of them out of the book: the next cycle finds other times."""
    while schedule.returns:
        yield from schedule.giving(None, schedule.returns.pop())


def foresee(cycle: Cycle) -> Generator[None, None, None]:
    """Books them anew, beside what runs and has been started in this cycle."""
    schedule = cycle.schedule
    found: list[Booking] = []
    for one in cycle.snapshot.lenders:
        # Room that is being made is held for whom it is made: that one's own end is not known before it begins.
        if one.room_for in schedule.claimants:
            continue
        at_us = _free_us(cycle, one)
        if at_us >= INFINITY_US:
            continue
        spans = tuple([Span(node, amounts, 0) for node, amounts in one.lent])
        stop_us = min(at_us + one.left_us, INFINITY_US)
        booking = Booking(one.job_id, at_us, stop_us, spans, (), cycle.now_us)
        try:
            yield from schedule.claiming(None, booking)
        except BookError:
            # Another one lent the same: it comes after that one.
            continue
        found.append(booking)
        cycle.spend(TRY_STEPS)
        if cycle.slice_over():
            yield
    schedule.returns = found


def _free_us(cycle: Cycle, one: Running) -> int:
    """When all that was lent is expected to be free on all its nodes."""
    ledger = cycle.ledger
    positions = ledger.topology.positions
    at_us = cycle.now_us + 1
    for node, amounts in one.lent:
        if node in positions:
            at_us = max(at_us, _free_on_us(cycle, ledger, positions[node], amounts[CORES]))
    return at_us


def _free_on_us(cycle: Cycle, ledger: Ledger, position: int, cores: int) -> int:
    free = ledger.free_on(position)[CORES]
    at_us = cycle.now_us
    for until_us, amounts in ledger.holds_on(position):
        if free >= cores:
            break
        free += amounts[CORES]
        at_us = until_us if until_us > cycle.now_us else cycle.now_us + cycle.limits.overdue_grace_us
    return at_us if free >= cores else INFINITY_US
