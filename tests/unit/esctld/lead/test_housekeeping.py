"""Retention goes by the cluster's time, however the clocks of hosts jump."""

from __future__ import annotations

import asyncio
from typing import Any

from esctld.lead import housekeeping
from eslurm.core.state.cluster import State
from eslurm.ports.store import Prune, Pruned
from tests.support.loops import run

NOW_US = 400 * 24 * 3600 * 1_000_000
"""Half a century before any host's clock."""


class Asked:
    """A store and a log keeper that remember what they were asked for."""

    turn_every_s = 0.0

    def __init__(self) -> None:
        self.limits: list[Prune] = []
        self.times_us: list[int] = []
        self.enough = asyncio.Event()

    async def prune(self, limits: Prune) -> Pruned:
        self.limits.append(limits)
        if len(self.limits) == 2:
            self.enough.set()
        return Pruned()

    async def turn(self, now_us: int) -> Prune:
        self.times_us.append(now_us)
        return Prune(now_us)


def test_pruning_goes_by_the_clusters_time() -> None:
    """A wall clock that jumps by a year would take today's answers and a month of the log in one go."""

    async def main() -> None:
        state, asked = State("main"), Asked()
        state.now_us = NOW_US
        store: Any = asked
        pruning = asyncio.create_task(housekeeping.prune(store, state, store))
        await asked.enough.wait()
        pruning.cancel()
        await asyncio.gather(pruning, return_exceptions=True)
        first = asked.limits[0]
        assert asked.times_us[0] == first.now_us == NOW_US

    run(main())
