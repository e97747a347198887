"""Jobs of several parts through all tiers: one booking over two partitions, the parts' variables, and any part's id."""

from __future__ import annotations

from pathlib import Path

import pytest

from eslurm.v1 import controller_pb2 as pb
from tests.integration.test_steps import door
from tests.kits.cluster import LiveCluster

ROOT = Path(__file__).resolve().parents[2]
FOREVER = "echo $$ >> pids; while :; do sleep 0.05; done"
VARIABLES = (
    "SLURM_HET_SIZE",
    "SLURM_JOB_ID",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_ID_HET_GROUP_0",
    "SLURM_JOB_PARTITION_HET_GROUP_0",
    "SLURM_JOB_ID_HET_GROUP_1",
    "SLURM_JOB_PARTITION_HET_GROUP_1",
    "SLURM_JOB_NUM_NODES_HET_GROUP_1",
)


def wrapped(cluster: LiveCluster, command: str, *parts: str) -> int:
    """A job of these parts, `brief` being the partition of cn0001 alone."""
    words = " : ".join(parts).split()
    return cluster.submit(*words, "--wrap", command)


def refused(cluster: LiveCluster, *words: str) -> str:
    ran = cluster.run(*words)
    assert ran.code != 0, ran.out
    return ran.err


def test_a_script_in_two_partitions_knows_its_parts(cluster: LiveCluster) -> None:
    script = cluster.script(
        "job.sh",
        "#!/bin/sh\n#SBATCH -N1 -p brief -o seen\n#SBATCH hetjob\n#SBATCH -N3 -p main -x cn0001 --ntasks-per-node 2\n"
        + "".join(f"echo ${name}\n" for name in VARIABLES),
    )
    job_id = cluster.submit(script)
    run = cluster.only_run(job_id)
    assert (run.state, run.nodes, run.node_names.split(",")[0][:4]) == ("COMPLETED", 4, "cn[0")
    assert [(one.partition, one.nodes, one.tasks) for one in run.parts] == [("brief", 1, 1), ("main", 3, 6)]
    first, second = str(job_id), str(job_id + 1)
    assert cluster.lines("seen") == ["2", first, "1", first, "brief", second, "main", "3"]
    assert cluster.run(
        "esacct", "-h", "-P", "-j", f"{job_id}+1", "-o", "jobid,partition,allocnodes"
    ).out.split() == [f"{job_id}+1|main|3"]
    assert cluster.submit("--wrap", "true") == job_id + 2, "each part has taken an id"


def test_the_script_of_the_guide_runs(cluster: LiveCluster) -> None:
    page = (ROOT / "docs" / "guide" / "jobs-of-several-parts.md").read_text()
    text = page.partition("```sh\n")[2].partition("```")[0]
    for here, there in (
        (" --account=physics", " -o seen"),
        ("-c4 -p cluster", "-p main -w cn0002"),
        ("esrun", f"{door(cluster)}esrun"),
        ("-N8 --gpus-per-node=1 -p booster", "-N2 -p main -w cn[0003-0004]"),
    ):
        assert here in text
        text = text.replace(here, there)
    for name in ("master", "solve"):
        path = cluster.work / name
        path.write_text(f"#!/bin/sh\necho {name} $SLURM_PROCID of $SLURM_NTASKS\n")
        path.chmod(0o755)
    assert cluster.end(cluster.submit(cluster.script("guide.sh", text))) == "COMPLETED", cluster.lines("seen")
    first, *steps = cluster.lines("seen")
    assert first == "part 0 has cn0002, part 1 has cn[0003-0004]"
    assert sorted(steps) == ["master 0 of 3", "solve 1 of 3", "solve 2 of 3"]


