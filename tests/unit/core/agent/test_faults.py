"""A fault of the agent's own ends one action, one item or one broadcast, and is answered; the agent goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from eslurm.core.agent.actions import Contact, RunBatch, RunCheck, SignalStep
from eslurm.core.model.step_key import BATCH_STEP, StepKey
from eslurm.core.relay.messages import RunLocal
from eslurm.core.relay.results import Outcome
from eslurm.ports.step_runner import StepOrder
from eslurm.v1 import link_pb2
from esnoded import shell as shell_module
from esnoded.daemon import NodeDaemon
from esnoded.shell import Shell
from tests.kits.launches import launch_of
from tests.support.loops import run
from tests.unit.esnoded.test_shell_lines import LAUNCH

STEP = StepKey(7, 2, BATCH_STEP, 3)


def fault(*_arguments: object, **_more: object) -> Any:
    raise ZeroDivisionError("a fault of our own")


class Rig:
    """A shell around an agent that notes what it hears; `contacts` are the nodes that the runner heard of."""

    def __init__(self, find: Callable[[bytes], bytes] | None = None) -> None:
        self.refused: list[tuple[StepKey, str]] = []
        self.contacts: list[int] = []
        self.timers = 0
        self.due_us: int | None = None
        self.agent: Any = SimpleNamespace(
            registry=SimpleNamespace(
                by_number={3: SimpleNamespace(epoch=5, attempts={}, offer=SimpleNamespace(name="cn3"))}
            ),
            on_step_refused=self._on_refused,
            on_timer=self._on_timer,
            next_timer_us=lambda: self.due_us,
        )
        other: Any = SimpleNamespace(
            release=None,
            wants_compaction=False,
            now_us=lambda: 0,
            to_boot_us=int,
            cache=SimpleNamespace(find=find),
        )
        runner: Any = SimpleNamespace(contact=self._contact, launch=self._launch, signal=fault)
        self.shell = Shell(self.agent, other, runner, "", other, other, other)

    def _on_refused(self, step: StepKey, why: str, _now_us: int) -> list[Any]:
        self.refused.append((step, why))
        return []

    def _on_timer(self, _now_us: int) -> list[Any]:
        self.timers += 1
        self.due_us = None if self.timers > 1 else 0
        return fault() if self.timers == 1 else []

    async def _contact(self, nodes: tuple[int, ...], _at_us: int) -> None:
        self.contacts += nodes

    async def _launch(self, _order: StepOrder) -> None:
        raise OverflowError("int too big to convert")


def test_a_fault_in_one_action_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        # No cache: a look into it raises TypeError.
        rig = Rig()
        rig.shell.perform([Contact((1,), 5), RunBatch(STEP, LAUNCH), SignalStep(STEP, 9), Contact((2,), 6)])
        for _ in range(5):
            await asyncio.sleep(0)
        assert rig.contacts == [1, 2]
        ((step, why),) = rig.refused
        assert step == STEP and why.startswith("internal error: TypeError")
        await rig.shell.close()

    run(main())
    told = [record for record in caplog.records if record.exc_info]
    assert [record.levelno for record in told] == [logging.ERROR] * 2


def test_a_launch_that_raises_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        rig = Rig(lambda _digest: b"blob")
        rig.shell.perform([RunBatch(STEP, LAUNCH)])
        for _ in range(5):
            await asyncio.sleep(0)
        assert rig.refused == [(STEP, "internal error: OverflowError: int too big to convert")]
        await rig.shell.close()

    run(main())


@pytest.mark.parametrize("missing", ["script_hash", "environment_hash"])
def test_a_blob_that_has_left_the_cache_starts_nothing(missing: str) -> None:
    launch = launch_of(LAUNCH, script_hash=b"s" * 32, environment_hash=b"e" * 32)
    kept = {launch.spec.script_hash: b"s", launch.spec.environment_hash: b"e"}
    del kept[getattr(launch.spec, missing)]

    async def main() -> None:
        find: Any = kept.get
        rig = Rig(find)
        rig.shell.perform([RunBatch(STEP, launch)])
        for _ in range(5):
            await asyncio.sleep(0)
        assert rig.refused == [(STEP, "the script is no longer in the cache")]
        await rig.shell.close()

    run(main())


def test_a_check_that_raises_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    checked: list[tuple[int, bool]] = []

    def on_checked(node: int, _now_us: int, *, passed: bool) -> list[Any]:
        checked.append((node, passed))
        return []

    async def main() -> None:
        rig = Rig()
        rig.agent.on_checked = on_checked
        rig.shell._check = fault
        rig.shell.perform([RunCheck(3)])
        for _ in range(5):
            await asyncio.sleep(0)
        await rig.shell.close()

    run(main())
    assert checked == [(3, False)]
    assert "the check of node cn3 could not be run" in caplog.text


def test_timers_go_on_after_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_module, "TIMER_AGAIN_US", 1_000)

    async def main() -> None:
        rig = Rig()
        rig.due_us = 0
        rig.shell.perform([])
        async with asyncio.timeout(50):
            while rig.timers < 2:  # noqa: ASYNC110 - a counter sets no event
                await asyncio.sleep(0.001)
        await rig.shell.close()

    run(main())


def test_a_broadcast_that_raises_is_answered_for_its_nodes() -> None:
    answers: list[tuple[int, tuple[int, ...], Outcome]] = []
    daemon: Any = SimpleNamespace(_command=fault, answer=lambda *answer: answers.append(answer))
    NodeDaemon._run_local(daemon, RunLocal(9, (1, 2), "prepare", b"signed", 1_000_000))
    ((broadcast_id, nodes, outcome),) = answers
    assert (broadcast_id, nodes) == (9, (1, 2))
    assert outcome.text == "internal error: ZeroDivisionError: a fault of our own"


def test_an_item_that_raises_does_not_take_the_next_one_with_it(caplog: pytest.LogCaptureFixture) -> None:
    came: list[int] = []
    daemon: Any = SimpleNamespace(
        _pull_book=lambda link: None,
        _handlers={"book": fault, "book_pull": lambda link, pull: came.append(pull.revision)},
    )
    link: Any = SimpleNamespace(traceparent="", peer=SimpleNamespace(process="p"))
    items = [link_pb2.Item(book=link_pb2.Book()), link_pb2.Item(book_pull=link_pb2.BookPull(revision=4))]
    NodeDaemon.on_items(daemon, link, items)
    assert came == [4]
    assert "a book of p could not be taken" in caplog.text
