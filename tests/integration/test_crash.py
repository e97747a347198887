"""Daemons killed with SIGKILL or stopped at bad moments: nothing acknowledged is lost, nothing runs twice.

Method: one cluster per module whose daemons are killed and started again; every run of a script appends a line, so
that a run that should not have been is seen; accounting has to agree with these lines.
"""

from __future__ import annotations

import random
import signal
import threading
import time

import pytest

from eslurm.api.methods import SUBMIT
from eslurm.api.unix_client import Client
from eslurm.v1 import controller_pb2 as pb
from tests.kits.cluster import CLUSTER, LiveCluster, is_alive
from tests.kits.daemons import PATIENCE_S, agent_home
from tests.kits.stepd import end_process
from tests.support.seeds import Seeds
from tests.support.trust import Site

MARK = "echo $SLURM_JOB_ID.$SLURM_RESTART_COUNT >> ran; "
GATE = "until test -e gate; do sleep 0.1; done"
CLOCK_US = 1_000_000
"""By how much the moments that different processes tell may differ."""


def open_gate(cluster: LiveCluster) -> None:
    (cluster.work / "gate").touch()


def ran_once(cluster: LiveCluster, *jobs: int) -> None:
    """Every job has completed, with one attempt in accounting and one run of its script."""
    assert cluster.ended(*jobs) == ["COMPLETED"] * len(jobs)
    marks = [line.partition(".")[0] for line in cluster.lines("ran")]
    assert sorted(marks) == sorted(map(str, jobs))
    assert [len(cluster.runs(job_id)) for job_id in jobs] == [1] * len(jobs)


# ---- the controller ----


class Submitters:
    """Clients that submit small jobs without a pause, each call tried again until it is answered."""

    def __init__(self, cluster: LiveCluster, count: int) -> None:
        self.accepted: list[tuple[str, int]] = []
        self._cluster = cluster
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._submit, args=(at,)) for at in range(count)]

    def __enter__(self) -> Submitters:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def wait_for(self, more: int) -> None:
        """Wait until this many more have been acknowledged."""
        wanted = len(self.accepted) + more
        self._cluster.until(lambda: len(self.accepted) >= wanted, "submissions go on")

    def _submit(self, at: int) -> None:
        with Client(self._cluster.socket, PATIENCE_S) as client:
            number = 0
            while not self._done.is_set():
                number += 1
                name = f"s{at}.{number}"
                job = pb.JobRequest(
                    name=name,
                    script=f"#!/bin/sh\necho {name} >> ran\n".encode(),
                    work_dir=str(self._cluster.work),
                    output="/dev/null",
                    components=[pb.ResourceRequest(tasks=1, cpus_per_task=1)],
                )
                reply = client.call(SUBMIT, pb.SubmitRequest(jobs=[job]), PATIENCE_S)
                self.accepted.append((name, reply.job_ids[0]))


def test_submissions_survive_a_controller_that_is_killed_again_and_again(
    broken: LiveCluster, seeds: Seeds
) -> None:
    for seed in seeds(1):
        draw = random.Random(seed)
        with Submitters(broken, 4) as clients:
            for _ in range(4):
                clients.wait_for(draw.randrange(1, 60))
                broken.kill("esctld")
                broken.launch("esctld")
            clients.wait_for(10)
        jobs = dict(clients.accepted)
        assert len(set(jobs.values())) == len(clients.accepted)
        assert set(broken.ended(*jobs.values())) == {"COMPLETED"}
        assert sorted(broken.lines("ran")) == sorted(jobs)
        accounted = broken.call("Accounting", pb.AccountingRequest(limit=10_000)).attempts
        ours = [(run.name, run.job_id) for run in accounted if run.name in jobs]
        assert sorted(ours) == sorted(clients.accepted)


def test_running_jobs_are_adopted_by_the_next_controller(broken: LiveCluster) -> None:
    small = [broken.wrap(f"{MARK}{GATE}") for _ in range(3)]
    large = broken.wrap(f"{MARK}{GATE}", "-N", "10")
    waiting = broken.wrap(MARK, "-d", f"afterok:{large}")
    broken.wait_lines("ran", 4)
    broken.kill("esctld")
    broken.launch("esctld")
    broken.wait_nodes(lambda nodes: all(node.state == "UP" for node in nodes.values()))
    for job_id in (*small, large):
        # The one that was killed may not have heard that they run.
        broken.reaches(job_id, "RUNNING")
    open_gate(broken)
    ran_once(broken, *small, large, waiting)


def test_what_ends_while_no_controller_is_there_is_accounted_once(broken: LiveCluster) -> None:
    jobs = [broken.wrap(f"{MARK}{GATE}; echo >> out") for _ in range(8)]
    broken.wait_lines("ran", 8)
    broken.kill("esctld")
    open_gate(broken)
    broken.wait_lines("out", 8)
    broken.launch("esctld")
    ran_once(broken, *jobs)


