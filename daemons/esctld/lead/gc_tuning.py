"""The garbage collector and a heap of a million records without cycles: they are frozen.

Invariant: they are unfrozen before another role begins, so that the objects of the former one can be freed.
"""

from __future__ import annotations

import gc

COLLECT_EVERY = (10_000, 20, 20)
"""The collector's thresholds: records form no cycles, so it is there for what asyncio and errors leave behind."""


def spare_collector() -> None:
    """Freeze the present objects, which live as long as the role: scanning them again and again would stall the loop."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_EVERY)


def give_back_to_collector() -> None:
    """Unfreeze the objects of an ended role."""
    gc.unfreeze()
    gc.collect()
