"""A live cluster that plans every job ahead: starts are shown before they come, and dependants have theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import LiveCluster
from tests.integration.conftest import running

MINUTE_US = 60_000_000


@pytest.fixture(scope="module")
def site() -> Iterator[LiveCluster]:
    """Two nodes under full planning."""
    with running(nodes=2, policy={"scheduler": '"planned"'}) as cluster:
        yield cluster
        cluster.hang_up()


def planned_us(site: LiveCluster, job_id: int) -> int:
    found: int = site.until(lambda: site.job(job_id).planned_start_us, f"a planned start of job {job_id}")
    return found


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
    second_us, third_us = planned_us(site, second), planned_us(site, third)
    # Its end is planned from its placement on, which is a little before its start.
    assert ends_us - 5_000_000 <= second_us <= ends_us
    assert third_us == second_us + 2 * MINUTE_US
    assert site.job(third).reason == "Dependency"
    gate.touch()
    assert site.ended(first, second, third) == ["COMPLETED"] * 3
