"""Commit, then show: nothing leaves the dispatcher before the transaction that holds it is durable."""

from __future__ import annotations

import asyncio

import pytest

from esctld.lead.clock import Clock
from esctld.lead.dispatcher import Dispatcher
from eslurm.core.control.commit_pipeline import BATCH_WEIGHT_MAX, InboxFull, NotNow
from eslurm.core.control.reactor import Batch, Reactor
from eslurm.core.model.config import ClusterConfig, NodeConfig, Partition
from eslurm.core.model.job import JobSpec, Principal, StepEnd
from eslurm.core.model.messages import (
    CancelJobs,
    ConfigLoaded,
    EpochStarted,
    JobRef,
    Refused,
    Reports,
    SubmitJobs,
    Submitted,
    Tick,
)
from eslurm.core.model.protocol import Report, ReportAck, StepEnded
from eslurm.core.model.request import Request
from eslurm.core.state.cluster import State
from eslurm.lab.sim.memory_store import MemoryStore
from eslurm.lab.sim.store_image import StoreImage
from eslurm.ports.store import Batch as StoredBatch
from eslurm.ports.store import FenceLost, StoreUnavailable
from eslurm.telemetry.metrics import ControllerMetrics
from tests.kits.leading import CLUSTER, LeadingController
from tests.support.loops import run

ALICE = Principal("alice", 1000, 1000)


class GatedStore(MemoryStore):
    """Commits wait for the gate and fail as told."""

    def __init__(self) -> None:
        super().__init__(StoreImage("test"), "test")
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[Exception] = []
        self.failed = asyncio.Event()
        self.lose_answer = False
        self.batches: list[StoredBatch] = []

    async def commit(self, batch: StoredBatch) -> None:
        await self.gate.wait()
        if self.failures:
            if self.lose_answer:
                await super().commit(batch)
            self.failed.set()
            raise self.failures.pop(0)
        await super().commit(batch)
        self.batches.append(batch)


class Bench:
    """A dispatcher on a gated store, with one node configured."""

    def __init__(self, inbox_max: int = 100) -> None:
        self.store = GatedStore()
        self.committed: list[Batch] = []
        self.state = State("main")
        self.dispatcher = Dispatcher(
            Reactor(self.state, on_bug=lambda bug: None),
            self.store,
            ControllerMetrics(),
            inbox_max=inbox_max,
            on_committed=lambda messages, batch: self.committed.append(batch),
            clock=Clock(),
        )

    async def __aenter__(self) -> Bench:
        epoch = await self.store.open("main")
        self.task = asyncio.create_task(self.dispatcher.run())
        config = ClusterConfig(
            "test", (NodeConfig("cn1", (4, 1000)),), (Partition("main", ("cn1",), default=True),)
        )
        await self.dispatcher.request(ConfigLoaded(config))
        await self.dispatcher.request(EpochStarted(epoch))
        return self

    async def __aexit__(self, *error: object) -> None:
        self.store.gate.set()
        self.dispatcher.stop()
        if not self.task.done():
            await self.task


def submission(name: str = "job") -> SubmitJobs:
    spec = JobSpec(name, ALICE, "", (Request(),), b"s" * 32, b"e" * 32, "/tmp")
    return SubmitJobs((spec,))


