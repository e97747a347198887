"""Requests that can never start are refused at submission, with the bound that they break."""

from __future__ import annotations

import pytest

from eslurm.core.model.partition import PartitionView
from eslurm.core.model.request import Request
from eslurm.core.plan.cycle.snapshot import NodeView
from eslurm.core.plan.placement.feasible import empty_ledger, feasible_ever
from eslurm.core.resources.nodes import Topology

TOPOLOGY = Topology(
    [
        NodeView(0, "small", (4, 100), True, ("main",)),
        NodeView(1, "large", (16, 50), False, ("main",)),
        NodeView(2, "other", (64, 900), True, ("big",)),
    ]
)
EMPTY = empty_ledger(TOPOLOGY)
MAIN = PartitionView("main")


@pytest.mark.parametrize(
    ("request_", "resource", "asked", "largest", "word"),
    [
        (Request(cpus_per_task=17), "cores", 17, 16, "--cpus-per-task: one task needs 17 cores"),
        (Request(memory_per_node_mib=101), "memory_mib", 101, 100, "--mem: one task needs 101 MiB of memory"),
        (Request(cpus_per_task=2, memory_per_cpu_mib=60), "memory_mib", 120, 100, "MiB of memory"),
        (Request(nodes_min=3), "nodes", 3, 2, "--nodes: needs 3 nodes"),
        (Request(nodes_min=2, cpus_per_task=5), "nodes", 2, 1, "5 cores"),
        (Request(tasks=21), "tasks", 21, 20, "at most 20"),
        (Request(tasks=3, tasks_per_node=1), "tasks", 3, 2, "at most 2"),
        (Request(tasks=17, nodes_min=1, nodes_max=1), "tasks", 17, 16, "at most 16"),
        (Request(cpus_per_task=8, include=("small",)), "cores", 8, 4, "required node small has 4"),
        (Request(include=("ghost",)), "nodes", 1, 0, "no node ghost"),
        (Request(include=("other",)), "nodes", 1, 0, "not in partition main"),
        (Request(include=("small",), exclude=("small",)), "nodes", 1, 0, "--exclude: node small is also in"),
        (Request(nodes_min=1, include=("small", "large")), "nodes", 2, 1, "required by name"),
        (Request(exclude=("small", "large")), "nodes", 1, 0, "--exclude: leaves no node"),
    ],
)
def test_infeasible(request_: Request, resource: str, asked: int, largest: int, word: str) -> None:
    verdict = feasible_ever(request_, MAIN, EMPTY)
    assert verdict is not None
    assert (verdict.resource, verdict.asked, verdict.largest) == (resource, asked, largest)
    assert word in verdict.reason


@pytest.mark.parametrize(
    "request_",
    [
        Request(tasks=20),
        Request(cpus_per_task=16),
        Request(memory_per_node_mib=100),
        Request(nodes_min=2, exclusive=True),
        Request(include=("large",)),
    ],
)
def test_feasible_whatever_is_out_of_service_now(request_: Request) -> None:
    assert feasible_ever(request_, MAIN, EMPTY) is None


def test_a_partition_without_nodes() -> None:
    verdict = feasible_ever(Request(), PartitionView("void"), EMPTY)
    assert verdict is not None
    assert verdict.reason == "--partition: void has no nodes: use another one"
