"""Changes of running jobs through all tiers: suspended and resumed, given more time, warned of their end."""

from __future__ import annotations

import os
import time

from tests.kits.cluster import LiveCluster
from tests.kits.daemons import PATIENCE_S

TICKS = "while :; do echo x >> ticks; sleep 0.05; done"
STILL_S = 0.5


def door(cluster: LiveCluster) -> str:
    """The prefix of root's commands: root's calls do not pass through nodes."""
    return f"export ESLURM_SOCKET={cluster.socket}; " if os.getuid() == 0 else ""


def stands_still(cluster: LiveCluster) -> bool:
    """Check that the job writes nothing for a while."""
    before = len(cluster.lines("ticks"))
    time.sleep(STILL_S)
    return len(cluster.lines("ticks")) == before


def ticking(cluster: LiveCluster, job_id: int, count: int = 1) -> None:
    """Wait until the job has ticked, and the controller knows it: a script may be ahead of the report of its start."""
    cluster.wait_lines("ticks", count)
    cluster.reaches(job_id, "RUNNING")


def test_a_suspended_job_stands_still_and_uses_none_of_its_time(cluster: LiveCluster) -> None:
    job_id = cluster.wrap(TICKS, "-t", "60")
    ticking(cluster, job_id, 3)
    cluster.do("esctl", "suspend", str(job_id))
    assert cluster.run("esqueue", "-h", "-o", "%i %t").out.split() == [str(job_id), "S"]
    cluster.until(lambda: True if stands_still(cluster) else None, "the job stands still")
    # It has not used all of this, and it will be over before the job goes on.
    limit_s = int(time.time() - cluster.job(job_id).started_us / 1e6) + 2
    cluster.do("esctl", "update", "job", str(job_id), f"time={limit_s // 60}:{limit_s % 60:02}")
    time.sleep(4.0)
    assert cluster.job(job_id).state == "SUSPENDED", "its limit has not passed"
    cluster.do("esctl", "resume", str(job_id))
    run = cluster.only_run(job_id)
    assert run.state == "TIMEOUT"
    assert run.ended_us - run.started_us >= (limit_s + 4) * 1_000_000


def test_all_steps_of_a_suspended_job_stand_still(cluster: LiveCluster) -> None:
    job_id = cluster.wrap(f"{door(cluster)}esrun sh -c '{TICKS}'", "-N", "2", "-n", "2")
    ticking(cluster, job_id, 6)
    cluster.do("esctl", "suspend", str(job_id))
    cluster.until(lambda: True if stands_still(cluster) else None, "both tasks stand still")
    cluster.do("esctl", "resume", str(job_id))
    cluster.wait_lines("ticks", len(cluster.lines("ticks")) + 6)
    cluster.do("escancel", str(job_id))
    assert cluster.end(job_id) == "CANCELLED"


def test_a_suspended_job_is_cancelled_like_any_other(cluster: LiveCluster) -> None:
    job_id = cluster.wrap(f"trap 'echo term >> said; exit 0' TERM; {TICKS}")
    ticking(cluster, job_id)
    cluster.do("esctl", "suspend", str(job_id))
    cluster.do("escancel", str(job_id))
    assert cluster.end(job_id) == "CANCELLED"
    assert cluster.lines("said") == ["term"], "it was woken to hear it"


def test_a_running_job_is_given_more_time(cluster: LiveCluster) -> None:
    # The first limit has to be far enough off to be changed in time.
    job_id = cluster.wrap(TICKS, "-t", "0:10")
    ticking(cluster, job_id)
    cluster.do("esctl", "update", "job", str(job_id), "time=0:12")
    assert cluster.job(job_id).time_limit_s == 12
    run = cluster.only_run(job_id)
    assert run.state == "TIMEOUT"
    assert 12_000_000 <= run.ended_us - run.started_us < 12_000_000 + PATIENCE_S * 1_000_000


def test_a_running_job_is_cut_short(cluster: LiveCluster) -> None:
    job_id = cluster.wrap(TICKS, "-t", "60")
    ticking(cluster, job_id)
    cluster.do("esctl", "update", "job", str(job_id), "time=0:02")
    assert cluster.only_run(job_id).state == "TIMEOUT"


def test_a_batch_shell_is_warned(cluster: LiveCluster) -> None:
    command = f"trap 'echo warned >> said; exit 6' USR1; {TICKS}"
    # Late enough for a shell that is slow to set its trap.
    run = cluster.only_run(cluster.wrap(command, "-t", "1", "--signal", "B:USR1@54"))
    assert (run.state, run.exit_code) == ("FAILED", 6)
    assert cluster.lines("said") == ["warned"]
    assert run.ended_us - run.started_us >= 5_900_000


def test_a_script_warns_instead(cluster: LiveCluster) -> None:
    beside = cluster.script("beside.sh", "echo $ESLURM_SECONDS_LEFT $SLURM_JOB_ID")
    os.chmod(beside, 0o755)
    command = "until test -s err.txt; do sleep 0.02; done"
    job_id = cluster.wrap(command, "-t", "0:30", "-e", "err.txt", "--warn-script", beside)
    assert cluster.end(job_id) == "COMPLETED"
    ((left, said),) = (line.split() for line in cluster.lines("err.txt"))
    assert 10 <= int(left) <= 30 and int(said) == job_id
