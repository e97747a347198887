"""An agent's actions on their way: none overtakes the record that it relies on; what relies on none waits for none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from eslurm.core.agent.actions import (
    AcknowledgeSteps,
    Action,
    Answer,
    Contact,
    Numbered,
    RunBatch,
    SendReport,
)
from eslurm.core.agent.actions import Spool as SpoolAction
from eslurm.core.agent.pipeline import (
    ANSWER_MARGIN_US,
    CALLS_TOGETHER_MAX,
    CALLS_WAITING_MAX,
    RETRY_US,
    STALL_US,
    AgentPipeline,
    CompactSpool,
    NotStarted,
    Output,
    ProbeSpool,
    StorageChanged,
    WriteSpool,
    carry_out,
)
from eslurm.core.agent.records import Buried, Folded, Identity, Prepared, Record
from eslurm.core.model.protocol import Command, Heartbeat, NodeGone, Prepare, Report
from eslurm.core.model.step_key import BATCH_STEP, StepKey
from eslurm.core.relay.messages import RunLocal
from eslurm.core.relay.results import OK
from tests.kits.agent import launch

NO_SPACE = "No space left on device"
BATCH = StepKey(7, 1, BATCH_STEP, 0)


class FakeAgent:
    """An agent as the pipeline sees it; `told` lists the storage's states that it has heard."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.problems: list[tuple[str, ...]] = []
        self.refused: list[StepKey] = []
        self.commands: list[Any] = []
        self.report_queue = SimpleNamespace(is_up=True)
        self.timer_us: int | None = None
        self.on_refused: Callable[[], list[Action]] = list

    def on_storage(self, error: str) -> None:
        self.told.append(error)

    def on_link_up(self, _now_us: int) -> list[Action]:
        return [report(99)]

    def on_step_refused(self, step: StepKey, _why: str, _now_us: int) -> list[Action]:
        self.refused.append(step)
        return self.on_refused()

    def set_problems(self, problems: tuple[str, ...]) -> None:
        self.problems.append(problems)

    def on_command_many(self, *given: Any, **more: Any) -> list[Action]:
        self.commands.append((given, more))
        return [numbered(1)]

    def on_timer(self, _now_us: int) -> list[Action]:
        return []

    def next_timer_us(self) -> int | None:
        return self.timer_us

    def folded(self) -> Folded:
        return Folded("state")


class Rig:
    """A pipeline whose orders the test acknowledges."""

    def __init__(self) -> None:
        self.agent = FakeAgent()
        self.is_long = False
        agent: Any = self.agent
        self.pipeline = AgentPipeline(agent, lambda: self.is_long)

    def take(self, *actions: Action, now_us: int = 0) -> list[Output]:
        return self.pipeline.perform(actions, now_us)


def record(number: int, durable: bool = False) -> SpoolAction:
    return SpoolAction(Identity(f"cn{number}", "uid"), durable)


def write(*records: SpoolAction) -> WriteSpool:
    return WriteSpool(tuple(one.record for one in records), any(one.durable for one in records))


def answer(ref: int, *, alone: bool = False) -> Answer:
    return Answer(ref, (0,), OK, alone)


def numbered(number: int) -> Numbered:
    return Numbered("cn", number)


def report(seq: int) -> SendReport:
    return SendReport(Report("p", seq, NodeGone(0, 1, 7, 1)))


def test_nothing_overtakes_its_record_or_an_earlier_call() -> None:
    rig = Rig()
    assert rig.take(numbered(1), answer(1)) == [numbered(1), answer(1)], (
        "what writes nothing waits for nothing"
    )
    first, second = record(1, durable=True), record(2)
    alone = answer(3, alone=True)
    assert rig.take(first, numbered(2), answer(2), alone) == [alone, write(first)]
    assert rig.take(numbered(3), answer(4)) == []
    assert rig.take(second, answer(5)) == []
    assert rig.take(Contact((1,), 5), answer(6, alone=True)) == [Contact((1,), 5), answer(6, alone=True)]
    assert rig.pipeline.written(1) == [numbered(2), answer(2), numbered(3), answer(4), write(second)]
    assert rig.pipeline.written(2) == [answer(5)]


def test_a_compaction_is_made_of_an_agent_all_of_whose_records_are_written() -> None:
    rig = Rig()
    rig.is_long = True
    compact = CompactSpool(Folded("state"))
    assert rig.take(record(1), answer(1)) == [write(record(1))]
    assert rig.take(record(2), answer(2)) == []
    assert rig.pipeline.written(0) == [answer(1), write(record(2))]
    assert rig.pipeline.written(0) == [answer(2), compact]
    assert rig.take(record(3), answer(3)) == [], "the next record waits for its end"
    rig.is_long = False
    assert rig.pipeline.written(0, NO_SPACE) == [write(record(3))], "the old file is good"
    assert rig.pipeline.written(0) == [answer(3)] and rig.agent.told == []


