"""The group `federation`: all of its parts in order. `FEDERATION="swaps"` in the environment: only those."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from benchmarks.federation import membership, mixes, spanning, swaps, transfers
from benchmarks.figures import Figures

PARTS: dict[str, Callable[..., None]] = {
    "swaps": swaps.measure,
    "membership": membership.measure,
    "transfers": transfers.measure,
    "spanning": spanning.measure,
    "mixes": mixes.measure,
}


def measure(figures: Figures, parent: Path, *, quick: bool) -> None:
    """All parts, or those named. Raises `KeyError` for one there is not."""
    for name in os.environ.get("FEDERATION", "").split() or PARTS:
        PARTS[name](figures, parent, quick=quick)
