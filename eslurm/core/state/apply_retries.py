"""Application of retries to a job's record: counted when the attempt ends, in force when its nodes are free.

Invariant: a job's request changes only where it waits again; the attempt that ends keeps the limits that it ran with.
"""

from __future__ import annotations

from msgspec.structs import replace

from eslurm.core.model import facts
from eslurm.core.model.job import Attempt, Job, JobSpec
from eslurm.core.model.job_states import JobState
from eslurm.core.model.parts import user_spans
from eslurm.core.model.request import Request
from eslurm.core.model.retry import Retried, RetryRecord
from eslurm.core.resources.vector import CORES
from eslurm.core.state.allocation_amounts import limit_s


def noted(job: Job, attempt: Attempt, fact: facts.AttemptEnded, now_us: int) -> RetryRecord | None:
    """The record of a job that asks for retries, after the end of this attempt."""
    record = job.retry
    if job.spec.retry is None or fact.outcome is not JobState.PENDING:
        return record
    record = record or RetryRecord()
    ran_us = _ran_us(job, attempt, now_us)
    cores = sum([span.amounts[CORES] for span in user_spans(job.spec, attempt)])
    record = replace(
        record, wasted_us=record.wasted_us + ran_us, wasted_cpu_us=record.wasted_cpu_us + ran_us * cores
    )
    if fact.retry is None:
        return record
    return replace(
        record,
        count=record.count + 1,
        attempt=attempt.number,
        before_s=limit_s(job, attempt),
        latest=fact.retry,
        grown=fact.retry,
    )


def _ran_us(job: Job, attempt: Attempt, now_us: int) -> int:
    """Run time of an ended attempt. Nodes say when it ran, by their own clocks: not longer than it was placed."""
    if not job.started_us:
        return 0
    ran_us = min(job.ended_us - job.started_us, now_us - attempt.placed_us) - job.paused_us
    return max(0, ran_us)


def settled(job: Job) -> Job:
    """The job as it waits again, or has ended: grown limits come into force, or are void."""
    record = job.retry
    if record is None or record.grown is None:
        return job
    spec = grown_spec(job.spec, record.grown) if job.outcome is JobState.PENDING else job.spec
    return replace(job, spec=spec, retry=replace(record, grown=None))


def grown_spec(spec: JobSpec, grown: Retried) -> JobSpec:
    """The request with these limits."""
    if grown.time_limit_s:
        spec = replace(spec, time_limit_s=grown.time_limit_s)
    if not grown.memory_mib:
        return spec
    own = len(grown.memory_mib)
    parts = [_with_memory(*pair) for pair in zip(spec.components[:own], grown.memory_mib, strict=True)]
    return replace(spec, components=(*parts, *spec.components[own:]))


def _with_memory(request: Request, memory_mib: tuple[int, ...]) -> Request:
    per_node_mib, per_cpu_mib, *of_chunks = memory_mib
    chunks = [
        replace(chunk, memory_mib=amount) for chunk, amount in zip(request.chunks, of_chunks, strict=True)
    ]
    return replace(
        request, memory_per_node_mib=per_node_mib, memory_per_cpu_mib=per_cpu_mib, chunks=tuple(chunks)
    )
