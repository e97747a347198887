"""Runs planning cycles beside the dispatcher: on a snapshot, in short slices, the result as messages.

When a cycle begins is `core.control.planning_cycle`'s, the same as in the simulator; here are the loop, the timers and the
site's policy. The schedule goes from cycle to cycle, the last plan's reasons and bookings are kept for queries.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from esctld.lead.dispatcher import Dispatcher
from eslurm.config.policies import PolicyError, load_policy
from eslurm.core.control.fair_share import OthersUsage
from eslurm.core.control.planning import LIMITS, plan_slices
from eslurm.core.control.planning_cycle import Action, Begin, PlanningCycle, Post, Rest, Wait
from eslurm.core.model.units import SECOND_US
from eslurm.core.plan.cycle.plan import Plan
from eslurm.core.plan.cycle.policies import BUILT_IN
from eslurm.core.plan.cycle.priority import Ranking
from eslurm.core.plan.cycle.reasons import Why
from eslurm.core.plan.cycle.schedule import Booking, Schedule
from eslurm.core.plan.profile.profile import ResourceProfile
from eslurm.telemetry.metrics import ControllerMetrics

log = logging.getLogger(__name__)

FALLBACK = "easy"
CYCLE_MAX_S = 60.0
"""A site's own policy that has worked so long on one cycle is taken for one that never ends."""
NAMED_MAX = 20
"""Jobs named in the log whose promises a new leader could not keep."""
PATIENCE = 4.0
"""Between two slices what waits to be decided and committed goes first, for at most so many times as long as a slice took:
a commit needs many turns of the loop and of the interpreter, and would get one for each slice."""


