"""Shared by the commands of `eslurm estimate`: logs, estimators by name, files to write, and their errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from escli.errors import ClusterError, unusable
from escli.lab.progress import Progress

if TYPE_CHECKING:
    from eslurm.lab.studies.evaluate import Predictions
    from eslurm.lab.studies.workload import Log, LoggedJob
    from eslurm.ports.estimator import Estimator, Setting

WARM_UP_JOBS: Final = 3_000


def warm_up(jobs: int) -> int:
    """Number of jobs that only train by default, of this many."""
    return min(WARM_UP_JOBS, jobs // 2)


def read(trace: Path, first: int = 0, jobs_max: int = 0) -> Log:
    """The log from the job at position `first` on, at most `jobs_max` of them (0: all)."""
    from eslurm.lab.studies.workload import LogError, read_log
    from eslurm.lab.workloads.swf import SwfError

    try:
        log = read_log(trace, first + jobs_max if jobs_max else 0)
    except OSError as error:
        raise unusable(f"{trace}: cannot be read: {error.strerror or error}") from None
    except SwfError as error:
        raise unusable(str(error)) from None
    except LogError as error:
        raise unusable(f"{trace}: {error}") from None
    if first >= len(log.jobs):
        raise unusable(f"--from: {first}: the log has only {len(log.jobs)} jobs that can be used")
    return msgspec.structs.replace(log, jobs=log.jobs[first:])


def made(name: str, settings: Mapping[str, Setting], option: str = "") -> Estimator:
    """A new estimator; `option` is where its settings came from."""
    from eslurm.estimator.registry import UnknownEstimator, make

    try:
        return make(name, settings)
    except UnknownEstimator as error:
        raise unusable(f"{option}: {error}" if option else str(error)) from None


def replayed(jobs: Sequence[LoggedJob], estimator: Estimator, label: str) -> Predictions:
    """The whole log, with progress, under this label."""
    from eslurm.lab.studies.evaluate import EstimatorFailed, replay

    with Progress(label, "jobs") as progress:
        try:
            return replay(jobs, estimator, label=label, progress=progress.show)
        except EstimatorFailed as error:
            raise ClusterError(str(error)) from None


def tell(notes: Sequence[str]) -> None:
    """Lines beside the result."""
    for note in notes:
        sys.stderr.write(f"eslurm: {note}\n")
    sys.stderr.flush()


def write(path: Path, writer: Callable[[Path], None]) -> None:
    """Lets a file be written."""
    try:
        writer(path)
    except OSError as error:
        raise ClusterError(f"{path}: cannot be written: {error.strerror or error}") from None
