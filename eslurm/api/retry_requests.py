"""The request for retries by the server as the core's value, and back for another cell. Malformed ones are refused here."""

from __future__ import annotations

from eslurm.compat.errors import OptionError
from eslurm.compat.retries import NEEDED, RETRY_ON, checked_causes, checked_factor, checked_maxima
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.model.retry import RetryRequest
from eslurm.core.model.retry_words import GROW_MEMORY_PERCENT, GROW_TIME_PERCENT, RETRIES, RETRIES_MAX
from eslurm.v1 import controller_pb2 as pb

_FIELDS = {
    "--grow-time": "grow_time_percent",
    "--max-time": "max_time_s",
    "--grow-mem": "grow_memory_percent",
    "--max-mem": "max_memory_mib",
}


def read_retry(job: pb.JobRequest) -> RetryRequest | None:
    """The retries for which a job asks; None: none. Raises `Refused`."""
    causes = list(job.retry_on)
    try:
        for option, field in _FIELDS.items():
            if getattr(job, field) and NEEDED[option] not in causes:
                way_out = f"use e.g. {RETRY_ON}={NEEDED[option]}:2"
                raise OptionError(option, None, f"needs {RETRY_ON} with {NEEDED[option]}", way_out)
        if not causes:
            return None
        checked_maxima(job.max_time_s, job.max_memory_mib)
        return RetryRequest(
            checked_causes(causes),
            _retries(job.retries_max or RETRIES),
            checked_factor(job.grow_time_percent or GROW_TIME_PERCENT, "--grow-time"),
            job.max_time_s,
            checked_factor(job.grow_memory_percent or GROW_MEMORY_PERCENT, "--grow-mem"),
            job.max_memory_mib,
        )
    except OptionError as error:
        raise Refused(RefusalCode.INVALID, str(error)) from None


def write_retry(request: pb.JobRequest, retry: RetryRequest) -> None:
    """Write the retries into the request that another cell reads; what was not asked for stays unsaid."""
    request.retry_on.extend(retry.causes)
    request.retries_max = retry.retries_max
    for option, field in _FIELDS.items():
        if NEEDED[option] in retry.causes:
            setattr(request, field, getattr(retry, field))


def _retries(count: int) -> int:
    if not 1 <= count <= RETRIES_MAX:
        raise OptionError(
            RETRY_ON, str(count), f"is no number from 1 to {RETRIES_MAX}", "ask for fewer retries"
        )
    return count
