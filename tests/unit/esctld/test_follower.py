"""A follower's state is the leader's own, whatever part of the log it missed."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from esctld.standby.follower import Follower
from eslurm.core.control import replica as module
from eslurm.core.model import facts
from eslurm.core.model.messages import CancelJobs, JobRef, Tick
from eslurm.lab.sim.memory_store import MemoryStore
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.store import Batch as StoredBatch
from eslurm.ports.store import FactRow, Prune, SchemaTooNew, StoreFailed, StoreUnavailable
from eslurm.replay import state_check
from tests.kits.leading import CLUSTER, CONFIG, OWNER, LeadingController
from tests.kits.mirror import picture
from tests.support.loops import run
from tests.unit.esctld.test_dispatcher import ALICE, submission, turns


async def submit(leader: LeadingController, count: int) -> None:
    for number in range(count):
        await leader.dispatcher.request(submission(f"job{number}"))


def test_it_loads_once_and_then_applies_what_is_committed() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER)) as leader:
            follower = Follower(MemoryStore(leader.image, CLUSTER), OWNER)
            await submit(leader, 3)
            first = await follower.follow(leader.state.revision)
            assert picture(first) == picture(leader.state)
            await submit(leader, 3)
            await leader.dispatcher.request(CancelJobs(ALICE, (JobRef(2),)))
            second = await follower.follow(leader.state.revision)
            assert second is first
            assert picture(second) == picture(leader.state)
            state_check.check(second)
            assert not second.touched.jobs

    run(main())


def test_a_log_without_its_beginning_is_loaded_anew() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER)) as leader:
            follower = Follower(MemoryStore(leader.image, CLUSTER), OWNER)
            first = await follower.follow(leader.state.revision)
            await submit(leader, 4)
            before = leader.state.revision
            await submit(leader, 1)
            await leader.store.prune(Prune(leader.state.now_us, facts_before_revision=before))
            second = await follower.follow(leader.state.revision)
            assert second is not first
            assert picture(second) == picture(leader.state)

    run(main())


class FlakyStore(MemoryStore):
    """Does not answer as often as told."""

    failures = 0

    def load_facts(self, owner: str, from_revision: int, chunk_rows: int = 2):  # type: ignore[no-untyped-def]
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("away")
        return super().load_facts(owner, from_revision, chunk_rows)


def test_a_store_that_is_away_leaves_it_where_it_was() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER)) as leader:
            store = FlakyStore(leader.image, CLUSTER)
            follower = Follower(store, OWNER)
            await follower.follow(leader.state.revision)
            at = follower.revision
            await submit(leader, 2)
            store.failures = 1
            with pytest.raises(StoreUnavailable):
                await follower.follow(leader.state.revision)
            assert follower.revision == at
            state = await follower.follow(leader.state.revision)
            assert picture(state) == picture(leader.state)

    run(main())


def test_being_cancelled_between_two_facts_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_FACTS", 1)

    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER)) as leader:
            follower = Follower(MemoryStore(leader.image, CLUSTER), OWNER)
            await follower.follow(leader.state.revision)
            at = follower.revision
            await submit(leader, 20)
            task = asyncio.create_task(follower.follow(leader.state.revision))
            await turns(10)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert at < follower.revision < leader.state.revision
            state = await follower.follow(leader.state.revision)
            assert picture(state) == picture(leader.state)

    run(main())


def test_a_log_that_ends_too_early_is_damage() -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER)) as leader:
            follower = Follower(MemoryStore(leader.image, CLUSTER), OWNER)
            with pytest.raises(StoreFailed, match="ends at revision"):
                await follower.follow(leader.state.revision + 1)

    run(main())


@pytest.mark.parametrize("known", [True, False])
def test_facts_of_a_newer_release_are_not_guessed_at(known: bool) -> None:
    async def main() -> None:
        async with LeadingController(StoreImage(CLUSTER)) as leader:
            follower = Follower(MemoryStore(leader.image, CLUSTER), OWNER)
            await follower.follow(leader.state.revision)
            kind, version, blob = facts.encode_fact(facts.JobDue(1))
            newer = FactRow(kind, version + 1, blob) if known else FactRow("JobDreamt", 1, b"\x91\xa1x")
            at_us = leader.state.now_us
            await leader.store.commit(StoredBatch(leader.state.revision + 1, at_us, [newer]))
            with pytest.raises(SchemaTooNew, match="upgrade this controller"):
                await follower.follow(leader.state.revision + 1)

    run(main())


def test_timers_that_mean_nothing_any_more_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMERS_SLACK", 10)

    async def main() -> None:
        config = replace(CONFIG, finished_retention_s=0.0)
        async with LeadingController(StoreImage(CLUSTER), config=config) as leader:
            follower = Follower(MemoryStore(leader.image, CLUSTER), OWNER)
            state = await follower.follow(leader.state.revision)
            most = 0
            for _ in range(6):
                await submit(leader, 10)
                waiting = tuple(JobRef(job_id) for job_id in leader.state.jobs)
                await leader.dispatcher.request(CancelJobs(ALICE, waiting))
                await leader.dispatcher.decided(Tick())
                assert not leader.state.jobs
                await follower.follow(leader.state.revision)
                most = max(most, len(state.timers))
            assert 0 < most <= 30
            assert picture(state) == picture(leader.state)

    run(main())
