"""Jobs of many nodes: prepared everywhere, started on the first, ended everywhere; and nodes that cannot be prepared."""

from __future__ import annotations

from typing import Any

from tests.kits.cluster import LiveCluster, is_alive, names_of


def test_a_job_on_all_nodes_starts_once_on_the_first(cluster: LiveCluster) -> None:
    job_id = cluster.wrap(
        'echo "$SLURM_NODEID $SLURMD_NODENAME $SLURM_NNODES $SLURM_JOB_NODELIST" >> ran', "-N", "16"
    )
    run = cluster.only_run(job_id)
    assert (run.state, run.nodes, run.cpus) == ("COMPLETED", 16, 16)
    assert names_of(run.node_names) == cluster.node_names
    assert cluster.lines("ran") == ["0 cn0001 16 cn[0001-0016]"]


def test_all_nodes_are_held_while_it_runs_and_free_after(cluster: LiveCluster) -> None:
    job_id = cluster.wrap("echo > up; until test -e gate; do sleep 0.02; done", "-N", "16", "-c", "3")
    cluster.wait_lines("up")
    assert {node.cores_used for node in cluster.nodes().values()} == {3}
    assert all(list(node.jobs) == [job_id] for node in cluster.nodes().values())
    (cluster.work / "gate").touch()
    assert cluster.end(job_id) == "COMPLETED"
    cluster.wait_idle()


def test_the_end_of_a_job_is_the_end_of_what_it_left_running(cluster: LiveCluster) -> None:
    job_id = cluster.wrap("setsid sleep 600 & echo $! > pid; sleep 600 & echo $! >> pid; exit 0", "-N", "4")
    assert cluster.end(job_id) == "COMPLETED"
    left = cluster.lines("pid")
    assert len(left) == 2
    # A process that left its session is found by a look at all processes, at most once a second.
    cluster.until(lambda: not any(is_alive(pid) for pid in left) or None, "the end of what the job left")


def test_a_cancelled_job_frees_all_its_nodes(cluster: LiveCluster) -> None:
    job_id = cluster.wrap("echo > up; sleep 600", "-N", "16")
    cluster.wait_lines("up")
    cluster.do("escancel", str(job_id))
    assert cluster.only_run(job_id).state == "CANCELLED"
    cluster.wait_idle()


def test_many_jobs_of_several_nodes_share_the_cluster(cluster: LiveCluster) -> None:
    jobs = [cluster.wrap("echo $SLURM_JOB_ID >> ran", "-N", str(1 + at % 5), "-c", "2") for at in range(30)]
    assert cluster.ended(*jobs) == ["COMPLETED"] * 30
    assert sorted(map(int, cluster.lines("ran"))) == jobs
    assert [cluster.runs(job_id)[0].nodes for job_id in jobs] == [1 + at % 5 for at in range(30)]


def test_a_node_that_cannot_be_prepared_is_avoided(broken: LiveCluster) -> None:
    # Its scripts' directory is a file: what a full or broken disk looks like to an agent.
    scripts = broken.agent_dir("agent0") / "scripts"
    scripts.rename(scripts.with_name("aside"))
    scripts.write_text("")
    try:
        job_id = broken.wrap('echo "$SLURMD_NODENAME" >> ran', "-x", "cn[0003-0008]")
        run = _last_run(broken, job_id)
        assert names_of(run.node_names)[0] >= "cn0009"
        assert len(broken.lines("ran")) == 1
    finally:
        scripts.unlink()
        scripts.with_name("aside").rename(scripts)


def test_a_job_whose_agent_dies_before_it_is_prepared_runs_elsewhere(broken: LiveCluster) -> None:
    broken.kill("agent0")
    job_id = broken.wrap('echo "$SLURMD_NODENAME" >> ran', "-N", "4")
    run = _last_run(broken, job_id)
    assert set(names_of(run.node_names)) <= set(broken.node_names[8:])
    assert len(broken.lines("ran")) == 1


def _last_run(cluster: LiveCluster, job_id: int) -> Any:
    """The attempt that ran, once the job has completed; those before never came to run its script."""
    assert cluster.end(job_id) == "COMPLETED"
    *failed, last = cluster.runs(job_id)
    assert last.state == "COMPLETED"
    assert [run.started_us for run in failed if run.started_us] == []
    return last
