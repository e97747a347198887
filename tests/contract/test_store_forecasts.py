"""The contract of a store about forecasts: they survive a restart, and accounting and estimators read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from esctld.serve.job_event_history import Line, Recorded
from eslurm.core.control.reactor import Batch
from eslurm.core.model.forecast import Forecast
from eslurm.core.model.messages import (
    Arrival,
    ConfirmArrival,
    IdsTaken,
    Message,
    SetForecasts,
    SubmitJobs,
    Submitted,
)
from eslurm.core.state.rows import decode_accounted
from eslurm.ports import store as port
from eslurm.store.rows import load, to_store
from eslurm.v1 import controller_pb2 as pb
from tests.kits.core import ROOT, World
from tests.kits.store import BACKENDS, OWNER, Backend
from tests.kits.transfers import arriving

FIRST = Forecast(100, 200, 400, 250)
SECOND = Forecast(150, 210, 300, 220)


class Written(World):
    """Its batches, as they are to be committed."""

    def __init__(self) -> None:
        self.written: list[port.Batch] = []
        super().__init__(finished_retention_s=10.0)

    def batch(self, *messages: Message) -> Batch:
        batch = super().batch(*messages)
        self.written.append(to_store(self.state, batch))
        return batch

    def foretell(self, job_id: int, forecast: Forecast) -> None:
        self.send(SetForecasts(ROOT, ((job_id, forecast),), "history-1"))


def read(lines: list[Line]) -> list[pb.JobEvent]:
    """As a follower reads them."""
    return list(pb.JobFeedReply.FromString(b"".join(event for _, event in lines)).events)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return BACKENDS[request.param](tmp_path)


def test_forecasts_come_back(backend: Backend) -> None:
    world = Written()
    ended, again, running, waiting = (world.submit(name=name) for name in ("a", "b", "c", "d"))
    world.hold(waiting)
    for job in (ended, again, running, waiting):
        world.foretell(job, FIRST)
    world.start()
    world.foretell(running, SECOND)
    world.pass_time(7)
    world.end(ended)
    world.requeue(again)
    world.end(again, 15)
    world.cancel(again)
    world.pass_time(30)

    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        for batch in world.written:
            await store.commit(batch)
        state = await load(store, OWNER)
        assert set(state.jobs) == {running, waiting}
        assert (state.jobs[running].forecast, state.jobs[running].first_estimate_s) == (SECOND, 250)
        assert (state.jobs[waiting].forecast, state.jobs[waiting].first_estimate_s) == (FIRST, 250)
        assert state.jobs == {job_id: world.state.jobs[job_id] for job_id in state.jobs}

        page = await store.accounting(OWNER, port.AccountingQuery(job_ids=[ended]))
        (kept,) = (decode_accounted(row.blob) for row in page.attempts)
        assert (kept.first_estimate_s, kept.forecast) == (250, FIRST)

        # Who learns is told of what ran and ended; what was requeued and cancelled was not let to its end.
        found = read(await Recorded(store, OWNER, 100).load(state.next_id, world.now_us, {running, waiting}))
        assert [one.job_id for one in found] == 3 * [ended]
        assert (found[0].job.name, found[2].runtime_s) == ("a", 7)
        assert not await Recorded(store, OWNER, 100).load(state.next_id, world.now_us, {ended})

    backend.run(test())


def test_the_latest_that_ended_are_found_page_by_page(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("esctld.serve.job_event_history.PAGE_ROWS", 3)
    world = Written()
    jobs = []
    for _ in range(10):
        jobs.append(world.submit())
        world.submit(held=True)
        world.start()
        world.pass_time(1)
        world.end(jobs[-1])

    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        for batch in world.written:
            await store.commit(batch)
        recorded = Recorded(store, OWNER, 4)
        found = read(await recorded.load(world.state.next_id, world.now_us, ()))
        assert [one.job_id for one in found[::3]] == jobs[:-5:-1]
        # As of an earlier time, others were the latest.
        third = next(one for one in found if (one.job_id, one.kind) == (jobs[-3], pb.JobEvent.STARTED))
        found = read(await recorded.load(world.state.next_id, third.at_us, ()))
        assert [one.job_id for one in found[::3]] == jobs[7:3:-1]

    backend.run(test())


def test_the_latest_that_ended_are_found_however_far_apart_their_ids_are(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: an estimator of a cell that leases another block of ids knows what the cell learned before."""
    monkeypatch.setattr("esctld.serve.job_event_history.PAGE_ROWS", 3)
    world = Written()
    for first in (10_000_000, 50_000_000):
        world.send(IdsTaken(first, 4, 1))
    jobs = []
    for number in range(8):
        jobs.append(world.submit())
        world.start()
        world.pass_time(1)
        if number in (2, 5):
            world.requeue(jobs[-1])
            world.end(jobs[-1])
            world.pass_time(world.state.config.requeue_delay_s + 1)
            world.start()
            world.pass_time(1)
        world.end(jobs[-1])
    assert jobs == [*range(10_000_000, 10_000_004), *range(50_000_000, 50_000_004)]

    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        for batch in world.written:
            await store.commit(batch)
        for most in (3, 6, 100):
            found = read(await Recorded(store, OWNER, most).load(world.state.next_id, world.now_us, ()))
            assert [one.job_id for one in found[::3]] == jobs[::-1][:most]
            assert len(found) == 3 * min(most, 8)

    backend.run(test())


def test_jobs_of_other_cells_that_ran_here_are_found_by_a_new_leader(backend: Backend) -> None:
    """Goal: their ids may lie above those that this cell draws next."""
    world = Written()
    own = world.submit()
    world.start()
    world.end(own)
    foreign = world.state.next_id + 1_000_000
    arrival = Arrival("beta", foreign, 7)
    assert isinstance(world.send(SubmitJobs((arriving(world.job(own).spec),), arrival=arrival)), Submitted)
    world.send(ConfirmArrival(foreign, 7))
    world.start()
    world.pass_time(3)
    world.end(foreign)

    async def test() -> None:
        store = backend.store()
        await store.open(OWNER)
        for batch in world.written:
            await store.commit(batch)
        recorded = Recorded(store, OWNER, 100)
        found = read(await recorded.load(world.state.next_id, world.now_us, ()))
        assert {one.job_id for one in found} == {own, foreign}
        # As of a time before it came it is none of them: it is among the events that follow.
        came_us = next(one.at_us for one in found if one.job_id == foreign)
        found = read(await recorded.load(world.state.next_id, came_us, ()))
        assert foreign not in {one.job_id for one in found}

    backend.run(test())
