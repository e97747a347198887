"""Metering a coroutine. Method: coroutines that burn CPU time or wait, as real as asyncio makes them."""

from __future__ import annotations

import asyncio
from time import thread_time

import pytest

from eslurm.api.cpu_meter import Metered
from tests.support.loops import run


def burn(seconds: float) -> float:
    """Use this thread's time, and return the time used: a machine that stands still meanwhile may count that as well."""
    began_s = thread_time()
    while thread_time() < began_s + seconds:
        pass
    return thread_time() - began_s


def test_the_steps_of_a_coroutine_are_charged_and_what_others_do_meanwhile_is_not() -> None:
    own: list[float] = []

    async def work(done: asyncio.Event) -> str:
        own.append(burn(0.02))
        await done.wait()
        own.append(burn(0.01))
        return "answer"

    async def scenario() -> None:
        done = asyncio.Event()
        spent: list[float] = []
        began_s = thread_time()
        task = asyncio.create_task(_await(Metered(work(done), spent.append)))
        await asyncio.sleep(0)
        others_s = burn(0.05)
        done.set()
        assert await task == "answer"
        assert len(spent) == len(own) == 2
        assert 0.03 <= sum(own) <= sum(spent) <= thread_time() - began_s - others_s

    run(scenario())


async def _await(metered: Metered[str]) -> str:
    return await metered


def test_errors_and_cancellation_pass_through_to_the_coroutine_and_back() -> None:
    async def fails() -> str:
        await asyncio.sleep(0)
        raise KeyError("x")

    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cleaned.append(True)
            raise
        return "never"

    cleaned: list[bool] = []

    async def scenario() -> None:
        with pytest.raises(KeyError):
            await Metered(fails(), lambda _s: None)
        task = asyncio.create_task(_await(Metered(stubborn(), lambda _s: None)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() and cleaned == [True]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await Metered(stubborn(), lambda _s: None)
        assert cleaned == [True, True]

    run(scenario())
