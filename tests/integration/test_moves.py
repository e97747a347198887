"""A workflow moves itself, through all tiers: the first job of a pack starts the others earlier, and takes more time."""

from __future__ import annotations

import json

import pytest

from tests.kits.cluster import LiveCluster

SECOND_US = 1_000_000
LATE_US = 20 * SECOND_US
"""A machine that stands still for a while starts jobs late, but never early."""


@pytest.fixture(autouse=True)
def _in_the_work_directory(cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cluster.work)


def test_the_first_job_of_a_pack_moves_the_others(cluster: LiveCluster) -> None:
    first = cluster.script(
        "first.sh",
        "#!/bin/sh\n#SBATCH -t 5\n"
        f"esctl --socket {cluster.socket} move-starts --earlier-by 3000 --dry-run --json > dry.json\n"
        f"esctl --socket {cluster.socket} move-starts --earlier-by 3594 --json > moved.json\n"
        f"esctl --socket {cluster.socket} move-starts --to now+1day > refused 2>&1\n"
        "until test -e done-1 -a -e done-2; do sleep 0.05; done\n",
    )
    next_one = cluster.script("next.sh", "#!/bin/sh\n#SBATCH -t 5\ntouch done-$1\n")
    ran = cluster.run(
        "essubmit", "--json", first, ":", "--delay=3600", next_one, "1", ":", "--delay=3602", next_one, "2"
    )
    assert ran.code == 0, ran.err
    jobs = json.loads(ran.out)["job_ids"]
    assert [cluster.end(job_id) for job_id in jobs] == ["COMPLETED"] * 3
    dry, moved = (json.loads("\n".join(cluster.lines(name))) for name in ("dry.json", "moved.json"))
    assert (dry["earlier_us"], moved["earlier_us"]) == (3000 * SECOND_US, 3594 * SECOND_US)
    assert [one["job_id"] for one in moved["starts"]] == jobs[1:]
    assert [one["before_us"] for one in dry["starts"]] == [one["before_us"] for one in moved["starts"]]
    assert "starts are only moved to earlier times" in "\n".join(cluster.lines("refused"))
    for index, delay_s in ((1, 6), (2, 8)):
        info = cluster.job(jobs[index])
        assert info.delay_s == delay_s
        due_us = info.pack_start_us + delay_s * SECOND_US
        assert moved["starts"][index - 1]["after_us"] == due_us
        assert due_us <= info.started_us <= due_us + LATE_US, "never before its time"


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
