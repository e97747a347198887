"""Seeds that the simulator plays a second, on all cores, start included."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from benchmarks.backlog import program
from benchmarks.figures import Figures

FULL_SEEDS, QUICK_SEEDS = 200, 12


class SeedsFailed(Exception):
    """A seed failed. The text is the simulator's."""


def measure(figures: Figures, _parent: Path, *, quick: bool) -> None:
    """sim_seeds_per_s."""
    seeds = QUICK_SEEDS if quick else FULL_SEEDS
    began = time.perf_counter()
    done = subprocess.run([program("eslurm"), "sim", "--seeds", str(seeds)], capture_output=True, text=True)
    took_s = time.perf_counter() - began
    if done.returncode:
        raise SeedsFailed(f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
    figures.add("sim_seeds_per_s", seeds / took_s, "1/s", seeds)
