"""A run as a workload log: the same jobs with the waits and run times they had in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from eslurm.core.model.units import SECOND_US
from eslurm.lab.workloads.loop import Result
from eslurm.lab.workloads.swf import Header, Record, write_swf


def write_outcome(path: Path, result: Result, header: Header) -> None:
    """Jobs in the order of their submission under the log's own header. Raises `OSError`."""
    lines = [
        *header.lines,
        f" Note: replayed by eslurm simulate: policy {result.policy}, {result.machine.shape}",
    ]
    write_swf(path, lines, records(result))


def records(result: Result) -> Iterator[Record]:
    """Each job's record with what the run made of it."""
    for one in sorted(result.ran, key=lambda one: one.job.pending.job_id):
        yield msgspec.structs.replace(
            one.job.record,
            wait_s=one.wait_us // SECOND_US,
            run_s=one.run_us // SECOND_US,
            allocated=sum(cores for _, cores in one.spans),
        )
