"""Background removal of old data: answers, unreferenced blobs, the beginning of the log.

Bounded work per turn, so that neither the store's writer nor the loop is held.
"""

from __future__ import annotations

import asyncio
import logging

from esctld.lead.log_export import LogKeeper
from eslurm.core.control.commit_pipeline import NotNow
from eslurm.core.state.cluster import State
from eslurm.ports.store import Pruned, Store, StoreUnavailable
from eslurm.telemetry.memory import give_back

log = logging.getLogger("esctld.housekeeping")

PAUSE_S = 0.05
"""Between two rounds of removing rows: 20,000 rows a second can go, more than ever come."""


async def prune(store: Store, state: State, keeper: LogKeeper) -> None:
    """Prune periodically, until cancelled."""
    while True:
        await asyncio.sleep(keeper.turn_every_s)
        give_back()
        try:
            pruned = await prune_once(store, keeper, state.now_us)
        except StoreUnavailable as error:
            log.warning("not everything was pruned: %s", error)
        except NotNow:
            log.debug("the controller stops: nothing is pruned any more")
        else:
            log.debug("pruned %s", pruned)


async def prune_once(store: Store, keeper: LogKeeper, now_us: int) -> Pruned:
    """Prune a bounded number of rows at a time, with pauses for commits. Raises StoreUnavailable."""
    limits = await keeper.turn(now_us)
    answers = blobs = facts = 0
    while True:
        pruned = await store.prune(limits)
        answers, blobs, facts = answers + pruned.answers, blobs + pruned.blobs, facts + pruned.facts
        if not pruned.fills(limits):
            return Pruned(answers, blobs, facts)
        await asyncio.sleep(PAUSE_S)
