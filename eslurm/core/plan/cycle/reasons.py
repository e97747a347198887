"""Waiting reasons: a kind for programs, a sentence for users (C-49).

Sentences are made once per shape of job and shared by all jobs of that shape.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from eslurm.core.model.wording import are, counted
from eslurm.core.plan.placement.capacity import capacities
from eslurm.core.plan.placement.compiled_request import CompiledRequest, Part, part_words
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.plan.profile.search import PlacementQuery
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.vector import describe


class WhyKind(StrEnum):
    """The reasons a plan can give."""

    PRIORITY = "priority"
    RESOURCES = "resources"
    NODES_UNAVAILABLE = "nodes_unavailable"
    PARTITION_DOWN = "partition_down"
    NOT_EXAMINED = "not_examined"
    LIMIT = "limit"
    POOL = "pool"
    LICENCE = "licence"
    RESERVATION = "reservation"
    DEADLINE = "deadline"
    START_MISSED = "start_missed"
    DEPENDENCY = "dependency"
    BEGIN_TIME = "begin_time"


_RULES = {kind.value: kind for kind in WhyKind}


class Why(msgspec.Struct, frozen=True, gc=False):
    """One waiting reason; `planned_start_us` is set when the plan promises a start.

    `member` is the member of a pack that decides; -1: no pack.
    """

    kind: WhyKind
    text: str
    planned_start_us: int | None = None
    member: int = -1


_OUT = "nodes that are not in service"
NOT_EXAMINED = Why(WhyKind.NOT_EXAMINED, "the planner has not reached this job yet")
WAITS = Why(WhyKind.DEPENDENCY, "waits for something whose end cannot be foreseen")
NO_HOLE = Why(WhyKind.PRIORITY, "waits behind others: nothing is free that they leave to it")
NEXT_PLAN = Why(WhyKind.PRIORITY, "begins with the next plan: this one has as many starts as one may have")
NOTHING_IN_SERVICE = Why(WhyKind.NODES_UNAVAILABLE, "no node of any partition that is up is in service")


def behind(job_id: int) -> Why:
    """The job waits its turn in a strict queue."""
    return Why(WhyKind.PRIORITY, f"waits behind job {job_id}, which is ahead in the queue")


def would_delay(job_id: int) -> Why:
    """The job would fit now but would delay another job's promise; 0: several."""
    whose = f"job {job_id}" if job_id else "jobs ahead of it"
    return Why(WhyKind.PRIORITY, f"fits now but would delay the promised start of {whose}")


def kind_of(rule: str) -> WhyKind:
    """The reason for a rule of this kind."""
    return _RULES.get(rule, WhyKind.LIMIT)


def closed(query: PlacementQuery, now_us: int) -> Why:
    """The nodes that the job could use are kept for others."""
    stop_us = min(now_us + query.duration_us, INFINITY_US)
    for closure in query.closed:
        if closure.start_us < stop_us and closure.stop_us > now_us and closure.mask & query.need.allowed:
            count = (closure.mask & query.need.allowed).bit_count()
            return Why(
                WhyKind.RESERVATION, f"{count} of the nodes it may use {are(count)} kept free: {closure.why}"
            )
    return Why(WhyKind.RESERVATION, "nodes it may use are kept free for others")


def too_late(query: PlacementQuery, now_us: int) -> Why:
    """The job's own interval (C-30) has not begun yet, or its rest is too short."""
    if now_us < query.from_us:
        return Why(WhyKind.RESERVATION, "the time in which it may run has not begun yet", query.from_us)
    return Why(WhyKind.DEADLINE, "cannot end before its deadline any more: give it less time or a later one")


def no_start(query: PlacementQuery, ledger: Ledger, now_us: int) -> Why:
    """The plan, as far as it reaches, has no place for the job (C-04)."""
    if query.until_us < INFINITY_US:
        return too_late(query, max(now_us, query.from_us))
    if choose(ledger.emptied(), query.need) is None:
        return nodes_unavailable(query.need, ledger)
    if query.closed:
        return closed(query, now_us)
    return Why(
        WhyKind.RESOURCES,
        "what it needs is held by jobs without a time limit: no end of them can be foreseen",
    )


def missed() -> Why:
    """The job's fixed start has passed."""
    return Why(WhyKind.START_MISSED, "its fixed start has passed: give it another one")


