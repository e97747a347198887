"""The feed for estimators: what is told of jobs, from the beginning and as it happens, and its bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import pytest

from esctld.serve import job_event_history
from esctld.serve import job_events as feed_module
from esctld.serve.job_event_history import lives
from esctld.serve.job_event_messages import JobEvent, event_bytes
from esctld.serve.job_events import WAITING_MAX, Cursor
from eslurm.core.model.job import StepEnd
from eslurm.core.model.job_states import STARTED
from eslurm.core.model.messages import JobRef, ResizeJob, SuspendJobs, UpdateJob
from eslurm.core.model.protocol import StepEnded
from eslurm.core.model.request import Chunk, Request
from eslurm.core.model.retry import RetryRequest
from eslurm.ports.api import ApiError, Status
from eslurm.ports.store import StoreUnavailable
from eslurm.v1 import controller_pb2 as pb
from tests.kits import chaos
from tests.kits.core import ALICE, ROOT
from tests.kits.fed import FedWorld, Follower
from tests.support.loops import run
from tests.support.seeds import Seeds


def scenario(body: Any, **settings: float) -> None:
    """Runs `body(world, follower)`; the feed's settings are the given ones."""

    async def main() -> None:
        FedWorld.feed_settings = {"gather_s": 0.0, **settings}
        world = FedWorld(nodes=4, cores=4, finished_retention_s=30.0)
        try:
            await body(world, Follower(world))
        finally:
            await world.close()

    run(main())


async def until(true: Callable[[], bool]) -> None:
    """Turns of the loop until it is so; the test's time limit ends it otherwise."""
    turn = asyncio.Event()
    while not true():
        asyncio.get_running_loop().call_later(0.001, turn.set)
        await turn.wait()
        turn.clear()


def test_the_life_of_a_job_is_told_as_it_happens() -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        assert await follower.read() == [] and follower.begun == 1
        request = Request(tasks=6, nodes_min=2, nodes_max=2, memory_per_node_mib=300)
        job = world.submit(name="fluid", request=request, time_limit_s=600)
        world.send(UpdateJob(ALICE, JobRef(job), time_limit_s=500))
        assert await follower.read() == [("SUBMITTED", job), ("CHANGED", job)]
        world.start()
        world.pass_time(41.2)
        assert await follower.read() == [("STARTED", job)]
        world.end(job)
        assert await follower.read() == [("ENDED", job)]
        assert follower.events[-1].runtime_s == 42
        first = follower.events[0].job
        assert (first.user, first.group, first.name, first.command) == ("alice", "1000", "fluid", "/tmp")
        assert (first.partition, first.nodes, first.cores, first.memory_mib) == ("main", 2, 6, 600)
        assert (first.limit_s, follower.events[1].job.limit_s) == (600, 500)
        assert follower.begun == 1

    scenario(body)


def test_a_retried_job_is_told_with_its_next_limit() -> None:
    """Goal: an estimator asks anew about it, with the limit that it has by then."""

    async def body(world: FedWorld, follower: Follower) -> None:
        await follower.read()
        job = world.submit(time_limit_s=600, retry=RetryRequest(("timeout",)))
        world.start()
        world.pass_time(600)
        world.end(job, 15, cause="time_limit")
        kinds = [kind for kind, _ in await follower.read()]
        assert kinds == ["SUBMITTED", "STARTED", "REQUEUED", "CHANGED"]
        assert follower.events[-1].job.limit_s == world.job(job).spec.time_limit_s == 900

    scenario(body)


def test_a_growth_of_a_running_job_is_no_job_to_estimate() -> None:
    """Goal: an estimator hears of jobs alone, whether it has followed or begins anew."""

    async def body(world: FedWorld, follower: Follower) -> None:
        await follower.read()
        job = world.submit(time_limit_s=600)
        world.start()
        for _ in range(2):
            world.send(ResizeJob(ALICE, JobRef(job), to_nodes=4))
            world.pass_time(150)
            world.send(ResizeJob(ALICE, JobRef(job), to_nodes=1))
        assert "JobChanged" in world.kinds() and world.kinds().count("GrowthAsked") == 2
        world.send(ResizeJob(ALICE, JobRef(job), to_nodes=3))
        assert await follower.read() == [("SUBMITTED", job), ("STARTED", job)]
        anew = Follower(world)
        assert await anew.read() == [("SUBMITTED", job), ("STARTED", job)]

    scenario(body)


