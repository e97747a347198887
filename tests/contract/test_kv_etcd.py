"""Faults of a real etcd: it loses members or its leader, stands still, is full, refuses users or certificates."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eslurm.config.federation import FederationSection
from eslurm.federation.configured import store_of
from eslurm.federation.etcd.calls import EtcdSettings, address_of
from eslurm.federation.etcd.store import EtcdStore
from eslurm.ports.kv import (
    KvAmbiguous,
    KvDenied,
    KvError,
    KvFull,
    KvUnavailable,
    LeaseLost,
    WatchBroken,
)
from eslurm.transport.tls import Tls
from eslurm.transport.tls_options import TlsFiles
from tests.kits.kv import Watcher, listed, put, swap
from tests.support import certificates, etcd
from tests.support.loops import run

# Elections and quorums take seconds, on a busy machine many.
pytestmark = pytest.mark.timeout(240)
PATIENCE_S = 60.0


@pytest.fixture
def three() -> Iterator[etcd.Etcd]:
    with etcd.own(members=3) as store:
        yield store


async def opened(endpoints: tuple[str, ...], **settings: object) -> EtcdStore:
    kv = EtcdStore(EtcdSettings(endpoints, **settings))  # type: ignore[arg-type]
    await kv.open()
    return kv


async def leader_of(kv: EtcdStore, store: etcd.Etcd) -> etcd.Member:
    endpoint = next(member.endpoint for member in await kv.members() if member.is_leader)
    return next(member for member in store.members if member.endpoint == endpoint)


async def until_written(kv: EtcdStore, key: str, value: bytes) -> None:
    """Writes as a cell does: what is ambiguous is read first."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await put(kv, key, value)
            except (KvUnavailable, KvAmbiguous):
                await asyncio.sleep(0.1)
            else:
                return


def test_a_lost_leader_costs_one_election(three: etcd.Etcd) -> None:
    async def test() -> None:
        kv = await opened(three.endpoints)
        watcher = Watcher(kv, "/a/")
        await watcher.start()
        await put(kv, "/a/before", b"1")
        leader = await leader_of(kv, three)
        leader.stop()
        await until_written(kv, "/a/after", b"2")
        entries = {entry.key: entry.value for entry in await listed(kv, "/a/")}
        assert entries == {"/a/before": b"1", "/a/after": b"2"}
        # A watch that hung on the lost member breaks, and goes on elsewhere from what it has seen.
        async with asyncio.timeout(PATIENCE_S):
            while "/a/after" not in watcher.entries:
                try:
                    await watcher.next()
                except KvUnavailable:
                    await watcher.close()
                    watcher.watch_from(watcher.revision)
        await watcher.close()
        seen = await kv.members()
        assert [bool(member.error) for member in seen].count(True) == 1
        three.start(leader)
        leader.wait()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if not any(member.error for member in await kv.members()):
                    break
                await asyncio.sleep(0.1)
        await kv.close()

    run(test())


def test_a_member_without_a_quorum_answers_nothing_and_breaks_its_watches(three: etcd.Etcd) -> None:
    async def test() -> None:
        alone = three.members[0]
        kv = await opened((alone.endpoint,))
        entry = await put(kv, "/a", b"1")
        watcher = Watcher(kv, "/a")
        await watcher.start()
        for member in three.members[1:]:
            member.send_signal(signal.SIGSTOP)
        began_s = time.monotonic()
        with pytest.raises(KvUnavailable):
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    await watcher.next()
        await watcher.close()
        assert time.monotonic() - began_s < PATIENCE_S / 2
        for call in (kv.get("/a"), kv.list("/a"), kv.grant(10.0)):
            with pytest.raises(KvUnavailable):
                await call
        with pytest.raises((KvUnavailable, KvAmbiguous)):
            await swap(kv, "/a", entry, b"2")
        for member in three.members[1:]:
            member.send_signal(signal.SIGCONT)
        await until_written(kv, "/a", b"3")
        await kv.close()

    run(test())


def test_a_member_that_stands_still_is_left_for_another(three: etcd.Etcd) -> None:
    async def test() -> None:
        kv = await opened(three.endpoints)
        await put(kv, "/a", b"1")
        at = next(one for one in three.members if one.endpoint == kv.endpoint)
        at.send_signal(signal.SIGSTOP)
        await until_written(kv, "/a", b"2")
        assert kv.endpoint != at.endpoint
        at.send_signal(signal.SIGCONT)
        await kv.close()

    run(test())


