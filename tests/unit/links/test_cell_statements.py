"""Sealed statements on the link of another cell: some are looked at, and a flood ends the link."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from eslurm.links.hello import LocalPeer
from eslurm.links.link import GrpcLink
from eslurm.links.links import LinkTable
from eslurm.links.statement_quota import BURST, DROPPED_MAX, StatementQuota
from eslurm.ports.link import CELL, PeerInfo
from eslurm.security.sealing import BadSeal
from eslurm.v1 import link_pb2
from tests.support.loops import run
from tests.support.trust import Site


class StubLink(GrpcLink):
    """A link without its streams."""

    def __init__(self, cell: str) -> None:
        role = CELL if cell else "controller"
        self.peer = PeerInfo(
            "beta", role, "main.b", "127.0.0.1:2", frozenset(), 1, 7, names="main", cell=cell
        )
        self.dialled = True
        self.closed = asyncio.Event()
        self.close_reason = ""

    def abort(self, reason: str) -> None:
        self.close_reason = reason
        self.closed.set()


class Keys:
    """Counts the seals that are checked."""

    def __init__(self) -> None:
        self.checked = 0

    def learn_revoked(self, _sealed: bytes) -> bool:
        self.checked += 1
        raise BadSeal("not sealed")

    learn_ring = learn_revoked


def statements(count: int, kind: str = "revoked") -> list[link_pb2.Item]:
    sealed: Any = {kind: link_pb2.SealedStatement(sealed=b"x" * 84)}
    return [link_pb2.Item(**sealed) for _ in range(count)]


def test_a_flood_of_statements_ends_the_link_of_a_cell(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        credentials = Site("alpha").credentials("controller", "main")
        keys = Keys()
        credentials.cells = {"beta": keys, "gamma": keys}  # type: ignore[dict-item]
        local = LocalPeer("alpha", "controller", "main.a", "127.0.0.1:1")
        sink: Any = None
        table = LinkTable(local, credentials, sink, random.Random(1))
        link, other = StubLink("beta"), StubLink("gamma")
        table.on_items(link, statements(20))
        assert 1 <= keys.checked <= BURST and not link.closed.is_set()
        table.on_items(link, statements(10_000))
        assert "statements were dropped" in link.close_reason
        assert keys.checked <= BURST + 1
        assert len(caplog.records) <= BURST + 4
        # Each kind and each link has its own.
        checked = keys.checked
        table.on_items(other, statements(1) + statements(1, "key_ring"))
        assert keys.checked == checked + 2 and not other.closed.is_set()

    run(main())


def test_one_a_second_is_looked_at() -> None:
    quota = StatementQuota()
    assert sum(quota.take("revoked", 10.0) for _ in range(100)) == BURST
    assert quota.dropped == 100 - BURST
    assert quota.take("key_ring", 10.0)
    assert not quota.take("revoked", 10.5)
    assert quota.take("revoked", 11.5) and not quota.take("revoked", 11.5)
    assert sum(quota.take("revoked", 1_000.0) for _ in range(100)) == BURST
    assert DROPPED_MAX < 1_000