def test_what_ends_while_it_waits_never_ran() -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        await follower.read()
        job = world.submit()
        world.cancel(job)
        assert await follower.read() == [("SUBMITTED", job), ("ENDED", job)]
        assert follower.events[-1].runtime_s == 0
        again = world.submit()
        world.start()
        world.pass_time(10)
        world.requeue(again)
        world.end(again, 15)
        world.cancel(again)
        assert [kind for kind, _ in await follower.read()] == ["SUBMITTED", "STARTED", "REQUEUED", "ENDED"]
        assert follower.events[-1].runtime_s == 0

    scenario(body)


def test_a_job_that_runs_again_ran_as_long_as_its_last_run() -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        await follower.read()
        job = world.submit()
        world.start()
        world.pass_time(100)
        world.requeue(job)
        world.end(job, 15)
        world.pass_time(60)
        world.start()
        world.pass_time(7)
        world.end(job)
        kinds = [kind for kind, _ in await follower.read()]
        assert kinds == ["SUBMITTED", "STARTED", "REQUEUED", "STARTED", "ENDED"]
        assert follower.events[-1].runtime_s == 7
        anew = Follower(world)
        assert [kind for kind, _ in await anew.read()] == ["SUBMITTED", "STARTED", "ENDED"]
        assert anew.events[-1].runtime_s == 7

    scenario(body, ring_max=8)


def test_time_in_which_a_job_stands_still_is_no_run_time() -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        await follower.read()
        job = world.submit()
        world.start()
        world.pass_time(10)
        world.send(SuspendJobs(ROOT, (JobRef(job),)))
        world.deliver()
        world.pass_time(1000)
        world.send(SuspendJobs(ROOT, (JobRef(job),), resume=True))
        world.deliver()
        world.pass_time(5)
        world.end(job)
        await follower.read()
        assert follower.events[-1].runtime_s == 15
        anew = Follower(world)
        await anew.read()
        assert anew.events[-1].runtime_s == 15

    scenario(body)


def test_a_running_job_that_is_given_another_limit_is_told_of() -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        await follower.read()
        job, other = world.submit(time_limit_s=600), world.submit(time_limit_s=600)
        world.start()
        world.pass_time(10)
        await follower.read()
        for limit_s in (900, 900, 0, 300):
            world.send(UpdateJob(ROOT, JobRef(job), time_limit_s=limit_s))
        assert await follower.read() == [("CHANGED", job)] * 3
        assert [event.job.limit_s for event in follower.events[-3:]] == [900, 0, 300]
        assert follower.events[-1].job.user == "alice"
        # Who begins hears of it, too; what it asked for stays what it was.
        anew = Follower(world)
        assert sorted(await anew.read()) == [
            ("CHANGED", job),
            ("STARTED", job),
            ("STARTED", other),
            ("SUBMITTED", job),
            ("SUBMITTED", other),
        ]
        told = {(event.job_id, event.kind): event.job.limit_s for event in anew.events}
        assert (told[job, pb.JobEvent.SUBMITTED], told[job, pb.JobEvent.CHANGED]) == (600, 300)
        world.pass_time(5)
        world.end(job)
        assert await follower.read() == [("ENDED", job)]
        # What a follower learns of those that ended is what they asked for.
        world.restart()
        last = Follower(world)
        await last.read()
        (first, *_) = [event.job for event in last.events if event.job_id == job]
        assert first.limit_s == 600 and ("CHANGED", job) not in last.told

    scenario(body, ring_max=8)


