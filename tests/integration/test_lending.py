"""Cores of a running job are used by another one: real processes, the protocol, the return, and crashes in between."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster

ROOT = Path(__file__).resolve().parents[2]

OWNER = """
import json, os, sys, time
from eslurm import job

os.chdir({work!r})
said = open("owner.log", "a", buffering=1)

def tell(**words):
    found = job.report(**words)
    print(json.dumps([time.time(), words, found.excluded, found.asked]), file=said)
    return found

def until(name):
    while not os.path.exists(name):
        time.sleep(0.02)

until("lend")
tell(idle=2, remaining_s=100)
until("back")
print(json.dumps([time.time(), "wants", 0, 0]), file=said)
found = tell(idle=0, wait_s=60)
assert found.excluded == 0, found
open("owner.back", "w").write(str(time.time()))
until("over")
"""


@pytest.fixture
def cluster() -> Iterator[LiveCluster]:
    with running(nodes=1, agents=1, satellites=1, policy={"kill_grace_s": 2.0}) as cluster:
        yield cluster


def own(cluster: LiveCluster, *words: str) -> int:
    """A job of all four cores whose application lends two of them when it is told to."""
    (cluster.work / "owner.py").write_text(OWNER.format(work=str(cluster.work)))
    command = f"PYTHONPATH={ROOT} {sys.executable} owner.py"
    job_id = cluster.wrap(command, "-o", "owner.out", "-c", "4", "-t", "10", *words)
    cluster.reaches(job_id, "RUNNING")
    return job_id


def info_of(cluster: LiveCluster, job_id: int) -> dict[str, object]:
    ran = cluster.run("esqueue", "--json", "-j", str(job_id), "-t", "all")
    (found,) = json.loads(ran.out)["jobs"]
    assert isinstance(found, dict)
    return found


def test_idle_cores_are_lent_and_come_back(cluster: LiveCluster) -> None:
    owner = own(cluster, "--cooperate=full")
    command = "trap 'touch warned; exit 0' TERM; date +%s.%N > began; while :; do sleep 0.05; done"
    borrower = cluster.user_job(command, "-c", "2", "-t", "5", "--borrow=end,5")
    plain = cluster.user_job("true", "-c", "2", "-t", "5")
    cluster.reaches(borrower, "PENDING")
    assert (
        "it accepts lent cores (--borrow=end,5): running jobs report 0 idle ones"
        in cluster.run("eswhy", str(borrower)).out
    )
    (cluster.work / "lend").touch()
    cluster.until(lambda: (cluster.work / "began").exists(), "the borrower has begun")
    assert cluster.job(plain).state == "PENDING", "it does not accept borrowed cores"
    lender, lent = cluster.job(owner), cluster.job(borrower)
    assert (lender.cores.idle, lender.cores.excluded, lender.cores.lent) == (2, 2, 2)
    assert (lender.cpus, lender.cores.remaining_s) == (4, 100)
    assert [(loan.owner, loan.node, loan.cores) for loan in lent.loans] == [(owner, "cn0001", 2)]
    assert info_of(cluster, owner)["cores"]["lent"] == 2  # type: ignore[index]
    assert f"borrowed from {owner}" in cluster.run("eswhy", str(borrower)).out
    (cluster.work / "back").touch()
    cluster.until(lambda: (cluster.work / "owner.back").exists(), "the owner has its cores back")
    assert (cluster.work / "warned").exists(), "the borrower was warned first"
    cluster.reaches(borrower, "PREEMPTED")
    assert cluster.job(owner).cores.lent == 0
    (cluster.work / "over").touch()
    assert cluster.end(owner) == "COMPLETED", cluster.lines("owner.out")
    assert cluster.end(plain) == "COMPLETED"
    assert cluster.only_run(owner).cpus == 4


def test_a_loan_survives_the_deaths_of_agent_and_controller(cluster: LiveCluster) -> None:
    owner = own(cluster, "--cooperate=report")
    borrower = cluster.user_job(
        "touch began; while test ! -e enough; do sleep 0.05; done", "-c", "2", "--borrow=requeue,5"
    )
    (cluster.work / "lend").touch()
    cluster.until(lambda: (cluster.work / "began").exists(), "the borrower has begun")
    # Its script has: the controller may not have heard of it yet.
    cluster.reaches(borrower, "RUNNING")
    for name in ("agent0", "esctld"):
        cluster.kill(name)
        cluster.launch(name)
    assert cluster.job(borrower).state == "RUNNING"
    assert cluster.job(owner).cores.lent == 2
    (cluster.work / "back").touch()
    cluster.until(lambda: (cluster.work / "owner.back").exists(), "the owner has its cores back")
    cluster.until(lambda: cluster.job(borrower).state == "PENDING", "the borrower waits again")
    (cluster.work / "enough").touch()
    (cluster.work / "over").touch()
    assert cluster.end(owner) == "COMPLETED", cluster.lines("owner.out")
    assert cluster.end(borrower) == "COMPLETED"


def test_a_client_in_c(cluster: LiveCluster) -> None:
    cc = shutil.which("cc")
    if cc is None:
        pytest.skip("NOT VERIFIED: no C compiler")
    program, here = cluster.work / "lender", ROOT / "examples" / "job"
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{here}"]
    subprocess.run([cc, *flags, "-o", str(program), str(here / "lender.c")], check=True)
    owner = cluster.user_job(f"{program} 2 5; echo code $?", "-o", "said", "-c", "4", "--cooperate=full")
    borrower = cluster.user_job("touch ran", "-c", "2", "--borrow=requeue")
    assert cluster.end(borrower) == "COMPLETED"
    assert cluster.end(owner) == "COMPLETED"
    said = cluster.lines("said")
    assert said[0] == "level full, 4 cores, 0 excluded" and said[-2:] == ["0 excluded", "code 0"], said


LOOP = """
import os, sys, time
from eslurm import loops

def work(index):
    while index == 0 and not os.path.exists({flag!r}):
        time.sleep(0.02)
    return index

if __name__ == "__main__":
    print(sum(loops.run(work, 40, technique="SS", workers=4, launch="local").results))
"""


def test_a_loop_lends_the_cores_that_get_no_more_work(cluster: LiveCluster) -> None:
    flag = cluster.work / "ran"
    (cluster.work / "loop.py").write_text(LOOP.format(flag=str(flag)))
    command = f"PYTHONPATH={ROOT} {sys.executable} loop.py"
    owner = cluster.wrap(command, "-o", "said", "-c", "4", "-t", "10", "--cooperate=report")
    borrower = cluster.submit("-c", "2", "--borrow=requeue", "--wrap", f"touch {flag}")
    assert cluster.end(borrower) == "COMPLETED"
    assert cluster.end(owner) == "COMPLETED"
    assert cluster.lines("said") == [str(sum(range(40)))]
