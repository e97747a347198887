"""Requests that come together share a commit, and answers are remembered. Goal: no commit per client, no client that waits.

Method: the dispatcher on a store in memory; the waiting time is made so long or so short that the clock plays no part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from eslurm.core.control import commit_pipeline as module
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.messages import Submitted, Tick
from tests.support.loops import run
from tests.unit.esctld.test_dispatcher import Bench, submission, turns

LONG_US = 30_000_000


def ask(bench: Bench, names: Sequence[str]) -> list[asyncio.Future[BatchAnswer]]:
    """One request for each name, with the name as its id."""
    return [bench.dispatcher.request(submission(name), name.encode().ljust(16)) for name in names]


def test_clients_that_come_back_together_share_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER_US", LONG_US)

    async def main() -> None:
        async with Bench() as bench:
            await asyncio.gather(*ask(bench, ["a1", "b1"]))
            before = len(bench.store.batches)
            [first] = ask(bench, ["a2"])
            await turns()
            assert not first.done()
            [second] = ask(bench, ["b2"])
            assert await first == Submitted((3,)) and await second == Submitted((4,))
            assert len(bench.store.batches) == before + 1

    run(main())


def test_nobody_is_waited_for_longer_than_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER_US", 10_000)

    async def main() -> None:
        async with Bench() as bench:
            await asyncio.gather(*ask(bench, ["a1", "b1"]))
            [alone] = ask(bench, ["a2"])
            assert await alone == Submitted((3,))

    run(main())


def test_events_do_not_wait_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER_US", LONG_US)

    async def main() -> None:
        async with Bench() as bench:
            await asyncio.gather(*ask(bench, ["a1", "b1"]))
            [request] = ask(bench, ["a2"])
            await turns()
            bench.dispatcher.post(Tick())
            assert await request == Submitted((3,))

    run(main())


def test_a_lone_client_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER_US", LONG_US)

    async def main() -> None:
        async with Bench() as bench:
            for number in range(1, 4):
                [answer] = ask(bench, [f"a{number}"])
                assert await answer == Submitted((number,))

    run(main())


def test_stopping_does_not_wait_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER_US", LONG_US)

    async def main() -> None:
        async with Bench() as bench:
            await asyncio.gather(*ask(bench, ["a1", "b1"]))
            [request] = ask(bench, ["a2"])
            await turns()
            bench.dispatcher.stop()
            assert await request == Submitted((3,))

    run(main())


def test_a_request_under_way_is_known_however_many_answers_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RECENT_ANSWERS_MAX", 2)

    async def main() -> None:
        async with Bench() as bench:
            bench.store.gate.clear()
            first = ask(bench, ["a", "b", "c"])
            await turns()
            again = ask(bench, ["a", "b", "c"])
            bench.store.gate.set()
            answers = await asyncio.gather(*first)
            assert await asyncio.gather(*again) == answers
            assert answers == [Submitted((1,)), Submitted((2,)), Submitted((3,))]
            # Kept: the latest two. Older ones are in the store, where a call marked as a retry looks.
            assert await asyncio.gather(*ask(bench, ["b", "c"])) == answers[1:]
            assert await bench.store.lookup_request(b"a".ljust(16)) is not None
            assert len(bench.state.jobs) == 3

    run(main())
