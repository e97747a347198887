"""The jobs that benchmarks submit: a hundred distinct scripts, and for each job an environment of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence

from eslurm.v1 import controller_pb2 as pb

SCRIPTS = 100
ENVIRONMENT_BYTES = 4096
_FILLER = "x" * 100


def script(number: int, work_s: int = 0) -> bytes:
    """A script that runs /bin/true, or sleeps so long; one of `SCRIPTS` distinct ones."""
    work = f"sleep {work_s}" if work_s else "/bin/true"
    return f"#!/bin/sh\n# This is script {number % SCRIPTS}.\n{work}\n".encode()


def environment(number: int) -> bytes:
    """`ENVIRONMENT_BYTES` of variables that no other job has, as NAME=value entries each ended by NUL."""
    entries = [f"PATH={os.defpath}", "HOME=/tmp", f"BENCH_JOB={number}"]
    size = sum(len(entry) + 1 for entry in entries)
    while size + len(_FILLER) + 32 < ENVIRONMENT_BYTES:
        entry = f"BENCH_FILLER_{len(entries):03}={number:010}{_FILLER}"
        entries.append(entry)
        size += len(entry) + 1
    entries.append("BENCH_LAST=" + "y" * (ENVIRONMENT_BYTES - size - len("BENCH_LAST=") - 1))
    return b"".join(entry.encode() + b"\0" for entry in entries)


def request(
    number: int,
    work_dir: str,
    *,
    nodes: int = 1,
    tasks: int = 1,
    held: bool = False,
    output: str = "",
    cells: Sequence[str] = (),
    span: bool = False,
    work_s: int = 0,
) -> pb.JobRequest:
    """One job of one core per task. `cells` of the federation may take it; with `span` its nodes may be of all of them."""
    return pb.JobRequest(
        name=f"bench-{number % SCRIPTS}",
        components=[pb.ResourceRequest(tasks=tasks, cpus_per_task=1, nodes_min=nodes, nodes_max=nodes)],
        script=script(number, work_s),
        environment=environment(number),
        work_dir=work_dir,
        umask=0o022,
        time_limit_s=600,
        held=held,
        output=output,
        cells=cells,
        span=span,
    )


def calls(
    first: int,
    count: int,
    jobs_per_call: int,
    work_dir: str,
    *,
    held: bool = False,
    output: str = "",
    cells: Sequence[str] = (),
    work_s: int = 0,
    tasks: int = 1,
    nodes: Sequence[int] = (1,),
    span: bool = False,
) -> list[bytes]:
    """Encoded Submit requests for `count` jobs from number `first` on. `nodes`: of the first job, of the second, and so
    round; with `span` those of several nodes may span cells.
    """
    requests = [
        request(
            first + at,
            work_dir,
            nodes=nodes[at % len(nodes)],
            tasks=max(tasks, nodes[at % len(nodes)]),
            held=held,
            output=output,
            cells=cells,
            span=span and nodes[at % len(nodes)] > 1,
            work_s=work_s,
        )
        for at in range(count)
    ]
    return [
        pb.SubmitRequest(jobs=requests[at : at + jobs_per_call]).SerializeToString()
        for at in range(0, count, jobs_per_call)
    ]
