"""What a controller throws away in the background: old answers, blobs that no job needs, the beginning of the log.

Bounded work per turn, so that neither the store's writer nor the loop is held.
"""

from __future__ import annotations

import asyncio
import logging

from esctld.lead.log_export import LogKeeper
from eslurm.core.control.commit_pipeline import NotNow
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State
from eslurm.ports.store import Prune, Pruned, Store, StoreUnavailable
from eslurm.telemetry.memory import give_back

log = logging.getLogger("esctld.housekeeping")

PERIOD_S = 30.0
PAUSE_S = 0.05
"""Between two rounds of removing rows: 20,000 rows a second can go, more than ever come."""
ANSWERS_KEPT_US = 24 * 3600 * SECOND_US
"""How long a retried request gets its first answer."""
BLOBS_KEPT_US = 24 * 3600 * SECOND_US
"""How long a blob stays that no unfinished job refers to."""


async def prune(store: Store, state: State, logbook: LogKeeper) -> None:
    """Every now and then, until cancelled."""
    while True:
        await asyncio.sleep(PERIOD_S)
        give_back()
        try:
            pruned = await prune_once(store, state, logbook, state.now_us)
        except StoreUnavailable as error:
            log.warning("not everything was pruned: %s", error)
        except NotNow:
            log.debug("the controller stops: nothing is pruned any more")
        else:
            log.debug("pruned %s", pruned)


async def prune_once(store: Store, state: State, logbook: LogKeeper, now_us: int) -> Pruned:
    """All that may go now, a bounded number of rows at a time, with room for commits between. Raises StoreUnavailable."""
    facts_before, bases = await logbook.before_pruning(now_us)
    kept = {job.spec.script_hash for job in state.jobs.values()}
    kept |= {job.spec.environment_hash for job in state.jobs.values()}
    limits = Prune(
        now_us,
        answers_before_us=now_us - ANSWERS_KEPT_US,
        blobs_before_us=now_us - BLOBS_KEPT_US,
        blobs_kept=kept | bases,
        facts_before_revision=facts_before,
    )
    answers = blobs = facts = 0
    while True:
        pruned = await store.prune(limits)
        answers, blobs, facts = answers + pruned.answers, blobs + pruned.blobs, facts + pruned.facts
        if max(pruned.answers, pruned.blobs, pruned.facts) < limits.rows_max:
            return Pruned(answers, blobs, facts)
        await asyncio.sleep(PAUSE_S)
