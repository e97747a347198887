"""One estimator on one part of a log, in a process of its own, so that its memory can be measured: prints one JSON object.

python -m benchmarks.estimator.one LOG FROM JOBS WARM_UP NAME[:KEY=VALUE]...
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from benchmarks.estimator.comparators import make
from eslurm.lab.studies.evaluate import replay
from eslurm.lab.studies.report import Outcome, judge
from eslurm.lab.studies.workload import read_log

TARGET_UNDER = 0.10
_KIB_PER_MB = 1e6 / 1024


class Measured(msgspec.Struct, frozen=True):
    """The outcome, and the most memory that the process had."""

    outcome: Outcome
    rss_mb: float


def main(words: list[str]) -> None:
    """Replay, judge, print."""
    path, *numbers, text = words
    first, jobs, warm_up = map(int, numbers)
    log = read_log(Path(path), first + jobs if jobs else 0).jobs[first:]
    outcome = judge(log, replay(log, make(text), label=text), warm_up, TARGET_UNDER)
    sys.stdout.write(msgspec.json.encode(Measured(outcome, _peak_mb())).decode() + "\n")


def _peak_mb() -> float:
    """The most memory so far in MB. (The figure of getrusage begins with that of the parent process.)"""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    (peak,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / _KIB_PER_MB


if __name__ == "__main__":
    main(sys.argv[1:])