def test_a_record_is_forgotten_only_when_the_spool_has_acknowledged_it() -> None:
    rig = Rig()
    gone = AcknowledgeSteps((BATCH,))
    assert rig.take(record(1, durable=True), numbered(1), answer(1)) == [write(record(1, durable=True))]
    out = rig.pipeline.written(10, NO_SPACE)
    assert out == [StorageChanged(NO_SPACE), numbered(1)] and rig.agent.told == [NO_SPACE]
    assert rig.take(gone, answer(2), answer(3, alone=True)) == [answer(3, alone=True)]
    assert rig.take(report(1)) == [], "it is sent again"
    assert rig.pipeline.next_timer_us() == 10 + RETRY_US
    retry = write(record(1, durable=True))
    assert rig.pipeline.on_timer(10 + RETRY_US) == [retry]
    assert rig.take(record(2), answer(4), now_us=20 + RETRY_US) == []
    assert rig.pipeline.written(20 + RETRY_US, NO_SPACE) == [write(record(1, durable=True), record(2))]
    out = rig.pipeline.written(30 + RETRY_US)
    assert out == [StorageChanged(""), gone, answer(1), answer(2), answer(4), report(99)]
    assert rig.agent.told == [NO_SPACE, ""] and rig.pipeline.next_timer_us() is None


def test_what_is_sent_again_after_a_failure_comes_behind_the_records_that_wait() -> None:
    rig = Rig()
    rig.take(record(1))
    rig.pipeline.written(0, NO_SPACE)
    rig.pipeline.on_timer(RETRY_US)
    rig.take(record(2), report(1))
    assert rig.pipeline.written(RETRY_US) == [StorageChanged(""), write(record(2))]
    assert rig.pipeline.written(RETRY_US) == [report(1), report(99)]


def test_a_spool_that_has_nothing_to_take_is_probed() -> None:
    rig = Rig()
    rig.take(record(1))
    rig.pipeline.written(0, NO_SPACE)
    rig.pipeline._records.clear()
    assert rig.pipeline.on_timer(RETRY_US) == [ProbeSpool()]
    assert rig.pipeline.written(RETRY_US, NO_SPACE) == []
    assert rig.pipeline.next_timer_us() == 2 * RETRY_US


def test_no_batch_script_is_started_while_the_spool_cannot_be_written() -> None:
    rig = Rig()
    rig.agent.on_refused = lambda: [answer(7)]
    run = RunBatch(BATCH, launch())
    rig.take(record(1))
    rig.pipeline.written(0, NO_SPACE)
    why = f"the node's spool cannot be written: {NO_SPACE}"
    assert rig.take(run, numbered(1)) == [NotStarted(run, why), numbered(1)]
    assert rig.agent.refused == [BATCH], "and its refusal waits for the record, as any other answer"


def test_a_write_that_does_not_end_is_a_problem_and_what_waits_is_bounded() -> None:
    rig = Rig()
    rig.take(record(1), answer(1), now_us=5)
    assert rig.pipeline.next_timer_us() == 5 + STALL_US
    assert rig.pipeline.on_timer(5 + STALL_US) == [StorageChanged("a write takes longer than 5 s")]
    assert rig.pipeline.problems == ("spool",)
    for number in range(2 * CALLS_WAITING_MAX):
        assert rig.take(report(1), answer(number)) == []
    rig.take(record(2), answer(-1))
    assert len(rig.pipeline._calls) == CALLS_WAITING_MAX + 1, "reports and answers come again, records do not"
    out = rig.pipeline.written(6 + STALL_US)
    assert out[:2] == [StorageChanged(""), answer(1)] and out[-1] == write(record(2))
    assert rig.pipeline.problems == ()


def test_a_fault_of_the_drivers_own_ends_one_call() -> None:
    rig = Rig()
    rig.take(record(1), answer(1))
    rig.take(record(2), answer(2))
    assert rig.pipeline.failed(0) == [write(record(1), record(2))], "its record goes with the next one"
    assert rig.pipeline.written(0) == [answer(2)]


