"""A workflow moves itself, through all tiers: a running job takes more time."""

from __future__ import annotations

import pytest

from tests.kits.cluster import LiveCluster


@pytest.fixture(autouse=True)
def _in_the_work_directory(cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cluster.work)


def test_a_job_takes_more_time_where_no_other_is_planned(cluster: LiveCluster) -> None:
    script = cluster.script(
        "long.sh",
        "#!/bin/sh\n#SBATCH -t 0:10\n"
        f"esctl --socket {cluster.socket} extend --by 0:10:00 > extended 2>&1\n"
        f"esctl --socket {cluster.socket} extend --to 5 > refused 2>&1\n"
        "sleep 11\ntouch there\n",
    )
    job_id = cluster.submit(script)
    assert cluster.wait_lines("extended")[0] == f"job {job_id}: time limit 610 s"
    assert cluster.end(job_id) == "COMPLETED", "its first limit has passed"
    assert "is not more than the 610 s" in "\n".join(cluster.lines("refused"))
