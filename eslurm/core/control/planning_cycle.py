"""The planner's times of work, without I/O: one cycle at a time, its wishes part by part, then a rest.

The controller's planner and the simulator drive this one machine: they carry out the action that an event returns and
report what came of it. Invariants: a cycle begins when all that the one before asked for is decided, so it sees placements
on the ledger and not in the queue; a plan that is asked for meanwhile is made after the rest.
"""

from __future__ import annotations

from collections import deque
from typing import Final, TypeAlias

import msgspec

from eslurm.core.control.planning import messages_of, next_cycle_in_us
from eslurm.core.model.messages import PlanMade
from eslurm.core.plan.cycle.plan import Plan
from eslurm.core.state.cluster import State

REST_SHARE: Final = 2
REST_MAX_US: Final = 100_000
"""After each cycle the loop belongs to others for so many times as long as it took, at most so long: a long queue that
changes all the time would keep the planner busy with nothing new."""


class Begin(msgspec.Struct, frozen=True):
    """Action: run a cycle in slices, then report `planned`."""


class Post(msgspec.Struct, frozen=True):
    """Action: have this decided and committed, then report `decided`."""

    message: PlanMade


class Rest(msgspec.Struct, frozen=True):
    """Action: report `rested` after so long."""

    for_us: int


class Wait(msgspec.Struct, frozen=True):
    """Action: report `due` after so long, unless `looked` begins a cycle before."""

    for_us: int


Action: TypeAlias = Begin | Post | Rest | Wait


class PlanningCycle:
    """One leader's. `plan` is the last one made."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self._parts: deque[PlanMade] = deque()
        self._rest = Rest(0)
        self._wait: Wait | None = None

    @property
    def is_idle(self) -> bool:
        """Check whether it waits for a reason to plan."""
        return self._wait is not None

    def looked(self, state: State) -> Begin | None:
        """Something has been committed."""
        return self._begin() if self._wait is not None and state.plan_wanted else None

    def due(self, wait: Wait, state: State) -> Begin | None:
        """The time of a planned start has come, or the plan has grown old."""
        if wait is not self._wait:
            return None
        state.want_plan()
        return self._begin()

    def planned(self, plan: Plan, spent_us: int) -> Post | Rest:
        """The cycle has ended."""
        self.plan = plan
        self._parts.extend(messages_of(plan))
        self._rest = Rest(min(spent_us * REST_SHARE, REST_MAX_US))
        return self.decided()

    def decided(self) -> Post | Rest:
        """A part of the plan is committed, or was dropped because it did not fit any more."""
        return Post(self._parts.popleft()) if self._parts else self._rest

    def rested(self, state: State, now_us: int) -> Begin | Wait:
        """Time for the next cycle, if there is a reason; also the first event of all."""
        if state.plan_wanted or (self.plan is not None and self.plan.is_unfinished):
            return self._begin()
        self._wait = Wait(next_cycle_in_us(self.plan, now_us))
        return self._wait

    def _begin(self) -> Begin:
        self._wait = None
        return Begin()
