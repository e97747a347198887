"""The built-in policies: strict order, and EASY backfill.

Both look at jobs in planning order and stop early: at the bounds of the cycle, or as soon as no
node has a core free. Jobs whose partition is down, or that need nodes which are out of service,
are passed over; they do not block those behind them.
"""

from __future__ import annotations

from collections.abc import Generator
from types import MappingProxyType
from typing import Final

from eslurm.core.plan import explain
from eslurm.core.plan.explain import Why
from eslurm.core.plan.mapping import choose, end_of
from eslurm.core.plan.need import Need
from eslurm.core.plan.policy import SKIP_STEPS, TRY_STEPS, Cycle, Policy
from eslurm.core.plan.promise import Promise, earliest_start, spare_beside
from eslurm.core.plan.queue import Pending
from eslurm.core.plan.shadow import Shadow


class Fcfs:
    """First come, first served: nobody starts before a job ahead of it that could use the same nodes."""

    name = "fcfs"

    def plan(self, cycle: Cycle) -> Generator[None, None, None]:
        blocked = 0
        blocker: Why | None = None
        for _, _, job_id, shape, job in cycle.snapshot.pending:
            if cycle.exhausted or cycle.saturated:
                break
            cycle.examined += 1
            if cycle.spend(SKIP_STEPS):
                yield
            refused = _refused(cycle, job)
            if refused is not None:
                cycle.waiting[job_id] = refused
                continue
            members = cycle.members(job.partition)
            if blocker is not None and members & blocked:
                cycle.waiting[job_id] = blocker
                # Whoever waits its turn keeps it on all the nodes it could use.
                blocked |= members
                continue
            need = cycle.need(shape, job)
            left = yield from _start_as_many(cycle, job, need, None)
            if not left or cycle.full:
                continue
            cycle.waiting[job_id] = why = _why_not_now(cycle, need)
            if why.kind is explain.WhyKind.RESOURCES:
                blocked |= members
                blocker = explain.behind(job_id)
            if not cycle.ledger.open & cycle.reach & ~blocked:
                break
        _explain_front(cycle, blocker)


class Easy:
    """EASY backfill: the first blocked job gets a promised start that nothing behind it may delay.

    Partitions that share no node have a promise each.
    """

    name = "easy"

    def plan(self, cycle: Cycle) -> Generator[None, None, None]:
        shadow = Shadow(cycle.ledger)
        failed: dict[int, Why] = {}
        tries = 0
        for _, _, job_id, shape, job in cycle.snapshot.pending:
            if cycle.exhausted or cycle.saturated or tries > cycle.limits.tries_max:
                break
            cycle.examined += 1
            if cycle.spend(SKIP_STEPS):
                yield
            # Less and less is free in the course of a cycle: what failed once fails again.
            why = failed.get(shape) or _refused(cycle, job)
            if why is not None:
                cycle.waiting[job_id] = why
                continue
            need = cycle.need(shape, job)
            left = yield from _start_as_many(cycle, job, need, shadow)
            if failed:
                tries += 1
            if left and not cycle.full:
                failed[shape] = cycle.waiting[job_id] = yield from _blocked(cycle, shadow, job, need)
        _explain_front(cycle)


POLICIES: Final = MappingProxyType[str, Policy]({policy.name: policy for policy in (Fcfs(), Easy())})


def get_policy(name: str) -> Policy:
    """The policy of that name. Raises `ValueError` naming the known ones."""
    policy = POLICIES.get(name)
    if policy is None:
        raise ValueError(f"there is no planning policy {name!r}; known are {', '.join(POLICIES)}")
    return policy


def _start_as_many(
    cycle: Cycle, job: Pending, need: Need, shadow: Shadow | None
) -> Generator[None, None, int]:
    """Places as many of the job's startable tasks as fit; returns how many are left waiting."""
    left = job.startable
    until_us = end_of(cycle.snapshot.now_us, job.time_limit_us)
    members = cycle.members(job.partition)
    while left and len(cycle.placements) < cycle.limits.placements_max:
        ledger = cycle.ledger
        if shadow is not None:
            ledger = yield from shadow.view(members, until_us)
        shares = choose(ledger, need)
        if cycle.spend(TRY_STEPS):
            yield
        if shares is None:
            break
        placement = yield from cycle.take(job, need, shares)
        if shadow is not None:
            shadow.taken(placement)
        left -= 1
    return left


def _refused(cycle: Cycle, job: Pending) -> Why | None:
    partition = cycle.snapshot.partitions.get(job.partition)
    if partition is not None and partition.up:
        return None
    return explain.partition_down(job.partition, partition is not None)


def _blocked(cycle: Cycle, shadow: Shadow, job: Pending, need: Need) -> Generator[None, None, Why]:
    """The reason a job waits; the first that can be is promised a start."""
    members = cycle.members(job.partition)
    covering = shadow.covering(members)
    if covering is not None and choose(cycle.ledger, need) is not None:
        shadow.claim(members)
        return explain.would_delay(covering.job_id)
    why = _why_not_now(cycle, need)
    if why.kind is not explain.WhyKind.RESOURCES or shadow.claim(members) or cycle.saturated:
        return why
    promise = yield from _promise(cycle, shadow, job, need)
    return why if promise is None else _promised(cycle, promise, why)


def _promised(cycle: Cycle, promise: Promise, why: Why) -> Why:
    cycle.promises.append(promise)
    return Why(why.kind, why.text, promise.start_us)


def _why_not_now(cycle: Cycle, need: Need) -> Why:
    if choose(cycle.emptied(), need) is None:
        return explain.nodes_unavailable(need, cycle.ledger)
    return explain.short_of_resources(need, cycle.ledger)


def _promise(cycle: Cycle, shadow: Shadow, job: Pending, need: Need) -> Generator[None, None, Promise | None]:
    """Guards the promise of an earlier cycle while it is fresh and can be kept, else a new one."""
    ledger, overdue = cycle.ledger, cycle.overdue
    members = cycle.members(job.partition)
    kept = cycle.kept.get(job.job_id)
    if kept is not None and kept.made_us > overdue.now_us - cycle.limits.promise_refresh_us:
        spare = yield from spare_beside(kept, ledger, overdue)
        if spare is not None:
            shadow.guard(kept, members, spare)
            return kept
    if cycle.searches >= cycle.limits.searches_max:
        return None
    cycle.searches += 1
    found = yield from earliest_start(ledger, need, job.job_id, job.time_limit_us, overdue)
    if found is None:
        return None
    spare = yield from spare_beside(found, ledger, overdue)
    assert spare is not None, "a promise just found can be kept"
    shadow.guard(found, members, spare)
    return found


def _explain_front(cycle: Cycle, blocker: Why | None = None) -> None:
    """Gives the first unexamined job a reason of its own, and those behind it one in common."""
    if cycle.examined >= len(cycle.snapshot.pending) or cycle.exhausted:
        return
    _, _, job_id, shape, job = cycle.snapshot.pending[cycle.examined]
    why = _refused(cycle, job) or blocker or _why_not_now(cycle, cycle.need(shape, job))
    kept = cycle.kept.get(job_id)
    if kept is not None and kept.start_us > cycle.snapshot.now_us:
        why = _promised(cycle, kept, why)
    cycle.waiting[job_id] = why
    if not cycle.ledger.usable & cycle.reach:
        cycle.rest = explain.NOTHING_IN_SERVICE
    elif cycle.saturated:
        cycle.rest = blocker or explain.behind(job_id)
