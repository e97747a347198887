"""Runs planning cycles beside the dispatcher: on a snapshot, in short slices, the result as a message.

One cycle at a time; a change during a cycle asks for another after it. The last plan's reasons and promises are kept
for people who ask why.
"""

from __future__ import annotations

import asyncio
import time

from esctld.dispatcher import Dispatcher
from eslurm.core.job.model import JobSpec
from eslurm.core.messages import PlanMade
from eslurm.core.plan.explain import Why
from eslurm.core.plan.policy import Plan, PlanLimits
from eslurm.core.plan.promise import Promise
from eslurm.core.planning import earliest_start_us, plan_slices
from eslurm.telemetry.metrics import ControllerMetrics

LIMITS = PlanLimits(placements_max=256, examined_max=2_000)
REPLAN_S = 30.0
"""Seconds after which a queue that nothing else moves is planned again: promises grow old."""
PAUSE_SHARE = 2.0
PAUSE_MAX_S = 0.1
"""After each cycle the loop belongs to others for so many times as long as it took, at most so many seconds: a long
queue that changes all the time would keep the planner busy with nothing new."""


class Planner:
    """Wakes on `state.plan_wanted` (call `look` after each commit)."""

    def __init__(self, metrics: ControllerMetrics) -> None:
        self._metrics = metrics
        self._wake = asyncio.Event()
        self._plan: Plan | None = None
        self._spent_s = 0.0
        self._dispatcher: Dispatcher | None = None

    def attach(self, dispatcher: Dispatcher) -> None:
        """The dispatcher whose state is planned and that gets the plans."""
        self._dispatcher = dispatcher

    def look(self) -> None:
        """Something has been committed; plan if it asks for it."""
        assert self._dispatcher is not None
        if self._dispatcher.state.plan_wanted:
            self._wake.set()

    def why(self, job_id: int) -> Why | None:
        """What the last plan said of a waiting job."""
        return self._plan.waiting.get(job_id) if self._plan is not None else None

    @property
    def promises(self) -> tuple[Promise, ...]:
        """Starts held free for waiting jobs."""
        return self._plan.promises if self._plan is not None else ()

    def earliest_us(self, spec: JobSpec) -> int | None:
        """When such a job could start if it were alone in the queue; None if not with the nodes in service."""
        assert self._dispatcher is not None
        return earliest_start_us(self._dispatcher.state, spec, self._dispatcher.now_us())

    async def run(self) -> None:
        """Until cancelled."""
        assert self._dispatcher is not None
        while True:
            try:
                async with asyncio.timeout(REPLAN_S):
                    await self._wake.wait()
            except TimeoutError:
                self._dispatcher.state.want_plan()
            self._wake.clear()
            plan = await self._cycle(self._dispatcher)
            if plan.placements:
                # The next cycle sees these placements on the ledger, not in the queue.
                await self._dispatcher.decided(PlanMade(plan.placements, plan.generation))
            await asyncio.sleep(min(self._spent_s * PAUSE_SHARE, PAUSE_MAX_S))
            self.look()

    async def _cycle(self, dispatcher: Dispatcher) -> Plan:
        state = dispatcher.state
        now_us = dispatcher.now_us()
        slices = plan_slices(state, now_us, self.promises, LIMITS)
        spent = 0.0
        while True:
            started = time.perf_counter()
            try:
                next(slices)
            except StopIteration as finished:
                spent += time.perf_counter() - started
                plan: Plan = finished.value
                break
            spent += time.perf_counter() - started
            await asyncio.sleep(0)
        self._metrics.plan.observe(spent)
        self._spent_s = spent
        self._plan = plan
        return plan
