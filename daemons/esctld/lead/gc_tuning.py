"""The garbage collector and a heap of a million records that never form cycles: they are kept apart.

Invariant: what was set apart is given back before another role begins, so that the objects of the former one can go.
"""

from __future__ import annotations

import gc

COLLECT_EVERY = (10_000, 20, 20)
"""The collector's thresholds: records form no cycles, so it is there for what asyncio and errors leave behind."""


def spare_collector() -> None:
    """What exists now lives as long as the role: walking it again and again would stall the loop."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_EVERY)


def give_back_to_collector() -> None:
    """A role has ended: what it kept may be collected."""
    gc.unfreeze()
    gc.collect()