def test_a_time_limit_is_kept_while_no_controller_is_there(broken: LiveCluster) -> None:
    command = f"trap 'echo term >> said' TERM; {MARK}echo $$ > pid; while :; do sleep 0.05; done"
    job_id = broken.wrap(command, "-t", "0:02")
    (pid,) = broken.wait_lines("pid")
    broken.kill("esctld")
    broken.until(lambda: not is_alive(pid), "the limit is kept")
    ended_us = time.time_ns() // 1000
    assert broken.lines("said") == ["term"]
    broken.launch("esctld")
    run = broken.only_run(job_id)
    assert run.state == "TIMEOUT"
    assert run.started_us + 2_000_000 <= run.ended_us <= ended_us + CLOCK_US


def test_a_cancellation_that_was_acknowledged_outlives_the_controller(broken: LiveCluster) -> None:
    job_id = broken.wrap(f"{MARK}{GATE}", "-N", "4")
    broken.wait_lines("ran")
    broken.do("escancel", str(job_id))
    broken.kill("esctld")
    broken.launch("esctld")
    assert broken.only_run(job_id).state == "CANCELLED"


def test_a_stopped_controller_leaves_and_comes_back_in_good_order(broken: LiveCluster) -> None:
    jobs = [broken.wrap(f"{MARK}{GATE}") for _ in range(3)]
    broken.wait_lines("ran", 3)
    broken.terminate("esctld")
    broken.launch("esctld")
    open_gate(broken)
    ran_once(broken, *jobs)


def test_a_command_at_an_agents_door_waits_for_the_next_controller(broken: LiveCluster) -> None:
    job_id = broken.user_job(f"echo > up; {GATE}", "-w", "cn0001")
    broken.wait_lines("up")
    broken.kill("esctld")
    starting = threading.Thread(target=broken.launch, args=["esctld"])
    starting.start()
    try:
        ran = broken.run_as_user("esqueue", "-h", "-o", "%i", socket=broken.agent_dir("agent0") / "door.sock")
    finally:
        starting.join()
    assert ran.out.split() == [str(job_id)], ran
    open_gate(broken)
    assert broken.end(job_id) == "COMPLETED"


# ---- satellites ----


def test_a_satellite_killed_during_a_launch_is_not_noticed(broken: LiveCluster) -> None:
    jobs = [broken.wrap(MARK, "-N", "16", "--exclusive") for _ in range(6)]
    broken.wait_lines("ran", 2)
    broken.kill("sat0")
    jobs += [broken.wrap(MARK, "-N", "16", "--exclusive") for _ in range(2)]
    ran_all(broken, jobs)


def test_a_satellite_killed_during_completions_is_not_noticed(broken: LiveCluster) -> None:
    array = broken.wrap("echo $SLURM_ARRAY_TASK_ID >> ran; sleep 0.02", "--array", "0-199", "-o", "/dev/null")
    broken.wait_lines("ran", 40)
    broken.kill("sat1")
    assert broken.end(array) == "COMPLETED"
    assert sorted(map(int, broken.lines("ran"))) == list(range(200))
    assert [run.array_task for run in broken.runs(array)] == list(range(200))


def test_the_controller_takes_over_when_no_satellite_is_left(broken: LiveCluster) -> None:
    running = broken.wrap(f"{MARK}{GATE}", "-N", "3")
    broken.wait_lines("ran")
    broken.kill("sat0", "sat1")
    later = broken.wrap(f"{MARK}true", "-N", "12")
    open_gate(broken)
    ran_all(broken, [running, later])


def ran_all(cluster: LiveCluster, jobs: list[int]) -> None:
    """Every job has completed and its script has run once; attempts that could not be launched do not count."""
    assert cluster.ended(*jobs) == ["COMPLETED"] * len(jobs)
    marks = [line.partition(".")[0] for line in cluster.lines("ran")]
    assert sorted(marks) == sorted(map(str, jobs))


# ---- agents ----


def test_an_agent_that_is_started_again_adopts_its_steps(broken: LiveCluster) -> None:
    jobs = [broken.wrap(f"{MARK}{GATE}", "-w", name) for name in ("cn0001", "cn0002")]
    large = broken.wrap(f"{MARK}{GATE}", "-N", "4", "-w", "cn[0007-0010]")
    broken.wait_lines("ran", 3)
    broken.kill("agent0")
    broken.launch("agent0")
    broken.wait_nodes(lambda nodes: all(node.state == "UP" for node in nodes.values()))
    for job_id in (*jobs, large):
        broken.reaches(job_id, "RUNNING")
    open_gate(broken)
    ran_once(broken, *jobs, large)


def test_what_ends_while_its_agent_is_away_is_accounted_once(broken: LiveCluster) -> None:
    jobs = [broken.wrap(f"{MARK}{GATE}; echo >> out", "-w", "cn0003") for _ in range(3)]
    broken.wait_lines("ran", 3)
    broken.kill("agent0")
    open_gate(broken)
    broken.wait_lines("out", 3)
    broken.launch("agent0")
    ran_once(broken, *jobs)


