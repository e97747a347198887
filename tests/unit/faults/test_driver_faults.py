"""A fault in one action of the relay leaves the others, and its timers go on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eslurm.core.relay.messages import Reallocated, RunLocal, Suspect
from eslurm.links import relay_driver as driver_module
from eslurm.links.relay_driver import RelayDriver
from tests.support.loops import run


class Machine:
    """Its first timer raises."""

    def __init__(self) -> None:
        self.timers = 0

    def next_timer_us(self) -> int | None:
        return 0 if self.timers < 2 else None

    def on_timer(self, _now_us: int) -> list[Any]:
        self.timers += 1
        if self.timers == 1:
            raise ZeroDivisionError
        return []


def test_a_fault_in_one_action_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        machine: Any = Machine()
        machine.timers = 2
        links: Any = None
        driver = RelayDriver(machine, links, lambda _: None)
        run_here = RunLocal(9, (1,), "prepare", b"", 1)
        driver.perform([Suspect(9, 1, "silent"), run_here, Reallocated(9, 1, 2, 3), Suspect(9, 2, "silent")])
        assert driver.counters.suspects == 2
        await driver.close()

    run(main())
    assert "RunLocal could not be carried out" in caplog.text


def test_timers_go_on_after_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "TIMER_AGAIN_US", 1_000)

    async def main() -> None:
        machine: Any = Machine()
        links: Any = None
        driver = RelayDriver(machine, links, lambda _: None)
        driver.perform([])
        async with asyncio.timeout(50):
            while machine.timers < 2:  # noqa: ASYNC110 - a counter sets no event
                await asyncio.sleep(0.001)
        await driver.close()

    run(main())
