"""The table of links: one dial per endpoint, back-off, caps, eviction, restarted peers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from eslurm.links.link import GrpcLink
from eslurm.ports.link import ANYBODY, LinkBusy, LinkRefused, LinkUnreachable, Wanted, is_idle_end
from eslurm.transport.options import LinkSettings, TableSettings
from tests.kits.api import answer, process, report, until
from tests.support.connections import connections
from tests.support.loops import both_loops, run

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


def leaps() -> Callable[[float], None]:
    """A function that sets the running loop's clock forward: no test waits, and a busy machine changes nothing."""
    loop = asyncio.get_running_loop()
    as_it_is = loop.time
    ahead_s = 0.0

    def leap(seconds: float) -> None:
        nonlocal ahead_s
        ahead_s += seconds

    loop.time = lambda: as_it_is() + ahead_s
    return leap


def test_a_failed_endpoint_is_left_alone_for_a_growing_while() -> None:
    async def scenario() -> None:
        settings = TableSettings(backoff_first_s=300.0, backoff_max_s=30_000.0)
        leap = leaps()
        async with process("b", table_settings=settings) as b:
            waits_s: list[float] = []
            for failures in range(1, 4):
                with pytest.raises(LinkUnreachable, match="refused"):
                    await b.table.get(DEAD)
                assert b.table.counters.dials == failures
                with pytest.raises(LinkUnreachable, match="refused") as left_alone:
                    await b.table.get(DEAD)
                assert b.table.counters.dials == failures, "no dial during the back-off"
                waits_s.append(left_alone.value.retry_after_s)
                leap(left_alone.value.retry_after_s)
            for failures, wait_s in enumerate(waits_s):
                assert wait_s <= 300 * 2**failures
            assert waits_s[2] > waits_s[0]

    run(scenario())


def test_who_is_needed_soon_is_left_alone_for_less() -> None:
    async def scenario() -> None:
        settings = TableSettings(backoff_first_s=30_000.0, backoff_max_s=30_000.0)
        leap = leaps()
        async with process("b", table_settings=settings) as b:
            for dials in range(1, 4):
                with pytest.raises(LinkUnreachable, match="refused"):
                    await b.table.get(DEAD, ANYBODY, 200.0)
                assert b.table.counters.dials == dials
                with pytest.raises(LinkUnreachable, match="refused") as left_alone:
                    await b.table.get(DEAD)
                assert left_alone.value.retry_after_s <= 200.0
                leap(left_alone.value.retry_after_s)

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
        settings = TableSettings(cached_max=1, dialled_max=2, idle_s=3600.0, room_wait_s=3.0)
        async with (
            process("a1", listens=True) as a1,
            process("a2", listens=True) as a2,
            process("a3", listens=True) as a3,
            process("b", table_settings=settings) as b,
        ):
            for peer in (a1, a2):
                link = await b.table.get(peer.endpoint)
                assert link.send(report(1))
            with pytest.raises(LinkUnreachable, match="2 dialled links in use and takes no more"):
                await b.table.get(a3.endpoint)
            assert not b.sink.downs
            await until(lambda: bool(a1.sink.ups))
            a1.sink.ups[0].send(answer(1))
            assert (await b.table.get(a3.endpoint)).peer.process == "a3"
            assert [reason for _link, reason in b.sink.downs] == ["idle"]

    run(scenario())


def test_a_peer_that_restarted_loses_its_old_link_at_once() -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b.old") as old, process("b.new") as new:
            old.local.endpoint = new.local.endpoint = "127.0.0.1:7"
            await old.table.get(a.endpoint)
            await until(lambda: len(a.sink.ups) == 1)
            await new.table.get(a.endpoint)
            await until(lambda: bool(a.sink.downs))
            assert a.sink.downs == [(a.sink.ups[0], "the peer restarted")]
            found = a.table.find("127.0.0.1:7")
            assert found is not None and found.peer.process == "b.new"

    run(scenario())


def test_another_host_that_claims_an_endpoint_takes_nothing_over() -> None:
    """Eve says that she listens where a satellite does: links to it stay, and who looks for it does not find her."""

    async def scenario() -> None:
        async with (
            process("a", listens=True) as a,
            process("s", role="satellite") as s,
            process("eve") as eve,
        ):
            s.local.endpoint = eve.local.endpoint = "127.0.0.1:7"
            await s.table.get(a.endpoint)
            await until(lambda: len(a.sink.ups) == 1)
            await eve.table.get(a.endpoint)
            await until(lambda: len(a.sink.ups) == 2)
            assert not a.sink.downs
            found = a.table.find("127.0.0.1:7", Wanted("satellite"))
            assert found is not None and found.peer.process == "s"
            assert a.table.find("127.0.0.1:7", Wanted(name="cn1")) is None

    run(scenario())


def test_who_listens_there_must_be_who_is_looked_for() -> None:
    async def scenario() -> None:
        async with process("eve", listens=True) as eve, process("b") as b:
            for wanted in (Wanted("satellite"), Wanted("agent", "cn1")):
                with pytest.raises(LinkRefused, match="agent eve listens there, not"):
                    await b.table.get(eve.endpoint, wanted, 0.0)
            assert (await b.table.get(eve.endpoint, Wanted("agent", "eve"), 0.0)).peer.names == "eve"

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


