"""The words about a job's retries: which attempt was retried, why, and what the next one asks for."""

from __future__ import annotations

from eslurm.core.model.job import Job
from eslurm.core.model.retry import RetryRecord
from eslurm.core.model.units import SECOND_US


def retry_text(job: Job) -> str:
    """`attempt 1 ended by timeout, retry 1 of 2: a time limit of 450 s instead of 300 s; 300 s and ... were wasted`."""
    record, wish = job.retry, job.spec.retry
    if record is None or wish is None:
        return ""
    said = [_latest(record, wish.retries_max)] if record.latest is not None else []
    if record.wasted_us:
        wasted_s, wasted_cpu_s = record.wasted_us // SECOND_US, record.wasted_cpu_us // SECOND_US
        said.append(f"{wasted_s} s of run time and {wasted_cpu_s} core seconds were wasted")
    return "; ".join(said)


def _latest(record: RetryRecord, most: int) -> str:
    latest = record.latest
    assert latest is not None
    text = f"attempt {record.attempt} ended by {latest.cause}, retry {record.count} of {most}"
    asked = []
    if latest.time_limit_s:
        by = ", as its runtime is estimated" if latest.is_estimated else ""
        asked.append(f"a time limit of {latest.time_limit_s} s instead of {record.before_s} s{by}")
    if latest.memory_mib:
        asked.append("more memory")
    return f"{text}: {' and '.join(asked)}" if asked else f"{text}: the same limits"
