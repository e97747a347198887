"""The order in which the agent's shell carries out what its pipeline hands out, and what a fault of its own ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from eslurm.core.agent.actions import Action, MeasureSteps, Numbered
from eslurm.core.agent.actions import Spool as SpoolAction
from eslurm.core.agent.records import Identity, Record
from eslurm.core.model.step_usage import StepUse, read_measured
from eslurm.core.relay.results import Outcome, Status
from eslurm.ports.step_runner import StepRunnerError
from esnoded.shell import MEASURING_MAX, Shell
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
            answer=self._answer,
            measure=self._measure,
        )
        self.answers: list[tuple[int, Sequence[int], Outcome]] = []
        self.measured: asyncio.Future[list[StepUse]] = asyncio.get_running_loop().create_future()
        self.shell = Shell(agent, other, other, "", other, other, other)

    def _answer(self, ref: int, nodes: Sequence[int], outcome: Outcome) -> None:
        self.answers.append((ref, nodes, outcome))

    async def _measure(self, *_attempt: object, with_pids: bool) -> list[StepUse]:
        assert with_pids
        return await asyncio.shield(self.measured)

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


@pytest.mark.parametrize("fault", [None, StepRunnerError("away"), ZeroDivisionError("a bug")])
def test_few_questions_about_steps_are_open_and_each_is_answered(fault: Exception | None) -> None:
    async def main() -> None:
        rig = Rig()
        question = MeasureSteps(7, (3, 1, 1), (-1,), True)
        rig.shell.perform([question] * (MEASURING_MAX + 1))
        [(ref, nodes, refused)] = rig.answers
        assert (ref, nodes) == (7, (3,)) and "too many questions" in refused.text
        if fault is None:
            rig.measured.set_result([StepUse(-1, 1)])
        else:
            rig.measured.set_exception(fault)
        await until(lambda: len(rig.answers) == 1 + MEASURING_MAX)
        outcome = rig.answers[-1][2]
        if fault is None:
            measured = read_measured(outcome.payload)
            assert measured is not None and measured.uses == (StepUse(-1, 1),)
        else:
            assert outcome.status is Status.FAILED and str(fault) in outcome.text
        # There is room again.
        rig.shell.perform([question])
        await until(lambda: len(rig.answers) == 2 + MEASURING_MAX)
        assert rig.answers[-1][2] == outcome
        await rig.shell.close()

    run(main())
