"""ResizeJob: the reply says what has changed, and what the plan knows of the nodes that are to come."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from esctld.serve import resizes
from eslurm.api import methods
from eslurm.ports.api import Status
from eslurm.v1 import controller_pb2 as pb
from tests.support.loops import run
from tests.unit.esctld.test_privacy import ADA, BEN, Site, site


def within(tmp_path: Path, main: Callable[[Site], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with site(tmp_path) as term:
            await main(term)

    run(whole())


def resize(job_id: int, **how: object) -> pb.ResizeJobRequest:
    return pb.ResizeJobRequest(job=pb.JobRef(job_id=job_id), **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (resize(9_999_999, by_nodes=1), "does not exist"),
        (pb.ResizeJobRequest(by_nodes=-(2**31)), "is not within"),
        (resize(1, without=["cn1", "a\nb"]), "nodelist"),
        (resize(1, nodes=["x" * 300]), "nodelist"),
    ],
)
def test_nonsense_is_refused_by_name(tmp_path: Path, request_: pb.ResizeJobRequest, says: str) -> None:
    async def main(term: Site) -> None:
        status, text = await term.refusal(ADA, methods.RESIZE_JOB, request_)
        assert status in (Status.INVALID_ARGUMENT, Status.NOT_FOUND) and says in text

    within(tmp_path, main)


def test_jobs_that_do_not_run_and_strangers_are_refused(tmp_path: Path) -> None:
    async def main(term: Site) -> None:
        job_id = term.ada_job
        for one in (job_id, term.ben_job):
            who = ADA if one == job_id else BEN
            status, text = await term.refusal(who, methods.RESIZE_JOB, resize(one, by_nodes=1))
            assert status is Status.FAILED_PRECONDITION and f"job {one} is " in text
        status, _ = await term.refusal(BEN, methods.RESIZE_JOB, resize(job_id, by_nodes=1))
        assert status in (Status.PERMISSION_DENIED, Status.NOT_FOUND)

    within(tmp_path, main)
    assert resizes.PATIENCE_S < 10
