"""A failing scenario made smaller, while it fails in the same way.

Removes ordeals and faults (delta debugging over the plan), sets rates to zero, and takes fewer requests, fewer nodes,
fewer controllers and less time. Invariant: every scenario that is kept was run and failed with the same kind of
failure as the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.lab.sim.fault_schedule import FaultPlan
from eslurm.lab.sim.run import Failure, Scenario, explicit, judge

CALM_MIN_US = 3 * SECOND_US
TRIALS_MAX = 500

T = TypeVar("T")
Judge = Callable[[Scenario], object]
"""Runs a scenario; a `Failure`, or anything else when it holds."""


class Shrunk(msgspec.Struct, frozen=True):
    """Result: the smallest failure found, the first one in full, and the number of runs."""

    before: Failure
    after: Failure
    trials: int


class Trials:
    """Scenarios tried on the way down, at most `trials_max`. Each is run once."""

    def __init__(self, first: Failure, judge: Judge, trials_max: int) -> None:
        self.best = first
        self.count = 0
        self._judge = judge
        self._trials_max = trials_max
        self._tried: set[bytes] = {msgspec.msgpack.encode(first.scenario)}

    @property
    def plan(self) -> FaultPlan:
        """The plan of the smallest scenario so far."""
        plan = self.best.scenario.plan
        assert plan is not None
        return plan

    def fails(self, **changes: Any) -> bool:
        """Check whether the smallest scenario still fails in the same way with these changes; if so it is now that."""
        scenario = msgspec.structs.replace(self.best.scenario, **changes)
        key = msgspec.msgpack.encode(scenario)
        if key in self._tried or self.count >= self._trials_max:
            return False
        self._tried.add(key)
        self.count += 1
        verdict = self._judge(scenario)
        if not isinstance(verdict, Failure) or verdict.kind != self.best.kind:
            return False
        self.best = verdict
        return True

    def fails_with(self, **changes: Any) -> bool:
        """The same for changes of the plan."""
        return self.fails(plan=msgspec.structs.replace(self.plan, **changes))


def shrink(first: Failure, judge: Judge = judge, trials_max: int = TRIALS_MAX) -> Shrunk:
    """The smallest scenario found that fails like `first`, in at most `trials_max` runs."""
    before = msgspec.structs.replace(first, scenario=explicit(first.scenario))
    trials = Trials(before, judge, trials_max)
    while True:
        seen = trials.best
        _drop_late_events(trials)
        _drop_ordeals(trials)
        _drop_events(trials)
        _drop_rates(trials)
        _drop_controllers(trials)
        _drop_requests(trials)
        _drop_nodes(trials)
        _drop_time(trials)
        if trials.best is seen:
            return Shrunk(before, trials.best, trials.count)


def _drop_late_events(trials: Trials) -> None:
    """Drop events after the failure: the cheapest step down."""
    failed_us = int(trials.best.at_s * SECOND_US)
    early = tuple(event for event in trials.plan.events if event[0] <= failed_us)
    if len(early) < len(trials.plan.events):
        trials.fails_with(events=early)


def _drop_ordeals(trials: Trials) -> None:
    """Without any the run is as short as its other faults let it be."""
    plan = trials.plan
    if not plan.ordeals:
        return
    last_us = max((at_us for at_us, _ in plan.events), default=0)
    calm_us = min(plan.calm_us, max(CALM_MIN_US, last_us + SECOND_US))
    if not trials.fails_with(ordeals=(), calm_us=calm_us) and not trials.fails_with(ordeals=()):
        minimise(plan.ordeals, lambda ordeals: trials.fails_with(ordeals=ordeals))


def _drop_events(trials: Trials) -> None:
    if trials.plan.events and not trials.fails_with(events=()):
        minimise(trials.plan.events, lambda events: trials.fails_with(events=events))


def minimise(items: tuple[T, ...], fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """A part of `items` that still fails and of which no single item can be left out (Zeller's ddmin)."""
    parts = 2
    while len(items) >= 2:
        for rest in _complements(items, parts):
            if fails(rest):
                items = rest
                parts = max(parts - 1, 2)
                break
        else:
            if parts >= len(items):
                break
            parts = min(len(items), parts * 2)
    return items


def _complements(items: tuple[T, ...], parts: int) -> Iterator[tuple[T, ...]]:
    """All but one of so many parts, for each part."""
    size, more = divmod(len(items), parts)
    end = 0
    for part in range(parts):
        start, end = end, end + size + (part < more)
        yield items[:start] + items[end:]


def _drop_rates(trials: Trials) -> None:
    """Each rate of the plan, and of what is inside it, to zero."""
    for path in list(_rates(trials.plan, ())):
        trials.fails(plan=_with_zero(trials.plan, path))


def _rates(struct: msgspec.Struct, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if isinstance(value, msgspec.Struct):
            yield from _rates(value, (*path, name))
        elif isinstance(value, float) and value:
            yield (*path, name)


def _with_zero(struct: T, path: Sequence[str]) -> T:
    name, *rest = path
    value = _with_zero(getattr(struct, name), rest) if rest else 0.0
    changed: T = msgspec.structs.replace(struct, **{name: value})  # type: ignore[type-var]
    return changed


def _drop_controllers(trials: Trials) -> None:
    _lower(trials.plan.controllers, 1, lambda count: trials.fails_with(controllers=count))


def _drop_requests(trials: Trials) -> None:
    _lower(trials.best.scenario.actions, 0, lambda count: trials.fails(actions=count))


def _drop_nodes(trials: Trials) -> None:
    _lower(trials.best.scenario.nodes, 1, lambda count: trials.fails(nodes=count))


def _drop_time(trials: Trials) -> None:
    """An earlier calm, in whole seconds; faults that would come after it go with the time they had."""

    def fails(calm_s: int) -> bool:
        calm_us = calm_s * SECOND_US
        events = tuple(event for event in trials.plan.events if event[0] < calm_us)
        ordeals = tuple(one for one in trials.plan.ordeals if one.at_us < calm_us)
        return trials.fails_with(calm_us=calm_us, events=events, ordeals=ordeals)

    _lower(trials.plan.calm_us // SECOND_US, CALM_MIN_US // SECOND_US, fails)


def _lower(count: int, count_min: int, fails: Callable[[int], bool]) -> None:
    """A smaller number that fails: halves of the distance first, then less and less of it."""
    step = count - count_min
    while step > 0:
        if count - step >= count_min and fails(count - step):
            count -= step
        else:
            step //= 2
