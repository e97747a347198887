"""Login hosts in `esinfo`: after the partitions, which they are in none of."""

from __future__ import annotations

from escli.user.esinfo import by_node, by_partition
from eslurm.v1 import controller_pb2 as pb

NODES = [
    pb.NodeInfo(name="cn1", state="UP", cores=4, memory_mib=1024, partitions=["main"]),
    pb.NodeInfo(name="login1", state="UP", flags=["LOGIN"]),
    pb.NodeInfo(name="login2", state="UP", flags=["LOGIN"]),
    pb.NodeInfo(name="login3", state="LOST", flags=["LOGIN"]),
]
MAIN = [pb.PartitionInfo(name="main", is_default=True, up=True, nodes=1)]


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_by_partition() -> None:
    assert cells(by_partition(NODES, MAIN, header=False, is_long=False)) == [
        ["main*", "up", "unlimited", "1", "idle", "cn1"],
        ["-", "-", "-", "2", "login", "login[1-2]"],
        ["-", "-", "-", "1", "down", "login3"],
    ]
    last = cells(by_partition(NODES, MAIN, header=False, is_long=True))[-1]
    assert last == ["-", "-", "-", "1", "down", "-", "-", "-", "login3"]


def test_by_node() -> None:
    assert cells(by_node(NODES[1:2], header=False, is_long=False)) == [["login1", "-", "login", "0/0"]]
