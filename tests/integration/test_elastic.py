"""A running job grows and shrinks in place, through all tiers, and through a controller that is killed in between."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.integration.conftest import running
from tests.integration.test_steps import door
from tests.kits.cluster import LiveCluster, is_alive

WAIT = "wait() { until test -e $1; do sleep 0.05; done; }; "
"""In a script: goes on when the test has made this file."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with running(nodes=8, agents=4, policy={"kill_grace_s": 2.0}) as made:
        yield made


@pytest.fixture(autouse=True)
def _clear(cluster: LiveCluster) -> Iterator[None]:
    cluster.empty_work()
    yield
    cluster.clear()
    cluster.hang_up()


def touch(cluster: LiveCluster, name: str) -> None:
    (cluster.work / name).touch()


def resize(cluster: LiveCluster, job_id: int, word: str) -> dict[str, object]:
    ran = cluster.run("esctl", "--json", "update", "job", str(job_id), word)
    assert ran.code == 0, ran
    found: dict[str, object] = json.loads(ran.out)
    return found


def idle(cluster: LiveCluster) -> set[str]:
    return {name for name, node in cluster.nodes().items() if not node.jobs}


def test_steps_get_the_nodes_of_the_moment(cluster: LiveCluster) -> None:
    """Goal: grown and shrunk while the script runs; each step sees, and runs on, what the job has then."""
    step = "esrun sh -c 'echo $SLURMD_NODENAME in $SLURM_JOB_NUM_NODES: $SLURM_JOB_NODELIST'"
    text = f"{WAIT}{door(cluster)}{step} > first; wait grown; {step} > second; wait shrunk; {step} > third"
    job_id = cluster.wrap(text, "-N", "2", "-w", "cn[0001-0002]", "-t", "10")
    assert cluster.wait_lines("first", 2)
    grown = resize(cluster, job_id, "nodes=+2")
    assert grown["state"] == "COMPLETED" and grown["reason"] == f"job {job_id} got cn[0003-0004]"
    assert cluster.job(job_id).node_names == "cn[0001-0004]"
    touch(cluster, "grown")
    assert sorted(cluster.wait_lines("second", 4)) == [
        f"cn000{at} in 4: cn[0001-0004]" for at in (1, 2, 3, 4)
    ]
    shrunk = resize(cluster, job_id, "nodes=1")
    assert shrunk["leaving"] == "cn[0002-0004]"
    cluster.until(lambda: len(idle(cluster)) == 7, "the nodes are free while the job runs")
    assert cluster.job(job_id).state == "RUNNING"
    touch(cluster, "shrunk")
    assert cluster.end(job_id) == "COMPLETED"
    assert cluster.lines("third") == ["cn0001 in 1: cn0001"]
    run = cluster.only_run(job_id)
    assert (run.node_names, run.nodes, run.cpus) == ("cn[0001-0004]", 4, 4)
    assert [one.nodes for one in run.segments][:2] == [2, 4] and run.segments[-1].node_names == "cn0001"
    assert run.segments[0].from_us == run.started_us and run.segments[-1].until_us == run.ended_us
    ran = cluster.run("esacct", "-h", "-P", "-j", str(job_id), "-o", "cputimeraw")
    assert ran.code == 0 and ran.out, ran
    core_s = int(ran.out)
    assert core_s == sum(one.cpus * (one.until_us - one.from_us) for one in run.segments) // 1_000_000


def test_tasks_on_a_node_that_leaves_get_the_signal_then_the_grace(cluster: LiveCluster) -> None:
    """Goal: the node is for others only when the last process of the job there has ended."""
    task = (
        'trap "echo term $SLURMD_NODENAME >> said" TERM; echo $SLURMD_NODENAME $$ >> pids; '
        "while :; do sleep 0.1; done"
    )
    text = f"{WAIT}{door(cluster)}esrun sh -c '{task}'; wait done"
    job_id = cluster.wrap(text.replace("esrun", "esrun -N 2"), "-N", "2", "-w", "cn[0001-0002]", "-t", "10")
    pids = dict(line.split() for line in cluster.wait_lines("pids", 2))
    shrunk = resize(cluster, job_id, "nodelist=-cn0002")
    assert (shrunk["leaving"], shrunk["steps"]) == ("cn0002", [0])
    assert cluster.wait_lines("said") == ["term cn0002"]
    cluster.until(lambda: "cn0002" in idle(cluster), "the node is free")
    assert not is_alive(pids["cn0002"]) and is_alive(pids["cn0001"])
    assert cluster.job(job_id).node_names == "cn0001"


def test_a_growth_waits_with_a_promise_and_is_explained(cluster: LiveCluster) -> None:
    first = cluster.wrap("sleep 600", "-N", "6", "--exclusive", "-t", "5")
    job_id = cluster.wrap("sleep 600", "-N", "1", "-t", "20")
    cluster.reaches(job_id, "RUNNING")
    cluster.reaches(first, "RUNNING")
    asked = resize(cluster, job_id, "nodes=+3")
    growth = int(str(asked["growth_id"]))
    assert asked["state"] == "PENDING" and int(str(asked["planned_start_us"])) > 0, asked
    why = cluster.run("eswhy", str(job_id))
    assert why.code == 0 and f"grow-{job_id}" in why.out, why
    assert f"eswhy {growth}" in cluster.job(job_id).reason_text
    withdrawn = resize(cluster, job_id, "nodes=1")
    assert withdrawn["withdrawn"] == growth
    assert cluster.job(growth).state == "CANCELLED" and not cluster.job(job_id).reason_text
    again = resize(cluster, job_id, "nodes=3")
    cluster.do("escancel", str(first))
    cluster.until(lambda: cluster.job(int(str(again["growth_id"]))).state == "COMPLETED", "nodes have joined")
    assert cluster.job(job_id).nodes == 3


def test_controllers_killed_in_mid_growth_add_each_node_once(cluster: LiveCluster) -> None:
    """Goal: killed at drawn moments of four growths and two shrinks, the job has what was asked for, and no node twice."""
    text = f"{WAIT}{door(cluster)}wait grown; esrun sh -c 'echo $SLURMD_NODENAME' > said"
    job_id = cluster.wrap(text, "-N", "1", "-t", "10")
    cluster.reaches(job_id, "RUNNING")
    for number, count in enumerate((2, 3, 2, 4, 1, 3)):
        words = ["--socket", str(cluster.socket), "update", "job", str(job_id), f"nodes={count}"]
        program = "import sys; from escli.admin.esctl import main; sys.exit(main())"
        asking = subprocess.Popen([sys.executable, "-c", program, *words], stdout=subprocess.DEVNULL)
        # Not to synchronise: the moments of the kills differ.
        time.sleep(0.25 + 0.03 * number)
        cluster.kill("esctld")
        cluster.launch("esctld")
        assert asking.wait(60) == 0
        cluster.until(lambda count=count: cluster.job(job_id).nodes == count, f"the job has {count} nodes")
    touch(cluster, "grown")
    assert cluster.end(job_id) == "COMPLETED"
    said = cluster.lines("said")
    assert len(said) == len(set(said)) == 3
    cluster.until(lambda: len(idle(cluster)) == 8, "no node is left held")
    assert cluster.only_run(job_id).state == "COMPLETED"
