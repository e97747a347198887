"""A controller that is killed while jobs wait: the one after it starts them when the first had said, and in that order."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from eslurm.core.model.promise import PROMISE
from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster


def starts_us(site: LiveCluster, *job_ids: int) -> list[int]:
    """The planned starts of the jobs; none while one of them has no planned start."""
    refs = [pb.JobRef(job_id=job_id) for job_id in job_ids]
    jobs = {
        info.job_id: int(info.planned_start_us) for info in site.call("Jobs", pb.JobsRequest(jobs=refs)).jobs
    }
    starts = [jobs.get(job_id, 0) for job_id in job_ids]
    return starts if all(starts) else []


def kept(site: LiveCluster) -> set[str]:
    """The jobs whose promises are in the store."""
    with closing(sqlite3.connect(f"file:{site.directory / 'esctld.db'}?mode=ro", uri=True)) as store:
        return {name for (name,) in store.execute("SELECT name FROM records WHERE kind = ?", (PROMISE,))}


def test_planned_starts_survive_a_controller_that_is_killed(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    tmp_path.chmod(0o777)
    with running(nodes=2, policy={"scheduler": '"planned"'}) as site:
        first = site.wrap(f"until [ -e {gate} ]; do sleep 0.05; done", "-N2", "--exclusive", "-t5")
        site.reaches(first, "RUNNING")
        second = site.wrap("true", "-N2", "--exclusive", "-t3")
        site.until(lambda: starts_us(site, second), "a planned start")
        # Nobody who comes later is planned before it, whatever the priority: in a plan from scratch this one would be.
        third = site.wrap("true", "-N2", "--exclusive", "-t3", "--priority=4000000")
        told = site.until(lambda: starts_us(site, second, third), "planned starts")
        assert told[0] < told[1]
        site.until(lambda: kept(site) == {str(second), str(third)}, "promises in the store")
        site.kill("esctld")
        site.launch("esctld")
        again = site.until(lambda: starts_us(site, second, third), "planned starts of the next controller")
        assert again[0] <= told[0] and again[1] <= told[1]
        assert again[0] < again[1]
        gate.touch()
        assert site.ended(first, second, third) == ["COMPLETED"] * 3
        assert not kept(site)
        site.hang_up()
