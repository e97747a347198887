"""Merged planning of array tasks: tasks that fit at the same instant are planned together (C-55).

Tasks that each fit on one node equal one job of that many tasks: one search serves all of them. Invariant: a merged
booking holds exactly the sum of its tasks, and `split` returns the single tasks.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from eslurm.core.model.job import Span
from eslurm.core.plan.cycle.placement_query import as_promised
from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.cycle.schedule import Booking, Schedule
from eslurm.core.plan.placement.capacity import capacities
from eslurm.core.plan.placement.compiled_request import CompiledRequest
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.plan.placement.protocols import Assignment
from eslurm.core.plan.profile.search import PlacementQuery, Start
from eslurm.core.plan.rules.limits import Area
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import Vector, add, padded, scale, times


def as_many(
    schedule: Schedule, job: Pending, query: PlacementQuery, found: Start, left: int
) -> tuple[int, CompiledRequest, Assignment]:
    """(tasks, their joint request, their nodes): as many of `left` tasks as fit at the start found for one."""
    alone = (1, query.need, found.chosen)
    book = schedule.book
    topology = book.topology
    if not _is_small(query.need):
        return alone
    stop_us = min(found.at_us + query.duration_us, INFINITY_US)
    room = book.room(found.at_us, stop_us, query.closed)
    many = _times(query.need, left, topology)
    part = many.parts[0]
    by_capacity = capacities(room, part, many.allowed & room.usable)
    fit = min(left, sum(tasks * mask.bit_count() for tasks, mask in by_capacity.items()))
    for asked, free in zip(query.need.wide, room.wide_free, strict=False):
        if asked:
            fit = min(fit, free // asked)
    if query.constraints:
        fit = allowed_together(schedule, job, query, found.at_us, fit)
    if fit < 2:
        return alone
    need = _times(query.need, fit, topology)
    chosen = choose(room, need)
    return alone if chosen is None else (fit, need, chosen)


def split(booking: Booking) -> list[Booking]:
    """The single tasks of a merged booking."""
    parts: list[Booking] = []
    wide = tuple(amount // booking.tasks for amount in booking.wide)
    for span in booking.spans:
        unit = tuple(amount // span.tasks for amount in span.amounts)
        one = (Span(span.node, unit, 1),)
        parts += [msgspec.structs.replace(booking, spans=one, wide=wide, tasks=1)] * span.tasks
    return parts


def merged(parts: Iterable[Booking]) -> Booking:
    """One booking for single tasks with the same start."""
    parts = list(parts)
    amounts: dict[int, Vector] = {}
    tasks: dict[int, int] = {}
    wide: Vector = ()
    for part in parts:
        wide = add(wide, part.wide) if wide else part.wide
        for span in part.spans:
            amounts[span.node] = (
                add(amounts[span.node], span.amounts) if span.node in amounts else span.amounts
            )
            tasks[span.node] = tasks.get(span.node, 0) + 1
    spans = tuple(Span(node, amount, tasks[node]) for node, amount in amounts.items())
    return msgspec.structs.replace(parts[0], spans=spans, wide=wide, tasks=len(parts))


def _is_small(need: CompiledRequest) -> bool:
    """Check whether each task is one unit on one node that it may share."""
    if need.exclusive or need.include or len(need.parts) != 1:
        return False
    part = need.parts[0]
    return part.tasks == 1 and part.nodes_min <= 1


def _times(need: CompiledRequest, count: int, topology: Topology) -> CompiledRequest:
    """The request of this many small tasks as one."""
    part = need.parts[0]
    unit = add(part.unit, part.per_node)
    most = max((times(total, unit) for total, mask in topology.classes if mask & part.allowed), default=0)
    most = min(most, count)
    part = msgspec.structs.replace(
        part,
        unit=unit,
        per_node=padded((), len(unit)),
        tasks=count,
        nodes_min=0,
        nodes_max=0,
        tasks_cap=0,
        most=most,
    )
    floor = scale(unit, count)
    return msgspec.structs.replace(
        need,
        parts=(part,),
        wide=scale(need.wide, count),
        floor=floor,
        expected=floor,
        filters=((unit, part.nodes_floor),),
    )


def allowed_together(
    schedule: Schedule,
    job: Pending,
    query: PlacementQuery,
    at_us: int,
    most: int,
    *,
    is_promised: bool = False,
    with_areas: bool = True,
) -> int:
    """Greatest number of tasks that the rules let start together; `is_promised`: at their own booked places."""
    assert schedule.rules is not None
    stop_us = min(at_us + query.duration_us, INFINITY_US)
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        rules = schedule.rules.of_tasks(job, query.need, middle)
        if not rules.never and all(
            (as_promised(constraint) if is_promised else constraint).earliest(
                query.duration_us, at_us, stop_us
            )
            == at_us
            for constraint in rules.constraints
            if with_areas or not isinstance(constraint, Area)
        ):
            low = middle
        else:
            high = middle - 1
    return low
