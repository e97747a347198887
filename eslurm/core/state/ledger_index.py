"""Indexes of the attempts' holdings on the configured nodes: the ledger, the devices, and the jobs of each node.

Only `State` calls what is here, as part of putting a job or a configuration. Invariant: afterwards each of the three is
what the records of all attempts say.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec.structs import replace

from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.job import Attempt, Job
from eslurm.core.model.node import Node, is_older, is_usable
from eslurm.core.resources.devices import Devices
from eslurm.core.resources.ledger import Ledger
from eslurm.core.resources.node_order import arranged
from eslurm.core.resources.nodes import NodeView, Topology
from eslurm.core.state.allocation_amounts import attempts_of, lends, shares_of, shares_on, spans_in_use

_NOBODY: Final[frozenset[int]] = frozenset()


class AllocationIndexes(Protocol):
    """The part of `State` that these functions read and update."""

    config: ClusterConfig
    nodes: dict[int, Node]
    numbers: dict[str, int]
    removed: set[int]
    jobs: dict[int, Job]
    ledger: Ledger
    devices: Devices
    jobs_on: dict[int, frozenset[int]]
    lending: set[int]

    def want_plan(self) -> None: ...


def fresh_ledger(state: AllocationIndexes) -> Ledger:
    """The configured nodes in their configured order, holding what every live attempt holds."""
    inside: dict[str, list[str]] = {}
    for partition in state.config.partitions:
        for name in partition.nodes:
            inside.setdefault(name, []).append(partition.name)
    views = []
    for node_config in state.config.nodes:
        node = state.nodes[state.numbers[node_config.name]]
        groups = tuple(inside.get(node.name, ()))
        views.append(
            NodeView(
                node.number,
                node.name,
                node.total,
                is_usable(node),
                groups,
                node_config.features,
                node_config.weight,
                node_config.cores_for_devices,
                node_config.device_type,
            )
        )
    views = arranged(views, state.config.switches)
    # A node that left the configuration stays as long as something is held on it.
    for number in sorted(state.removed):
        node = state.nodes[number]
        views.append(NodeView(number, node.name, node.total, False))
    config = state.config
    ledger = Ledger(
        Topology(views, resources=config.resources, switches=config.switches, rules=config.node_rules)
    )
    for view in views:
        if is_older(state.nodes[view.number]):
            ledger.set_older(view.number, True)
    for job in state.jobs.values():
        for attempt in attempts_of(job):
            if attempt.wide and attempt.held:
                ledger.hold_wide(attempt.wide)
            for number, amounts in shares_of(attempt):
                ledger.hold(number, amounts, attempt.until_us)
    return ledger


def follow_holdings(state: AllocationIndexes, old: Job | None, new: Job) -> None:
    """Follow the difference between a job's old and new holdings."""
    before = attempts_of(old) if old is not None else ()
    after = attempts_of(new)
    # Thousands of nodes share one set: a set for each would be most of what a large job costs in memory.
    joined: dict[frozenset[int], frozenset[int]] = {}
    for attempt in after:
        previous = next((a for a in before if a.number == attempt.number), None)
        if previous is None:
            if attempt.wide and attempt.held:
                state.ledger.hold_wide(attempt.wide)
            for span in spans_in_use(attempt):
                if span.devices and span.node in attempt.held:
                    state.devices.hold(span.node, span.devices)
            for number, amounts in shares_of(attempt):
                state.ledger.hold(number, amounts, attempt.until_us)
                here = state.jobs_on.get(number, _NOBODY)
                if here not in joined:
                    joined[here] = here | {new.job_id}
                state.jobs_on[number] = joined[here]
            continue
        # What parts have given back comes last: all before it is of the same amounts.
        same = attempt if attempt.more is previous.more else replace(attempt, more=previous.more)
        if previous.until_us != attempt.until_us or lends(previous) != lends(attempt):
            _hold_otherwise(state, previous, same)
        if previous.held is not attempt.held:
            _take(state, new, same, attempt.held - previous.held)
            _give_back(state, new, same, previous.held - attempt.held)
            if previous.held and not attempt.held:
                state.ledger.give_back_wide(attempt.wide)
        if same is not attempt and same.given != attempt.given:
            _hold_less(state, same, attempt)
        if same is not attempt and same.loans != attempt.loans:
            _hold_own(state, same, attempt)
    if new.attempt is not None and new.attempt.room_for:
        state.lending.add(new.job_id)
    else:
        state.lending.discard(new.job_id)
    for attempt in before:
        if all(a.number != attempt.number for a in after):
            _give_back(state, new, attempt, attempt.held)
            if attempt.held:
                state.ledger.give_back_wide(attempt.wide)


def _take(state: AllocationIndexes, job: Job, attempt: Attempt, nodes: frozenset[int]) -> None:
    """Hold what a running job has got on these nodes."""
    if not nodes:
        return
    for number, amounts in shares_on(attempt, nodes):
        state.ledger.hold(number, amounts, attempt.until_us)
        state.jobs_on[number] = state.jobs_on.get(number, _NOBODY) | {job.job_id}
    for span in spans_in_use(attempt):
        if span.devices and span.node in nodes:
            state.devices.hold(span.node, span.devices)


def _hold_otherwise(state: AllocationIndexes, before: Attempt, after: Attempt) -> None:
    """Replace the holds of `before` by those of `after`: another end, with or without cores."""
    # Only the cores differ, and only with what is lent: the nodes and their order are the same.
    changes = [
        (number, had, has)
        for (number, had), (_, has) in zip(shares_of(before), shares_on(after, before.held), strict=True)
    ]
    state.ledger.rehold(changes, before.until_us, after.until_us)
    state.want_plan()


def _hold_less(state: AllocationIndexes, before: Attempt, after: Attempt) -> None:
    """Give back what finished parts had on nodes that other parts go on using."""
    given = after.given - before.given
    nodes = frozenset(node for _, node in given) & after.held
    if not nodes:
        return
    has = dict(shares_on(after, nodes))
    changes = [(number, had, has[number]) for number, had in shares_on(before, nodes)]
    state.ledger.rehold(changes, before.until_us, after.until_us)
    for span in after.spans:
        if span.devices and span.node in nodes and (span.component, span.node) in given:
            state.devices.give_back(span.node, span.devices)
    state.want_plan()


def _hold_own(state: AllocationIndexes, before: Attempt, after: Attempt) -> None:
    """Hold the cores whose owners have gone: they were borrowed."""
    nodes = frozenset(loan.node for loan in before.loans) & after.held
    has = dict(shares_on(after, nodes))
    changes = [(number, had, has[number]) for number, had in shares_on(before, nodes) if had != has[number]]
    state.ledger.rehold(changes, before.until_us, after.until_us)
    state.want_plan()


def _give_back(state: AllocationIndexes, job: Job, attempt: Attempt, nodes: frozenset[int]) -> None:
    if not nodes:
        return
    for number, amounts in shares_on(attempt, nodes):
        state.ledger.give_back(number, amounts, attempt.until_us)
    for span in spans_in_use(attempt):
        if span.devices and span.node in nodes:
            state.devices.give_back(span.node, span.devices)
    left: dict[frozenset[int], frozenset[int]] = {}
    for number in nodes:
        if not any(number in other.held for other in attempts_of(job)):
            here = state.jobs_on.pop(number, _NOBODY)
            if here not in left:
                left[here] = here - {job.job_id}
            if left[here]:
                state.jobs_on[number] = left[here]
    state.want_plan()