def test_an_array_is_told_of_and_each_of_its_tasks() -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        await follower.read()
        array = world.submit(name="tiles", tasks=((0, 1),), time_limit_s=60)
        assert await follower.read() == [("SUBMITTED", array)]
        first, second = world.start()
        told = await follower.read()
        assert {kind for kind, _ in told} == {"SUBMITTED", "STARTED"} and len(told) == 4
        assert follower.events[1].job.name == "tiles"
        world.pass_time(3)
        world.end(first)
        world.end(second)
        assert await follower.read() == [("ENDED", first), ("ENDED", second), ("ENDED", array)]
        assert [event.runtime_s for event in follower.events[-3:]] == [3, 3, 0]

    scenario(body)


def test_a_run_so_short_that_nobody_saw_it_start_has_started() -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        await follower.read()
        job = world.submit()
        world.plan()
        attempt = world.attempt(job)
        world.pass_time(2)
        end = StepEnd(0, started_us=attempt.placed_us, ended_us=attempt.placed_us + 1_500_000)
        node = world.state.nodes[attempt.first]
        world.report(StepEnded(attempt.first, node.incarnation, job, attempt.number, end, True))
        assert [kind for kind, _ in await follower.read()] == ["SUBMITTED", "STARTED", "ENDED"]
        assert follower.events[-1].runtime_s == 2

    scenario(body)


def test_a_launch_that_failed_is_nothing_to_be_told_of() -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        await follower.read()
        job = world.submit()
        world.plan()
        (send,) = world.sends()
        world.done(send, "failed")
        assert world.state_of(job) == "PENDING"
        assert await follower.read() == [("SUBMITTED", job)]

    scenario(body)


def test_who_begins_is_told_of_the_past_first_in_the_order_of_time() -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        long, short = world.submit(name="long"), world.submit(name="short")
        world.start()
        world.pass_time(5)
        world.end(short)
        never = world.submit(held=True)
        world.cancel(never)
        world.pass_time(20)
        world.end(long)
        world.pass_time(1)
        waiting, running = world.submit(held=True), world.submit()
        world.start()
        world.pass_time(60)  # what has ended leaves memory
        assert long not in world.state.jobs
        await follower.read(events_max=3)
        assert follower.told[:6] == [
            ("SUBMITTED", long),
            ("SUBMITTED", short),
            ("STARTED", long),
            ("STARTED", short),
            ("ENDED", short),
            ("ENDED", long),
        ]
        assert sorted(follower.told[6:]) == [
            ("STARTED", running),
            ("SUBMITTED", waiting),
            ("SUBMITTED", running),
        ]
        assert [e.runtime_s for e in follower.events if e.kind == pb.JobEvent.ENDED] == [5, 25]
        assert follower.begun == 1
        later = world.submit()
        assert await follower.read() == [("SUBMITTED", later)]

    scenario(body)


def test_only_so_many_of_those_that_ended_are_told_the_latest() -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        jobs = [world.submit() for _ in range(5)]
        world.start()
        world.pass_time(1)
        for job in jobs:
            world.end(job)
        await follower.read()
        assert {job_id for _, job_id in follower.told} == set(jobs[-2:])

    scenario(body, history_jobs=2)


def test_who_was_away_too_long_begins_anew() -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        await follower.read()
        first = world.submit(held=True)
        await follower.read()
        jobs = [world.submit(held=True) for _ in range(20)]
        await follower.read()
        assert follower.begun == 2
        assert [job_id for _, job_id in follower.told] == [first, *jobs]
        # Whoever keeps up does not.
        for _ in range(20):
            world.submit(held=True)
            await follower.read()
        assert follower.begun == 2 and len(follower.waiting) == 41

    scenario(body, ring_max=4)


def test_a_cursor_of_another_leader_or_of_nobody_begins_anew() -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        await follower.read()
        job = world.submit()
        await follower.read()
        world.restart()
        await follower.read()
        assert follower.begun == 2 and follower.told == [("SUBMITTED", job)]
        mine = Cursor.read(follower.cursor)
        for strange in (
            1,
            (1 << 64) - 1,
            int(mine._replace(number=mine.number + 1)),
            int(mine._replace(beginning=63)),
            int(mine._replace(beginning=1, number=99)),
        ):
            reply = await world.ask(strange)
            assert reply.from_start and [event.job_id for event in reply.events] == [job]

    scenario(body)


