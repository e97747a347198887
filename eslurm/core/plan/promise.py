"""When a job that does not fit now can start at the earliest, if everything ends on time.

Two layers: timelines of whole-partition counts can only say *no* and give a lower bound; the
promise itself is made of mapped nodes. Only running work lies ahead, so what is free grows
with time and the first instant that fits is found by doubling steps and bisection.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeAlias

import msgspec

from eslurm.core.plan.mapping import Shares, Span, choose, end_of, spans_in_slices
from eslurm.core.plan.need import Need
from eslurm.core.resources import bits
from eslurm.core.resources.ledger import NODES_PER_SLICE, Ledger, Overdue
from eslurm.core.resources.timeline import INFINITY_US, Slot, Timeline
from eslurm.core.resources.vector import Vector, fits, subtract


class Promise(msgspec.Struct, frozen=True, array_like=True):
    """A start held free for a waiting job: from `start_us` these spans are its own.

    `made_us` is when it was computed; a promise that is kept over cycles keeps it.
    """

    job_id: int
    start_us: int
    spans: tuple[Span, ...]
    made_us: int


INSTANTS_MAX: Final = 4096

Spare: TypeAlias = dict[int, Vector]
"""Position -> what is left there at a promise's start beside the promise."""


def spare_beside(promise: Promise, ledger: Ledger, overdue: Overdue) -> Generator[None, None, Spare | None]:
    """What a promise leaves on its own nodes at its start; yields between slices of nodes.

    None when it cannot be kept: its start has passed, a node is out, or something holds longer.
    """
    if promise.start_us <= overdue.now_us:
        return None
    positions = ledger.topology.positions
    usable = ledger.usable
    spare: Spare = {}
    for index, span in enumerate(promise.spans):
        position = positions.get(span.node)
        if position is None or not (usable >> position) & 1:
            return None
        then = ledger.free_at(position, promise.start_us, overdue)
        if not fits(span.amounts, then):
            return None
        spare[position] = subtract(then, span.amounts)
        if index % NODES_PER_SLICE == NODES_PER_SLICE - 1:
            yield
    return spare


def earliest_start(
    ledger: Ledger, need: Need, job_id: int, time_limit_us: int, overdue: Overdue
) -> Generator[None, None, Promise | None]:
    """Searches the promise for one job; yields between slices of bounded work.

    None when the job would not fit even after everything with an end has ended.
    """
    now_us = overdue.now_us
    instants = yield from _candidates(ledger, need, time_limit_us, overdue)
    best: tuple[int, Shares] | None = None
    low, high, step = 0, len(instants), 1
    probe = 0
    while low < high:
        at_us = instants[probe]
        later = yield from ledger.ahead(at_us, overdue)
        shares = choose(later, need)
        yield
        if shares is None:
            low = probe + 1
        else:
            best, high = (at_us, shares), probe
        if best is None:
            # Counts are mostly right, so the answer is near the front: double, then bisect.
            probe, step = min(low + step - 1, high - 1), step * 2
        else:
            probe = (low + high) // 2
    if best is None:
        return None
    spans = yield from spans_in_slices(ledger.topology, need, best[1])
    return Promise(job_id, best[0], spans, now_us)


def _candidates(
    ledger: Ledger, need: Need, time_limit_us: int, overdue: Overdue
) -> Generator[None, None, list[int]]:
    """The instants at which anything the job could use comes back, from the counts' lower bound on."""
    now_us = overdue.now_us
    within = need.allowed & ledger.usable
    positions = bits.all_positions(within)
    grain_us = yield from _grain(ledger, positions, overdue)
    floor = need.floor
    ends: list[dict[int, int]] = [{} for _ in floor]
    totals = [0] * len(floor)
    for index, position in enumerate(positions):
        for resource, amount in enumerate(ledger.topology.totals[position]):
            totals[resource] += amount
        for until_us, amounts in ledger.holds_on(position):
            end_us = overdue.end_of(until_us)
            if end_us < INFINITY_US:
                end_us += (now_us - end_us) % grain_us
            _count(ends, end_us, amounts)
        if index % NODES_PER_SLICE == NODES_PER_SLICE - 1:
            yield
    earliest_us = now_us
    instants: set[int] = set()
    duration_us = end_of(0, time_limit_us)
    for resource, asked in enumerate(floor):
        by_end = ends[resource]
        instants.update(by_end)
        if not asked:
            continue
        slots = (Slot(now_us, end_us, amount) for end_us, amount in by_end.items() if amount)
        use = Timeline.from_slots(totals[resource], slots)
        fit_us = use.earliest_fit(asked, duration_us, earliest_us)
        if fit_us is None:
            return []
        # Nothing is booked ahead, so what is free at one instant stays free.
        earliest_us = fit_us
        yield
    return sorted(at_us for at_us in instants if earliest_us <= at_us < INFINITY_US)


def _grain(ledger: Ledger, positions: list[int], overdue: Overdue) -> Generator[None, None, int]:
    """How far ends are rounded up so that there are at most `INSTANTS_MAX` of them; 1: exact.

    A coarse promise is later than the earliest by less than the grain; it is no less kept.
    """
    count, last_us = 0, overdue.expected_us
    for index, position in enumerate(positions):
        holds = ledger.holds_on(position)
        count += len(holds)
        for until_us, _ in reversed(holds):
            if until_us < INFINITY_US:
                last_us = max(last_us, until_us)
                break
        if index % NODES_PER_SLICE == NODES_PER_SLICE - 1:
            yield
    if count <= INSTANTS_MAX:
        return 1
    return -((overdue.now_us - last_us) // INSTANTS_MAX)


def _count(ends: list[dict[int, int]], end_us: int, amounts: Vector) -> None:
    for by_end, amount in zip(ends, amounts, strict=True):
        by_end[end_us] = by_end.get(end_us, 0) + amount
