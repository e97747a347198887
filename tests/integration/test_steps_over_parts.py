"""`esrun` over several parts of a job: one step, one order of ranks, one end; parts may share a node."""

from __future__ import annotations

from collections.abc import Sequence

from tests.integration.test_steps import door
from tests.kits.cluster import LiveCluster

COUNT = (
    'echo "$SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME in $SLURM_JOB_NODELIST step $SLURM_STEP_ID $1"'
)
BESIDE = ("-N", "2", "-n", "2", "-w", "cn[0001-0002]", ":", "-N", "1", "-n", "3", "-w", "cn0003")
SHARED = ("-n", "1", "-w", "cn0004", ":", "-n", "2", "-w", "cn0004")


def script(cluster: LiveCluster, parts: Sequence[str], text: str) -> tuple[str, list[str]]:
    """A job of these parts, its state, and the lines that it said."""
    path = cluster.script("parts.sh", f"#!/bin/sh\n{door(cluster)}{text}\n")
    job_id = cluster.submit("-o", "said", *parts, path)
    state = cluster.end(job_id)
    return state, cluster.lines("said")


def test_ranks_are_counted_through_the_parts(cluster: LiveCluster) -> None:
    state, said = script(cluster, BESIDE, f"esrun --het-group=0,1 sh -c '{COUNT}' x A : sh -c '{COUNT}' x B")
    assert state == "COMPLETED", said
    whole = "in cn[0001-0003] step 0"
    assert sorted(said) == [
        f"0 of 5 on cn0001 {whole} A",
        f"1 of 5 on cn0002 {whole} A",
        *(f"{rank} of 5 on cn0003 {whole} B" for rank in (2, 3, 4)),
    ]


def test_parts_that_share_a_node_are_two_steps_there(cluster: LiveCluster) -> None:
    text = f"esrun --label sh -c '{COUNT}' x A : sh -c '{COUNT}' x B; esrun --het-group=1 sh -c '{COUNT}' x C"
    state, said = script(cluster, SHARED, text)
    assert state == "COMPLETED", said
    assert sorted(said[:3]) == [
        f"{rank}: {rank} of 3 on cn0004 in cn0004 step 0 {name}" for rank, name in enumerate("ABB")
    ]
    assert sorted(said[3:]) == [f"{rank} of 2 on cn0004 in cn0004 step 2 C" for rank in (0, 1)]


def test_a_part_that_cannot_start_ends_the_step(cluster: LiveCluster) -> None:
    text = "esrun sh -c 'echo $$ > pid; exec sleep 1000' : no-such-program; echo code $?"
    state, said = script(cluster, BESIDE, text)
    assert (state, said[-1]) == ("COMPLETED", "code 1"), said
    assert any("node cn0003 did not start its tasks" in line for line in said), said


def test_the_exit_code_is_the_highest_of_all_parts(cluster: LiveCluster) -> None:
    _, said = script(cluster, BESIDE, "esrun true : sh -c 'exit $SLURM_PROCID'; echo code $?")
    assert said[-1] == "code 4", said


def test_the_script_finds_its_parts_and_runs_in_part_0(cluster: LiveCluster) -> None:
    text = "env | grep -e HET_SIZE -e JOB_NODELIST_HET -e ^SLURM_JOB_NODELIST= | sort; esrun hostname | wc -l"
    _, said = script(cluster, BESIDE, text)
    assert said == [
        "ESLURM_HET_SIZE=2",
        "ESLURM_JOB_NODELIST_HET_GROUP_0=cn[0001-0002]",
        "ESLURM_JOB_NODELIST_HET_GROUP_1=cn0003",
        "SLURM_HET_SIZE=2",
        "SLURM_JOB_NODELIST=cn[0001-0002]",
        "SLURM_JOB_NODELIST_HET_GROUP_0=cn[0001-0002]",
        "SLURM_JOB_NODELIST_HET_GROUP_1=cn0003",
        "2",
    ]


def test_a_part_that_the_job_has_not_is_refused_with_both_numbers(cluster: LiveCluster) -> None:
    _, said = script(
        cluster, BESIDE, "esrun --het-group=2 true; echo code $?; esrun a : b : c; esrun -n9 true"
    )
    assert said[1] == "code 1" and "there is no part 2" in said[0] and "has 2 parts (0-1)" in said[0]
    assert "there is no part 2" in said[2]
    assert "part 0: --ntasks: 9 tasks of 1 cpus are more than 2 nodes of the part hold (2)" in said[3]
