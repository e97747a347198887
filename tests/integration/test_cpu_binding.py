"""`--cpu-bind`: what the kernel says of the CPUs of tasks, and what they are told of it."""

from __future__ import annotations

import os
import re

from esnoded.topology import format_cpus
from tests.integration.test_steps import door, step
from tests.kits.cluster import LiveCluster

ALLOWED = sorted(os.sched_getaffinity(0))
FIRST, LAST = ALLOWED[0], ALLOWED[-1]
SAY = "sed -n s/^Cpus_allowed_list://p /proc/self/status"
OF_ONE_NODE = ("-N", "1", "-n", "2")


def test_a_list_binds_the_tasks_of_a_node_in_its_order(cluster: LiveCluster) -> None:
    command = f"esrun -l --cpu-bind=map_cpu:{LAST},{FIRST} sh -c '{SAY}; echo $SLURM_CPU_BIND$ESLURM_CPU_BIND_ASKED'"
    state, said = step(cluster, command, *OF_ONE_NODE)
    assert state == "COMPLETED", said
    assert sorted(line.replace("\t", "") for line in said) == sorted(
        [
            f"0: {LAST}",
            f"1: {FIRST}",
            *(f"{task}: quiet,map_cpu:{LAST},{FIRST}" for task in (0, 1)),
        ]
    )


def test_without_a_word_tasks_run_on_all_cpus(cluster: LiveCluster) -> None:
    state, said = step(cluster, f"esrun sh -c '{SAY}; echo ${{SLURM_CPU_BIND-none}}'", *OF_ONE_NODE)
    assert state == "COMPLETED", said
    assert sorted(line.strip() for line in said) == sorted([format_cpus(ALLOWED), "none"] * 2)


def test_the_environment_asks_and_verbose_says_what_was_done(cluster: LiveCluster) -> None:
    inner = f"{door(cluster)}esrun -n1 {SAY}"
    command = f"SLURM_CPU_BIND=v,mask_cpu:{1 << FIRST:#x} esrun -n1 sh -c '{SAY}; {inner}' 2>&1"
    state, said = step(cluster, command, *OF_ONE_NODE)
    assert state == "COMPLETED", said
    line, own, inner = said
    mask = f"{1 << FIRST:#x}"
    assert re.fullmatch(rf"cpu-bind=MASK - cn\d+, task  0  0 \[\d+\]: mask {mask} set", line)
    assert (own.strip(), inner.strip()) == (str(FIRST), format_cpus(ALLOWED)), "a step in a task is not bound"


def test_what_cannot_be_is_refused_at_the_command_or_ends_the_task(cluster: LiveCluster) -> None:
    command = "esrun --cpu-bind=cpus true; echo $?; esrun -n1 --cpu-bind=map_cpu:8191 true; echo $?"
    _, said = step(cluster, command, *OF_ONE_NODE)
    assert said[0].startswith("esrun: --cpu-bind: 'cpus' has the word 'cpus', which is no binding: use none,")
    assert said[1] == "2" and said[-1] == "1"
    assert any("the CPUs 8191 of task 0 on its node are not of its job" in line for line in said), said