def test_a_swap_whose_answer_is_lost_is_ambiguous() -> None:
    async def test(store: etcd.Etcd) -> None:
        kv = await opened(store.endpoints, call_s=1.0)
        entry = await put(kv, "/a", b"1")
        store.members[0].send_signal(signal.SIGSTOP)
        with pytest.raises(KvAmbiguous):
            await swap(kv, "/a", entry, b"2")
        with pytest.raises(KvUnavailable):
            await kv.get("/a")
        store.members[0].send_signal(signal.SIGCONT)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    found = (await kv.get("/a")).entry
                except KvUnavailable:
                    continue
                assert found is not None
                # etcd received it while it stood still; it may have dropped it all the same.
                assert found.value in (b"1", b"2")
                break
        await kv.close()

    with etcd.own() as store:
        run(test(store))


def test_a_full_store_refuses_writes_and_goes_on_with_everything_else() -> None:
    async def test(store: etcd.Etcd) -> None:
        kv = await opened(store.endpoints)
        lease = await kv.grant(60.0)
        await put(kv, "/alive", b"1", lease.lease)
        with pytest.raises(KvFull, match="disarm"):
            for number in range(200):
                await put(kv, f"/{number}", b"x" * 250_000)
        assert (await kv.get("/alive")).entry is not None
        assert await kv.keep(lease.lease) > 0
        assert (await kv.members())[0].alarms == ("NOSPACE",)
        entry = (await kv.get("/0")).entry
        assert (await swap(kv, "/0", entry, None)).done
        await kv.compact((await kv.get("/0")).revision)
        store.ctl("defrag")
        store.ctl("alarm", "disarm")
        await kv.revoke(lease.lease)
        # Values that are still there keep it full.
        for found in await listed(kv, "/", limit=20):
            assert (await swap(kv, found.key, found, None)).done
        await kv.compact((await kv.get("/0")).revision)
        store.ctl("defrag")
        await until_written(kv, "/again", b"1")
        await kv.close()

    with etcd.own(quota_bytes=16 * 1024 * 1024) as store:
        run(test(store))


def test_what_was_written_and_leased_is_there_after_a_crash() -> None:
    async def test(store: etcd.Etcd) -> None:
        kv = await opened(store.endpoints)
        lease = await kv.grant(60.0)
        await put(kv, "/leased", b"1", lease.lease)
        entry = await put(kv, "/a", b"1")
        store.members[0].stop()
        with pytest.raises(KvUnavailable):
            await kv.get("/a")
        with pytest.raises((KvUnavailable, KvAmbiguous)):
            # Nothing listens there; a connection that is only just gone may leave that open.
            await swap(kv, "/a", entry, b"2")
        store.start(store.members[0])
        store.members[0].wait()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    assert (await kv.get("/a")).entry == entry
                    break
                except KvUnavailable:
                    await asyncio.sleep(0.05)
        assert await kv.keep(lease.lease) == lease.ttl_s
        await kv.revoke(lease.lease)
        assert (await kv.get("/leased")).entry is None
        with pytest.raises(LeaseLost):
            await kv.keep(lease.lease)
        await kv.close()

    with etcd.own() as store:
        run(test(store))


def test_large_values_come_in_smaller_pages(three: etcd.Etcd) -> None:
    async def test() -> None:
        kv = await opened(three.endpoints)
        for number in range(80):
            await put(kv, f"/large/{number:02}", bytes(250_000))
        page = await kv.list("/large/")
        assert page.more
        assert len(page.entries) < 80
        assert len(await listed(kv, "/large/")) == 80
        await kv.close()

    run(test())


def test_keys_of_other_programs_are_passed_over() -> None:
    async def test(store: etcd.Etcd) -> None:
        kv = await opened(store.endpoints)
        watcher = Watcher(kv, "/a/")
        await watcher.start()
        for number in range(30):
            store.ctl("put", f"/a/foreign key {number:02}", "x")
        entry = await put(kv, "/a/z", b"1")
        async with asyncio.timeout(PATIENCE_S):
            await watcher.until(bool)
        assert list(watcher.entries) == ["/a/z"]
        await watcher.close()
        assert await listed(kv, "/a/", limit=10) == (entry,)
        await kv.close()

    with etcd.own() as store:
        run(test(store))


def test_a_watch_from_the_future_breaks() -> None:
    async def test(store: etcd.Etcd) -> None:
        kv = await opened(store.endpoints)
        entry = await put(kv, "/a", b"1")
        with pytest.raises(WatchBroken):
            # As after a restore of an older backup.
            await kv.list("/", after="/a", revision=entry.version + 100)
        await kv.close()

    with etcd.own() as store:
        run(test(store))


# ---- users ----