@pytest.mark.parametrize("name", ["{0}+1", "{1}"])
def test_a_part_is_shown_held_and_cancelled_as_the_whole_job(cluster: LiveCluster, name: str) -> None:
    job_id = wrapped(cluster, FOREVER, "-N1 -p brief -t 1", "-N2 -p main -x cn0001")
    cluster.reaches(job_id, "RUNNING")
    named = name.format(job_id, job_id + 1)
    shown = cluster.run("esqueue", "-h", "-j", named, "-o", "%i %P %D %t").out.split()
    assert shown == [f"{job_id}+1", "main", "2", "R"]
    shown = cluster.run("esqueue", "-h", "-j", str(job_id), "-o", "%i %P %D").out.split()
    assert shown == [str(job_id), "brief,main", "3"]
    assert "this concerns the whole job, all 2 parts" in refused(cluster, "esctl", "hold", named)
    ran = cluster.run("escancel", named)
    assert ran.code == 0 and "all 2 parts" in ran.err
    assert cluster.end(job_id) == "CANCELLED"


def test_a_waiting_part_is_updated_alone(cluster: LiveCluster) -> None:
    job_id = wrapped(cluster, "echo $SLURM_JOB_NUM_NODES_HET_GROUP_1 > nodes", "-N1 --hold", "-N2")
    assert "say which one is to be changed" in refused(cluster, "esctl", "update", str(job_id), "nodes=3")
    cluster.do("esctl", "update", f"{job_id}+1", "nodes=3")
    cluster.do("esctl", "release", str(job_id + 1))
    assert cluster.end(job_id) == "COMPLETED"
    assert cluster.lines("nodes") == ["3"]


def test_two_parts_may_share_a_node_and_tasks_of_arrays_may_have_parts(cluster: LiveCluster) -> None:
    job_id = wrapped(
        cluster,
        "echo $SLURM_HET_SIZE $SLURM_JOB_NODELIST_HET_GROUP_1",
        "-n1 -w cn0002 --array 0-1",
        "-w cn0002 -n1",
    )
    assert cluster.end(job_id) == "COMPLETED"
    tasks = [run for run in cluster.runs(job_id) if run.HasField("array_task")]
    assert {(run.nodes, run.cpus, len(run.parts)) for run in tasks} == {(1, 2, 2)}


def test_a_part_that_can_never_run_is_refused_by_its_number(cluster: LiveCluster) -> None:
    said = refused(cluster, "essubmit", "-n1", ":", "-N2", "-p", "brief", "--wrap", "true")
    assert "part 1: " in said
    said = refused(cluster, "essubmit", "-n1", ":", "-p", "nowhere", "--wrap", "true")
    assert "part 1: --partition: 'nowhere' does not exist: use one of brief, main" in said


def test_eswhy_and_a_submission_on_trial_name_the_part_that_waits(cluster: LiveCluster) -> None:
    holder = wrapped(cluster, FOREVER, "-N1 -p brief --exclusive -t 1")
    cluster.reaches(holder, "RUNNING")
    parts = ("-N1 -p main -w cn0002 -t 1", "-N1 -p brief")
    words = " : ".join(parts).split()
    tried = cluster.run("essubmit", "--test-only", *words, "--wrap", "true")
    assert tried.code == 0 and "part 1: " in tried.out and "part 0 could start now" in tried.out
    job_id = wrapped(cluster, "true", *parts)
    told = cluster.run("eswhy", f"{job_id}+1").out
    assert f"Job {job_id} " in told and "part 1: " in told and "part 0 could start now" in told
    assert "of partition brief (part 1):" in told
    shown = cluster.run("esctl", "priority", f"{job_id + 1}").out
    assert [line.split()[0] for line in shown.splitlines()[1:]] == [str(job_id)]
    cluster.do("escancel", str(holder))
    waited = cluster.call("WaitJobs", pb.WaitJobsRequest(jobs=[pb.JobRef(job_id=job_id + 1)], timeout_s=60))
    assert [(one.job_id, one.state) for one in waited.jobs] == [(job_id, "COMPLETED")]
