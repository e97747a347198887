"""The running time and the end of a job in the queue: a suspension is neither running nor ending."""

from __future__ import annotations

from escli.user.queue_columns import CELLS, run_us
from eslurm.v1 import controller_pb2 as pb

S = 1_000_000
START = 1_770_000_000 * S
NOW = START + 600 * S


def cell(letter: str, info: pb.JobInfo) -> str:
    return CELLS[letter][1](info, NOW)


def test_a_job_that_has_stood_still() -> None:
    info = pb.JobInfo(state="RUNNING", started_us=START, paused_us=400 * S, time_limit_s=3600)
    assert run_us(info, NOW) == 200 * S
    assert (cell("M", info), cell("L", info)) == ("3:20", "56:40")
    plain = pb.JobInfo(state="RUNNING", started_us=START + 400 * S, time_limit_s=3600)
    assert cell("e", info) == cell("e", plain)


def test_a_job_that_stands_still_gets_no_older_and_has_no_end() -> None:
    info = pb.JobInfo(state="SUSPENDED", started_us=START, suspended_us=START + 100 * S, time_limit_s=3600)
    assert (cell("M", info), cell("e", info)) == ("1:40", cell("e", pb.JobInfo()))


def test_a_job_that_has_ended_and_one_that_has_not_begun() -> None:
    ended = pb.JobInfo(state="COMPLETED", started_us=START, ended_us=START + 500 * S, paused_us=400 * S)
    assert run_us(ended, NOW) == 100 * S
    assert run_us(pb.JobInfo(state="PENDING"), NOW) == 0