def test_a_user_writes_where_its_role_allows_it() -> None:
    async def test(store: etcd.Etcd) -> None:
        for words in (
            ("user", "add", "root:rootpass"),
            ("user", "grant-role", "root", "root"),
            ("role", "add", "cell"),
            ("role", "grant-permission", "cell", "readwrite", "--prefix", "/eslurm/"),
            ("user", "add", "alpha:secret"),
            ("user", "grant-role", "alpha", "cell"),
            ("auth", "enable"),
        ):
            store.ctl(*words)
        with pytest.raises(KvDenied, match="authentication failed"):
            await opened(store.endpoints, user="alpha", password=lambda: "wrong")
        with pytest.raises(KvDenied, match="user name"):
            await opened(store.endpoints)
        passwords = iter(["secret"] * 50)
        kv = await opened(store.endpoints, user="alpha", password=lambda: next(passwords), probe="/eslurm/")
        await put(kv, "/eslurm/a", b"1")
        with pytest.raises(KvDenied, match="permission denied"):
            await kv.get("/other")
        with pytest.raises(KvDenied, match="permission denied"):
            await put(kv, "/other", b"1")
        with pytest.raises(KvDenied, match="permission denied"):
            await anext(kv.watch("/other", 1))
        watcher = Watcher(kv, "/eslurm/")
        await watcher.start()
        await put(kv, "/eslurm/b", b"1")
        async with asyncio.timeout(PATIENCE_S):
            await watcher.until(lambda entries: len(entries) == 2)
        await watcher.close()
        # A restart forgets tokens: the client asks for another one by itself.
        store.members[0].stop()
        store.start(store.members[0])
        store.members[0].wait()
        await until_written(kv, "/eslurm/c", b"1")
        lease = await kv.grant(10.0)
        assert await kv.keep(lease.lease) > 0
        await kv.close()

    with etcd.own() as store:
        run(test(store))


# ---- certificates ----


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[etcd.Etcd]:
    certificates.place(tmp_path)
    with etcd.own(tls=tmp_path) as store:
        yield store


def test_clients_with_a_certificate_are_served(encrypted: etcd.Etcd, tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "client").mkdir()
        files = certificates.place(tmp_path / "client")
        kv = await opened(encrypted.endpoints, tls=Tls(files))
        await put(kv, "/a", b"1")
        await kv.close()

    run(test())


def test_certificates_for_clients_alone_of_an_authority_of_their_own_are_served(tmp_path: Path) -> None:
    certificates.place(tmp_path, ca="ca+client-ca")
    (tmp_path / "cell").mkdir()
    files = certificates.place(tmp_path / "cell", "calling", "ca")
    assert files.certificate is not None and files.key is not None
    named = {"ca": files.ca.name, "certificate": files.certificate.name, "key": files.key.name}

    async def test(store: etcd.Etcd) -> None:
        section = FederationSection(name="lab", endpoints=list(store.endpoints), **named)
        kv = store_of(section, tmp_path / "cell")
        await kv.open()
        await put(kv, "/eslurm/lab/cells/a", b"1")
        await kv.close()

    with etcd.own(tls=tmp_path) as store:
        run(test(store))


def test_a_store_of_another_authority_is_not_trusted(encrypted: etcd.Etcd, tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "client").mkdir()
        files = certificates.place(tmp_path / "client", "stranger", "other-ca")
        with pytest.raises(KvDenied, match="not trusted"):
            await opened(encrypted.endpoints, tls=Tls(files))

    run(test())


def test_a_client_without_a_certificate_is_not_served(encrypted: etcd.Etcd, tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "client").mkdir()
        files = certificates.place(tmp_path / "client")
        with pytest.raises(KvUnavailable, match="certificate"):
            await opened(encrypted.endpoints, tls=Tls(TlsFiles(files.ca)))

    run(test())


def test_without_tls_nothing_is_read(encrypted: etcd.Etcd) -> None:
    async def test() -> None:
        with pytest.raises(KvError):
            await opened((encrypted.endpoints[0].replace("https", "http"),))

    run(test())


def test_a_store_without_tls_is_named(tmp_path: Path) -> None:
    async def test() -> None:
        tls = Tls(certificates.place(tmp_path))
        with pytest.raises(KvUnavailable, match="is TLS spoken there"):
            await opened((etcd.shared().endpoints[0].replace("http", "https"),), tls=tls)

    run(test())


@pytest.mark.parametrize(
    ("endpoint", "encrypted"),
    [
        ("127.0.0.1:2379", False),
        ("https://127.0.0.1:2379", False),
        ("http://127.0.0.1:2379", True),
        ("http://user@127.0.0.1:2379", False),
        ("http://127.0.0.1", False),
        ("http://127.0.0.1:2379/path", False),
    ],
)
def test_an_endpoint_is_a_scheme_a_host_and_a_port(endpoint: str, encrypted: bool) -> None:
    with pytest.raises(ValueError, match="endpoint"):
        address_of(endpoint, encrypted=encrypted)
