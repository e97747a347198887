"""Requests for retries at the API: malformed ones are refused with the option's name."""

from __future__ import annotations

import pytest

from eslurm.api.retry_requests import read_retry, write_retry
from eslurm.core.model.messages import Refused
from eslurm.core.model.retry import RetryRequest
from eslurm.v1 import controller_pb2 as pb


def test_defaults() -> None:
    assert read_retry(pb.JobRequest()) is None
    assert read_retry(pb.JobRequest(retry_on=["timeout"])) == RetryRequest(("timeout",), 1, 150, 0, 200, 0)
    assert str(read_retry(pb.JobRequest(retry_on=["node-fail", "timeout"], retries_max=3))) == (
        "node-fail,timeout:3"
    )


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"retry_on": ["late"]}, "--retry-on: 'late' is no cause"),
        ({"retry_on": ["timeout"] * 4}, "--retry-on: 'timeout' and the rest are more than 3 causes"),
        ({"retry_on": ["x" * 100_000]}, "--retry-on: 'x"),
        ({"retry_on": ["timeout"], "retries_max": 101}, "--retry-on: '101' is no number from 1 to 100"),
        ({"retry_on": ["timeout"], "grow_time_percent": 99}, "--grow-time: '99 %' is no factor"),
        ({"retry_on": ["timeout"], "grow_time_percent": 1001}, "--grow-time: '1001 %' is no factor"),
        ({"retry_on": ["timeout"], "max_time_s": 2**31}, "--max-time"),
        ({"retry_on": ["oom"], "max_memory_mib": 2**63}, "--max-mem"),
        ({"retry_on": ["oom"], "grow_memory_percent": 1}, "--grow-mem"),
        ({"retry_on": ["node-fail"], "grow_time_percent": 200}, "--grow-time needs --retry-on with timeout"),
        ({"max_memory_mib": 1}, "--max-mem needs --retry-on with oom"),
    ],
)
def test_nonsense_is_refused_by_name(fields: dict[str, object], says: str) -> None:
    with pytest.raises(Refused) as refused:
        read_retry(pb.JobRequest(**fields))  # type: ignore[arg-type]
    assert refused.value.text.startswith(says) and len(refused.value.text) < 1000


@pytest.mark.parametrize(
    "retry",
    [
        RetryRequest(("timeout",), 5, 1000, 2**31 - 1),
        RetryRequest(("node-fail",)),
        RetryRequest(("timeout", "oom"), 2, 100, 60, 300, 2**40),
    ],
)
def test_what_is_written_for_another_cell_reads_as_itself(retry: RetryRequest) -> None:
    request = pb.JobRequest()
    write_retry(request, retry)
    assert read_retry(pb.JobRequest.FromString(request.SerializeToString())) == retry
