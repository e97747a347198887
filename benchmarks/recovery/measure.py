"""The group `recovery`: all of its parts in order. `RECOVERY="chaos failover"` in the environment: only those."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from benchmarks.figures import Figures
from benchmarks.recovery import accounting, chaos, failover, flood, promises, rates, restart, seeds

PARTS: dict[str, Callable[..., None]] = {
    "failover": failover.measure,
    "restart": restart.measure,
    "promises": promises.measure,
    "rates": rates.measure,
    "seeds": seeds.measure,
    "flood": flood.measure,
    "accounting": accounting.measure,
    "chaos": chaos.measure,
}


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """All parts, or those named. Raises `KeyError` for one there is not."""
    for name in os.environ.get("RECOVERY", "").split() or PARTS:
        PARTS[name](figures, parent, quick=quick)
