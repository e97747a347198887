"""Programs of a job change their own job through the socket of their node's agent: a client in plain C, as a user."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kits.cluster import LiveCluster

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("-t", "10", "-o", "said", "-N", "1", "-w", "cn0001", ":", "-N", "2", "-w", "cn[0002-0003]")


@pytest.fixture
def ask(cluster: LiveCluster) -> str:
    """The client of examples/, compiled as its first lines say."""
    cc = shutil.which("cc")
    if cc is None:
        pytest.skip("NOT VERIFIED: no C compiler")
    program = cluster.work / "ask"
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([cc, *flags, "-o", str(program), str(ROOT / "examples" / "job" / "ask.c")], check=True)
    return str(program)


def test_a_running_job_gives_a_part_back_and_gets_more_time(cluster: LiveCluster, ask: str) -> None:
    command = (
        f"{ask} hello; {ask} finish-part part=1 dry-run; {ask} finish-part part=1; {ask} finish-part part=1; "
        f"{ask} extend by=60; {ask} show; echo code $?; touch done; while test ! -e go; do sleep 0.05; done"
    )
    job_id = cluster.user_job(command, *PARTS)
    cluster.until(lambda: (cluster.work / "done").exists(), "the job has asked")
    said = cluster.lines("said")
    text = "\n".join(said)
    given = f"job={job_id}\npart=1\nbefore-nodes=3\nbefore-node-names=cn[0001-0003]\nbefore-cpus=3\n"
    assert said[:3] == ["protocol=1", f"jobs={job_id}", "ok"]
    assert text.count(given) == 2 and text.count("leaving=cn[0002-0003]") == 2
    assert f"error CONFLICT part 1 of job {job_id} was given back already" in said
    assert f"job={job_id}\nbefore-s=600\nafter-s=660\n" in text and "decided=yes" in said
    assert said[-1] == "code 0" and "part-1-nodes=0" in said and "time-limit-s=660" in said

    def is_free() -> bool:
        nodes = cluster.run("esinfo", "-h", "-N", "-n", "cn[0002-0003]", "-t", "idle").out
        return "cn0002" in nodes and "cn0003" in nodes

    cluster.until(is_free, "the part's nodes are free while the job runs")
    assert cluster.job(job_id).state == "RUNNING"
    (cluster.work / "go").touch()
    run = cluster.only_run(job_id)
    assert run.state == "COMPLETED" and [bool(part.ended_us) for part in run.parts] == [False, True]


def test_a_running_job_grows_and_shrinks_from_inside(cluster: LiveCluster, ask: str) -> None:
    """Goal: as an ordinary user, with the right of its job alone."""
    command = f"{ask} grow by=2; {ask} show > grown; {ask} shrink nodes=cn0002; {ask} show > shrunk; {ask} grow by=99; true"
    job_id = cluster.user_job(command, "-t", "10", "-o", "said", "-N", "1", "-w", "cn0001")
    assert cluster.end(job_id) == "COMPLETED"
    said = cluster.lines("said")
    assert f"text=job {job_id} got cn[0002-0003]" in said and "growth-state=COMPLETED" in said
    assert "leaving=cn0002" in said and "after-node-names=cn[0001,0003]" in said
    assert said[-1].startswith(f"error INVALID nodes: job {job_id} cannot get 99 more")
    assert {"nodes=3", "node-names=cn[0001-0003]"} <= set(cluster.lines("grown"))
    assert {"nodes=2", "node-names=cn[0001,0003]"} <= set(cluster.lines("shrunk"))


def test_another_job_of_the_user_waits_for_something_else(cluster: LiveCluster, ask: str) -> None:
    """Goal: the dependency is settled at once, and the other job begins while this one runs."""
    first = cluster.user_job("while test ! -e go; do sleep 0.05; done", "-N", "1")
    other = cluster.user_job("touch began", "-N", "1", "-d", f"afterok:{first}")
    command = f"{ask} set-dependency job={other} on=; while test ! -e began; do sleep 0.05; done"
    asking = cluster.user_job(command, "-o", "said", "-N", "1")
    assert cluster.end(asking) == "COMPLETED"
    assert cluster.lines("said") == [
        f"job={other}",
        f"before=afterok:{first}(unfulfilled)",
        "after=",
        "ok",
    ]
    (cluster.work / "go").touch()
    assert cluster.end(first) == "COMPLETED" and cluster.end(other) == "COMPLETED"


def test_a_pack_moves_its_other_jobs_forward(cluster: LiveCluster, ask: str) -> None:
    """Goal: the second job is planned in an hour, and begins while the first one still runs."""
    asks = f"exec > moved; {ask} move-starts earlier=60; {ask} move-starts asap; while test ! -e began; do sleep 0.05; done"
    first, second = cluster.script("first.sh", asks), cluster.script("second.sh", "touch began")
    words = ("-N1", "-t", "10", first, ":", "--delay=1:00:00", "-N1", "-t", "10", second)
    ran = cluster.run_as_user("essubmit", "--parsable", "-D", str(cluster.work), *words)
    assert ran.code == 0, ran
    job_id = int(ran.out)
    assert cluster.end(job_id) == "COMPLETED", cluster.lines("moved")
    said = cluster.lines("moved")
    assert said[:3] == [f"pack={job_id}", "earlier-us=60000000", f"jobs={job_id + 1}"]
    assert said.count("decided=yes") == 2 and said.count("ok") == 2
    assert cluster.end(job_id + 1) == "COMPLETED"
