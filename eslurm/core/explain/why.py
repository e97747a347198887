"""Waiting reasons from planning: rules, nodes, and jobs ahead (C-49).

The nodes of the job's partition pass a funnel, one filter after another; each `Reason` with `nodes_of` is one filter: the
number of nodes that fail it, their holders and the expected ends. Invariant: the filters' numbers and the rest add up to
the nodes of the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from heapq import nsmallest
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from eslurm.core.explain.whatif import WhatIf
from eslurm.core.model.request import Request
from eslurm.core.model.wording import are, counted
from eslurm.core.plan.cycle import reasons
from eslurm.core.plan.cycle.queue import Pending, QueueEntry
from eslurm.core.plan.cycle.reasons import Why, WhyKind
from eslurm.core.plan.placement.capacity import fitting
from eslurm.core.plan.placement.compiled_request import CompiledRequest, part_words
from eslurm.core.plan.placement.mapping import choose
from eslurm.core.plan.placement.protocols import Availability, Closure
from eslurm.core.plan.profile.search import PlacementQuery
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.resources.usage import length_words
from eslurm.core.resources.vector import Vector, describe, fits

HOLDERS_MAX: Final = 5
"""Told one by one; the others are one more line."""
BOOKINGS_MAX: Final = 2_000
"""Planned starts that are looked through for whose the nodes will be, the next ones first."""

PARTS_MAX: Final = 5
"""Kinds of parts told one by one."""

EXCLUDED: Final = "excluded"
AVOIDED: Final = "avoided"
FEATURE: Final = "feature"
SIZE: Final = "size"
KEPT_FOR_OTHERS: Final = "node_rule"
MAINTENANCE: Final = "maintenance"


class Holder(msgspec.Struct, frozen=True, gc=False):
    """The holder of resources for which the job waits; `until_us` 0: no end is known."""

    what: str
    job_id: int = 0
    nodes: int = 0
    until_us: int = 0


class Reason(msgspec.Struct, frozen=True, gc=False):
    """One waiting reason. `until_us` is the time when it alone would be over; 0: not known.

    With `nodes_of` it is a filter of the funnel: of so many nodes, `nodes_failing` do not pass. `part` is the part of a job
    of several parts that it concerns, the first of several; -1: all of them.
    """

    kind: str
    text: str
    until_us: int = 0
    nodes_failing: int = 0
    nodes_of: int = 0
    holders: tuple[Holder, ...] = ()
    part: int = -1


class Sources(msgspec.Struct, frozen=True):
    """Queries to the cluster's state: jobs on nodes, reasons of nodes out of service, holders of a rule's or licence's
    items.
    """

    on_nodes: Callable[[int], list[Holder]]
    out_of_service: Callable[[int], str]
    users_of: Callable[[object], list[Holder]]


Reasons: TypeAlias = Generator[None, None, list[Reason]]


def known_us(at_us: int | None) -> int:
    """An instant for output: 0 when it never comes."""
    return 0 if at_us is None or at_us >= INFINITY_US else at_us


def plan_reasons(whatif: WhatIf, job: Pending, query: PlacementQuery | Why, sources: Sources) -> Reasons:
    """Reasons why the job does not start now, by rules and by nodes. Empty: the plan knows none."""
    if isinstance(query, Why):
        found = [Reason(query.kind.value, query.text)]
        partitions = map(whatif.snapshot.partitions.get, job.partitions)
        if any(one is not None and not one.up for one in partitions):
            found += yield from _without_partition(whatif, job, sources)
        return found
    found = [*_interval(whatif, job, query), *_constraints(whatif, query, sources)]
    yield
    found += yield from _node_reasons(whatif, job, query, sources)
    return found


def _without_partition(whatif: WhatIf, job: Pending, sources: Sources) -> Reasons:
    """The further reasons of a job whose partition is down."""
    query = whatif.cycle.queries.of(QueueEntry(0, 0, job.job_id, -1 << 40, job))
    if isinstance(query, Why):
        return [Reason(query.kind.value, query.text)]
    return (yield from _node_reasons(whatif, job, query, sources))


# ---- rules ----


def _interval(whatif: WhatIf, job: Pending, query: PlacementQuery) -> list[Reason]:
    """The job's own interval (C-30) as a reason."""
    now_us = whatif.now_us
    if job.start_at_us > now_us and job.is_owed:
        text = "its pack has begun: it starts at its delay after the first job"
        return [Reason("pack", text, job.start_at_us)]
    if job.start_at_us > now_us:
        return [Reason("start_at", "starts exactly when it was asked to (--start-at)", job.start_at_us)]
    if query.from_us > now_us:
        return [Reason(WhyKind.RESERVATION.value, "its reservation has not begun yet", query.from_us)]
    if query.until_us < INFINITY_US and now_us + query.duration_us > query.until_us:
        return [
            Reason(
                WhyKind.DEADLINE.value,
                "cannot end in time any more: give it less --time, a later --deadline or another reservation",
            )
        ]
    return []


