"""The rules of policies once more, as plainly as they can be written: what a placement must not have done.

Each function looks at a state in which a job has just been placed and says what is wrong, "" if nothing is. Nothing here
is shared with the planner but the records. Only what is certain is asked: a limit that is in force now, an amount that
is kept free now, nodes that are closed at some time of the stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from eslurm.core.model.accounts import Account, FreePool, Limit, Reservation, Validity
from eslurm.core.model.job import Attempt, Job, Span
from eslurm.core.model.request import Request
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.queue import Pending
from eslurm.core.plan.cycle.snapshot import Running
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state.cluster import State

DAY_US = 86_400 * SECOND_US
NODES = "nodes"
EVERY = "*"


def broken(state: State, job: Job, attempt: Attempt) -> Iterator[str]:
    """All rules that a placement breaks."""
    running = state.live[job.job_id, attempt.number]
    assert running.job is not None
    yield from _capacity_broken(state, attempt)
    yield from _request_broken(state, job, attempt)
    yield from _limits_broken(state, running, attempt)
    yield from _closed_broken(state, running.job, attempt)
    yield from _pools_broken(state, running.job, attempt)
    yield _interval_broken(job, attempt)


# ---- what there is ----


def _capacity_broken(state: State, attempt: Attempt) -> Iterator[str]:
    config = {node.name: node for node in state.config.nodes}
    totals = {span.node: config[state.nodes[span.node].name].total for span in attempt.spans}
    held = [pair for one in state.live.values() for pair in one.spans if pair[0] in totals]
    for number, total in totals.items():
        for at, most in enumerate(total):
            used = sum(amounts[at] for node, amounts in held if node == number and at < len(amounts))
            if used > most:
                yield f"has node {number} hold {used} of {most} in resource {at}"
    for span in attempt.spans:
        for at, numbers in span.devices:
            if len(numbers) != span.amounts[at] or max(numbers, default=0) >= totals[span.node][at]:
                yield f"gets devices {numbers} of {totals[span.node][at]} on node {span.node}, {span.amounts[at]} are due"
    wide = [one.wide_total for one in state.config.resources if one.wide_total]
    for at, most in enumerate(wide):
        used = sum(one.wide[at] for one in state.live.values() if at < len(one.wide))
        if used > most:
            yield f"has {used} of {most} used in wide resource {at}"


# ---- what was asked for ----


def _request_broken(state: State, job: Job, attempt: Attempt) -> Iterator[str]:
    spec = job.spec
    names = [one.name for one in state.config.resources if one.wide_total]
    wide = dict(zip(names, attempt.wide, strict=False))
    asked = Counter[str]()
    for request in spec.components:
        asked.update(dict(request.wide))
    if any(wide.get(name, 0) != items for name, items in asked.items()):
        yield f"holds {wide} of what belongs to no node, asked for {dict(asked)}"
    for number, request in enumerate(spec.components):
        spans = [span for span in attempt.spans if span.component == number]
        partition = (spec.parts[number].partition if spec.parts else "") or spec.partition
        said = f"part {number}: " if spec.parts else ""
        yield from (said + what for what in _part_broken(state, job, attempt, request, partition, spans))


def _part_broken(
    state: State, job: Job, attempt: Attempt, request: Request, partition: str, spans: list[Span]
) -> Iterator[str]:
    config = {node.name: node for node in state.config.nodes}
    nodes = [config[state.nodes[span.node].name] for span in spans]
    numbers = {span.node for span in spans}
    if not spans:
        yield "got no nodes"
    if outside := {node.name for node in nodes} - set(state.partitions[partition].nodes):
        yield f"got {sorted(outside)}, which partition {partition} does not have"
    if request.exclusive:
        others = {other for number in numbers for other in state.jobs_on[number]} - {job.job_id}
        # Those that made room for it are still there, but do not run.
        if others - state.lending:
            yield f"is to be alone on its nodes, jobs {sorted(others)} are there"
        if beside := {span.component for span in attempt.spans if span.node in numbers and span not in spans}:
            yield f"is to be alone on its nodes, parts {sorted(beside)} are there"
    if request.place == "pack" and len(nodes) > 1:
        yield f"is to be on one node, got {len(nodes)}"
    name = request.constraint
    if name and not all(name in (*node.features, f"gpu:{node.device_type}") for node in nodes):
        yield f"got nodes without {name}"
    if missing := set(request.include) - {node.name for node in nodes}:
        yield f"got none of {sorted(missing)}"
    if request.nodes_max and not request.nodes_min <= len(nodes) <= request.nodes_max:
        yield f"got {len(nodes)} nodes"
    got = sum(span.amounts[0] for span in spans)
    wanted = request.tasks * request.cpus_per_task
    if request.chunks:
        wanted = sum(chunk.count * chunk.cores for chunk in request.chunks)
    if got < wanted:
        yield f"got {got} cores, {wanted} are asked for"


def _interval_broken(job: Job, attempt: Attempt) -> str:
    spec = job.spec
    if spec.start_at_us and attempt.placed_us < spec.start_at_us:
        return f"begins {spec.start_at_us - attempt.placed_us} us before its fixed start"
    if spec.deadline_us and _planned_us(attempt) > spec.deadline_us:
        return f"may end {_planned_us(attempt) - spec.deadline_us} us after its deadline"
    return ""


# ---- limits ----


def _limits_broken(state: State, own: Running, attempt: Attempt) -> Iterator[str]:
    columns = _columns(state)
    who = own.job
    assert who is not None
    for kind, name, is_own in _memberships(state, who):
        for resource in columns:
            for limit in _in_force(state, kind, name, resource, is_own=is_own):
                yield _over(state, limit, kind, name, resource, attempt, own)


def _columns(state: State) -> tuple[str, ...]:
    own = [one.name for one in state.config.resources if not one.wide_total]
    wide = [one.name for one in state.config.resources if one.wide_total]
    return ("cores", "memory_mib", *own, NODES, *wide)


def _memberships(state: State, who: Pending) -> Iterator[tuple[str, str, bool]]:
    """(kind, name, whether limits for "each" count): a primary group, an own account."""
    yield "user", who.user, True
    for at, group in enumerate(who.groups):
        yield "group", group, at == 0
    account = state.policies["account"].get(who.account)
    if who.account:
        yield "account", who.account, True
    while isinstance(account, Account) and account.parent:
        yield "account", account.parent, False
        account = state.policies["account"].get(account.parent)
    if who.qos:
        yield "qos", who.qos, True
    for partition in who.partitions:
        yield "partition", partition, True


def _in_force(state: State, kind: str, name: str, resource: str, *, is_own: bool) -> list[Limit]:
    """Of the limits in force now the most specific: a name before each, a resource before all (C-12)."""
    words = (resource,) if resource == NODES else (resource, EVERY)
    for consumer in (name, EVERY) if is_own else (name,):
        for word in words:
            found = [
                limit
                for limit in state.policies["limit"].values()
                if isinstance(limit, Limit)
                and (limit.kind, limit.consumer, limit.resource) == (kind, consumer, word)
                and _is_in_force(state, limit.validity)
            ]
            if found:
                return found
    return []


def _over(
    state: State, limit: Limit, kind: str, name: str, resource: str, attempt: Attempt, own: Running
) -> str:
    partition = name if kind == "partition" else ""
    if not _held(state, own, resource, partition):
        return ""
    # A limit for each account, or group, looks at what is that one's own.
    own_only = limit.consumer == EVERY
    theirs = [
        one
        for one in state.live.values()
        if one.job is not None
        and any(
            (k, n) == (kind, name) and (own or not own_only) for k, n, own in _memberships(state, one.job)
        )
    ]
    used = sum(_held(state, one, resource, partition) for one in theirs)
    most = _most(limit, _configured(state, resource))
    if most is not None and used > most:
        return f"exceeds limit {limit.name}: {kind} {name} has {used} {resource} of {most}"
    stay_us = attempt.until_us - state.now_us
    if limit.duration_s and stay_us > limit.duration_s * SECOND_US:
        return f"stays for {stay_us} us, limit {limit.name} lets {kind} {name} stay {limit.duration_s} s"
    if limit.area_s:
        area_us = sum(_held(state, one, resource, partition) * _left_us(state, one) for one in theirs)
        if area_us > limit.area_s * SECOND_US:
            return f"exceeds limit {limit.name}: {kind} {name} has {area_us} us of {resource} left"
    return ""


def _most(limit: Limit, available: int) -> int | None:
    if limit.amount.percent:
        return max(limit.amount.items, int(available * limit.amount.percent / 100 + 1e-7))
    return None if limit.amount.items < 0 else limit.amount.items


def _configured(state: State, resource: str) -> int:
    """An upper bound of what is available: what is configured, and what attempts hold on nodes removed meanwhile."""
    if resource == NODES:
        return len(state.config.nodes)
    wide = {one.name: one.wide_total for one in state.config.resources if one.wide_total}
    if resource in wide:
        return wide[resource]
    at = _columns(state).index(resource)
    names = {node.name for node in state.config.nodes}
    removed = [
        amounts[at]
        for one in state.live.values()
        for node, amounts in one.spans
        if at < len(amounts) and state.nodes[node].name not in names
    ]
    return sum(node.total[at] for node in state.config.nodes if at < len(node.total)) + sum(removed)


def _held(state: State, one: Running, resource: str, partition: str = "") -> int:
    """Amounts that an attempt holds; of a job of several parts only in `partition`, if one is given."""
    columns = _columns(state)
    at, nodes = columns.index(resource), columns.index(NODES)
    spans, wide = one.spans, one.wide
    if partition and one.job is not None and one.job.parts:
        parts = one.job.parts
        spans = tuple((node, held) for part, node, held in one.parts if parts[part].partition == partition)
        asked = Counter[str]()
        for part in parts:
            if part.partition == partition:
                asked.update(dict(part.request.wide))
        wide = tuple(asked[name] for name in columns[nodes + 1 :]) if any(wide) else ()
    if at == nodes:
        return len({node for node, _ in spans})
    if at > nodes:
        return wide[at - nodes - 1] if at - nodes - 1 < len(wide) else 0
    return sum(amounts[at] for _, amounts in spans if at < len(amounts))


def _items(state: State, attempt: Attempt, resource: str) -> int:
    spans = tuple((span.node, span.amounts) for span in attempt.spans)
    return _held(state, Running(0, spans, 0, attempt.wide), resource)


def _left_us(state: State, one: Running) -> int:
    """At least so long it was expected to stay when the plan was made: what was changed since is left out, and
    that it began a moment late."""
    assert one.job is not None
    attempt = next((held for held in (state.jobs[one.job_id].attempt,) if held is not None), None)
    if attempt is None:
        return 0
    return max(0, min(one.until_us, _planned_us(attempt)) - state.now_us)


def _planned_us(attempt: Attempt) -> int:
    """The planned end. A start that is noticed late keeps its place, so the attempt itself may end as much later."""
    return attempt.planned_us or INFINITY_US


# ---- nodes that are kept for others ----


def _closed_broken(state: State, who: Pending, attempt: Attempt) -> Iterator[str]:
    names = {state.nodes[span.node].name for span in attempt.spans}
    stop_us = _stop_us(state, attempt)
    for reservation in state.policies["reservation"].values():
        assert isinstance(reservation, Reservation)
        windows = state.calendar.windows(reservation.validity, state.now_us, stop_us)
        if reservation.name == who.reservation and not reservation.maintenance:
            if windows != [(state.now_us, stop_us)]:
                yield f"is not within its reservation {reservation.name}: {windows}"
            if not names <= set(reservation.nodes):
                yield f"is not on nodes of its reservation {reservation.name}"
        elif windows and not names.isdisjoint(reservation.nodes):
            yield f"runs into reservation {reservation.name} of others: {windows}"
    if who.reservation and who.reservation not in state.policies["reservation"]:
        yield f"runs without its reservation {who.reservation}"


def _stop_us(state: State, attempt: Attempt) -> int:
    """The end of the time in which no node may be kept for others: the planned end, at most a day from now."""
    return max(state.now_us + 1, min(_planned_us(attempt), state.now_us + DAY_US))


def _pools_broken(state: State, who: Pending, attempt: Attempt) -> Iterator[str]:
    stay_us = who.time_limit_us or INFINITY_US
    if who.reservation:
        return
    if who.request.nodes_max > who.request.nodes_min > 0:
        # A range is let in by the least that it asks for, whatever it gets.
        return
    for pool in state.policies["pool"].values():
        assert isinstance(pool, FreePool)
        column = pool.resource
        if _is_let_in(pool, who, _items(state, attempt, column), stay_us):
            continue
        if pool.nodes or pool.feature:
            own = {
                node.name
                for node in state.config.nodes
                if pool.nodes == node.name or pool.feature in node.features
            }
            stop_us = _stop_us(state, attempt)
            names = {state.nodes[span.node].name for span in attempt.spans}
            if not names.isdisjoint(own) and state.calendar.windows(pool.validity, state.now_us, stop_us):
                yield f"is on nodes of pool {pool.name}"
        elif _is_in_force(state, pool.validity):
            # The use of admitted jobs is kept for them: a promised start lies beside it.
            used = sum(
                _held(state, one, column)
                for one in state.live.values()
                if one.job is not None and not _is_beside(state, pool, one.job, one, column)
            )
            most = _configured(state, column) - pool.amount.items
            if used > most:
                yield f"leaves less than pool {pool.name} keeps: others use {used} of {most} {column}"


def _is_beside(state: State, pool: FreePool, who: Pending, one: Running, column: str) -> bool:
    """Check whether the pool does not bind what runs."""
    stay_us = who.time_limit_us or INFINITY_US
    return bool(who.reservation) or _is_let_in(pool, who, _held(state, one, column), stay_us)


def _is_let_in(pool: FreePool, who: Pending, items: int, stay_us: int) -> bool:
    return any(
        (not way.users or who.user in way.users)
        and (not way.qos or who.qos in way.qos)
        and (not way.items_below or items < way.items_below)
        and (not way.time_max_s or stay_us <= way.time_max_s * SECOND_US)
        for way in pool.access
    )


def _is_in_force(state: State, validity: Validity) -> bool:
    return bool(state.calendar.windows(validity, state.now_us, state.now_us + 1))
