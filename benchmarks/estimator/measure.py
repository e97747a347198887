"""`make bench-estimator`: accuracy and underestimates of every estimator on public logs, and what ours costs.

    TRACES=DIR [QUICK=1] [ESTIMATORS="history last-2"] python -m benchmarks.run estimator

Times are of the processor, on one thread. QUICK=1: the beginning of KTH-SP2 and few estimators, within a minute.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.estimator import comparators
from benchmarks.estimator.logs import PARTS, QUICK, WARM_UP_JOBS, Part
from benchmarks.estimator.one import Measured
from benchmarks.figures import Figures
from eslurm.estimator import registry

QUICK_ESTIMATORS: Final = ("user", "last-2", *registry.VARIANTS, registry.DEFAULT)
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def measure(figures: Figures, _directory: Path, *, quick: bool) -> None:
    """aea_, ur_ (at submission; start_: at the start), aea_scaled_ (at UR .10 by the best constant) by log and estimator."""
    traces = os.environ.get("TRACES", "")
    if not traces:
        sys.stderr.write(
            "bench: estimator: no TRACES=DIR with the logs of benchmarks/estimator/logs.py: left out\n"
        )
        return
    names = os.environ.get("ESTIMATORS", "").split() or (QUICK_ESTIMATORS if quick else comparators.names())
    ours: list[Measured] = []
    for part in QUICK if quick else PARTS:
        path = Path(traces) / part.file
        if not path.exists():
            sys.stderr.write(f"bench: estimator: no {path}: left out\n")
            continue
        for name in names:
            found = _one(path, part, name)
            _add(figures, f"{part.name}_{registry.slug(name)}", found)
            if name == registry.DEFAULT:
                ours.append(found)
    if ours:
        _add_costs(figures, ours)


def _one(path: Path, part: Part, name: str) -> Measured:
    """In a child. Raises `CalledProcessError` when it fails; what it says goes to standard error."""
    words = [str(path), str(part.first), str(part.jobs), str(WARM_UP_JOBS), name]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.estimator.one", *words],
        stdout=subprocess.PIPE,
        env={**os.environ, **_ONE_THREAD},
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Measured)


def _add(figures: Figures, name: str, found: Measured) -> None:
    outcome = found.outcome
    for at, scores in (("", outcome.at_submission), ("start_", outcome.at_start)):
        figures.add(f"aea_{at}{name}", scores.aea, "", scores.jobs)
        figures.add(f"ur_{at}{name}", scores.under, "", scores.jobs)
        figures.add(f"aea_scaled_{at}{name}", scores.scaled.aea, "", scores.jobs)
    figures.add(f"coverage_{name}", outcome.at_submission.coverage, "", outcome.at_submission.jobs)
    figures.add(f"cpu_{name}_s", outcome.cost.cpu_s, "s", 1)


def _add_costs(figures: Figures, ours: list[Measured]) -> None:
    """The longest training, the dearest mean prediction, and the largest process of our estimator."""
    trainings = sum(one.outcome.cost.trainings for one in ours)
    figures.add("train_cpu_s", max(one.outcome.cost.train_max_s for one in ours), "s", trainings)
    figures.add("predict_ms", max(one.outcome.cost.predict_ms for one in ours), "ms", len(ours))
    figures.add("esestd_rss_mb", max(one.rss_mb for one in ours), "MB", len(ours))


if __name__ == "__main__":
    measure(Figures(), Path(), quick=bool(os.environ.get("QUICK")))
