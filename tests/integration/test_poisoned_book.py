"""A node that has fallen offers its neighbours a false address book.

Method: a real cluster; beside the agent of cn0002 another process has its membership, dials the agent of cn0001 as a parent
in a tree would, says that it has a newer book, and answers the pull with one in which cn0001's neighbours are elsewhere.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from eslurm.links.hello import LocalPeer
from eslurm.links.links import LinkTable
from eslurm.ports.link import Link
from eslurm.security.credentials import read_credentials
from eslurm.v1 import link_pb2
from tests.integration.conftest import running
from tests.kits.cluster import CLUSTER, LiveCluster
from tests.kits.daemons import PATIENCE_S

FALSE = "192.0.2.66:1"


@pytest.fixture
def cluster() -> Iterator[LiveCluster]:
    with running(nodes=3, agents=3, satellites=1) as made:
        yield made


class Liar:
    """The sink of the fallen node's link."""

    def __init__(self, local: LocalPeer, *, answers: bool) -> None:
        self._local = local
        self._answers = answers
        self.asked = asyncio.Event()

    def on_up(self, link: Link) -> None:
        """It says something, and with it which book it has."""
        self._local.book_revision = 1 << 62
        link.send(link_pb2.Item(blob_request=link_pb2.BlobRequest()))

    def on_down(self, link: Link, reason: str) -> None:
        """Nothing to do."""

    def on_items(self, link: Link, items: Sequence[link_pb2.Item]) -> None:
        for item in items:
            if item.WhichOneof("kind") == "book_pull":
                self.asked.set()
                if self._answers:
                    book = link_pb2.Book(revision=1 << 62)
                    for number in range(3):
                        name = f"cn{number + 1:04}"
                        book.entries.add(number=number, name=name, endpoint=FALSE, incarnation=99)
                    link.send(link_pb2.Item(book=book))


@pytest.mark.parametrize("answers", [True, False], ids=["a false book", "no book at all"])
def test_a_false_address_book_moves_no_node(cluster: LiveCluster, answers: bool) -> None:
    victim = _listens(cluster, "agent0")

    async def attack() -> None:
        credentials = read_credentials(cluster.agent_dir("agent1"))
        local = LocalPeer(CLUSTER, "agent", "esnoded.cn0002.ffffffffffff")
        liar = Liar(local, answers=answers)
        table = LinkTable(local, credentials, liar, random.Random(1))
        async with asyncio.timeout(PATIENCE_S):
            link: Any = await table.get(victim)
            await liar.asked.wait()
            if answers:
                await asyncio.to_thread(
                    cluster.until,
                    lambda: "is not the leader's" in cluster.daemons["agent0"].log.read_text(),
                    "it is not taken",
                )
            # While the liar stays, nodes move: the right book comes from others.
            await asyncio.to_thread(_moves, cluster)
            assert not link.closed.is_set()
        await table.close("the test is over")

    asyncio.run(attack())


def _moves(cluster: LiveCluster) -> None:
    """An agent starts anew at another address, and a job spans it and the victim."""
    cluster.terminate("agent2")
    cluster.launch("agent2")
    cluster.wait_nodes(lambda nodes: all(node.state == "UP" for node in nodes.values()))
    assert cluster.end(cluster.wrap("true", "-N", "3", "-w", "cn[0001-0003]")) == "COMPLETED"


def _listens(cluster: LiveCluster, agent: str) -> str:
    lines = cluster.daemons[agent].log.read_text().splitlines()
    return [line.rpartition(" at ")[2].strip() for line in lines if "serving " in line][-1]