def test_idle_links_of_agents_are_parked_above_the_budget() -> None:
    async def scenario() -> None:
        settings = TableSettings(parked_above=1, parked_quiet_s=0.0)
        async with (
            process("s", listens=True, table_settings=settings) as s,
            process("a1") as a1,
            process("a2") as a2,
            process("a3") as a3,
        ):
            for peer in (a1, a2, a3):
                await peer.table.get(s.endpoint)
            await until(lambda: s.table.counters.links_parked == 2)
            await until(lambda: len(a1.sink.downs) == len(a2.sink.downs) == 1)
            assert is_idle_end(a1.sink.downs[0][1]) and is_idle_end(a2.sink.downs[0][1])
            assert not a3.sink.downs

    run(scenario())


def test_a_link_is_not_parked_while_an_answer_is_owed() -> None:
    async def scenario() -> None:
        settings = TableSettings(parked_above=1, parked_quiet_s=0.0)
        async with (
            process("s", listens=True, table_settings=settings) as s,
            process("a1") as a1,
            process("a2") as a2,
        ):
            asking = await a1.table.get(s.endpoint)
            asking.send(report(1))
            await until(lambda: s.sink.numbers == [1])
            await a2.table.get(s.endpoint)
            await until(lambda: bool(a2.sink.downs))
            assert not a1.sink.downs
            at_satellite = s.table.find_process("a1")
            assert at_satellite is not None
            at_satellite.send(answer(1))
            again = await a2.table.get(s.endpoint)
            again.send(report(2))
            await until(lambda: bool(a1.sink.downs))
            assert is_idle_end(a1.sink.downs[0][1]) and not again.closed.is_set()

    run(scenario())


def test_agents_beyond_the_cap_are_told_when_to_come_back() -> None:
    async def scenario() -> None:
        bounds = LinkSettings(agents_max=1, line_pace_s=2.0)
        leap = leaps()
        async with (
            process("s", listens=True, link_settings=bounds) as s,
            process("a1") as a1,
            process("a2") as a2,
            process("a3") as a3,
        ):
            first = await a1.table.get(s.endpoint)
            waits_s = []
            for peer in (a2, a3):
                with pytest.raises(LinkBusy, match="all links are in use") as put_off:
                    await peer.table.get(s.endpoint)
                waits_s.append(put_off.value.retry_after_s)
            assert 1.0 < waits_s[0] < waits_s[1] <= 4.0
            assert s.table.counters.links_put_off == 2
            with pytest.raises(LinkBusy) as still:
                await a3.table.get(s.endpoint)
            assert a3.table.counters.dials == 1, "not before its turn"
            first.close("done")
            await until(lambda: bool(s.sink.downs))
            leap(still.value.retry_after_s)
            assert (await a3.table.get(s.endpoint)).peer.process == "s"

    run(scenario())


def test_other_roles_are_not_held_off_by_agents() -> None:
    async def scenario() -> None:
        bounds = LinkSettings(agents_max=1)
        async with (
            process("s", listens=True, link_settings=bounds) as s,
            process("a1") as a1,
            process("sat", role="satellite") as sat,
        ):
            await a1.table.get(s.endpoint)
            assert (await sat.table.get(s.endpoint)).peer.process == "s"

    run(scenario())


def test_connections_beyond_grpc_s_own_bound_are_busy_not_dead() -> None:
    async def scenario() -> None:
        async with (
            process("s", listens=True, connections_max=1) as s,
            process("a1") as a1,
            process("a2") as a2,
        ):
            await a1.table.get(s.endpoint)
            with pytest.raises(LinkBusy, match=r"closed|reset"):
                await a2.table.get(s.endpoint)

    run(scenario())


def test_two_links_of_one_process_share_what_is_owed() -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b", listens=True) as b:
            await asyncio.gather(a.table.get(b.endpoint), b.table.get(a.endpoint))
            await until(lambda: len(a.sink.ups) == len(b.sink.ups) == 2)
            older, newer = a.sink.ups
            assert isinstance(older, GrpcLink) and isinstance(newer, GrpcLink)
            older.send(report(1))
            now_s = asyncio.get_running_loop().time()
            assert not older.pending.are_settled(now_s) and not newer.pending.are_settled(now_s)
            newer.send(answer(1))
            assert older.pending.are_settled(now_s)

    run(scenario())


def test_sockets_are_counted_as_the_kernel_does() -> None:
    async def scenario() -> None:
        async with process("a", listens=True) as a, process("b", listens=True) as b, process("c") as c:
            before = connections()
            for peer in (b, c):
                await peer.table.get(a.endpoint)
            with pytest.raises(LinkUnreachable):
                await c.table.get(DEAD)
            counted = [peer.table.sockets for peer in (a, b, c)]
            assert counted == [2, 1, 1]
            # gRPC may still be at closing the socket of the dial that failed.
            await until(lambda: connections() - before == sum(counted))
            await c.table.close("done")
            await until(lambda: a.table.sockets == 1)
            await until(lambda: connections() - before == 2)
            assert c.table.sockets == 0

    run(scenario())