def test_two_followers_hear_the_same_and_share_a_beginning() -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        other = Follower(world)
        jobs = [world.submit() for _ in range(3)]
        await asyncio.gather(follower.read(events_max=1), other.read())
        world.start()
        await follower.read()
        world.end(jobs[0])
        await asyncio.gather(follower.read(events_max=1), other.read(events_max=2))
        assert follower.told == other.told and len(follower.told) == 7
        assert len(world.feed._beginnings) == 1
        # The same reply again, if it was lost on the way.
        again = await world.ask()
        assert [event.job_id for event in again.events] == jobs

    scenario(body)


def test_a_question_waits_until_something_happens() -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        await follower.read()
        waiting = asyncio.create_task(world.ask(follower.cursor, wait_ms=30_000))
        await asyncio.sleep(0)
        world.send(SuspendJobs(ROOT, ()))  # nothing that concerns the feed
        await asyncio.sleep(0)
        assert not waiting.done()
        job = world.submit()
        reply = await waiting
        assert [event.job_id for event in reply.events] == [job]
        nothing = await world.ask(reply.next, wait_ms=1)
        assert nothing.next == reply.next and not nothing.events and not nothing.from_start

    scenario(body)


def test_waiting_is_bounded_ends_with_the_controller_and_leaves_nothing_when_given_up() -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        await follower.read()
        waiting = [
            asyncio.create_task(world.ask(follower.cursor, wait_ms=30_000)) for _ in range(WAITING_MAX)
        ]
        await asyncio.sleep(0)
        with pytest.raises(ApiError, match="estimators follow already") as refused:
            await world.ask(follower.cursor, wait_ms=30_000)
        assert refused.value.status is Status.RESOURCE_EXHAUSTED
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        waiting[0] = asyncio.create_task(world.ask(follower.cursor, wait_ms=30_000))
        await asyncio.sleep(0)
        world.committing.is_stopping = True
        world.committing.wake()
        for one in waiting:
            with pytest.raises(ApiError, match="the controller stops") as refused:
                await one
            assert refused.value.status is Status.UNAVAILABLE

    scenario(body)


def test_a_store_that_is_away_is_asked_again_by_the_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        job = world.submit()

        async def away(*_: object) -> None:
            raise StoreUnavailable("away")

        with monkeypatch.context() as patch:
            patch.setattr(world.store, "accounting", away)
            with pytest.raises(StoreUnavailable):
                await world.ask()
        assert await follower.read() == [("SUBMITTED", job)]

    scenario(body)


def test_a_beginning_that_nobody_reads_on_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        monkeypatch.setattr(feed_module, "BEGINNING_KEPT_S", 0.01)
        jobs = [world.submit() for _ in range(3)]
        reply = await world.ask(events_max=1)
        await until(lambda: not world.feed._beginnings)
        anew = await world.ask(reply.next)
        assert anew.from_start and [event.job_id for event in anew.events] == jobs

    scenario(body)


def test_who_gives_up_while_a_beginning_is_made_finds_it_when_asking_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        job = world.submit()
        go_on = asyncio.Event()
        asked, pages = world.store.accounting, []

        async def slow(*query: Any) -> Any:
            pages.append(query)
            await go_on.wait()
            return await asked(*query)

        monkeypatch.setattr(world.store, "accounting", slow)
        first = asyncio.create_task(world.ask())
        await until(lambda: bool(pages))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        go_on.set()
        assert await follower.read() == [("SUBMITTED", job)]
        assert len(pages) == 1

    scenario(body)


