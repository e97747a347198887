"""`run` on both loops: results and errors come through; unfinished tasks and unheard errors fail."""

from __future__ import annotations

import asyncio

import pytest
import uvloop as uvloop_library

from tests.support.loops import LeftBehindError, both_loops, run


@both_loops
def test_the_result_comes_back_from_the_loop_that_was_asked_for_in_debug_mode(uvloop: bool) -> None:
    async def scenario() -> tuple[bool, bool]:
        loop = asyncio.get_running_loop()
        return isinstance(loop, uvloop_library.Loop), loop.get_debug()

    assert run(scenario(), uvloop=uvloop) == (uvloop, True)


@both_loops
def test_a_pending_task_fails_and_is_cancelled(uvloop: bool) -> None:
    started: list[asyncio.Task[None]] = []

    async def scenario() -> None:
        started.append(asyncio.create_task(asyncio.sleep(60), name="forgotten"))

    with pytest.raises(LeftBehindError, match=r"task not finished: .*forgotten"):
        run(scenario(), uvloop=uvloop)
    assert started[0].cancelled()


@both_loops
def test_a_task_that_was_cancelled_but_not_awaited_is_no_leak(uvloop: bool) -> None:
    async def scenario() -> None:
        task = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        task.cancel()

    run(scenario(), uvloop=uvloop)


@both_loops
def test_an_exception_nobody_retrieved_fails(uvloop: bool) -> None:
    async def fails() -> None:
        raise ValueError("lost in a task")

    async def scenario() -> None:
        task = asyncio.create_task(fails())
        await asyncio.sleep(0)
        del task

    with pytest.raises(LeftBehindError, match=r"error nobody handled: .*lost in a task"):
        run(scenario(), uvloop=uvloop)


@both_loops
def test_a_callback_that_raises_fails(uvloop: bool) -> None:
    def fails() -> None:
        raise ValueError("lost in a callback")

    async def scenario() -> None:
        asyncio.get_running_loop().call_soon(fails)

    with pytest.raises(LeftBehindError, match=r"error nobody handled: .*lost in a callback"):
        run(scenario(), uvloop=uvloop)


@both_loops
def test_the_coroutines_own_exception_wins_over_what_it_left(uvloop: bool) -> None:
    tasks: list[asyncio.Task[None]] = []

    async def scenario() -> None:
        tasks.append(asyncio.create_task(asyncio.sleep(60)))
        raise KeyError("the real reason")

    with pytest.raises(KeyError, match=r"the real reason"):
        run(scenario(), uvloop=uvloop)
    assert tasks[0].cancelled()
