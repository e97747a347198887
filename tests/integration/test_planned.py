"""A live cluster that plans every job ahead: starts are shown before they come, and dependants have theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster

MINUTE_US = 60_000_000
LATE_US = MINUTE_US // 2
"""The longest time from a job's placement to its start."""


@pytest.fixture(scope="module")
def site() -> Iterator[LiveCluster]:
    """Two nodes under full planning."""
    with running(nodes=2, policy={"scheduler": '"planned"'}) as cluster:
        yield cluster
        cluster.hang_up()


def planned_us(site: LiveCluster, *job_ids: int) -> list[int]:
    """The planned starts of the jobs, all as of one moment; none while one of them has no planned start."""
    refs = [pb.JobRef(job_id=job_id) for job_id in job_ids]
    jobs = {info.job_id: info for info in site.call("Jobs", pb.JobsRequest(jobs=refs)).jobs}
    starts = [int(jobs[job_id].planned_start_us) for job_id in job_ids if job_id in jobs]
    return starts if len(starts) == len(job_ids) and all(starts) else []


def test_everything_that_waits_has_a_planned_start_and_gets_it_earlier_when_it_can(
    site: LiveCluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    tmp_path.chmod(0o777)
    first = site.wrap(f"until [ -e {gate} ]; do sleep 0.05; done", "-N2", "--exclusive", "-t1")
    site.reaches(first, "RUNNING")
    second = site.wrap("true", "-N2", "--exclusive", "-t2")
    third = site.wrap("true", "-N1", "-t1", f"--dependency=afterok:{second}")
    ends_us = site.job(first).started_us + MINUTE_US
    second_us, third_us = site.until(lambda: planned_us(site, second, third), "planned starts")
    # Its end is planned from its placement on, which is a little before its start.
    assert ends_us - LATE_US <= second_us <= ends_us
    assert third_us == second_us + 2 * MINUTE_US
    assert site.job(third).reason == "Dependency"
    gate.touch()
    assert site.ended(first, second, third) == ["COMPLETED"] * 3
