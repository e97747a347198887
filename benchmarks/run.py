"""`make bench`: all groups of figures but those `APART`, or those named on the command line.

QUICK=1 in the environment: within 90 s.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from benchmarks import (
    backlog,
    construct,
    cooperation,
    crashes,
    growth,
    loops,
    submit,
    throughput,
    watch,
    wide,
)
from benchmarks.disk import NoDisk, fsync_ms, state_directory
from benchmarks.esp import measure as esp
from benchmarks.federation import measure as federation
from benchmarks.figures import Figures
from benchmarks.plan import measure as plan
from benchmarks.processes import adopt_orphans, compile_packages, end_descendants
from benchmarks.recovery import measure as recovery
from benchmarks.recovery.postgres import NoServer
from benchmarks.relay import measure as relay

Measure = Callable[..., None]


def _estimator(figures: Figures, directory: Path, *, quick: bool) -> None:
    # scikit-learn takes longer to import than most refusals to be said.
    from benchmarks.estimator import measure

    measure.measure(figures, directory, quick=quick)


GROUPS: dict[str, Measure] = {
    "submit": submit.measure,
    "throughput": throughput.measure,
    "wide": wide.measure,
    "watch": watch.measure,
    "backlog": backlog.measure,
    "crashes": crashes.measure,
    "growth": growth.measure,
    "construct": construct.measure,
    "loops": loops.measure,
    "cooperation": cooperation.measure,
    "relay": relay.measure,
    "recovery": recovery.measure,
    "plan": plan.measure,
    "estimator": _estimator,
    "federation": federation.measure,
    "esp": esp.measure,
}
APART = ("recovery", "plan", "estimator", "federation", "esp", "cooperation")
BY_DEFAULT = [name for name in GROUPS if name not in APART]
"""The others take as long as all of these; `make bench-NAME` asks for one."""
EXIT_USAGE = 2


def main(names: list[str], *, quick: bool) -> int:
    """Measure; returns the exit code."""
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        sys.stderr.write(f"bench: no group {' '.join(unknown)}: use {' '.join(GROUPS)}\n")
        return EXIT_USAGE
    adopt_orphans()
    signal.signal(signal.SIGTERM, _end)
    try:
        with state_directory() as directory:
            measure(names or BY_DEFAULT, directory, quick=quick)
    except (NoDisk, NoServer) as error:
        sys.stderr.write(f"bench: {error}\n")
        return EXIT_USAGE
    finally:
        end_descendants()
    return 0


def measure(names: list[str], directory: Path, *, quick: bool) -> None:
    """The groups in order, on one disk."""
    compile_packages()
    figures = Figures()
    figures.add("fsync_ms", fsync_ms(directory), "ms", 1)
    for name in names:
        GROUPS[name](figures, directory, quick=quick)


def _end(number: int, _frame: FrameType | None) -> None:
    """A signal leaves through the same `finally` as everything else."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], quick=bool(os.environ.get("QUICK"))))