def _constraints(whatif: WhatIf, query: PlacementQuery, sources: Sources) -> list[Reason]:
    """Each rule that forbids a start now, with the time from which it alone would allow it."""
    found: list[Reason] = []
    for constraint in query.constraints:
        from_us = max(whatif.now_us, query.from_us)
        earliest_us = constraint.earliest(query.duration_us, from_us, query.until_us)
        if earliest_us != whatif.now_us:
            holders = tuple(shortened(sources.users_of(constraint)))
            found.append(Reason(constraint.kind, constraint.why(), known_us(earliest_us), holders=holders))
    return found


# ---- nodes ----


def _node_reasons(whatif: WhatIf, job: Pending, query: PlacementQuery, sources: Sources) -> Reasons:
    if query.need.members:
        return (yield from _node_reasons_of_parts(whatif, job, query, sources))
    blocking = _blocking(whatif, query)
    yield
    filters = yield from _funnel(whatif, job, query, sources)
    # The filter names the holders.
    return blocking + filters if blocking else []


def _node_reasons_of_parts(whatif: WhatIf, job: Pending, query: PlacementQuery, sources: Sources) -> Reasons:
    """Reasons that keep each part by itself from a start, the one that waits longest first, with the filters of its nodes.

    Where each part could start alone: what keeps them from a start together.
    """
    # Equal parts share one compiled request.
    alike: dict[int, list[int]] = {}
    members = query.need.members
    for number, member in enumerate(members):
        alike.setdefault(id(member), []).append(number)
    ready: list[int] = []
    blocked: list[tuple[list[int], list[Reason]]] = []
    for numbers in alike.values():
        found = _blocking(whatif, replace(query, need=query.need.members[numbers[0]]))
        yield
        if found:
            blocked.append((numbers, found))
        else:
            ready += numbers
    if not blocked:
        return _blocking(whatif, query)
    blocked.sort(key=lambda one: (-max(reason.until_us or INFINITY_US for reason in one[1]), one[0]))
    told: list[Reason] = []
    for numbers, found in blocked[:PARTS_MAX]:
        told += [
            replace(one, part=numbers[0], text=f"{part_words(numbers, members)}: {one.text}") for one in found
        ]
    if ready:
        at = max(range(len(told)), key=lambda index: told[index].until_us or INFINITY_US)
        text = f"{told[at].text}; {part_words(sorted(ready), members)} could start now"
        told[at] = replace(told[at], text=text)
    if len(blocked) > PARTS_MAX:
        others = sorted(number for numbers, _ in blocked[PARTS_MAX:] for number in numbers)
        text = f"{part_words(others, members)} cannot start now, either"
        told.append(Reason(WhyKind.RESOURCES.value, text, part=others[0]))
    longest = blocked[0][0][0]
    one, need = job.parts[longest], query.need.members[longest]
    its_own = replace(job, request=one.request, partition=one.partition, parts=())
    filters = yield from _funnel(whatif, its_own, replace(query, need=need), sources)
    return told + [replace(reason, part=longest) for reason in filters]


def _blocking(whatif: WhatIf, query: PlacementQuery) -> list[Reason]:
    """Node-related reasons against a start now; each by itself."""
    now_us, need, ledger = whatif.now_us, query.need, whatif.snapshot.ledger
    book, duration_us = whatif.schedule.book, query.duration_us
    if choose(whatif.cycle.reasons.emptied(), need) is None:
        return [_as_reason(reasons.nodes_unavailable(need, ledger))]
    start = book.earliest(need, duration_us, now_us)
    open_us = start[0] if start is not None else INFINITY_US
    found: list[Reason] = []
    on_nodes = replace(need, wide=()) if _has_licence_rule(query) else need
    if choose(ledger, on_nodes) is None:
        found.append(_as_reason(reasons.short_of_resources(on_nodes, ledger), known_us(open_us)))
    elif open_us > now_us:
        text = "would fit now, but jobs ahead of it have been promised the nodes"
        found.append(Reason(WhyKind.PRIORITY.value, text, known_us(open_us)))
    if query.closed:
        start = book.earliest(need, duration_us, now_us, closed=query.closed)
        closed_us = start[0] if start is not None else INFINITY_US
        if closed_us > open_us:
            found.append(_closed(query, min(open_us, INFINITY_US - 1), known_us(closed_us)))
    return found


def _has_licence_rule(query: PlacementQuery) -> bool:
    """Check whether its rules already report the licences in use and their holders."""
    return any(constraint.kind == WhyKind.LICENCE.value for constraint in query.constraints)


