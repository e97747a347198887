"""The table of links: one dial per endpoint, back-off, caps, eviction, restarted peers."""

from __future__ import annotations

import asyncio

import pytest

from eslurm.ports.link import LinkUnreachable
from eslurm.rpc.options import TableSettings
from tests.support.loops import both_loops, run
from tests.unit.rpc.kit import process, report, until

DEAD = "127.0.0.1:1"


@both_loops
def test_concurrent_callers_share_one_dial(uvloop: bool) -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b") as b:
            links = await asyncio.gather(*(b.table.get(a.endpoint) for _ in range(20)))
            assert len(set(links)) == 1
            assert b.table.counters.dials == 1
            assert await b.table.get(a.endpoint) is links[0]

    run(scenario(), uvloop=uvloop)


def test_a_cancelled_caller_does_not_spoil_the_dial_for_others() -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b") as b:
            first = asyncio.create_task(b.table.get(a.endpoint))
            second = asyncio.create_task(b.table.get(a.endpoint))
            await asyncio.sleep(0)
            first.cancel()
            link = await second
            assert not link.closed.is_set()
            assert first.cancelled()

    run(scenario())


def test_the_peer_s_own_link_is_used_for_its_endpoint() -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b", listens=True) as b:
            await b.table.get(a.endpoint)
            await until(lambda: bool(a.sink.ups))
            link = await a.table.get(b.endpoint)
            assert not link.dialled
            assert a.table.counters.dials == 0
            link.send(report(3))
            await until(lambda: b.sink.numbers == [3])

    run(scenario())


def test_a_failed_endpoint_is_left_alone_for_a_growing_while() -> None:
    async def scenario() -> None:
        settings = TableSettings(backoff_first_s=0.05, backoff_max_s=30.0)
        async with process("b", table_settings=settings) as b:
            waits_s: list[float] = []
            for failures in range(1, 5):
                with pytest.raises(LinkUnreachable, match="refused"):
                    await b.table.get(DEAD)
                assert b.table.counters.dials == failures
                with pytest.raises(LinkUnreachable, match="refused") as left_alone:
                    await b.table.get(DEAD)
                assert b.table.counters.dials == failures, "no dial during the back-off"
                waits_s.append(left_alone.value.retry_after_s)
                await asyncio.sleep(left_alone.value.retry_after_s)
            for failures, wait_s in enumerate(waits_s):
                assert wait_s <= 0.05 * 2**failures
            assert waits_s[3] > waits_s[0]

    run(scenario())


def test_idle_links_above_the_cap_are_closed_oldest_first() -> None:
    async def scenario() -> None:
        settings = TableSettings(cached_max=2, idle_s=0.0)
        async with (
            process("a1", listens=True) as a1,
            process("a2", listens=True) as a2,
            process("a3", listens=True) as a3,
            process("b", table_settings=settings) as b,
        ):
            first = await b.table.get(a1.endpoint)
            second = await b.table.get(a2.endpoint)
            # Each peer's first frame counts as activity too.
            await until(lambda: b.table.counters.frames_in == 2)
            second.active_at_s, first.active_at_s = 1.0, 2.0
            third = await b.table.get(a3.endpoint)
            await until(lambda: bool(b.sink.downs))
            assert b.sink.downs == [(second, "idle")]
            assert b.table.counters.evictions == 1
            assert {link.peer.process for link in b.table.links} == {"a1", "a3"}
            assert not first.closed.is_set() and not third.closed.is_set()

    run(scenario())


def test_links_in_use_are_kept_and_dials_stop_at_the_hard_cap() -> None:
    async def scenario() -> None:
        settings = TableSettings(cached_max=1, dialled_max=2, idle_s=3600.0)
        async with (
            process("a1", listens=True) as a1,
            process("a2", listens=True) as a2,
            process("a3", listens=True) as a3,
            process("b", table_settings=settings) as b,
        ):
            await b.table.get(a1.endpoint)
            await b.table.get(a2.endpoint)
            with pytest.raises(LinkUnreachable, match="2 dialled links and takes no more"):
                await b.table.get(a3.endpoint)
            assert not b.sink.downs

    run(scenario())


def test_a_peer_that_restarted_loses_its_old_link_at_once() -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b-old") as old, process("b-new") as new:
            old.local.endpoint = new.local.endpoint = "127.0.0.1:7"
            await old.table.get(a.endpoint)
            await until(lambda: len(a.sink.ups) == 1)
            await new.table.get(a.endpoint)
            await until(lambda: bool(a.sink.downs))
            assert a.sink.downs == [(a.sink.ups[0], "the peer restarted")]
            found = a.table.find("127.0.0.1:7")
            assert found is not None and found.peer.process == "b-new"

    run(scenario())


def test_a_closed_table_dials_no_more() -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b") as b:
            await b.table.close("going down")
            with pytest.raises(LinkUnreachable, match="going down"):
                await b.table.get(a.endpoint)

    run(scenario())


def test_when_both_sides_dialled_one_link_may_go() -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b", listens=True) as b:
            await asyncio.gather(a.table.get(b.endpoint), b.table.get(a.endpoint))
            await until(lambda: len(a.sink.ups) == len(b.sink.ups) == 2)
            assert len(a.table.links) == len(b.table.links) == 1
            newest = a.table.find_process("b")
            assert newest is not None
            newest.abort("only this one")
            await until(lambda: len(a.sink.downs) == len(b.sink.downs) == 1)
            other = a.table.find_process("b")
            assert other is not None and other is a.table.find(b.endpoint) and other is not newest
            other.send(report(1))
            await until(lambda: b.sink.numbers == [1])

    run(scenario())
