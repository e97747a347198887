"""A job's spec as the request for it: what `requests.SpecReader` reads, written again for another cell.

Left out is what stays in the home cell: dependencies, which are met when a job is offered, its hold, its choice of cells,
and the parts, arrays and gateways that no other cell takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from eslurm.api.retry_requests import write_retry
from eslurm.core.model.job import PASSED, JobSpec
from eslurm.core.model.request import Request
from eslurm.v1 import controller_pb2 as pb

WITHHELD_SCRIPT: Final = b"#!/bin/sh\n"
WITHHELD_DIR: Final = "/"
_NO_SPAN: Final = f"{1:016x}"
"""The parent in a traceparent, of which the trace alone is read; zeros would make it none."""
_PLAIN: Final = (
    *("name", "time_limit_s", "begin_us", "start_at_us", "deadline_us", "nice", "umask"),
    *("warn_signal", "warn_before_s", "warn_batch_only", "dependency_any"),
    *(name for name in PASSED if name not in ("comment", "command")),
)
"""Fields of the same name and kind."""
_FILES: Final = ("output", "error", "input", "warn_script")
_COUNTS: Final = (
    *("tasks", "cpus_per_task", "nodes_min", "nodes_max", "tasks_per_node"),
    *("memory_per_node_mib", "memory_per_cpu_mib", "exclusive", "constraint", "place"),
)


def job_request(spec: JobSpec, script: bytes, environment: bytes) -> pb.JobRequest:
    """The request for a job like this one, whole: with its script and its environment."""
    request = _request(spec)
    request.script, request.environment = script, environment
    request.work_dir, request.comment, request.command = spec.work_dir, spec.comment, spec.command
    request.arguments.extend(spec.arguments)
    for name in _FILES:
        setattr(request, name, getattr(spec, name))
    request.truncate_output = not spec.append_output
    if spec.trace:
        request.traceparent = f"00-{spec.trace.hex()}-{_NO_SPAN}-00"
    return request


def bid_request(spec: JobSpec) -> pb.JobRequest:
    """The request by which another cell says when it would start the job: without what only a job that runs needs.

    Withheld are its name, script, arguments, environment, files, comment and working directory.
    """
    request = _request(spec)
    request.ClearField("name")
    request.script, request.work_dir = WITHHELD_SCRIPT, WITHHELD_DIR
    return request


def _request(spec: JobSpec) -> pb.JobRequest:
    values: dict[str, Any] = {name: getattr(spec, name) for name in _PLAIN}
    request = pb.JobRequest(**values, requeue=spec.requeue)
    if spec.priority is not None:
        request.priority = spec.priority
    request.components.extend(map(_component, spec.components))
    if spec.retry is not None:
        write_retry(request, spec.retry)
    return request


def _component(part: Request) -> pb.ResourceRequest:
    values: dict[str, Any] = {name: getattr(part, name) for name in _COUNTS}
    return pb.ResourceRequest(
        **values,
        include=part.include,
        exclude=part.exclude,
        per_node=_amounts(part.per_node),
        per_task=_amounts(part.per_task),
        wide=_amounts(part.wide),
        chunks=[
            pb.Chunk(
                count=one.count,
                cores=one.cores,
                memory_mib=one.memory_mib,
                resources=_amounts(one.resources),
                constraint=one.constraint,
            )
            for one in part.chunks
        ],
    )


def _amounts(named: Iterable[tuple[str, int]]) -> list[pb.ResourceAmount]:
    return [pb.ResourceAmount(name=name, items=items) for name, items in named]