def _closed(query: PlacementQuery, at_us: int, until_us: int) -> Reason:
    """Nodes that an interval from `at_us` on would need are kept for others."""
    met = [one for one in _met(query, at_us) if one.mask & query.need.allowed]
    if not met:
        return Reason(WhyKind.RESERVATION.value, "nodes it may use are kept for others", until_us)
    mask = 0
    for closure in met:
        mask |= closure.mask
    count = (mask & query.need.allowed).bit_count()
    names = ", ".join(dict.fromkeys(closure.why for closure in met))
    of = query.need.allowed.bit_count()
    return Reason(
        _kind_of(met[0]),
        f"{count} of the {counted(of, 'node')} it may use {are(count)} kept for {names}",
        until_us,
    )


def _as_reason(why: Why, until_us: int = 0) -> Reason:
    return Reason(why.kind.value, why.text, until_us)


def _met(query: PlacementQuery, now_us: int) -> list[Closure]:
    stop_us = min(now_us + query.duration_us, INFINITY_US)
    return [one for one in query.closed if one.start_us < stop_us and one.stop_us > now_us]


class _Funnel:
    """The nodes that have passed all filters so far, and the results for the others."""

    def __init__(self, members: int) -> None:
        self.left = members
        self.size = members.bit_count()
        self.reasons: list[Reason] = []

    def drop(
        self,
        kind: str,
        mask: int,
        text: Callable[[int], str],
        until_us: int = 0,
        holders: Iterable[Holder] = (),
    ) -> None:
        """Remove the remaining nodes of `mask`; `text` is the reason, after their number."""
        failing = mask & self.left
        if failing:
            count = failing.bit_count()
            self.left &= ~failing
            self.reasons.append(Reason(kind, text(failing), until_us, count, self.size, tuple(holders)))


def _funnel(whatif: WhatIf, job: Pending, query: PlacementQuery, sources: Sources) -> Reasons:
    """The filters over the partition's nodes, with the number that fail each."""
    topology = whatif.snapshot.ledger.topology
    need, request, now_us = query.need, job.request, whatif.now_us
    funnel = _Funnel(topology.partitions.get(job.partition, 0))
    funnel.drop(EXCLUDED, topology.mask_of_names(request.exclude), lambda _: "left out by --exclude")
    funnel.drop(AVOIDED, need.avoided, lambda _: "avoided for a while: a launch of it has failed there")
    constraint = _constraint_text(request)
    if constraint:
        lacking = ~_with_features(request, topology)
        funnel.drop(FEATURE, lacking, lambda _: f"without the features {constraint}")
    asked = _asked(need)
    funnel.drop(SIZE, ~_large(asked, topology), lambda mask: _small_text(asked, mask, topology))
    if job.reservation:
        outside = topology.everything & ~need.allowed
        funnel.drop(WhyKind.RESERVATION.value, outside, lambda _: f"not in reservation {job.reservation}")
    funnel.drop(KEPT_FOR_OTHERS, ~need.allowed, lambda _: "kept for jobs of another kind (node rules)")
    yield
    funnel.drop(
        WhyKind.NODES_UNAVAILABLE.value,
        ~whatif.snapshot.ledger.usable,
        sources.out_of_service,
    )
    for why, closures in _by_why(_met(query, now_us)).items():
        _drop_closed(funnel, why, closures, now_us - query.beyond_us)
    yield
    free = _roomy(whatif.snapshot.ledger, need, funnel.left)
    busy = funnel.left & ~free
    if busy:
        holders = sources.on_nodes(busy)
        yield
        until_us = min((one.until_us for one in holders if one.until_us), default=0)
        funnel.drop(
            WhyKind.RESOURCES.value,
            busy,
            lambda _: (
                "in use by others" if need.exclusive else f"with less than {_words(asked, topology)} free"
            ),
            until_us,
            shortened(holders),
        )
    stop_us = min(now_us + query.duration_us, INFINITY_US)
    room = whatif.schedule.book.room(now_us, stop_us, query.closed)
    promised = funnel.left & ~_roomy(room, need, funnel.left)
    if promised:
        holders = yield from _promised_to(whatif, promised, stop_us)
        begins_us = min((one.until_us for one in holders if one.until_us), default=0)
        funnel.drop(
            WhyKind.PRIORITY.value,
            promised,
            lambda _: "free now, but promised to others before it could end",
            begins_us,
            shortened(holders),
        )
    return funnel.reasons


