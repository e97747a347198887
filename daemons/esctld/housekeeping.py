"""What a controller throws away in the background: old answers, blobs that no job needs; and what it shows as gauges.

Bounded work per turn, so that neither the store's writer nor the loop is held.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter

from eslurm.core.cluster import SECOND_US, State
from eslurm.core.satellite.herald import Herald
from eslurm.ports.store import Prune, Store, StoreUnavailable
from eslurm.telemetry.memory import give_back
from eslurm.telemetry.metrics import ControllerMetrics

log = logging.getLogger("esctld.housekeeping")

PERIOD_S = 30.0
GAUGES_S = 5.0
ANSWERS_KEPT_US = 24 * 3600 * SECOND_US
"""How long a retried request gets its first answer."""
BLOBS_KEPT_US = 24 * 3600 * SECOND_US
"""How long a blob stays that no unfinished job refers to."""


async def prune(store: Store, state: State) -> None:
    """Every now and then, until cancelled."""
    while True:
        await asyncio.sleep(PERIOD_S)
        give_back()
        now_us = time.time_ns() // 1000
        kept = {job.spec.script_hash for job in state.jobs.values()}
        kept |= {job.spec.environment_hash for job in state.jobs.values()}
        limits = Prune(
            now_us,
            answers_before_us=now_us - ANSWERS_KEPT_US,
            blobs_before_us=now_us - BLOBS_KEPT_US,
            blobs_kept=kept,
        )
        try:
            pruned = await store.prune(limits)
        except StoreUnavailable as error:
            log.warning("nothing was pruned: %s", error)
        else:
            log.debug("pruned %s", pruned)


async def gauge(metrics: ControllerMetrics, state: State, herald: Herald) -> None:
    """Keep the gauges near the truth, until cancelled."""
    while True:
        for gauge, counts in (
            (metrics.jobs, Counter(job.state.value for job in state.jobs.values())),
            (metrics.nodes, Counter(node.state.value for node in state.nodes.values())),
            (metrics.satellites, Counter(one.state.value for one in herald.satellites.satellites)),
        ):
            gauge.clear()
            for name, count in counts.items():
                gauge.labels(name).set(count)
        metrics.broadcasts_waiting.set(herald.waiting)
        await asyncio.sleep(GAUGES_S)
