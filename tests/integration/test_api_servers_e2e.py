"""The doors at work: who may do what through the controller's own door and through an agent's, and when not.

Method: calls are made as an ordinary user would, with the rights that the kernel gives to such a process.
"""

from __future__ import annotations

import os

from tests.kits.cluster import LiveCluster

GATE = "until test -e gate; do sleep 0.02; done"


def test_a_users_step_through_the_agents_door(cluster: LiveCluster) -> None:
    door = cluster.agent_dir("agent0") / "door.sock"
    stranger = cluster.run_as_user("esqueue", socket=door)
    assert stranger.code == 1 and "has no job on this node" in stranger.err

    job_id = cluster.user_job(f"echo > up; {GATE}", "-N", "2", "-n", "4", "-w", "cn[0001-0002]")
    cluster.wait_lines("up")
    # The scripts may be ahead of the reports of their starts.
    cluster.reaches(job_id, "RUNNING")
    inside = {
        "SLURM_JOB_ID": str(job_id),
        "ESLURM_JOB_ID": str(job_id),
        "ESLURM_NNODES": "2",
        "ESLURM_NTASKS": "4",
    }
    script = "echo $SLURM_PROCID $SLURMD_NODENAME $(id -u)"
    ran = cluster.run_as_user("esrun", "--label", "sh", "-c", script, socket=door, **inside)
    uid = os.getuid() or 65534
    assert ran.code == 0, ran
    assert sorted(ran.out.splitlines()) == [f"{at}: {at} cn000{1 + at // 2} {uid}" for at in range(4)]
    failed = cluster.run_as_user("esrun", "sh", "-c", "exit 5", socket=door, **inside)
    assert failed.code == 5 and "exit code 5" in failed.err
    (cluster.work / "gate").touch()
    assert cluster.end(job_id) == "COMPLETED"


def test_a_users_step_over_parts_through_the_agents_door(cluster: LiveCluster) -> None:
    door = cluster.agent_dir("agent0") / "door.sock"
    job_id = cluster.user_job(f"echo > up; {GATE}", "-n", "1", "-w", "cn0001", ":", "-n", "2", "-w", "cn0001")
    others = cluster.wrap(f"echo > others; {GATE}", "-n", "1", "-w", "cn0002", ":", "-n", "2", "-w", "cn0002")
    for name in ("up", "others"):
        cluster.wait_lines(name)
    for one in (job_id, others):
        cluster.reaches(one, "RUNNING")
    script = ("sh", "-c", "echo $SLURM_PROCID $SLURM_NTASKS $(id -u)")
    words = ("--het-group=0,1", "-n", "1", *script, ":", "-n", "2", *script)
    ran = cluster.run_as_user("esrun", "--label", f"--jobid={job_id}", *words, socket=door)
    uid = os.getuid() or 65534
    assert ran.code == 0, ran
    assert sorted(ran.out.splitlines()) == [f"{at}: {at} 3 {uid}" for at in range(3)]
    if os.getuid() == 0:
        theirs = cluster.run_as_user("esrun", f"--jobid={others}", *words, socket=door)
        assert theirs.code == 1 and "belongs to root" in theirs.err
    (cluster.work / "gate").touch()
    assert [cluster.end(one) for one in (job_id, others)] == ["COMPLETED", "COMPLETED"]


def test_an_agents_door_gives_no_rights_over_others(cluster: LiveCluster) -> None:
    door = cluster.agent_dir("agent0") / "door.sock"
    mine = cluster.user_job(f"echo > mine; {GATE}", "-w", "cn0001")
    others = cluster.wrap(f"echo > others; {GATE}", "-w", "cn0001")
    cluster.wait_lines("mine")
    cluster.wait_lines("others")
    cluster.reaches(mine, "RUNNING")
    cluster.reaches(others, "RUNNING")
    drained = cluster.run_as_user("esctl", "drain", "cn0001", "reason=x", socket=door)
    assert drained.code == 1 and not cluster.nodes()["cn0001"].flags
    if os.getuid() == 0:
        cancelled = cluster.run_as_user("escancel", str(others), socket=door)
        assert cancelled.code == 1 and "belongs to root" in cancelled.err
        assert cluster.job(others).state == "RUNNING"
    ended = cluster.run_as_user("escancel", str(mine), socket=door)
    assert ended.code == 0, ended
    assert cluster.end(mine) == "CANCELLED"
    (cluster.work / "gate").touch()
    assert cluster.end(others) == "COMPLETED"
    again = cluster.run_as_user("esqueue", socket=door)
    assert again.code == 1


def test_the_controllers_door_knows_its_callers(cluster: LiveCluster) -> None:
    job_id = cluster.user_job("id -u > uid")
    run = cluster.only_run(job_id)
    assert run.state == "COMPLETED"
    assert cluster.lines("uid") == [str(os.getuid() or 65534)]


def test_a_queue_is_not_older_than_what_the_same_user_was_told(cluster: LiveCluster) -> None:
    for _ in range(20):
        job_id = cluster.wrap("true", "--hold")
        assert str(job_id) in cluster.run("esqueue", "-h", "-o", "%i").out.split()
        cluster.do("escancel", str(job_id))
        assert str(job_id) not in cluster.run("esqueue", "-h", "-o", "%i").out.split()
