"""Records of the jobs themselves: each holds a lock of its own while it runs, and writes down when it began and ended.

The kernel lets go of a lock when the last process of the job is gone, however it went: so nothing of the cluster is
asked whether a job runs. Invariant: a line is written in one call to a file opened for appending, so none is torn.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

_SCRIPT = """#!/bin/sh
exec 9>>"{directory}/locks/$SLURM_JOB_ID"
if ! flock -n 9; then
    echo "$SLURM_JOB_ID $SLURM_RESTART_COUNT twice" >>"{directory}/lines"
    exit 3
fi
echo "$SLURM_JOB_ID $SLURM_RESTART_COUNT began" >>"{directory}/lines"
sleep {seconds}
echo "$SLURM_JOB_ID $SLURM_RESTART_COUNT ended" >>"{directory}/lines"
"""


class Sightings(msgspec.Struct, frozen=True):
    """Counts, by job, of its beginnings, its ends, and the times it found itself running already."""

    began: Counter[int]
    ended: Counter[int]
    twice: Counter[int]
    restarted_alike: int
    """Jobs that began more than once under one restart count."""


class Witness:
    """The files in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (directory / "locks").mkdir(parents=True)
        (directory / "lines").touch()

    def script(self, seconds: float) -> bytes:
        """A job that runs for so long."""
        return _SCRIPT.format(directory=self._directory, seconds=seconds).encode()

    def sightings(self) -> Sightings:
        """The records so far."""
        found: dict[str, Counter[int]] = {"began": Counter(), "ended": Counter(), "twice": Counter()}
        attempts: Counter[tuple[int, int]] = Counter()
        for line in (self._directory / "lines").read_text().splitlines():
            job, restarts, what = line.split()
            found[what][int(job)] += 1
            if what == "began":
                attempts[int(job), int(restarts)] += 1
        alike = sum(count > 1 for count in attempts.values())
        return Sightings(found["began"], found["ended"], found["twice"], alike)