def test_an_exception_of_the_agent_loses_no_order() -> None:
    rig = Rig()

    def fails() -> list[Action]:
        raise ZeroDivisionError

    rig.take(record(1))
    rig.pipeline.written(0, NO_SPACE)
    rig.agent.on_timer = lambda _now_us: fails()  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        rig.pipeline.on_timer(RETRY_US)
    assert rig.take(numbered(1)) == [write(record(1))]


def test_an_agent_that_ends_does_nothing_more() -> None:
    rig = Rig()
    rig.take(record(1), answer(1))
    rig.take(record(2), answer(2))
    rig.pipeline.stop()
    assert rig.take(answer(3, alone=True)) == [] and rig.pipeline.written(0) == []


@pytest.mark.parametrize(("left_us", "margin_us"), [(10_000_000, ANSWER_MARGIN_US), (1_000_000, 100_000)])
def test_a_broadcast_is_answered_before_its_deadline_with_what_is_wrong(left_us: int, margin_us: int) -> None:
    rig = Rig()
    run = RunLocal(3, (1, 2), "effect", b"sealed", left_us)
    order = Command("c", "main", 1, 1, 0, ((1, 2),), (1, 1), 0, Prepare(launch()))
    assert rig.pipeline.obey(run, order, 50, 40) == [numbered(1)]
    (given, more) = rig.agent.commands[0]
    assert given == ((1, 2), order, 3, 50, 50 + left_us - margin_us)
    assert more == {"dated_us": 40, "sealed": b"sealed"} and not rig.agent.problems
    rig.take(record(1))
    rig.pipeline.written(0, NO_SPACE)
    rig.pipeline.obey(run, msgspec.structs.replace(order, body=Heartbeat(1)), 50, 40, ("clock", "tmp"))
    assert rig.agent.problems == [("clock", "spool", "tmp")]


class Disk:
    """A storage that notes what it is asked for, and may be full."""

    def __init__(self, is_full: bool) -> None:
        self.is_full = is_full
        self.asked: list[Any] = []

    def _note(self, *what: Any) -> None:
        self.asked.append(what)
        if self.is_full:
            raise OSError(28, NO_SPACE)

    def append(self, records: Sequence[Record], durable: bool) -> None:  # type: ignore[override]
        self._note("append", records, durable)

    def probe(self) -> None:
        self._note("probe")

    def compact(self, state: Folded) -> None:
        self._note("compact", state)


@pytest.mark.parametrize("is_full", [False, True])
def test_orders_are_carried_out_on_any_storage(is_full: bool) -> None:
    disk: Any = Disk(is_full)
    state = Folded("state")
    said = {carry_out(order, disk) for order in (write(record(1)), ProbeSpool(), CompactSpool(state))}
    assert said == {NO_SPACE if is_full else ""}
    assert disk.asked == [("append", (record(1).record,), False), ("probe",), ("compact", state)]


def test_calls_that_waited_share_one_order_and_come_out_in_their_turn() -> None:
    rig = Rig()
    assert rig.take(record(1), answer(1)) == [write(record(1))]
    calls = [(record(2), answer(2)), (numbered(3),), (record(4, durable=True), answer(4))]
    for call in calls:
        assert rig.take(*call) == []
    together = write(record(2), record(4, durable=True))
    assert rig.pipeline.written(0) == [answer(1), together]
    assert rig.pipeline.written(0) == [answer(2), numbered(3), answer(4)]


def test_no_order_is_shared_by_too_many() -> None:
    rig = Rig()
    rig.take(record(0))
    for number in range(1, CALLS_TOGETHER_MAX + 3):
        rig.take(record(number), answer(number))
    (first,) = rig.pipeline.written(0)
    assert isinstance(first, WriteSpool) and len(first.records) == CALLS_TOGETHER_MAX + 1
    *said, second = rig.pipeline.written(0)
    assert said == [answer(number) for number in range(1, CALLS_TOGETHER_MAX + 2)]
    assert second == write(record(CALLS_TOGETHER_MAX + 2))


def test_what_is_buried_was_written_as_prepared_before() -> None:
    """Its script may have been told to start meanwhile: both records are kept, in two orders."""
    rig = Rig()
    prepared = SpoolAction(Prepared(0, "main", 5, launch(), start=True), False)
    buried = SpoolAction(Buried(0, 7, 1, "main", 6, started=True), False)
    rig.take(record(1))
    rig.take(record(2))
    rig.take(prepared, RunBatch(BATCH, launch()))
    rig.take(buried, answer(3))
    assert rig.pipeline.written(0) == [write(record(2), prepared)]
    assert rig.pipeline.written(0) == [RunBatch(BATCH, launch()), write(buried)]
    assert rig.pipeline.written(0) == [answer(3)]
