"""One job event, as the ring keeps it and as followers read it.

Invariant: a kept event holds no more than numbers and the job's own spec, which others share; it is encoded on demand.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from eslurm.core.model.job import Attempt, JobSpec
from eslurm.core.model.request import Request
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.allocation_amounts import paused_us
from eslurm.links.codec import varint
from eslurm.v1 import controller_pb2 as pb

EVENT_FIELD: Final = b"\x0a"
"""Tag of the repeated field `events` (number 1, length-delimited) in JobFeedReply."""


class JobEvent(NamedTuple):
    """`kind` is a JobEvent's; `spec` is present when the event carries the request."""

    kind: pb.JobEvent.Kind
    job_id: int
    at_us: int
    runtime_s: int = 0
    spec: JobSpec | None = None


def event_bytes(one: JobEvent) -> bytes:
    """The event as an element of a JobFeedReply."""
    event = pb.JobEvent(kind=one.kind, job_id=one.job_id, at_us=one.at_us, runtime_s=one.runtime_s)
    if one.spec is not None:
        event.job.CopyFrom(description(one.spec))
    encoded = event.SerializeToString()
    return EVENT_FIELD + varint(len(encoded)) + encoded


def description(spec: JobSpec) -> pb.JobDescription:
    """The job's features for an estimator: only what is known at submission."""
    return pb.JobDescription(
        user=spec.user.name,
        group=str(spec.user.gid),
        account=spec.account,
        name=spec.name,
        command=spec.work_dir,
        partition=spec.partition,
        nodes=sum(max(1, request.nodes_min) for request in spec.components),
        cores=sum(map(_cores, spec.components)),
        memory_mib=sum(map(_memory_mib, spec.components)),
        limit_s=spec.time_limit_s,
    )


def _cores(request: Request) -> int:
    if request.chunks:
        return sum(chunk.count * chunk.cores for chunk in request.chunks)
    return request.tasks * request.cpus_per_task


def _memory_mib(request: Request) -> int:
    if request.chunks:
        return sum(chunk.count * chunk.memory_mib for chunk in request.chunks)
    return request.memory_per_node_mib * max(1, request.nodes_min) or request.memory_per_cpu_mib * _cores(
        request
    )


def run_time_s(attempt: Attempt | None) -> int:
    """Run time of an ended attempt without suspensions, in whole seconds rounded up; 0: it never ran."""
    if attempt is None or not attempt.started_us:
        return 0
    return whole_s(attempt.started_us, attempt.ended_us, paused_us(attempt, attempt.ended_us))


def whole_s(started_us: int, ended_us: int, still_us: int) -> int:
    """The interval in whole seconds rounded up, at least 1."""
    return max(1, -(-(ended_us - started_us - still_us) // SECOND_US))
