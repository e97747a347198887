"""Check of a new leader's first plan against the promises in the log: no job is planned later than promised.

Gets every fact in the log and every plan. Where promises do not fit beside the running jobs any more (a node is out, an
attempt overruns, a request or a rule changes), nothing is checked. Invariant: that is decided from records alone, node by
node and instant by instant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import TypeAlias

from eslurm.core.control.promises import REGISTERING
from eslurm.core.model import facts
from eslurm.core.model.accounts import Policy
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.job import Job, JobSpec
from eslurm.core.model.promise import Promise
from eslurm.core.plan.cycle.plan import Plan
from eslurm.core.plan.cycle.schedule import ends_of
from eslurm.core.resources.vector import Vector, add, fits, padded, scale
from eslurm.core.state.cluster import State
from eslurm.lab.sim.violation import require

Stay: TypeAlias = tuple[int, int, Vector]
"""From, until, amounts; of one node."""

WIDE = -1
"""In place of a node's number: licences and other resources of the whole cluster."""

_Rules: TypeAlias = tuple[ClusterConfig, dict[str, dict[str, Policy]]]


class PromiseChecks:
    """Kept by the run's `PlanChecks`."""

    def __init__(self) -> None:
        # What each job asked for when its promise was written.
        self._specs: dict[int, JobSpec] = {}
        # Under which configuration and rules the last of them were written: others may forbid them.
        self._rules: _Rules | None = None
        # The time that was expected of prologs and epilogs when the last of them were written.
        self._phases_us = 0
        self._planned: set[int] = set()

    def on_logged(self, replica: State, fact: facts.Fact) -> None:
        """The replay of the log has applied this."""
        match fact:
            case facts.JobsPromised(promises):
                self._rules = _rules_of(replica)
                self._phases_us = replica.phases_us
                for one in promises:
                    self._specs[one.job_id] = replica.jobs[one.job_id].spec
            case _:
                pass

    def on_old_plan(self, state: State, plan: Plan) -> None:
        """A leader's planner has made a plan of a state that has changed since: its promises cannot be judged."""
        if plan.rest is not REGISTERING:
            self._planned.add(state.epoch)

    def on_plan(
        self,
        state: State,
        plan: Plan,
        may_be_pushed_out: Callable[[State, Job], bool],
        overtaken: Callable[[State, Plan], Collection[int]] = lambda _state, _plan: (),
    ) -> int:
        """A leader's planner has made this, and nothing of it is written yet. How many promises were looked at.

        The leader may have begun with rules that are in the log and not in the replay yet, or accepted some that are not in
        the log either: its own are compared with those of the promises. `overtaken` are jobs that others may delay.
        The job that others are ended for in this plan has no planned start: it begins when they have ended.
        """
        if state.epoch in self._planned or plan.rest is REGISTERING:
            return 0
        self._planned.add(state.epoch)
        if state.policies["limit"] and state.phases_us > self._phases_us:
            # Stays that follow each other under a limit overlap now.
            return 0
        if self._rules != _rules_of(state) or state.lending or not self._is_to_be_had(state, plan.made_us):
            return 0
        placed = {one.job_id for one in plan.placements}
        behind = overtaken(state, plan)
        looked = 0
        for job_id, promise in state.promises.items():
            job = state.jobs[job_id]
            is_same = self._specs.get(job_id) == job.spec
            gives_way = job_id in behind or may_be_pushed_out(state, job)
            if not is_same or job_id not in state.queue or gives_way or job_id == plan.preemptor:
                continue
            looked += 1
            start_us = plan.start_us(job_id)
            is_kept = job_id in placed or (start_us is not None and start_us <= promise.start_us)
            require(
                is_kept, f"job {job_id} was promised to start at {promise.start_us}, now it is {start_us}"
            )
        return looked

    def _is_to_be_had(self, state: State, now_us: int) -> bool:
        """Check whether all promises fit beside the running jobs."""
        if state.policies["pool"] and state.ledger.usable != state.ledger.topology.everything:
            # A pool counts what is in service.
            return False
        if state.policies["limit"] and any(
            _stands_still(state, job_id) or _is_longer(state, job_id) for job_id, _attempt in state.live
        ):
            # It counts against limits for as long as it stands still, which no plan knows, or longer than was planned.
            return False
        if any((one.expected_us or one.until_us) <= now_us for one in state.live.values()):
            return False
        if any(one.start_us <= now_us for one in state.promises.values()):
            return False
        on_node: dict[int, list[Stay]] = {}
        for node, stay in chain(
            _running(state, now_us), *(_planned(state, one) for one in state.promises.values())
        ):
            on_node.setdefault(node, []).append(stay)
        wide_total = tuple(one.wide_total for one in state.config.resources if one.wide_total)
        wide = on_node.pop(WIDE, [])
        return _fits(wide, wide_total) and all(
            _fits_on(state, node, stays) for node, stays in on_node.items()
        )


def _rules_of(state: State) -> _Rules:
    return state.config, state.frozen_policies()


def _stands_still(state: State, job_id: int) -> bool:
    attempt = state.jobs[job_id].attempt
    return attempt is not None and bool(attempt.suspended_us)


def _is_longer(state: State, job_id: int) -> bool:
    """Check whether the job ends later than it was planned to: its prolog took longer, or its limit was extended."""
    attempt = state.jobs[job_id].attempt
    if attempt is None or not attempt.planned_us:
        return False
    prolog_us = attempt.more.prolog_us if attempt.more is not None else 0
    return attempt.until_us > attempt.planned_us + prolog_us


def _running(state: State, now_us: int) -> Iterator[tuple[int, Stay]]:
    for one in state.live.values():
        # A wait that only an expectation implies is not longer than the elapsed time.
        until_us = now_us if one.expected_us else one.until_us
        for node, amounts in one.spans:
            yield node, (now_us, until_us, amounts)
        if any(one.wide):
            yield WIDE, (now_us, until_us, one.wide)


def _planned(state: State, promise: Promise) -> Iterator[tuple[int, Stay]]:
    first = state.queue.find(promise.job_id) or state.later.find(promise.job_id)
    if first is None:
        return
    members = (first, *(one.job for one in first.followers))
    for at, start in enumerate(promise.starts):
        # The starts of a pack are those of its members, any other job's are those of its tasks.
        job = members[at] if first.followers else first
        asked = Counter[str]()
        for part in job.parts or (job,):
            asked.update(dict(part.request.wide))
        wide = tuple(asked[one.name] for one in state.config.resources if one.wide_total)
        stop_us = ends_of(job, start.start_us)[0]
        amounts: Vector = ()
        for run in start.runs:
            amounts = run.amounts or amounts
            for node in range(run.node, run.node + run.count):
                yield node, (start.start_us, stop_us, amounts)
        if any(wide):
            yield WIDE, (start.start_us, stop_us, scale(wide, start.tasks))


def _fits_on(state: State, node: int, stays: list[Stay]) -> bool:
    topology = state.ledger.topology
    position = topology.positions.get(node)
    if position is None or not state.ledger.usable >> position & 1:
        return False
    return _fits(stays, topology.totals[position])


def _fits(stays: list[Stay], total: Vector) -> bool:
    """Check that the stays take no more than `total` at any instant."""
    for at_us in {begin_us for begin_us, _, _ in stays}:
        taken = padded((), len(total))
        for begin_us, until_us, amounts in stays:
            if begin_us <= at_us < until_us:
                taken = add(taken, padded(amounts, len(total)))
        if not fits(taken, total):
            return False
    return True
