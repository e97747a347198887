"""The contract of a store about its leader row: which controller may take it, when, and the fate of the one before."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eslurm.ports.store import (
    Batch,
    Claim,
    FenceLost,
    ForeignStore,
    Leader,
    LeadershipTaken,
    Prune,
    StoreFailed,
)
from tests.kits.store import BACKENDS, OWNER, Backend, batch, snapshot


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return BACKENDS[request.param](tmp_path)


def claim(name: str, seen: Leader) -> Claim:
    return Claim(name, f"{name}:7000", seen)


def test_nobody_leads_before_the_first_claim_and_looking_creates_nothing(backend: Backend) -> None:
    async def test() -> None:
        reader = backend.store()
        assert await reader.leader(OWNER) == Leader()
        assert await reader.leader(OWNER) == Leader()
        writer = backend.store()
        assert await writer.open(OWNER, claim("c1", Leader())) == 1
        assert await reader.leader(OWNER) == Leader(1, holder="c1", endpoint="c1:7000")
        assert await reader.leader("nobody") == Leader()

    backend.run(test())


def test_the_row_says_where_the_log_stands_and_renewing_moves_nothing_else(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER, claim("c1", Leader()))
        await store.commit(batch(1, facts=3))
        await store.renew()
        await store.renew()
        assert await store.leader(OWNER) == Leader(1, 3, 1_000, "c1", "c1:7000", beat=2)
        await store.commit(batch(4, at_us=2_000))
        assert await store.leader(OWNER) == Leader(1, 4, 2_000, "c1", "c1:7000", beat=2)

    backend.run(test())


def test_a_claim_on_the_row_as_seen_raises_the_epoch_and_fences_the_leader_off(backend: Backend) -> None:
    async def test() -> None:
        old, new = backend.store(), backend.store()
        await old.open(OWNER, claim("c1", Leader()))
        await old.commit(batch(1))
        await old.renew()
        assert await new.open(OWNER, claim("c2", await new.leader(OWNER))) == 2
        assert await old.leader(OWNER) == Leader(2, 1, 1_000, "c2", "c2:7000")
        for refused in (old.commit(batch(2)), old.committed(batch(1)), old.renew(), old.release("c3")):
            with pytest.raises(FenceLost, match="epoch"):
                await refused
        with pytest.raises(FenceLost):
            await old.prune(Prune(9))
        await new.commit(batch(2))
        assert await new.leader(OWNER) == Leader(2, 2, 1_000, "c2", "c2:7000")

    backend.run(test())


@pytest.mark.parametrize("move", ["commit", "renew", "release", "claim", "open"])
def test_a_claim_fails_when_the_row_has_moved_and_changes_nothing(backend: Backend, move: str) -> None:
    async def test() -> None:
        leader, other, late = (backend.store() for _ in range(3))
        await leader.open(OWNER, claim("c1", Leader()))
        seen = await late.leader(OWNER)
        if move == "commit":
            await leader.commit(batch(1))
        elif move == "renew":
            await leader.renew()
        elif move == "release":
            await leader.release("c3")
        else:
            await other.open(OWNER, claim("c2", seen) if move == "claim" else None)
        now = await late.leader(OWNER)
        assert now != seen
        with pytest.raises(LeadershipTaken, match="moved"):
            await late.open(OWNER, claim("c4", seen))
        assert await late.leader(OWNER) == now
        with pytest.raises(StoreFailed, match="not opened"):
            await late.renew()

    backend.run(test())


def test_of_two_first_claims_one_wins(backend: Backend) -> None:
    async def test() -> None:
        stores = [backend.store() for _ in range(4)]
        claims = [store.open(OWNER, claim(f"c{n}", Leader())) for n, store in enumerate(stores)]
        outcomes = await asyncio.gather(*claims, return_exceptions=True)
        won = [number for number, outcome in enumerate(outcomes) if outcome == 1]
        assert len(won) == 1
        assert all(isinstance(outcome, LeadershipTaken) for outcome in outcomes if outcome != 1)
        assert (await stores[0].leader(OWNER)).holder == f"c{won[0]}"
        await stores[won[0]].commit(batch(1))

    backend.run(test())


def test_of_two_claims_on_a_silent_leader_one_wins(backend: Backend) -> None:
    async def test() -> None:
        await backend.store().open(OWNER, claim("dead", Leader()))
        stores = [backend.store() for _ in range(4)]
        seen = await stores[0].leader(OWNER)
        claims = [store.open(OWNER, claim(f"c{n}", seen)) for n, store in enumerate(stores)]
        outcomes = await asyncio.gather(*claims, return_exceptions=True)
        assert [outcome for outcome in outcomes if not isinstance(outcome, LeadershipTaken)] == [2]
        assert (await stores[0].leader(OWNER)).epoch == 2

    backend.run(test())


def test_a_claim_that_comes_while_the_leader_commits_or_before_leaves_one_of_them(backend: Backend) -> None:
    async def test() -> None:
        leader, standby = backend.store(), backend.store()
        await leader.open(OWNER, claim("c1", Leader()))
        seen = await standby.leader(OWNER)
        committed, claimed = await asyncio.gather(
            leader.commit(batch(1, facts=50)), standby.open(OWNER, claim("c2", seen)), return_exceptions=True
        )
        row = await standby.leader(OWNER)
        if committed is None:
            assert isinstance(claimed, LeadershipTaken)
            assert (row.holder, row.epoch, row.revision) == ("c1", 1, 50)
        else:
            assert isinstance(committed, FenceLost)
            assert claimed == 2
            assert (row.holder, row.epoch, row.revision) == ("c2", 2, 0)

    backend.run(test())


@pytest.mark.parametrize("successor", ["", "c2"])
def test_who_released_the_lead_must_open_again_to_write(backend: Backend, successor: str) -> None:
    async def test() -> None:
        store = backend.store()
        await store.open(OWNER, claim("c1", Leader()))
        await store.commit(batch(1))
        await store.release(successor)
        row = await store.leader(OWNER)
        assert row == Leader(1, 1, 1_000, "c1", "c1:7000", released=True, successor=successor)
        for refused in (store.commit(batch(2)), store.renew(), store.release(), store.prune(Prune(0))):
            with pytest.raises(StoreFailed, match="not opened"):
                await refused
        assert await store.open(OWNER, claim("c1", row)) == 2
        assert await store.leader(OWNER) == Leader(2, 1, 1_000, "c1", "c1:7000")
        await store.commit(batch(2))

    backend.run(test())


def test_opening_without_a_claim_leaves_nobodys_name(backend: Backend) -> None:
    async def test() -> None:
        store, tool = backend.store(), backend.store()
        await store.open(OWNER, claim("c1", Leader()))
        await store.commit(batch(1))
        assert await tool.open(OWNER) == 2
        assert await tool.leader(OWNER) == Leader(2, 1, 1_000)

    backend.run(test())


def test_leading_needs_open_and_ends_with_close(backend: Backend) -> None:
    async def test() -> None:
        store = backend.store()
        for refused in (store.renew(), store.release()):
            with pytest.raises(StoreFailed, match="not opened"):
                await refused
        await store.open(OWNER)
        await store.close()
        for closed in (store.renew(), store.release(), store.leader(OWNER)):
            with pytest.raises(StoreFailed, match="closed"):
                await closed

    backend.run(test())


def test_owners_lead_apart_and_a_claim_respects_whose_database_it_is(backend: Backend) -> None:
    async def test() -> None:
        one, two = backend.store(shared=True), backend.store(shared=True)
        await one.open(OWNER, claim("c1", Leader()))
        await two.open("ctl1", claim("d1", Leader()))
        await two.renew()
        await two.commit(Batch(1, 5))
        assert await one.leader(OWNER) == Leader(1, 0, 0, "c1", "c1:7000")
        assert await one.leader("ctl1") == Leader(1, 0, 5, "d1", "d1:7000", beat=1)
        stranger = backend.store(cluster_id="c2")
        with pytest.raises(ForeignStore, match="belongs to cluster"):
            await stranger.leader(OWNER)
        with pytest.raises(ForeignStore, match="belongs to ctl"):
            await backend.store().open("ctl9", claim("x", Leader()))
        assert len(await snapshot(one)) == 1

    backend.run(test())
