"""The order in which the agent's shell carries out what its pipeline hands out, and what a fault of its own ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from eslurm.core.agent.actions import Action, Numbered
from eslurm.core.agent.actions import Spool as SpoolAction
from eslurm.core.agent.records import Identity, Record
from esnoded.shell import Shell
from esnoded.spool_writer import SpoolWriter
from tests.kits.api import until
from tests.support.loops import run


class Rig:
    """A shell whose links note which nodes were numbered; `then` follows at once from the number of one."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.then: dict[int, Callable[[], None]] = {}
        self.records: list[Record] = []
        agent: Any = SimpleNamespace(next_timer_us=lambda: None)
        other: Any = SimpleNamespace(
            wants_compaction=False,
            append=self._append,
            on_numbered=self._on_numbered,
            now_us=lambda: 0,
            to_boot_us=int,
        )
        self.shell = Shell(agent, other, other, "", other, other, other)

    def _append(self, records: Iterable[Record], _durable: bool) -> None:
        self.records += records

    def _on_numbered(self, _name: str, number: int) -> None:
        self.done.append(number)
        self.then.pop(number, lambda: None)()


def numbered(number: int) -> Action:
    return Numbered("cn", number)


def record(number: int) -> SpoolAction:
    return SpoolAction(Identity(f"cn{number}", "uid"))


def test_what_an_action_leads_to_at_once_comes_behind_the_rest_of_its_call() -> None:
    async def main() -> None:
        rig = Rig()
        rig.then[1] = lambda: rig.shell.perform([numbered(3)])
        rig.shell.perform([numbered(1), numbered(2)])
        assert rig.done == [1, 2, 3]
        await rig.shell.close()

    run(main())


def test_an_exception_ends_one_action() -> None:
    def fails() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        rig = Rig()
        rig.then[1] = fails
        rig.shell.perform([numbered(1), numbered(2)])
        rig.shell.perform([numbered(3)])
        assert rig.done == [1, 2, 3]
        await rig.shell.close()

    run(main())


def test_a_write_that_could_not_even_begin_ends_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = SpoolWriter.begin
    faults = [RuntimeError("can't start new thread")]

    def first_fails(self: SpoolWriter, order: Any) -> None:
        if faults:
            raise faults.pop()
        begin(self, order)

    monkeypatch.setattr(SpoolWriter, "begin", first_fails)

    async def main() -> None:
        rig = Rig()
        rig.shell.perform([record(1), numbered(1)])
        rig.shell.perform([record(2), numbered(2)])
        await until(lambda: rig.done == [2])
        assert rig.records == [record(1).record, record(2).record], "its record goes with the next one"
        await rig.shell.close()
        await asyncio.sleep(0)

    run(main())