@pytest.mark.parametrize("turns", range(2, 10))
def test_what_ends_while_a_beginning_is_made_is_told_of_once(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slowly(slices: Generator[None, None, Any]) -> Any:
        while True:
            try:
                next(slices)
            except StopIteration as finished:
                return finished.value
            await asyncio.sleep(0)

    monkeypatch.setattr(feed_module, "LOOKS_PER_SLICE", 1)
    monkeypatch.setattr(feed_module, "paced", slowly)

    async def body(world: FedWorld, follower: Follower) -> None:
        ends, runs_again, waits_again, runs = (world.submit(request=Request(tasks=4)) for _ in range(4))
        world.start()
        world.pass_time(5)
        asking = asyncio.create_task(world.ask())
        for _ in range(turns):
            await asyncio.sleep(0)
        world.end(ends)
        for job in (runs_again, waits_again):
            world.requeue(job)
            world.end(job, 15)
        world.hold(waits_again)
        world.pass_time(60)
        assert world.start() == [runs_again]
        await asking
        await follower.read()
        assert (follower.running, follower.waiting) == ({runs, runs_again}, {waits_again})
        told = [kind for kind, job in follower.told if job == runs_again]
        assert told == ["SUBMITTED", "STARTED", "REQUEUED", "STARTED"]
        world.end(runs_again)
        assert await follower.read() == [("ENDED", runs_again)]
        assert not world.feed._before and world.feed._running == {runs}

    scenario(body)


def test_a_beginning_is_made_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = [0]

    def counted(one: JobEvent) -> bytes:
        encoded[0] += 1
        return event_bytes(one)

    monkeypatch.setattr(job_event_history, "event_bytes", counted)
    monkeypatch.setattr(job_event_history, "LINES_PER_SLICE", 8)
    monkeypatch.setattr(job_event_history, "JOBS_PER_SLICE", 5)
    most = 0

    async def watching(slices: Generator[None, None, Any]) -> Any:
        nonlocal most
        while True:
            before = encoded[0]
            try:
                next(slices)
            except StopIteration as finished:
                return finished.value
            finally:
                most = max(most, encoded[0] - before)

    monkeypatch.setattr(feed_module, "paced", watching)
    monkeypatch.setattr(job_event_history, "paced", watching)

    async def body(world: FedWorld, follower: Follower) -> None:
        for _ in range(22):
            world.submit()
        while started := world.start():
            world.pass_time(1)
            for job in started:
                world.end(job)
        jobs = [world.submit(held=True) for _ in range(22)]
        await follower.read()
        assert len(follower.told) == encoded[0] == 4 * 22 and follower.waiting == set(jobs)
        assert most == 3 * 5

    scenario(body)


def test_what_chunks_ask_for_is_summed_up() -> None:
    async def body(world: FedWorld, follower: Follower) -> None:
        await follower.read()
        chunks = (Chunk(2, 2, 100), Chunk(1, 4, 50))
        world.submit(request=Request(tasks=3, chunks=chunks))
        await follower.read()
        asked = follower.events[-1].job
        assert (asked.nodes, asked.cores, asked.memory_mib) == (1, 8, 250)

    scenario(body)


def test_whatever_happens_a_follower_knows_who_lives(seeds: Seeds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages lost and doubled, restarts, a small ring, followers of different patience."""
    monkeypatch.setattr(chaos, "World", FedWorld)

    async def history(seed: int) -> None:
        FedWorld.feed_settings = {"gather_s": 0.0, "ring_max": 8, "history_jobs": 10}
        case = chaos.Chaos(seed, checked=False)
        world = case.world
        assert isinstance(world, FedWorld)
        keen, lazy = Follower(world), Follower(world)
        for _ in range(300):
            case.act()
            if case.rng.random() < 0.5:
                await keen.read(case.rng.choice((0, 1, 3)))
            if case.rng.random() < 0.03:
                await lazy.read()
        for follower in (keen, lazy):
            await follower.read()
            living = {job_id for job_id, job in world.state.jobs.items() if lives(job)}
            runs = {job_id for job_id in living if world.state.jobs[job_id].state in STARTED}
            assert follower.waiting | follower.running == living
            assert follower.running == runs
        await world.close()

    for seed in seeds(20):
        run(history(seed))
