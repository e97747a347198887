"""The thread that writes the spool: the loop goes on beside it, one order at a time, and each is reported."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from eslurm.core.agent.actions import Answer
from eslurm.core.agent.actions import Spool as SpoolAction
from eslurm.core.agent.pipeline import AgentPipeline, CompactSpool, Output, ProbeSpool, WriteSpool
from eslurm.core.agent.records import Folded, Identity, Record, fold, unfold
from eslurm.core.relay.results import OK
from esnoded import spool as spool_module
from esnoded.spool import Spool
from esnoded.spool_writer import SpoolWriter
from tests.kits.api import until
from tests.support.loops import run

ONE = WriteSpool((Identity("cn1", "uid"),), True)


class Disk:
    """A spool whose thread stands still while `goes` is clear, and fails as told."""

    def __init__(self) -> None:
        self.goes = threading.Event()
        self.goes.set()
        self.records: list[Record] = []
        self.threads: set[int] = set()
        self.errors: list[Exception] = []

    def probe(self) -> None:
        self.threads.add(threading.get_ident())
        assert self.goes.wait(50)
        if self.errors:
            raise self.errors.pop(0)

    def append(self, records: Iterable[Record], _durable: bool) -> None:
        self.probe()
        self.records += records

    def compact(self, _state: Folded) -> None:
        self.probe()


class Rig:
    """A writer on that disk; `done` is what was reported."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.done: list[str] = []
        self.writer = SpoolWriter(self.disk, self.done.append, lambda: self.done.append("a fault"))


def test_the_loop_goes_on_while_the_disk_takes_its_time() -> None:
    async def main() -> None:
        rig = Rig()
        rig.disk.goes.clear()
        rig.writer.begin(ONE)
        for _ in range(20):
            await asyncio.sleep(0)
        assert rig.done == []
        rig.disk.goes.set()
        await until(lambda: rig.done == [""])
        assert rig.disk.records == list(ONE.records)
        assert threading.get_ident() not in rig.disk.threads and len(rig.disk.threads) == 1
        await rig.writer.close()

    run(main())


@pytest.mark.parametrize(
    ("error", "said"),
    [(OSError(28, "No space left on device"), "No space left on device"), (ZeroDivisionError(), "a fault")],
)
def test_a_failure_is_reported_as_what_it_is(error: Exception, said: str) -> None:
    async def main() -> None:
        rig = Rig()
        rig.disk.errors = [error]
        rig.writer.begin(ProbeSpool())
        await until(lambda: rig.done == [said])
        rig.writer.begin(ONE)
        await until(lambda: rig.done == [said, ""])
        await rig.writer.close()

    run(main())


def test_a_writer_that_is_closed_lets_its_write_end_and_reports_nothing() -> None:
    async def main() -> None:
        rig = Rig()
        rig.disk.goes.clear()
        rig.writer.begin(ONE)
        closing = asyncio.create_task(rig.writer.close())
        await asyncio.sleep(0)
        assert not closing.done()
        rig.disk.goes.set()
        await closing
        assert rig.done == [] and rig.disk.records == list(ONE.records)

    run(main())


class Remembering:
    """As much of an agent as a pipeline asks for while its disk is well."""

    def __init__(self) -> None:
        self.state = Folded()

    def folded(self) -> Folded:
        return fold(unfold(self.state))


def test_a_real_spool_that_is_compacted_all_the_time_keeps_every_record(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "COMPACT_BYTES_MIN", 100)
    path = state_dir / "agent.spool"
    records = [Identity(f"cn{number}", "uid") for number in range(300)]
    compactions = 0

    async def main() -> None:
        spool = Spool(path)
        agent = Remembering()
        pipeline = AgentPipeline(agent, lambda: spool.wants_compaction)  # type: ignore[arg-type]
        done: list[Output] = []

        def carry_out(outputs: list[Output]) -> None:
            nonlocal compactions
            for output in outputs:
                if isinstance(output, WriteSpool | ProbeSpool | CompactSpool):
                    compactions += type(output) is CompactSpool
                    writer.begin(output)
                else:
                    done.append(output)

        writer = SpoolWriter(
            spool, lambda error: carry_out(pipeline.written(0, error)), lambda: carry_out(pipeline.failed(0))
        )
        for number, record in enumerate(records):
            agent.state.add(record)
            action = SpoolAction(record, durable=number % 50 == 0)
            carry_out(pipeline.perform([action, Answer(number, (0,), OK)], 0))
            if number % 7 == 0:
                await until(lambda all_so_far=number: len(done) > all_so_far)  # type: ignore[misc]
        await until(lambda: len(done) == len(records))
        await writer.close()
        spool.close()

    run(main())
    assert compactions > 1
    again = Spool(path)
    again.close()
    assert again.state == fold(records)
