"""Logs of a few lines, and runs of them, for the tests of the replay."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from eslurm.lab.workloads.loop import Result, replay
from eslurm.lab.workloads.machine import Machine, uniform
from eslurm.lab.workloads.rules import Rules, Settings, plain_config
from eslurm.lab.workloads.swf import Header, Record
from eslurm.lab.workloads.workload import Choices, Names, Workload, build
from tests.support.golden import DIRECTORY

SYNTHETIC = DIRECTORY / "simulate" / "synthetic.swf"
"""300 made-up jobs on 64 processors."""


def record(
    job_id: int, submit_s: int, run_s: int, processors: int, asked_s: int | None = None, **fields: int
) -> Record:
    """One job; it asks for the time it runs unless told otherwise."""
    return Record(
        job_id,
        submit_s,
        run_s=run_s,
        allocated=processors,
        requested=processors,
        requested_s=run_s if asked_s is None else asked_s,
        **{"user": job_id % 3} | fields,
    )


def workload(records: Iterable[Record], machine: Machine, choices: Choices | None = None) -> Workload:
    return build(records, Header(), machine, choices or Choices())


def run(
    records: Iterable[Record], policy: str, *, nodes: int = 4, cores: int = 1, estimates: str = "user"
) -> Result:
    machine = uniform(nodes, cores)
    return replay(workload(records, machine, Choices(estimates=estimates)), machine, policy)


def ruled(
    records: Iterable[Record],
    rules: str = "",
    policy: str = "easy",
    *,
    nodes: int = 4,
    cores: int = 1,
    names: Names | None = None,
    estimates: str = "user",
    **config: object,
) -> Result:
    """The same under rules: records as in a file, and what a configuration says beside nodes and one partition."""
    machine = uniform(nodes, cores)
    made = Rules(replace(plain_config(machine), **config), records_of(rules))
    found = workload(records, machine, Choices(estimates=estimates, names=names or Names()))
    return replay(found, machine, policy, rules=made)


def records_of(text: str) -> tuple[tuple[str, str, Settings], ...]:
    """Records as `esctl load` would read them from a file."""
    return tuple(
        (kind, name, [(key, str(value)) for key, value in settings.items()])
        for kind, named in tomllib.loads(text).items()
        for name, settings in named.items()
    )


def starts(result: Result) -> dict[int, int]:
    """Job of the log -> second of its start."""
    return {one.job.record.job_id: one.start_us // 1_000_000 for one in result.ran}


def log_of(path: Path, lines: Iterable[str], *, processors: int = 4) -> Path:
    """A log file with a header and these lines."""
    path.write_text("\n".join([f"; MaxProcs: {processors}", *lines, ""]), encoding="utf-8")
    return path


def line(job_id: int, submit_s: int, run_s: int, processors: int, asked_s: int, queue: int = 1) -> str:
    return (
        f"{job_id} {submit_s} -1 {run_s} {processors} -1 -1 {processors} {asked_s} -1 1 1 1 1 {queue} 1 -1 -1"
    )