class Planner:
    """Wakes on `state.plan_wanted` (call `look` after each commit)."""

    def __init__(
        self,
        metrics: ControllerMetrics,
        on_planned: Callable[[Plan, float, int], None] = lambda plan, spent_s, slots: None,
    ) -> None:
        """`on_planned` gets each plan, the CPU seconds of its cycle and the slots of its profile."""
        self._metrics = metrics
        self._on_planned = on_planned
        self._wake = asyncio.Event()
        self._cycles = PlanningCycle()
        # What lists show, and from which committed revision on they show the last plan; None: its starts are undecided.
        self._shown: Plan | None = None
        self._shown_from: int | None = 0
        self._schedule = Schedule()
        self._ranking = Ranking()
        self._failed: set[str] = set()
        self._spent_s = 0.0
        self._dispatcher: Dispatcher | None = None
        self._others_usage: OthersUsage | None = None
        self._resting = asyncio.Event()
        self._resting.set()

    def attach(self, dispatcher: Dispatcher) -> None:
        """Set the dispatcher whose state is planned and that gets the plans."""
        self._dispatcher = dispatcher

    def count_others(self, others_usage: OthersUsage) -> None:
        """Let fair share count usage in other clusters, too."""
        self._others_usage = others_usage

    def look(self) -> None:
        """Something was committed; plan if it requests a plan."""
        assert self._dispatcher is not None
        if self._cycles.looked(self._dispatcher.state) is not None:
            self._wake.set()

    def why(self, job_id: int) -> Why | None:
        """The last plan's reason of a waiting job."""
        return self.plan.waiting.get(job_id) if self.plan is not None else None

    @property
    def shown(self) -> Plan | None:
        """The last plan that rests on commits alone and whose own starts are committed: for lists and metrics."""
        assert self._dispatcher is not None
        if self._shown_from is not None and self._dispatcher.view.revision >= self._shown_from:
            self._shown = self.plan
        return self._shown

    @property
    def plan(self) -> Plan | None:
        """The last plan."""
        return self._cycles.plan

    @property
    def schedule(self) -> Schedule:
        """The present bookings, for what-if queries; in the middle of a cycle they are incomplete."""
        return self._schedule

    @property
    def profile(self) -> ResourceProfile | None:
        """Bookings from now on; None while a cycle is under way, or before the first one."""
        return self._schedule.book if self._resting.is_set() and self.plan is not None else None

    @property
    def is_planning(self) -> bool:
        """Check whether a cycle is under way."""
        return not self._resting.is_set()

    @property
    def ranking(self) -> Ranking:
        """The priorities with which jobs are planned."""
        return self._ranking

    async def at_rest(self) -> None:
        """Wait until no cycle is under way: until the next await `schedule` is a whole plan then."""
        while not self._resting.is_set():
            await self._resting.wait()

    def bookings(self, job_id: int) -> tuple[Booking, ...]:
        """The planned starts of a waiting job."""
        return self.plan.bookings.get(job_id, ()) if self.plan is not None else ()

    def start_us(self, job_id: int) -> int | None:
        """The planned start of a waiting job; None: the plan does not say."""
        return self.plan.start_us(job_id) if self.plan is not None else None

    async def run(self) -> None:
        """Plan until cancelled."""
        dispatcher = self._dispatcher
        assert dispatcher is not None
        action: Action = self._cycles.rested(dispatcher.state, dispatcher.now_us())
        while True:
            match action:
                case Begin():
                    self._resting.clear()
                    try:
                        action = await self._cycle(dispatcher)
                    finally:
                        self._resting.set()
                case Post(message):
                    await dispatcher.decided(message)
                    action = self._cycles.decided()
                case Rest(for_us):
                    self._shown_from = dispatcher.state.revision
                    await asyncio.sleep(for_us / SECOND_US)
                    action = self._cycles.rested(dispatcher.state, dispatcher.now_us())
                case Wait():
                    action = await self._wait(action, dispatcher)

    async def _wait(self, wait: Wait, dispatcher: Dispatcher) -> Begin:
        """Until `look` finds a reason to plan, or it is time."""
        try:
            async with asyncio.timeout(wait.for_us / SECOND_US):
                await self._wake.wait()
        except TimeoutError:
            self._cycles.due(wait, dispatcher.state)
        self._wake.clear()
        return Begin()

    async def _cycle(self, dispatcher: Dispatcher) -> Post | Rest:
        policy = self._policy(dispatcher.state.config.policy)
        try:
            plan = await self._planned(dispatcher, policy)
        except Exception as error:
            if policy in BUILT_IN:
                raise
            # A site's own policy must not stop the cluster.
            log.exception("policy %s has failed (%r): planning with %s from now on", policy, error, FALLBACK)
            self._failed.add(policy)
            self._schedule = Schedule()
            plan = await self._planned(dispatcher, FALLBACK)
        self._shown = self.shown
        has_starts = bool(plan.placements or plan.victims)
        self._shown_from = None if has_starts else dispatcher.state.revision
        return self._cycles.planned(plan, int(self._spent_s * SECOND_US))

    async def _planned(self, dispatcher: Dispatcher, policy: str) -> Plan:
        state = dispatcher.state
        slices = plan_slices(
            state,
            dispatcher.now_us(),
            self._schedule,
            LIMITS,
            ranking=self._ranking,
            policy=policy,
            keeps_promises=True,
            others_usage=self._others_usage,
        )
        spent = 0.0
        while True:
            started = time.perf_counter()
            try:
                next(slices)
            except StopIteration as finished:
                spent += time.perf_counter() - started
                plan: Plan = finished.value
                break
            slice_s = time.perf_counter() - started
            spent += slice_s
            if spent > CYCLE_MAX_S and policy not in BUILT_IN:
                slices.close()
                raise TimeoutError(f"a cycle of {spent:.0f} s has not ended")
            await dispatcher.rest(slice_s * PATIENCE)
        self._metrics.plan.observe(spent)
        self._spent_s = spent
        book = self._schedule.book
        self._on_planned(plan, spent, book.slots if book is not None else 0)
        if plan.broken:
            self._tell_broken(plan)
        return plan

    def _tell_broken(self, plan: Plan) -> None:
        """Log broken promises, because users will ask administrators about them."""
        self._metrics.broken_promises.inc(len(plan.broken))
        for one in plan.broken[:NAMED_MAX]:
            later = f"{(one.start_us - one.promised_us) / SECOND_US:.0f} s later" if one.start_us else "later"
            log.warning(
                "job %d starts %s than a controller before had promised: %s", one.job_id, later, one.why
            )
        if len(plan.broken) > NAMED_MAX:
            log.warning("%d more jobs start later than promised", len(plan.broken) - NAMED_MAX)

    def _policy(self, name: str) -> str:
        """The configured policy, loaded; an unusable one is logged once and replaced by the fallback."""
        if name in self._failed:
            return FALLBACK
        try:
            load_policy(name)
        except PolicyError as error:
            log.error("policy.scheduler: %s: planning with %s", error, FALLBACK)
            self._failed.add(name)
            return FALLBACK
        return name
