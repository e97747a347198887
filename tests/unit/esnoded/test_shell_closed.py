"""An agent that ends in the midst of its requests to the step runner: none of them is begun and forgotten."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest

from eslurm.core.agent.actions import Contact
from esnoded.shell import Shell
from tests.support.loops import run


@pytest.mark.parametrize("is_late", [False, True], ids=["before its turn", "after the end"])
def test_a_request_that_comes_at_the_end_is_not_begun(is_late: bool) -> None:
    """A coroutine that was made and never awaited would be a warning in the log, and fails this test."""

    async def contact(_nodes: object, _at_us: int) -> None:
        raise AssertionError("the runner is asked by nobody who has ended")

    async def scenario() -> None:
        agent: Any = SimpleNamespace(next_timer_us=lambda: None)
        runner: Any = SimpleNamespace(contact=contact)
        other: Any = SimpleNamespace(release=None, wants_compaction=False, now_us=lambda: 0, to_boot_us=int)
        shell = Shell(agent, other, runner, "", other, other, other)
        if is_late:
            await shell.close()
        shell._contact(Contact((1,), 5))
        await shell.close()
        await asyncio.sleep(0)

    run(scenario())
    gc.collect()
