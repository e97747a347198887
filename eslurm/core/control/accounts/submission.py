"""Policies at submission: the number of jobs, and whether a job could ever run under them.

`SubmissionRules` is the policies in the form for these checks; it is rebuilt when they change. Rules that only move a job
in time are the planner's matter (C-14).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from eslurm.core.model import ranges
from eslurm.core.model.accounts import Account, Limit
from eslurm.core.model.job import JobSpec
from eslurm.core.model.partition import PartitionView
from eslurm.core.model.parts import part_text, partition_of
from eslurm.core.model.request import Request
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.queue import Pending, PendingPart
from eslurm.core.plan.placement.compiled_request import compile_job
from eslurm.core.plan.rules.constraints import Rules
from eslurm.core.plan.rules.limits import ARRAYJOBS, JOBS, Consumer, Level, LimitIndex, most_items, who_words
from eslurm.core.resources.nodes import Topology
from eslurm.core.resources.timeline import Timeline
from eslurm.core.resources.usage import Steps
from eslurm.core.resources.windows import DAY_US
from eslurm.core.state.job_counts import Submitter, groups_of, submitters_of

if TYPE_CHECKING:
    from eslurm.core.state.cluster import State

GATE_KEPT_US: Final = DAY_US


class SubmissionRules:
    """The policies of one moment, for submissions."""

    def __init__(self, state: State) -> None:
        self.topology = state.ledger.topology
        self.policies_changed = state.policies_changed
        self.made_us = state.now_us
        self._calendar = state.calendar
        limits = [limit for limit in state.policies["limit"].values() if isinstance(limit, Limit)]
        accounts = {
            name: account
            for name, account in state.policies["account"].items()
            if isinstance(account, Account)
        }
        self.index = LimitIndex(limits, accounts)
        self.rules = Rules(
            state.policies,
            self.topology,
            _NothingPlanned(self.topology),
            now_us=state.now_us,
            calendar=state.calendar,
        )

    def is_current(self, state: State, now_us: int) -> bool:
        """Check whether the policies have not changed since."""
        return (
            self.topology is state.ledger.topology
            and self.policies_changed == state.policies_changed
            and now_us - self.made_us < GATE_KEPT_US
        )

    def in_force(self, levels: list[Level], now_us: int) -> Level:
        """The limits of the first level that has any in force now (C-12)."""
        for level in levels:
            found = [
                limit for limit in level if self._calendar.windows(limit.validity, now_us, now_us + SECOND_US)
            ]
            if found:
                return found
        return []


def submission_problem(
    state: State, spec: JobSpec, now_us: int, beside: int = 0, before: JobSpec | None = None
) -> str | None:
    """The reason why policies refuse a new job, naming the consumer, the limit, the value and the way out; None: accepted.

    `beside` are jobs of the same submitter that are accepted with it and not in the state yet. A present job, as `before`,
    is counted only for new consumers: with too many jobs since a limit was lowered a user may still change them.
    """
    rules = _rules_of(state, now_us)
    who = submitters_of(spec)
    tasks = ranges.count(spec.array.tasks) if spec.array is not None else 1
    counted = frozenset(
        consumer
        for one in (submitters_of(before) if before is not None else ())
        for consumer in rules.index.memberships(one)
    )
    bound = _bound(rules, who, counted)
    problems = _too_many(state, rules, bound, tasks, beside, now_us)
    if spec.array is not None:
        problems = chain(problems, _array_too_large(rules, bound, tasks, now_us))
    return next(problems, None) or _never(state, rules, spec)


def has_rules(state: State) -> bool:
    """Check whether any policy may refuse a job by what it asks for."""
    return any(state.policies[kind] for kind in ("limit", "pool", "reservation"))


def never_together(state: State, specs: Sequence[JobSpec], now_us: int) -> str | None:
    """The reason why policies never let these jobs of one user run at the same time; None: they may, or it is not known.

    Jobs of the same account, QOS and reservation are counted together, each with the shortest time limit of them.
    """
    rules = _rules_of(state, now_us)
    alike: dict[tuple[str, str, str], list[JobSpec]] = {}
    for spec in specs:
        alike.setdefault((spec.account, spec.qos, spec.reservation), []).append(spec)
    for jobs in alike.values():
        if len(jobs) > 1:
            views = [
                state.partition_views[partition_of(job, part)]
                for job in jobs
                for part in range(len(job.components))
            ]
            requests = [request for job in jobs for request in job.components]
            limit_s = min([job.time_limit_s for job in jobs if job.time_limit_s], default=0)
            never = _never_all(rules, replace(jobs[0], time_limit_s=limit_s), requests, views)
            if never:
                return never
    return None


def rules_now(state: State, now_us: int) -> Rules:
    """The rules in force over an empty cluster: the nodes that they close to jobs, and the times."""
    return _rules_of(state, now_us).rules


def _rules_of(state: State, now_us: int) -> SubmissionRules:
    rules = state.memos.get(SubmissionRules)
    if not isinstance(rules, SubmissionRules) or not rules.is_current(state, now_us):
        rules = state.memos[SubmissionRules] = SubmissionRules(state)
    return rules


def _bound(
    rules: SubmissionRules, who: Iterable[Submitter], counted: Set[Consumer]
) -> list[tuple[Consumer, Submitter]]:
    """The consumers through which limits bind a job, each once, besides those `counted` already."""
    found: dict[Consumer, Submitter] = {}
    for one in who:
        for consumer in rules.index.consumers(one):
            if consumer not in counted:
                found.setdefault(consumer, one)
    return list(found.items())


def _too_many(
    state: State,
    rules: SubmissionRules,
    bound: Iterable[tuple[Consumer, Submitter]],
    tasks: int,
    beside: int,
    now_us: int,
) -> Iterator[str]:
    for consumer, who in bound:
        for limit in rules.in_force(rules.index.levels(consumer, JOBS, who), now_us):
            most = most_items(limit.amount, 0)
            if most is None:
                continue
            there = state.job_counts.count(consumer, rules.index) + beside
            if there + tasks > most:
                yield (
                    f"limit {limit.name}: {who_words(consumer)} may have {most} jobs in the system, {there} are there "
                    f"and {tasks} would come: submit again when some have ended"
                )


def _array_too_large(
    rules: SubmissionRules, bound: Iterable[tuple[Consumer, Submitter]], tasks: int, now_us: int
) -> Iterator[str]:
    for consumer, who in bound:
        for limit in rules.in_force(rules.index.levels(consumer, ARRAYJOBS, who), now_us):
            most = most_items(limit.amount, 0)
            if most is not None and tasks > most:
                yield (
                    f"--array: {tasks} tasks are more than limit {limit.name} lets {who_words(consumer)} have in one "
                    f"array ({most}): split it"
                )


def _never(state: State, rules: SubmissionRules, spec: JobSpec) -> str | None:
    views = [state.partition_views[partition_of(spec, part)] for part in range(len(spec.components))]
    for part, (request, view) in enumerate(zip(spec.components, views, strict=True)):
        never = _never_all(rules, spec, [request], [view])
        if never:
            return part_text(spec, part, never)
    return _never_all(rules, spec, spec.components, views) if spec.parts else None


def _never_all(
    rules: SubmissionRules, spec: JobSpec, requests: Sequence[Request], views: Sequence[PartitionView]
) -> str | None:
    """The reason why rules never let these parts run together."""
    limit_us = spec.time_limit_s * SECOND_US
    need = compile_job(requests, views, rules.topology, time_limit_us=limit_us)
    parts = [PendingPart(request, view.name) for request, view in zip(requests, views, strict=True)]
    job = Pending(
        job_id=0,
        request=requests[0],
        partition=views[0].name,
        time_limit_us=limit_us,
        user=spec.user.name,
        groups=groups_of(spec),
        account=spec.account,
        qos=spec.qos,
        reservation=spec.reservation,
        parts=tuple(parts) if need.members else (),
    )
    return rules.rules.of(job, need).never or None


class _NothingPlanned:
    """The profile of an empty cluster with every node in service, for feasibility checks."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def steps(self, resource: int) -> Steps:
        return [], []

    def wide_used(self, index: int) -> Timeline:
        return Timeline(self._topology.wide_totals[index])
