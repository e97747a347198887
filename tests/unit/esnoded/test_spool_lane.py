"""The thread that writes the spool: the loop goes on beside it, and nothing is said before its record is written."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from eslurm.core.agent.actions import Action, Answer, Contact, Numbered, SendReport
from eslurm.core.agent.actions import Spool as SpoolAction
from eslurm.core.agent.records import Folded, Identity, Record, fold, unfold
from eslurm.core.model.protocol import NodeGone, Report
from eslurm.core.relay.results import OK
from esnoded import spool as spool_module
from esnoded import spool_lane
from esnoded.spool import Spool
from esnoded.spool_lane import SpoolLane
from tests.kits.api import until
from tests.support.loops import run


class Disk:
    """A spool whose thread stands still while `goes` is clear, and fails as told."""

    def __init__(self) -> None:
        self.goes = threading.Event()
        self.goes.set()
        self.wants_compaction = False
        self.records: list[Record] = []
        self.compacted: list[Folded] = []
        self.written_then = 0
        self.threads: set[int] = set()
        self.errors: list[Exception] = []

    def _work(self) -> None:
        self.threads.add(threading.get_ident())
        assert self.goes.wait(50)
        if self.errors:
            raise self.errors.pop(0)

    def append(self, records: Iterable[Record], _durable: bool) -> None:
        found = list(records)
        self._work()
        self.records += found

    def probe(self) -> None:
        self._work()

    def compact(self, state: Folded) -> None:
        self.wants_compaction = False
        self._work()
        self.written_then = len(self.records)
        self.compacted.append(state)


class Rig:
    """A lane on that disk; `done` is what was carried out, `told` what the agent heard of its storage."""

    def __init__(self, disk: Any) -> None:
        self.done: list[Action] = []
        self.told: list[str] = []
        self.writable = 0
        self.then: dict[int, Callable[[], None]] = {}
        self.lane = SpoolLane(self, disk, self._carry_out, self._on_writable)  # type: ignore[arg-type]
        self.state = Folded()

    def _carry_out(self, action: Action) -> None:
        if type(action) is not SpoolAction:
            self.done.append(action)
            self.then.pop(id(action), lambda: None)()

    def _on_writable(self) -> None:
        self.writable += 1

    # What the lane asks of an agent.
    def on_storage(self, error: str) -> None:
        self.told.append(error)

    def folded(self) -> Folded:
        return fold(unfold(self.state))


def record(number: int, durable: bool = False) -> SpoolAction:
    return SpoolAction(Identity(f"cn{number}", "uid"), durable)


def answer(ref: int, *, alone: bool = False) -> Answer:
    return Answer(ref, (0,), OK, alone)


def numbered(number: int) -> Numbered:
    return Numbered("cn", number)


def test_while_the_disk_takes_its_time_the_loop_goes_on_and_nothing_overtakes_its_record() -> None:
    async def main() -> None:
        disk = Disk()
        rig = Rig(disk)
        rig.lane.take([numbered(1), answer(1)])
        assert rig.done == [numbered(1), answer(1)], "what writes nothing waits for nothing"
        rig.done.clear()
        disk.goes.clear()
        rig.lane.take([record(1, durable=True), numbered(2), answer(2), answer(3, alone=True)])
        rig.lane.take([numbered(3), answer(4)])
        rig.lane.take([record(2), answer(5)])
        rig.lane.take([Contact((1,), 5), answer(6, alone=True)])
        for _ in range(20):
            await asyncio.sleep(0)
        assert rig.done == [answer(3, alone=True), Contact((1,), 5), answer(6, alone=True)]
        rig.done.clear()
        disk.goes.set()
        await until(lambda: len(rig.done) == 5)
        assert rig.done == [numbered(2), answer(2), numbered(3), answer(4), answer(5)], (
            "in the order of the calls"
        )
        assert disk.records == [record(1).record, record(2).record]
        assert threading.get_ident() not in disk.threads and len(disk.threads) == 1
        await rig.lane.close()

    run(main())


def test_what_a_call_leads_to_at_once_comes_behind_the_rest_of_it() -> None:
    async def main() -> None:
        rig = Rig(Disk())
        first = numbered(1)
        rig.then[id(first)] = lambda: rig.lane.take([numbered(3)])
        rig.lane.take([first, numbered(2)])
        assert rig.done == [numbered(1), numbered(2), numbered(3)]
        await rig.lane.close()

    run(main())


def test_a_compaction_is_made_of_an_agent_all_of_whose_records_are_written() -> None:
    async def main() -> None:
        disk = Disk()
        rig = Rig(disk)
        disk.goes.clear()
        disk.wants_compaction = True
        rig.lane.take([record(1), answer(1)])
        rig.lane.take([record(2), answer(2)])
        disk.goes.set()
        await until(lambda: bool(disk.compacted) and not rig.lane._is_busy)
        assert disk.records == [record(1).record, record(2).record], "none is written behind it that it holds"
        assert disk.compacted == [rig.state] and disk.written_then == 2
        disk.goes.clear()
        disk.wants_compaction = True
        rig.lane.take([numbered(1)])
        rig.lane.take([record(3), answer(3)])
        assert rig.done[-1] == numbered(1), "the next call waits for its end"
        disk.errors = [OSError(28, "No space left on device")]
        disk.goes.set()
        await until(lambda: rig.done[-1] == answer(3))
        assert len(disk.compacted) == 1 and rig.told == [], "without room for it the old file is good"
        await rig.lane.close()

    run(main())


def test_a_disk_that_fails_is_told_and_tried_again_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_lane, "RETRY_S", 0.001)

    async def main() -> None:
        disk = Disk()
        rig = Rig(disk)
        disk.errors = [OSError(28, "No space left on device")] * 3
        rig.lane.take([record(1), numbered(1), answer(1)])
        await until(lambda: rig.told == ["No space left on device", ""])
        assert rig.done == [numbered(1), answer(1)], "the answer waited for its record"
        assert disk.records == [record(1).record] and rig.writable == 1 and rig.lane.error == ""
        await rig.lane.close()

    run(main())


def test_a_fault_of_our_own_ends_one_call() -> None:
    async def main() -> None:
        disk = Disk()
        rig = Rig(disk)
        disk.errors = [ZeroDivisionError("a fault of our own")]
        rig.lane.take([record(1), answer(1)])
        rig.lane.take([record(2), answer(2)])
        await until(lambda: rig.done == [answer(2)])
        assert disk.records == [record(1).record, record(2).record], "its record goes with the next one"
        await rig.lane.close()

    run(main())


def test_a_write_that_does_not_end_is_a_problem_and_what_waits_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spool_lane, "STALL_S", 0.001)
    monkeypatch.setattr(spool_lane, "WAITING_MAX", 10)

    async def main() -> None:
        disk = Disk()
        rig = Rig(disk)
        disk.goes.clear()
        rig.lane.take([record(1), answer(1)])
        await until(lambda: rig.told)
        assert rig.told == ["a write takes longer than 0.001 s"] == [rig.lane.error]
        report = SendReport(Report("p", 1, NodeGone(0, 1, 7, 1)))
        for number in range(1_000):
            rig.lane.take([report, answer(number)])
        rig.lane.take([record(2), answer(-1)])
        assert len(rig.lane._waiting) == 11, "reports and answers come again, records do not"
        disk.goes.set()
        await until(lambda: answer(-1) in rig.done)
        assert rig.told[1] == "" == rig.lane.error
        await rig.lane.close()

    run(main())


def test_an_agent_that_ends_lets_its_write_end_and_does_nothing_more() -> None:
    async def main() -> None:
        disk = Disk()
        rig = Rig(disk)
        disk.goes.clear()
        rig.lane.take([record(1), answer(1)])
        rig.lane.take([record(2), answer(2)])
        closing = asyncio.create_task(rig.lane.close())
        await asyncio.sleep(0)
        rig.lane.take([answer(3)])
        assert not closing.done()
        disk.goes.set()
        await closing
        assert rig.done == [] and disk.records == [record(1).record], "as if it had been killed then"

    run(main())


def test_a_real_spool_that_is_compacted_all_the_time_keeps_every_record(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "COMPACT_BYTES_MIN", 1_000)
    path = state_dir / "agent.spool"

    async def main() -> None:
        spool = Spool(path)
        rig = Rig(spool)
        for number in range(300):
            rig.state.add(record(number).record)
            rig.lane.take([record(number, durable=number % 50 == 0), answer(number)])
            if number % 7 == 0:
                await until(lambda least=number - 5: len(rig.done) > least)  # type: ignore[misc]
        await until(lambda: len(rig.done) == 300)
        await rig.lane.close()
        spool.close()

    run(main())
    again = Spool(path)
    again.close()
    assert again.state == fold(record(number).record for number in range(300))
