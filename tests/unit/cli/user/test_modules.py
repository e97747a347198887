"""Modules in `esinfo` and `essubmit`."""

from __future__ import annotations

from escli.option_table import rows_of
from escli.options import Parser
from escli.user.draft_resources import draft_resources
from escli.user.esinfo import by_module, by_node, by_partition
from escli.user.queue_columns import nodes_or_reason
from eslurm.v1 import controller_pb2 as pb

NODES = [
    pb.NodeInfo(name="cn1", state="UP", cores=4, partitions=["main"], module="cluster"),
    pb.NodeInfo(name="cn2", state="LOST", cores=4, partitions=["main"], module="cluster"),
    pb.NodeInfo(name="gw1", state="UP", cores=4, partitions=["gateways"], module="gw"),
    pb.NodeInfo(name="old1", state="UP", cores=4, partitions=["main"]),
    pb.NodeInfo(name="login1", state="UP", flags=["LOGIN"]),
]
MODULES = [
    pb.ModuleInfo(name="cluster", kind="cluster", reaches=["data"]),
    pb.ModuleInfo(name="gw", kind="gateway"),
]


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_by_module() -> None:
    assert cells(by_module(NODES, MODULES, header=True)) == [
        ["MODULE", "KIND", "REACHES", "NODES", "STATE", "NODELIST"],
        ["cluster", "cluster", "data", "1", "idle", "cn1"],
        ["cluster", "cluster", "data", "1", "down", "cn2"],
        ["gw", "gateway", "-", "1", "idle", "gw1"],
        ["-", "-", "-", "1", "idle", "old1"],
    ]


def test_nodes_have_a_column_only_where_there_are_modules() -> None:
    assert cells(by_node(NODES[:1], header=True, is_long=False)) == [
        ["NODE", "PARTITION", "MODULE", "STATE", "CORES(A/T)"],
        ["cn1", "main", "cluster", "idle", "0/4"],
    ]
    assert "MODULE" not in by_node(NODES[3:4], header=True, is_long=True)


def test_the_partition_of_the_gateways_is_not_shown() -> None:
    partitions = [
        pb.PartitionInfo(name="main", up=True),
        pb.PartitionInfo(name="gateways", up=True, role="gateway"),
    ]
    assert "gateways" not in by_partition(NODES, partitions, header=False, is_long=False)


def test_the_queue_shows_gateways_behind_the_nodes() -> None:
    info = pb.JobInfo(state="RUNNING", node_names="cn[1-2]", gateways=1)
    assert nodes_or_reason(info, 0) == "cn[1-2]"
    info.gateway_names = "gw1"
    assert nodes_or_reason(info, 0) == "cn[1-2] via gw1"


def test_the_queue_says_which_cell_owns_a_job_of_this_one() -> None:
    info = pb.JobInfo(state="RUNNING", node_names="cn[1-2]", home="alpha", owner="beta")
    assert nodes_or_reason(info, 0) == "cn[1-2] in beta"
    info.state, info.reason_text = "LAUNCHING", "prolog"
    assert nodes_or_reason(info, 0) == "cn[1-2] in beta (prolog)"
    info.state, info.reason, info.owner = "PENDING", "Resources", "be\x1bta"
    assert nodes_or_reason(info, 0) == "(Resources) in be\\x1bta"


def test_a_request_says_its_module() -> None:
    given = Parser(rows_of("essubmit")).parse(["--module", "booster", "-N2"])
    assert draft_resources(given)["module"] == "booster"