def _drop_closed(funnel: _Funnel, why: str, closures: Sequence[Closure], now_us: int) -> None:
    """`now_us` is as much earlier as the beginnings of the closures are (`PlacementQuery.beyond_us`)."""
    mask = 0
    for closure in closures:
        mask |= closure.mask
    first = closures[0]
    if first.start_us > now_us:
        text = f"kept for {why} from {length_words(first.start_us - now_us)} from now on"
    else:
        text = f"kept for {why}"
    until_us = known_us(max(closure.stop_us for closure in closures))
    nodes = (mask & funnel.left).bit_count()
    funnel.drop(
        _kind_of(first), mask, lambda _: text, until_us, (Holder(why, nodes=nodes, until_us=until_us),)
    )


def _kind_of(closure: Closure) -> str:
    if closure.why.endswith("(maintenance)"):
        return MAINTENANCE
    return WhyKind.POOL.value if closure.why.startswith("pool ") else WhyKind.RESERVATION.value


def _by_why(closures: Iterable[Closure]) -> dict[str, list[Closure]]:
    found: dict[str, list[Closure]] = {}
    for closure in closures:
        found.setdefault(closure.why, []).append(closure)
    return found


def _asked(need: CompiledRequest) -> tuple[Vector, ...]:
    """Amounts of which one node must offer at least one."""
    if need.pack:
        return (need.packed,)
    return tuple(dict.fromkeys(part.amounts(1) for part in need.parts))


def _large(asked: Sequence[Vector], topology: Topology) -> int:
    found = 0
    for group in topology.groups.values():
        for total, mask in group.items():
            if any(fits(amounts, total) for amounts in asked):
                found |= mask
    return found


def _small_text(asked: Sequence[Vector], failing: int, topology: Topology) -> str:
    """Too small, and by which resource."""
    short: dict[str, int] = {}
    for group in topology.groups.values():
        for total, mask in group.items():
            count = (mask & failing).bit_count()
            for index, name in enumerate(topology.resources) if count else ():
                if all(index < len(amounts) and amounts[index] > total[index] for amounts in asked):
                    short[name] = short.get(name, 0) + count
    counts = ", ".join(f"{count} by {name.removesuffix('_mib')}" for name, count in short.items())
    text = f"too small for {_words(asked, topology)}"
    return f"{text} ({counts})" if counts else text


def _words(asked: Sequence[Vector], topology: Topology) -> str:
    return " or ".join(describe(amounts, topology.resources) for amounts in asked)


def _roomy(room: Availability, need: CompiledRequest, candidates: int) -> int:
    """The candidates with space for any part of the job."""
    if need.exclusive:
        candidates &= room.idle
    if need.pack:
        return room.fitting(need.packed) & candidates
    found = 0
    for part in need.parts:
        found |= fitting(room, part, part.amounts(1), candidates & part.allowed)
    return found


def _constraint_text(request: Request) -> str:
    words = [request.constraint] if request.constraint else []
    if request.chunks and all(chunk.constraint for chunk in request.chunks):
        words += dict.fromkeys(chunk.constraint for chunk in request.chunks)
    return " or ".join(words)


def _with_features(request: Request, topology: Topology) -> int:
    found = topology.mask_of_constraint(request.constraint)
    if request.chunks and all(chunk.constraint for chunk in request.chunks):
        any_kind = 0
        for chunk in request.chunks:
            any_kind |= topology.mask_of_constraint(chunk.constraint)
        found &= any_kind
    return found


def _promised_to(whatif: WhatIf, mask: int, stop_us: int) -> Generator[None, None, list[Holder]]:
    """Jobs with planned starts on these nodes within the interval; `until_us` is their begin."""
    topology = whatif.snapshot.ledger.topology
    bookings = (
        booking
        for some in whatif.schedule.bookings.values()
        for booking in some
        if booking.start_us < stop_us
    )
    nearest = nsmallest(BOOKINGS_MAX, bookings, key=lambda one: (one.start_us, one.job_id))
    yield
    found: list[Holder] = []
    left = mask
    for booking in nearest:
        inside = topology.mask_of_numbers(span.node for span in booking.spans) & mask
        if inside:
            what = f"job {booking.job_id}, planned"
            found.append(Holder(what, booking.job_id, inside.bit_count(), booking.start_us))
            left &= ~inside
        yield
        if not left and len(found) > HOLDERS_MAX:
            break
    return found


def shortened(holders: Sequence[Holder]) -> list[Holder]:
    """The holders with the most nodes one by one, the others as one."""
    ordered = sorted(holders, key=lambda one: (-one.nodes, one.until_us or INFINITY_US, one.what))
    if len(ordered) <= HOLDERS_MAX + 1:
        return ordered
    rest = ordered[HOLDERS_MAX:]
    until_us = 0 if any(not one.until_us for one in rest) else max(one.until_us for one in rest)
    return [*ordered[:HOLDERS_MAX], Holder(f"{len(rest)} more", 0, 0, until_us)]