def not_then(start_us: int, why: Why) -> Why:
    """The job's fixed start cannot be met."""
    return Why(WhyKind.START_MISSED, f"cannot start exactly when asked: {why.text}", start_us)


def after_job(job_id: int) -> Why:
    """A dependency of the job has no planned end."""
    return Why(WhyKind.DEPENDENCY, f"waits for job {job_id}, whose end cannot be foreseen")


def partition_down(name: str, exists: bool) -> Why:
    """The job's partition starts no jobs."""
    state = "is down" if exists else "does not exist"
    return Why(WhyKind.PARTITION_DOWN, f"partition {name} {state}")


def nodes_unavailable(need: CompiledRequest, ledger: Ledger) -> Why:
    """Too few usable nodes even with every running job ended."""
    needs, missing = f"needs {_OUT}", need
    if need.members:
        empty = ledger.emptied()
        short = [number for number, one in enumerate(need.members) if choose(empty, one) is None]
        if short:
            named = part_words(short[:1], need.members)
            needs, missing = f"{named}: needs {_OUT}", need.members[short[0]]
        else:
            needs = f"its {len(need.members)} parts do not fit the nodes in service together"
    out, allowed = (missing.allowed & ~ledger.usable).bit_count(), missing.allowed.bit_count()
    text = f"{needs}; {out} of the {counted(allowed, 'node')} it may use {are(out)} out{_avoided(missing)}"
    return Why(WhyKind.NODES_UNAVAILABLE, text)


def _avoided(need: CompiledRequest) -> str:
    """The clause on nodes avoided for a while; empty without any."""
    count = need.avoided.bit_count()
    return (
        f"; {counted(count, 'node')} {are(count)} avoided for a while: a launch of it has failed there"
        if count
        else ""
    )


def short_of_resources(need: CompiledRequest, ledger: Ledger) -> Why:
    """Too little is free now."""
    for name, items, free in zip(ledger.topology.wide, need.wide, ledger.wide_free, strict=False):
        if items > free:
            return Why(WhyKind.LICENCE, f"{name}: {items} asked for, {free} {are(free)} free")
    short = _short_by_part(need, ledger) if need.members else _short(need, ledger)
    if not short:
        tasks = "tasks" if len(need.parts) == 1 or need.members else "chunks"
        short = f"needs room for all {need.tasks} {tasks} at once; what is free is too scattered"
    return Why(WhyKind.RESOURCES, short + _avoided(need))


def _short_by_part(need: CompiledRequest, ledger: Ledger) -> str:
    """The shortage of the first part that has too little by itself, with its number."""
    for number, member in enumerate(need.members):
        if choose(ledger, member) is None:
            text = _short(member, ledger) or "what is free is too scattered"
            return f"{part_words((number,), need.members)}: {text}"
    return f"its {len(need.members)} parts need more than is free when they begin together"


def _short(need: CompiledRequest, ledger: Ledger) -> str:
    """The missing resources of the first kind of tasks that lacks some; empty when each has enough by itself."""
    candidates = need.allowed & ledger.usable
    if need.exclusive:
        candidates &= ledger.idle
    texts = [_short_of(part, need, ledger, candidates) for part in need.parts]
    short = next((text for text in texts if text), "")
    if not short and need.include & ~candidates:
        short = "a node it must run on is not free"
    return short


def _short_of(part: Part, need: CompiledRequest, ledger: Ledger, candidates: int) -> str:
    """The missing resources of one kind of tasks, without the others; empty when there is enough."""
    by_capacity = capacities(ledger, part, candidates & part.allowed)
    nodes = sum(mask.bit_count() for mask in by_capacity.values())
    room = sum(capacity * mask.bit_count() for capacity, mask in by_capacity.items())
    one = describe(part.amounts(1), ledger.topology.resources)
    state = "idle" if need.exclusive else "free"
    if nodes < part.nodes_min and part.nodes_min > 1:
        wanted = f"{part.nodes_min} {'idle ' if need.exclusive else ''}nodes with {one} each"
        return f"needs {wanted}; {nodes} {are(nodes)} {state}"
    if room < part.tasks:
        task = "task" if len(need.parts) == 1 else "chunk"
        room_for = f"{counted(part.tasks, task)} of {one}"
        return f"needs room for {room_for}; {room} would fit on {counted(nodes, f'{state} node')}"
    return ""
