"""The guide's instructions for etcd, carried out on real servers while a cell is a member."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from esctld.lead import federation as module
from esctld.lead.federation import Federation
from eslurm.core.federation.membership import Identity, Lead, Standing
from eslurm.core.federation.participant import Inputs
from eslurm.core.model.federation import FederationConfig, FederationWish
from eslurm.core.model.messages import ChangeFederation
from eslurm.core.state.view import View
from eslurm.federation.etcd.calls import EtcdSettings
from eslurm.federation.etcd.store import EtcdStore
from eslurm.ports.kv import Expect, KvError, KvFull, Put
from eslurm.security.site_keys import new_site
from eslurm.transport.tls import Tls
from tests.kits.core import ROOT, World
from tests.support import certificates, etcd
from tests.support.loops import run

pytestmark = pytest.mark.timeout(240)
PATIENCE_S = 120.0


class Cell:
    """A cell that is a member of a real etcd; use as a context."""

    def __init__(self, store: etcd.Etcd, tls: Tls | None = None) -> None:
        self.world = World(nodes=2)
        inputs = Inputs(
            lambda: View(self.world.state), lambda: None, lambda: self.world.now_us, self.world.send
        )
        ring = new_site("one", 1).ring
        self.settings = EtcdSettings(store.endpoints, tls)
        self.part = Federation(
            lambda: EtcdStore(self.settings),
            FederationConfig("lab", "alpha", 2.0),
            Identity("one", ring.sealed),
            Lead(1, "127.0.0.1:7400"),
            SimpleNamespace(ring=ring),  # type: ignore[arg-type]
            inputs,
        )

    async def __aenter__(self) -> Cell:
        self._task = asyncio.create_task(self.part.run())
        await until(lambda: self.standing is Standing.MEMBER)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    @property
    def standing(self) -> Standing:
        return self.part.view().standing

    async def drains(self, wanted: bool) -> None:
        """Orders it, and waits until the store has it: what is written comes through."""
        self.world.send(ChangeFederation(ROOT, "lab", "drain" if wanted else "resume"))
        assert self.world.state.federation == FederationWish("lab", draining=wanted)
        assert await self.part.is_ordered(PATIENCE_S), self.part.view().problem

    async def servers(self, *errors: bool) -> None:
        """Waits until each server answers or does not."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if [bool(one.error) for one in await self.part.members()] == list(errors):
                    return
                await asyncio.sleep(0.1)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)


async def accepted(ctl: Callable[..., str], *words: str) -> None:
    """etcd changes its members only after these have known each other for five seconds; until then it says so."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                ctl(*words)
            except subprocess.CalledProcessError as error:
                assert "unhealthy cluster" in error.stderr, error.stderr
                await asyncio.sleep(0.5)
            else:
                return


@pytest.fixture(autouse=True)
def fresh_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEMBERS_S", 0.0)
    monkeypatch.setattr(module, "AGAIN_S", 0.2)


def test_a_full_store_is_emptied() -> None:
    async def test(store: etcd.Etcd) -> None:
        async with Cell(store) as cell:
            stranger = EtcdStore(cell.settings)
            await stranger.open()
            with pytest.raises(KvFull):
                for number in range(200):
                    await stranger.swap([Expect(f"/x/{number}", 0)], [Put(f"/x/{number}", b"x" * 250_000)])
            await stranger.close()
            # Leases are kept, writes fail.
            cell.world.send(ChangeFederation(ROOT, "lab", "drain"))
            await until(lambda: "NOSPACE" in cell.part.view().problem or "space" in cell.part.view().problem)
            assert cell.standing is Standing.MEMBER
            assert [one.alarms for one in await cell.part.members()] == [("NOSPACE",)]

            store.ctl("del", "--prefix", "/x/")
            (status,) = json.loads(store.ctl("endpoint", "status", "--write-out=json"))
            store.ctl("compact", str(status["Status"]["header"]["revision"]))
            store.ctl("defrag")
            store.ctl("alarm", "disarm")
            assert await cell.part.is_ordered(PATIENCE_S), cell.part.view().problem
            assert [one.alarms for one in await cell.part.members()] == [()]

    with etcd.own(quota_bytes=16 * 1024 * 1024) as store:
        run(test(store))


def test_a_member_is_replaced() -> None:
    async def test(store: etcd.Etcd) -> None:
        lost = store.members[1]
        async with Cell(store) as cell:
            lost.stop()
            await cell.servers(False, True, False)
            await cell.drains(True)

            # Its own server is asked no more, and knows nothing of those that answer.
            ctl = store.ctl_of(store.members[0])
            (number,) = re.findall(rf"(\w+), started, {lost.name}, ", ctl("member", "list"))
            await accepted(ctl, "member", "remove", number)
            await accepted(ctl, "member", "add", lost.name, f"--peer-urls={lost.peer_url}")
            store.start_empty(lost)
            lost.wait()
            await cell.servers(False, False, False)
            # It carries its part: another one may be lost now.
            store.members[0].stop()
            await cell.drains(False)
            await until(lambda: cell.standing is Standing.MEMBER)

    with etcd.own(members=3) as store:
        run(test(store))


def test_certificates_are_rotated_to_another_authority(tmp_path: Path) -> None:
    async def test(store: etcd.Etcd, tls: Path, files: Tls) -> None:
        async with Cell(store, files) as cell:
            await cell.drains(True)
            # 1. Both authorities are trusted, at etcd (which reads them when it starts) and at the cell.
            _place(tls, "ca+other-ca")
            _place(tmp_path / "cell", "ca+other-ca")
            await _restarted(store, cell)
            await cell.drains(False)
            # 2. New certificates, which etcd and cells read anew at their next connection.
            certificates.replace_pair(tls, "stranger")
            certificates.replace_pair(tmp_path / "cell", "stranger")
            cell.part.begin_again()
            await cell.drains(True)
            # 3. The old authority is trusted no more.
            _place(tls, "other-ca")
            _place(tmp_path / "cell", "other-ca")
            await _restarted(store, cell)
            await cell.drains(False)
            assert cell.standing is Standing.MEMBER
            former = EtcdStore(
                EtcdSettings(store.endpoints, Tls(certificates.place(tmp_path / "old", ca="ca+other-ca")))
            )
            with pytest.raises(KvError):
                await former.open()
            await former.close()

    tls = tmp_path / "etcd"
    for directory in (tls, tmp_path / "cell", tmp_path / "old"):
        directory.mkdir()
    certificates.place(tls)
    files = Tls(certificates.place(tmp_path / "cell"))
    with etcd.own(members=3, tls=tls) as store:
        run(test(store, tls, files))


def _place(directory: Path, ca: str) -> None:
    kept = (certificates.KEPT / f"{one}.pem" for one in ca.split("+"))
    certificates.replace_file(directory / certificates.CA, b"".join(one.read_bytes() for one in kept))


async def _restarted(store: etcd.Etcd, cell: Cell) -> None:
    """One server after another, as long as the others answer."""
    for member in store.members:
        member.stop(signal.SIGTERM)
        store.start(member)
        await asyncio.to_thread(member.wait)
        await cell.servers(False, False, False)
