"""Nodes that do not come back: unreachable is not lost, lost is, and what ran there runs once more elsewhere.

Method: a cluster with short patience; the script says which run it is, and whether the run before it is still alive.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from eslurm.v1 import controller_pb2 as pb
from tests.integration.conftest import running
from tests.kits.cluster import LiveCluster, is_alive
from tests.kits.daemons import agent_home

LOST_AFTER_S = 5.0
PATIENCE = {
    "node_lost_after_s": LOST_AFTER_S,
    # Above what a machine may stand still for: nobody is to be an orphan whose agent lives.
    "orphan_timeout_s": 4.0,
    "kill_grace_s": 0.2,
}
COMMAND = (
    "run=${SLURM_RESTART_COUNT:-0}; echo $run >> ran; "
    "if test $run -gt 0; then kill -0 $(cat pid) 2>&- && echo both >> ran; exit 0; fi; "
    "echo $$ > pid; while :; do sleep 0.05; done"
)


@pytest.fixture(scope="module")
def impatient() -> Iterator[LiveCluster]:
    with running(nodes=4, satellites=1, policy=PATIENCE) as cluster:
        yield cluster


@pytest.fixture
def losing(impatient: LiveCluster) -> Iterator[LiveCluster]:
    """The module's cluster, whole at the start of each test; its agents are killed."""
    impatient.empty_work()
    impatient.start()
    yield impatient
    impatient.start()
    impatient.clear()
    impatient.hang_up()


def test_the_jobs_of_a_lost_node_run_once_more_elsewhere(losing: LiveCluster) -> None:
    job_id = losing.wrap(COMMAND, "-w", "cn0001", "--requeue")
    either = losing.wrap(
        COMMAND.replace("ran", "ran2").replace("pid", "pid2"), "-x", "cn[0002-0003]", "-c", "3"
    )
    losing.wait_lines("pid")
    losing.wait_lines("pid2")
    # The scripts may be ahead of the reports of their starts.
    losing.reaches(job_id, "RUNNING")
    losing.reaches(either, "RUNNING")
    killed_us = time.time_ns() // 1000
    losing.kill("agent0")
    losing.wait_nodes(lambda nodes: nodes["cn0001"].state == "LOST")
    assert losing.end(either) == "COMPLETED"
    assert losing.lines("ran2") == ["0", "1"]
    first, second = losing.runs(either)
    assert [(run.attempt, run.node_names) for run in (first, second)] == [(1, "cn0001"), (2, "cn0004")]
    assert first.ended_us >= killed_us + LOST_AFTER_S * 1e6, "unreachable is not lost: jobs are kept as long"
    assert losing.job(job_id).state == "PENDING"
    losing.launch("agent0")
    assert losing.end(job_id) == "COMPLETED"
    assert losing.lines("ran") == ["0", "1"]


@pytest.mark.parametrize("forgets", [False, True])
def test_a_job_that_may_not_run_twice_fails_with_its_node_and_is_ended_there(
    losing: LiveCluster, forgets: bool
) -> None:
    job_id = losing.wrap(COMMAND, "-w", "cn0002", "--no-requeue")
    pid = losing.wait_lines("pid")[0]
    losing.kill("agent0")
    run = losing.only_run(job_id)
    assert (run.state, losing.lines("ran")) == ("NODE_FAIL", ["0"])
    assert "cn0002" in run.exit_text
    # It may still run there, for nobody could tell the node: the node is told as soon as it is back.
    if forgets:
        # The supervisor knows it all the same.
        (agent_home(losing.agent_dir("agent0")) / "agent.spool").unlink()
    losing.launch("agent0")
    losing.until(lambda: not is_alive(pid), "the job's process is gone")


def test_an_operator_may_declare_a_silent_node_lost(losing: LiveCluster) -> None:
    job_id = losing.wrap(COMMAND, "-x", "cn[0002-0003]", "-c", "3", "--requeue")
    losing.wait_lines("pid")
    losing.kill("agent0")
    losing.do("esctl", "down", "cn0001")
    assert losing.nodes()["cn0001"].state == "LOST"
    assert losing.end(job_id) == "COMPLETED"
    assert losing.runs(job_id)[-1].node_names == "cn0004"


def test_a_many_node_job_loses_one_of_its_nodes(losing: LiveCluster) -> None:
    command = COMMAND.replace("while :", "test $run -gt 0 || while :")
    job_id = losing.wrap(command, "-N", "2", "-w", "cn[0002-0003]", "--requeue")
    losing.wait_lines("pid")
    losing.kill("agent1")
    losing.wait_nodes(lambda nodes: nodes["cn0003"].state == "LOST")
    losing.until(lambda: losing.job(job_id).state == "PENDING", "the job waits again")
    losing.launch("agent1")
    assert losing.end(job_id) == "COMPLETED"
    assert losing.lines("ran") == ["0", "1"]


def step_state(cluster: LiveCluster, job_id: int) -> str:
    """The state of the job's first step."""
    return str(cluster.call("WaitStep", pb.WaitStepRequest(job_id=job_id, step=0, timeout_s=5)).state)


def test_a_job_goes_on_without_a_lost_node(losing: LiveCluster) -> None:
    """Goal: with --no-kill script and tasks on other nodes live on; a node that returns ends what it still has."""
    task = "sh -c 'echo $$ > pid.$SLURMD_NODENAME; while test ! -e stop; do sleep 0.05; done'"
    # Calls of root do not pass through nodes.
    command = (
        f"export ESLURM_SOCKET={losing.socket}; esrun {task}; echo $? > code; esrun -N1 -n1 hostname > after"
    )
    job_id = losing.wrap(command, "-N", "2", "-n", "2", "-w", "cn[0002-0003]", "--no-kill")
    here, there = (losing.wait_lines(f"pid.{name}")[0] for name in ("cn0002", "cn0003"))
    losing.reaches(job_id, "RUNNING")
    # The tasks may be ahead of the answers to their launch: a step that waits for a lost node's answer fails as a whole.
    losing.until(
        lambda: step_state(losing, job_id) == "RUNNING", "the step's launch is answered by both nodes"
    )
    losing.kill("agent1")
    losing.wait_nodes(lambda nodes: nodes["cn0003"].state == "LOST")
    job = losing.job(job_id)
    assert (job.state, job.nodes, job.node_names) == ("RUNNING", 1, "cn0002")
    assert "does not wait: it is RUNNING, without cn0003, lost since" in losing.run("eswhy", str(job_id)).out
    losing.launch("agent1")
    losing.until(lambda: not is_alive(there), "the task on the lost node is gone")
    assert is_alive(here) and losing.job(job_id).state == "RUNNING"
    (losing.work / "stop").touch()
    assert losing.end(job_id) == "COMPLETED"
    assert losing.lines("code") != ["0"], "the step has lost a task"
    assert len(losing.lines("after")) == 1
    assert len(losing.runs(job_id)) == 1
