"""Runs a coroutine to its end on a fresh loop and fails when it leaves tasks or unheard errors behind.

Daemons run on uvloop and, on request, on plain asyncio; `both_loops` makes a test run on each:

    @both_loops
    def test_it(uvloop: bool) -> None:
        run(scenario(), uvloop=uvloop)
"""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
import uvloop as uvloop_library

T = TypeVar("T")

both_loops = pytest.mark.parametrize("uvloop", [False, True], ids=["asyncio", "uvloop"])

_GRPC_ENDING = "_handle_status_once_received"
_GRPC_ENDING_S = 10.0
_SETTLING_TURNS = 10
"""Turns of the loop in which callbacks already scheduled, and tasks already cancelled, may finish."""


class LeftBehindError(AssertionError):
    """A coroutine ended well but left unfinished tasks, or errors that nobody has seen."""


def run(coro: Coroutine[Any, Any, T], *, uvloop: bool = False) -> T:
    """The coroutine's result, computed on a new loop in asyncio's debug mode.

    Raises what the coroutine raises; else LeftBehindError when tasks are still pending or when the loop's
    exception handler was called. Pending tasks are cancelled before this returns.
    """
    unheard: list[dict[str, Any]] = []
    pending: list[str] = []

    async def main() -> T:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unheard.append(context))
        # How long a callback takes is the machine's affair; a line about it would be one too many where none may be logged.
        loop.slow_callback_duration = math.inf
        result = await coro
        for _ in range(_SETTLING_TURNS):
            await asyncio.sleep(0)
        # A stream that was cancelled ends when gRPC's own thread has said so.
        ending = [task for task in asyncio.all_tasks() if _GRPC_ENDING in repr(task)]
        if ending:
            await asyncio.wait(ending, timeout=_GRPC_ENDING_S)
        pending.extend(map(repr, asyncio.all_tasks() - {asyncio.current_task()}))
        return result

    factory = uvloop_library.new_event_loop if uvloop else asyncio.new_event_loop
    with asyncio.Runner(debug=True, loop_factory=factory) as runner:
        result = runner.run(main())
        # A task nobody awaited reports its exception when collected, and it hangs in a reference cycle.
        gc.collect(1)
    complaints = [
        *(f"task not finished: {task}" for task in pending),
        *(f"error nobody handled: {_story(context)}" for context in unheard),
    ]
    if complaints:
        raise LeftBehindError("the coroutine left something behind:\n  " + "\n  ".join(complaints))
    return result


def _story(context: dict[str, Any]) -> str:
    exception = context.get("exception")
    cause = f": {exception!r}" if exception is not None else ""
    where = context.get("future") or context.get("handle")
    return f"{context.get('message')}{cause}" + (f" in {where!r}" if where is not None else "")
