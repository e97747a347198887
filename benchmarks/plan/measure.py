"""`make bench-plan`: the planner's figures, one group after another. TRACES=DIR adds the replay of a whole public log."""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures import Figures
from benchmarks.plan import joint, memory, ops, packs, parts, replan, simulate, sort, structure, submitting


def measure(figures: Figures, directory: Path, *, quick: bool) -> None:
    """Everything that is asked of the planner (C-55), from single operations to a live controller."""
    ops.measure(figures, directory, quick=quick)
    joint.measure(figures, directory, quick=quick)
    parts.measure(figures, directory, quick=quick)
    replan.measure(figures, directory, quick=quick)
    packs.measure(figures, directory, quick=quick)
    structure.measure(figures, directory, quick=quick)
    sort.run(figures, quick=quick)
    memory.measure(figures, directory, quick=quick)
    simulate.measure(figures, directory, quick=quick)
    submitting.measure(figures, directory, quick=quick)