def test_agent_and_controller_killed_together(broken: LiveCluster) -> None:
    jobs = [broken.wrap(f"{MARK}{GATE}", "-w", name) for name in ("cn0001", "cn0009")]
    broken.wait_lines("ran", 2)
    broken.kill("agent0", "esctld", "sat0")
    open_gate(broken)
    broken.start()
    ran_once(broken, *jobs)


def test_an_agent_that_is_stopped_for_a_while_keeps_its_jobs(broken: LiveCluster) -> None:
    job_id = broken.wrap(f"{MARK}{GATE}", "-w", "cn0002")
    broken.wait_lines("ran")
    # The script may be ahead of the report of its start.
    broken.reaches(job_id, "RUNNING")
    broken.daemons["agent0"].send(signal.SIGSTOP)
    broken.wait_nodes(lambda nodes: all(nodes[name].state == "UNREACHABLE" for name in broken.node_names[:8]))
    assert broken.job(job_id).state == "RUNNING"
    elsewhere = broken.wrap(MARK)
    assert broken.only_run(elsewhere).node_names >= "cn0009"
    broken.daemons["agent0"].send(signal.SIGCONT)
    broken.wait_nodes(lambda nodes: nodes["cn0002"].state == "UP")
    open_gate(broken)
    ran_once(broken, job_id, elsewhere)


@pytest.mark.parametrize("words", [["--requeue"], ["--no-requeue"]])
def test_the_death_of_a_step_supervisor_is_a_loss_of_its_steps(broken: LiveCluster, words: list[str]) -> None:
    command = f"{MARK}test $SLURM_RESTART_COUNT -gt 0 || sleep 600"
    job_id = broken.wrap(command, "-w", "cn0001", *words)
    broken.wait_lines("ran")
    end_process(broken.supervisor("agent0"), signal.SIGKILL)
    state = broken.end(job_id)
    attempts = [(run.attempt, run.state) for run in broken.runs(job_id)]
    if words == ["--requeue"]:
        assert (state, attempts[-1]) == ("COMPLETED", (2, "COMPLETED"))
        assert len(broken.lines("ran")) == 2
    else:
        assert (state, attempts) == ("NODE_FAIL", [(1, "NODE_FAIL")])
        assert len(broken.lines("ran")) == 1


def test_an_agent_that_lost_its_spool_is_back_at_once_with_what_runs_there(broken: LiveCluster) -> None:
    """Its node is up all the time: the controller takes no other individual under that name."""
    job_id = broken.wrap(f"{MARK}{GATE}", "-w", "cn0001")
    broken.wait_lines("ran")
    broken.reaches(job_id, "RUNNING")
    before = broken.nodes()["cn0001"]
    broken.kill("agent0")
    (agent_home(broken.agent_dir("agent0")) / "agent.spool").unlink()
    broken.launch("agent0")
    broken.wait_nodes(lambda nodes: nodes["cn0001"].incarnation > before.incarnation)
    assert "another live agent" not in broken.daemons["agent0"].log.read_text()
    assert broken.job(job_id).state == "RUNNING"
    open_gate(broken)
    ran_once(broken, job_id)


# ---- strangers ----


def test_a_second_agent_for_the_same_nodes_is_refused(broken: LiveCluster) -> None:
    job_id = broken.wrap(f"{MARK}{GATE}", "-w", "cn0001")
    broken.wait_lines("ran")
    before = broken.nodes()["cn0001"]
    broken.add_agent("twin", "cn[0001-0002]")
    broken.launch("twin")
    try:
        said = "another live agent serves node cn0001"
        broken.until(lambda: said in broken.daemons["twin"].log.read_text(), "a refusal")
        after = broken.nodes()["cn0001"]
        assert (after.endpoint, after.incarnation) == (before.endpoint, before.incarnation)
    finally:
        remove(broken, "twin")
    open_gate(broken)
    ran_once(broken, job_id)


STRANGERS = {
    "key": (Site(CLUSTER), CLUSTER, "cn0001", "the membership is not of this cluster: unknown key"),
    "cluster": (
        Site("elsewhere"),
        "elsewhere",
        "cn0001",
        "wrong cluster: this is 'live', the peer belongs to 'elsewhere'",
    ),
    "name": (None, CLUSTER, "nn0001", "is not in the configuration"),
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_strangers_do_not_join(broken: LiveCluster, stranger: str) -> None:
    site, cluster, nodes, says = STRANGERS[stranger]
    name = f"odd-{stranger}"
    broken.add_agent(name, nodes, cluster=cluster, site=site)
    broken.launch(name)
    try:
        broken.until(lambda: says in broken.daemons[name].log.read_text(), f"'{says}' is said")
        assert broken.end(broken.wrap(MARK, "-w", "cn0001")) == "COMPLETED"
        assert nodes == "cn0001" or nodes not in broken.nodes()
    finally:
        remove(broken, name)


def remove(cluster: LiveCluster, name: str) -> None:
    """End an agent and forget it; `stop` still looks for what its supervisor may have left."""
    cluster.terminate(name)
    del cluster.daemons[name]
