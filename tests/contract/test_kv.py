"""The contract of a shared key-value store: linearizable swaps, listings at one revision, leases, gapless watches."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator

import pytest

from eslurm.ports.kv import (
    KEY_BYTES_MAX,
    LEASE_MIN_S,
    OPERATIONS_MAX,
    PROGRESS_S,
    VALUE_BYTES_MAX,
    Changes,
    Delete,
    Expect,
    KvTooLarge,
    KvUnavailable,
    LeaseLost,
    Put,
    WatchBroken,
)
from tests.kits.kv import BACKENDS, Backend, Watcher, listed, put, swap

PATIENCE_S = 30.0


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    yield BACKENDS[request.param]()


def test_a_key_is_made_changed_and_removed(backend: Backend) -> None:
    async def test() -> None:
        kv = await backend.kv()
        key = f"{backend.root}a"
        absent = await kv.get(key)
        assert absent.entry is None
        made = await swap(kv, key, None, b"1")
        first = made.current[key]
        assert made.done
        assert first is not None
        assert (first.key, first.value, first.version, first.created) == (
            key,
            b"1",
            made.revision,
            made.revision,
        )
        assert made.revision > absent.revision
        changed = await swap(kv, key, first, b"2")
        second = changed.current[key]
        assert second is not None
        assert (second.value, second.version, second.created) == (b"2", changed.revision, made.revision)
        assert (await kv.get(key)).entry == second
        removed = await swap(kv, key, second, None)
        assert removed.done
        assert removed.current == {key: None}
        assert (await kv.get(key)).entry is None

    backend.run(test())


def test_a_swap_that_fails_changes_nothing_and_says_what_is_there(backend: Backend) -> None:
    async def test() -> None:
        kv = await backend.kv()
        a, b, c = (f"{backend.root}{name}" for name in "abc")
        first = await put(kv, a, b"1")
        second = await put(kv, a, b"2")
        other = await put(kv, b, b"3")
        before = await kv.get(a)
        failed = await kv.swap(
            [Expect(a, first.version), Expect(b, other.version), Expect(c, 0)],
            [Put(a, b"4"), Delete(b), Put(c, b"5")],
        )
        assert not failed.done
        assert failed.current == {a: second, b: other, c: None}
        assert await listed(kv, backend.root) == (second, other)
        assert (await kv.get(a)).revision == before.revision

    backend.run(test())


def test_a_value_that_came_back_is_another_version(backend: Backend) -> None:
    async def test() -> None:
        kv = await backend.kv()
        key = f"{backend.root}a"
        first = await put(kv, key, b"1")
        await put(kv, key, b"2")
        back = await put(kv, key, b"1")
        assert not (await swap(kv, key, first, b"3")).done
        gone = await swap(kv, key, back, None)
        again = await put(kv, key, b"1")
        assert again.version > gone.revision > back.version
        assert again.created == again.version
        assert not (await swap(kv, key, back, b"3")).done

    backend.run(test())


def test_a_condition_can_be_on_a_key_that_is_not_changed(backend: Backend) -> None:
    async def test() -> None:
        kv = await backend.kv()
        a, b = f"{backend.root}a", f"{backend.root}b"
        guard = await put(kv, a, b"1")
        done = await kv.swap([Expect(a, guard.version), Expect(b, 0)], [Put(b, b"2")])
        assert done.done
        assert done.current[a] == guard
        await put(kv, a, b"3")
        assert not (await kv.swap([Expect(a, guard.version), Expect(b, done.revision)], [Delete(b)])).done

    backend.run(test())


def test_a_transaction_of_many_keys_is_one_revision(backend: Backend) -> None:
    async def test() -> None:
        kv = await backend.kv()
        keys = [f"{backend.root}{number:03}" for number in range(OPERATIONS_MAX)]
        done = await kv.swap([Expect(key, 0) for key in keys], [Put(key, key.encode()) for key in keys])
        assert done.done
        entries = await listed(kv, backend.root)
        assert [entry.key for entry in entries] == keys
        assert {entry.version for entry in entries} == {done.revision}
        assert {key: entry.value for key, entry in done.current.items() if entry} == {
            key: key.encode() for key in keys
        }

    backend.run(test())


def test_many_writers_lose_no_change(backend: Backend) -> None:
    """1000 - 2 x 100 = 800 (S-06), by four clients at once, each with the value that a failed swap brought."""

    async def writer(key: str, times: int) -> int:
        kv = await backend.kv()
        entry = (await kv.get(key)).entry
        messages = 0
        for _ in range(times):
            while True:
                assert entry is not None
                messages += 1
                swapped = await swap(kv, key, entry, str(int(entry.value) - 2).encode())
                entry = swapped.current[key]
                if swapped.done:
                    break
                # Not all at once for ever.
                await asyncio.sleep(random.uniform(0, 0.01))
        return messages

    async def test() -> None:
        kv = await backend.kv()
        key = f"{backend.root}pool"
        await put(kv, key, b"1000")
        messages = await asyncio.gather(*(writer(key, 25) for _ in range(4)))
        entry = (await kv.get(key)).entry
        assert entry is not None
        assert entry.value == b"800"
        assert sum(messages) >= 100

    backend.run(test())


def test_a_listing_is_read_at_one_revision_while_others_write(backend: Backend) -> None:
    async def test() -> None:
        kv = await backend.kv()
        keys = [f"{backend.root}k/{number:02}" for number in range(25)]
        for key in keys:
            await put(kv, key, b"old")
        await put(kv, f"{backend.root}l", b"beside")
        page = await kv.list(f"{backend.root}k/", limit=10)
        assert page.more
        for key in keys:
            await put(kv, key, b"new")
        await swap(kv, keys[20], (await kv.get(keys[20])).entry, None)
        entries = page.entries
        while page.more:
            page = await kv.list(f"{backend.root}k/", after=entries[-1].key, revision=page.revision, limit=10)
            entries += page.entries
        assert [entry.key for entry in entries] == keys
        assert {entry.value for entry in entries} == {b"old"}
        assert len(await listed(kv, f"{backend.root}k/", limit=7)) == 24
        assert (await kv.list(f"{backend.root}none/")).entries == ()

    backend.run(test())


@pytest.mark.parametrize("key", ["", "a", "/a b", "/ä", "/a\n", "/a\0"])
def test_keys_are_paths_of_printable_characters(backend: Backend, key: str) -> None:
    async def test() -> None:
        kv = await backend.kv()
        for call in (kv.get(key), kv.list(key), kv.swap([Expect(key, 0)], [Put(key, b"")])):
            with pytest.raises(ValueError, match="no path"):
                await call

    backend.run(test())


def test_what_is_too_large_is_refused_before_it_is_sent(backend: Backend) -> None:
    async def test() -> None:
        kv = await backend.kv()
        key = f"{backend.root}a"
        long = backend.root + "k" * (KEY_BYTES_MAX - len(backend.root))
        assert (await swap(kv, long, None, b"1")).done
        assert (await swap(kv, key, None, b"v" * VALUE_BYTES_MAX)).done
        with pytest.raises(KvTooLarge, match="key"):
            await kv.get(long + "k")
        with pytest.raises(KvTooLarge, match="value"):
            await swap(kv, key, None, b"v" * (VALUE_BYTES_MAX + 1))
        many = [f"{key}{number}" for number in range(OPERATIONS_MAX + 1)]
        with pytest.raises(KvTooLarge, match="operations"):
            await kv.swap([Expect(one, 0) for one in many], [])
        with pytest.raises(ValueError, match="at most one"):
            await kv.swap([Expect(key, 0)], [Put(key, b"1"), Delete(key)])
        with pytest.raises(ValueError, match="without a condition"):
            await kv.swap([Expect(key, 0)], [Put(f"{key}b", b"1")])

    backend.run(test())


def test_a_lease_takes_its_keys_with_it_not_early(backend: Backend) -> None:
    async def test() -> None:
        kv, other = await backend.kv(), await backend.kv()
        key, stays = f"{backend.root}alive", f"{backend.root}stays"
        lease = await kv.grant(LEASE_MIN_S)
        assert lease.ttl_s >= LEASE_MIN_S
        await put(kv, key, b"1", lease.lease)
        await put(kv, stays, b"1")
        kept_s = time.monotonic()
        assert await kv.keep(lease.lease) == lease.ttl_s
        watcher = Watcher(other, backend.root)
        await watcher.start()
        assert watcher.entries[key].lease == lease.lease
        async with asyncio.timeout(PATIENCE_S):
            await watcher.until(lambda entries: key not in entries)
        assert time.monotonic() - kept_s >= lease.ttl_s * 0.99
        assert stays in watcher.entries
        await watcher.close()
        assert (await kv.get(key)).entry is None
        with pytest.raises(LeaseLost):
            await kv.keep(lease.lease)
        with pytest.raises(LeaseLost):
            await put(kv, key, b"2", lease.lease)
        assert (await kv.get(key)).entry is None
        await kv.revoke(lease.lease)

    backend.run(test())


def test_a_revoked_lease_takes_its_keys_at_once(backend: Backend) -> None:
    async def test() -> None:
        kv = await backend.kv()
        one, two = f"{backend.root}one", f"{backend.root}two"
        lease, another = await kv.grant(60.0), await kv.grant(60.0)
        assert lease.lease != another.lease
        await put(kv, one, b"1", lease.lease)
        # A key hangs on the lease of its last change.
        await put(kv, two, b"1", lease.lease)
        await put(kv, two, b"2", another.lease)
        await kv.revoke(lease.lease)
        assert [entry.key for entry in await listed(kv, backend.root)] == [two]
        await kv.revoke(another.lease)
        assert await listed(kv, backend.root) == ()

    backend.run(test())


@pytest.mark.parametrize("ttl_s", [0.0, LEASE_MIN_S - 0.1, 4_000.0])
def test_a_lease_has_bounds(backend: Backend, ttl_s: float) -> None:
    async def test() -> None:
        kv = await backend.kv()
        with pytest.raises(ValueError, match="lease"):
            await kv.grant(ttl_s)

    backend.run(test())


def test_a_watch_shows_each_change_after_a_listing_in_order(backend: Backend) -> None:
    async def test() -> None:
        kv, other = await backend.kv(), await backend.kv()
        prefix = f"{backend.root}w/"
        await put(kv, f"{prefix}before", b"0")
        watcher = Watcher(other, prefix)
        await watcher.start()
        versions = [(await put(kv, f"{prefix}k", str(number).encode())).version for number in range(50)]
        await put(kv, f"{backend.root}beside", b"1")
        await swap(kv, f"{prefix}before", (await kv.get(f"{prefix}before")).entry, None)
        async with asyncio.timeout(PATIENCE_S):
            await watcher.until(lambda entries: f"{prefix}before" not in entries)
        assert list(watcher.entries) == [f"{prefix}k"]
        assert watcher.entries[f"{prefix}k"].version == versions[-1]
        seen = [entry.version for changes in watcher.seen for entry in changes.entries]
        assert seen == sorted(seen)
        assert set(seen) <= set(versions)
        await watcher.close()

    backend.run(test())


def test_a_watch_shows_whole_revisions(backend: Backend) -> None:
    async def test() -> None:
        kv, other = await backend.kv(), await backend.kv()
        keys = [f"{backend.root}w/{number:02}" for number in range(OPERATIONS_MAX)]
        watcher = Watcher(other, f"{backend.root}w/")
        await watcher.start()
        entries = (
            await kv.swap([Expect(key, 0) for key in keys], [Put(key, b"x" * 2_000) for key in keys])
        ).current
        async with asyncio.timeout(PATIENCE_S):
            await watcher.until(bool)
        assert watcher.entries == entries
        await watcher.close()

    backend.run(test())


def test_two_watches_of_one_client_see_their_own_keys(backend: Backend) -> None:
    async def test() -> None:
        kv = await backend.kv()
        one, two = Watcher(kv, f"{backend.root}1/"), Watcher(kv, f"{backend.root}2/")
        await one.start()
        await two.start()
        await put(kv, f"{backend.root}1/a", b"1")
        await put(kv, f"{backend.root}2/a", b"1")
        async with asyncio.timeout(PATIENCE_S):
            await one.until(bool)
            await two.until(bool)
        assert list(one.entries) == [f"{backend.root}1/a"]
        assert list(two.entries) == [f"{backend.root}2/a"]
        await one.close()
        # The other goes on.
        await put(kv, f"{backend.root}2/b", b"1")
        async with asyncio.timeout(PATIENCE_S):
            await two.until(lambda entries: len(entries) == 2)
        await two.close()

    backend.run(test())


def test_an_idle_watch_says_that_nothing_has_happened(backend: Backend) -> None:
    async def test() -> None:
        kv = await backend.kv()
        await put(kv, f"{backend.root}beside", b"1")
        watcher = Watcher(kv, f"{backend.root}w/")
        page = await watcher.start()
        async with asyncio.timeout(PROGRESS_S * 3):
            changes = await watcher.next()
        assert changes == Changes(changes.revision)
        assert changes.revision >= page.revision
        await watcher.close()

    backend.run(test())


def test_a_watch_of_what_is_compacted_breaks_and_listing_again_has_all(backend: Backend) -> None:
    async def test() -> None:
        kv = await backend.kv()
        prefix = f"{backend.root}w/"
        first = await put(kv, f"{prefix}a", b"1")
        for number in range(5):
            last = await put(kv, f"{prefix}b", str(number).encode())
        kept = (await kv.get(f"{prefix}a")).entry
        await kv.compact(last.version)
        watcher = Watcher(kv, prefix)
        watcher.watch_from(first.version)
        with pytest.raises(WatchBroken) as broken:
            async with asyncio.timeout(PATIENCE_S):
                await watcher.next()
        assert broken.value.compacted_revision == last.version
        with pytest.raises(WatchBroken):
            await kv.list(prefix, after=f"{prefix}a", revision=first.version)
        # What was not overwritten is there.
        assert await listed(kv, prefix) == (kept, last)
        await watcher.start()
        await put(kv, f"{prefix}c", b"1")
        async with asyncio.timeout(PATIENCE_S):
            await watcher.until(lambda entries: len(entries) == 3)
        await watcher.close()

    backend.run(test())


def test_a_watch_that_is_up_to_date_survives_a_compaction(backend: Backend) -> None:
    async def test() -> None:
        kv = await backend.kv()
        prefix = f"{backend.root}w/"
        watcher = Watcher(kv, prefix)
        await watcher.start()
        for number in range(3):
            last = await put(kv, f"{prefix}a", str(number).encode())
            async with asyncio.timeout(PATIENCE_S):
                while watcher.revision < last.version:
                    await watcher.next()
            await kv.compact(last.version)
        await put(kv, f"{prefix}b", b"1")
        async with asyncio.timeout(PATIENCE_S):
            await watcher.until(lambda entries: len(entries) == 2)
        await watcher.close()

    backend.run(test())


def test_a_stale_read_is_never_newer_than_the_store(backend: Backend) -> None:
    async def test() -> None:
        kv = await backend.kv()
        key = f"{backend.root}a"
        for number in range(20):
            entry = await put(kv, key, str(number).encode())
            stale = (await kv.get(key, stale=True)).entry
            assert stale is None or stale.version <= entry.version
            assert (await kv.get(key)).entry == entry

    backend.run(test())


@pytest.mark.parametrize(
    "call",
    [
        lambda kv: kv.get("/a"),
        lambda kv: kv.list("/a"),
        lambda kv: kv.swap([Expect("/a", 0)], [Put("/a", b"")]),
        lambda kv: kv.grant(10.0),
    ],
    ids=["get", "list", "swap", "grant"],
)
def test_a_closed_client_is_unavailable(backend: Backend, call: Callable[..., object]) -> None:
    async def test() -> None:
        kv = await backend.kv()
        await kv.close()
        with pytest.raises(KvUnavailable):
            await call(kv)  # type: ignore[misc]

    backend.run(test())


def test_closing_a_client_ends_its_watches(backend: Backend) -> None:
    async def test() -> None:
        kv = await backend.kv()
        watcher = Watcher(kv, backend.root)
        await watcher.start()
        waiting = asyncio.ensure_future(watcher.next())
        await asyncio.sleep(0)
        await kv.close()
        with pytest.raises(KvUnavailable):
            async with asyncio.timeout(PATIENCE_S):
                await waiting

    backend.run(test())


def test_members_are_shown(backend: Backend) -> None:
    async def test() -> None:
        kv = await backend.kv()
        members = await kv.members()
        assert [member.is_leader for member in members].count(True) == 1
        assert all(not member.error and not member.alarms for member in members)

    backend.run(test())