async def turns(count: int = 20) -> None:
    """Let everything that can run, run."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_nothing_is_visible_before_its_commit() -> None:
    async def main() -> None:
        async with Bench() as bench:
            bench.store.gate.clear()
            shown = len(bench.committed)
            answer = bench.dispatcher.request(submission())
            await turns()
            assert not answer.done()
            assert bench.dispatcher.view.jobs == {}
            assert len(bench.committed) == shown
            bench.store.gate.set()
            assert await answer == Submitted((1,))
            assert list(bench.dispatcher.view.jobs) == [1]
            assert len(bench.committed) == shown + 1

    run(main())


def test_what_waits_shares_one_commit() -> None:
    async def main() -> None:
        async with Bench() as bench:
            before = len(bench.store.batches)
            answers = [bench.dispatcher.request(submission(f"j{n}")) for n in range(8)]
            ids = [(await answer).job_ids[0] for answer in answers]  # type: ignore[union-attr]
            assert ids == [1, 2, 3, 4, 5, 6, 7, 8]
            assert len(bench.store.batches) == before + 1

    run(main())


def test_after_the_end_nothing_waits_for_an_event_to_be_decided() -> None:
    async def main() -> None:
        async with Bench() as bench:
            bench.dispatcher.stop()
            with pytest.raises(NotNow):
                await bench.dispatcher.decided(Tick())

    run(main())


def test_what_nodes_say_is_decided_before_what_people_ask_for() -> None:
    """A flood of submissions delays no end of a job: events fill the batch first, whatever came before them."""

    async def main() -> None:
        async with Bench(inbox_max=10_000) as bench:
            seen: list[str] = []
            process = bench.dispatcher._reactor.process

            def watched(messages: object, now_us: int) -> Batch:
                taken = list(messages)  # type: ignore[call-overload]
                seen.extend(type(message).__name__ for message in taken)
                return process(taken, now_us)

            bench.dispatcher._reactor.process = watched  # type: ignore[assignment, method-assign]
            answers = [bench.dispatcher.request(submission(f"j{at}")) for at in range(BATCH_WEIGHT_MAX * 2)]
            for _ in range(3):
                bench.dispatcher.post(Tick())
            for answer in answers:
                await answer
            assert seen[:3] == ["Tick"] * 3 and len(seen) == BATCH_WEIGHT_MAX * 2 + 3

    run(main())


def test_a_request_id_takes_effect_once() -> None:
    async def main() -> None:
        async with Bench() as bench:
            first = await bench.dispatcher.request(submission(), b"r" * 16)
            again = await bench.dispatcher.request(submission(), b"r" * 16)
            assert first == again == Submitted((1,))
            assert len(bench.state.jobs) == 1
            assert await bench.store.lookup_request(b"r" * 16) is not None

    run(main())


def test_a_store_that_is_away_refuses_requests_and_loses_nothing() -> None:
    async def main() -> None:
        async with Bench() as bench:
            bench.store.failures = [StoreUnavailable("disk full")]
            answer = bench.dispatcher.request(submission())
            await bench.store.failed.wait()
            # The next try comes after a pause, which may end at any turn on a busy host: it waits until the store is back.
            bench.store.gate.clear()
            await turns()
            with pytest.raises(NotNow):
                bench.dispatcher.request(submission())
            bench.store.gate.set()
            assert await answer == Submitted((1,))
            assert await bench.dispatcher.request(submission()) == Submitted((2,))

    run(main())


def test_an_ambiguous_commit_is_repeated_not_doubled() -> None:
    async def main() -> None:
        async with Bench() as bench:
            bench.store.failures = [StoreUnavailable("connection lost")]
            bench.store.lose_answer = True
            assert await bench.dispatcher.request(submission()) == Submitted((1,))
            rows = await bench.store.find_jobs("main", [1, 2])
            assert [row.job_id for row in rows] == [1]

    run(main())


def test_a_lost_fence_ends_the_dispatcher() -> None:
    async def main() -> None:
        async with Bench() as bench:
            shown = len(bench.committed)
            bench.store.failures = [FenceLost("another controller leads")]
            answer = bench.dispatcher.request(submission())
            with pytest.raises(FenceLost):
                await bench.task
            assert not answer.done()
            assert len(bench.committed) == shown

    run(main())


def end_of_a_job_unheard_of() -> Reports:
    """A report that changes nothing: the job that has ended here is not known."""
    return Reports((Report("agent.1", 1, StepEnded(0, 1, 5, 1, StepEnd(0), True)),))


def test_reports_that_change_nothing_are_committed_before_they_are_acknowledged() -> None:
    async def main() -> None:
        async with Bench() as bench:
            bench.store.gate.clear()
            revision, told = bench.state.revision, asyncio.get_running_loop().create_future()
            bench.dispatcher.post(end_of_a_job_unheard_of(), told.set_result)
            await turns()
            assert not told.done()
            bench.store.gate.set()
            assert await told == (ReportAck("agent.1", (1,), (), revision),)
            assert not bench.store.batches[-1].facts and bench.state.revision == revision

    run(main())


def test_a_leader_that_was_overtaken_acknowledges_nothing() -> None:
    """The report is of a job that its successor placed, and only the successor can make something of it."""

    async def main() -> None:
        image = StoreImage(CLUSTER)
        async with LeadingController(image, "c1") as old, LeadingController(image, "c2"):
            told: list[object] = []
            old.dispatcher.post(end_of_a_job_unheard_of(), told.append)
            with pytest.raises(FenceLost):
                await old.task
            assert told == []

    run(main())


def test_a_full_inbox_refuses_people_but_never_events() -> None:
    async def main() -> None:
        async with Bench(inbox_max=2) as bench:
            bench.store.gate.clear()
            held = bench.dispatcher.request(submission())
            await turns()
            waiting = [bench.dispatcher.request(submission()) for _ in range(2)]
            with pytest.raises(InboxFull):
                bench.dispatcher.request(submission())
            ticked = asyncio.get_running_loop().create_future()
            bench.dispatcher.post(Tick(), lambda _: ticked.set_result(None))
            bench.store.gate.set()
            await asyncio.gather(held, *waiting, ticked)

    run(main())


def test_one_bad_request_does_not_take_its_batch_along() -> None:
    async def main() -> None:
        async with Bench() as bench:
            bad = JobSpec("bad", ALICE, "nowhere", (Request(),), b"s" * 32, b"e" * 32, "/tmp")
            answers = [
                bench.dispatcher.request(message)
                for message in (submission("a"), SubmitJobs((bad,)), submission("b"))
            ]
            first, refused, last = [await answer for answer in answers]
            assert first == Submitted((1,))
            assert isinstance(refused, Refused) and "nowhere" in refused.text
            assert last == Submitted((2,))

    run(main())


def test_stop_decides_what_is_in_the_inbox_first() -> None:
    async def main() -> None:
        bench = Bench()
        async with bench:
            answer = bench.dispatcher.request(submission())
            bench.dispatcher.stop()
            with pytest.raises(NotNow):
                bench.dispatcher.request(submission())
            await bench.task
            assert answer.done()

    run(main())


def test_an_answer_that_cannot_be_given_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def fault(_answer: object) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        async with Bench() as bench:
            bench.dispatcher.post(Tick(), fault)
            await bench.dispatcher.request(submission())
            assert not bench.task.done()

    run(main())
    assert "the answer to a Tick could not be given" in caplog.text


def test_whoever_asks_pays_for_its_own_deciding() -> None:
    """Goal: in a batch of many users each is charged for its own part. Method: two requests of unequal size."""

    async def main() -> None:
        async with Bench() as bench:
            paid: dict[str, float] = {}
            refs = tuple(JobRef(number) for number in range(1, 10_001))
            large = bench.dispatcher.request(
                CancelJobs(ALICE, refs), charge=lambda cost: paid.update(large=cost)
            )
            small = bench.dispatcher.request(
                CancelJobs(ALICE, refs[:1]), charge=lambda cost: paid.update(small=cost)
            )
            await asyncio.gather(large, small)
            assert paid["large"] > 10 * paid["small"] > 0

    run(main())


def test_kept_answers_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eslurm.core.control.commit_pipeline.RECENT_BYTES_MAX", 1_000_000)

    async def main() -> None:
        async with Bench() as bench:
            refs = tuple(JobRef(number) for number in range(1, 10_001))
            ids = [bytes([number]) * 16 for number in range(1, 6)]
            for one in ids:
                await bench.dispatcher.request(CancelJobs(ALICE, refs), one)
            # An answer with a thousand problems counts as 400 kB.
            asked = [bench.dispatcher.must_look_up(one, retry=True) for one in ids]
            assert asked == [True, True, True, False, False]
            assert await bench.store.lookup_request(ids[0]) is not None, "and still found in the store"

    run(main())
