"""A spool that cannot be written for a while: nothing is promised that a crash could undo, and nothing is lost.

The disk fills at each write of each scenario of `test_interrupted`, with and without a crash while it is full.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec
import pytest

from eslurm.core.agent import actions as act
from eslurm.core.agent.pipeline import (
    AgentPipeline,
    CompactSpool,
    NotStarted,
    Output,
    ProbeSpool,
    StorageChanged,
    WriteSpool,
    carry_out,
)
from eslurm.core.agent.records import Folded, Record
from eslurm.core.model.protocol import End, Heartbeat, Prepare, Registration, Signal
from eslurm.core.relay.results import OK, Status
from eslurm.lab.sim.agent_invariants import check
from tests.kits.agent import Crashed, World, is_ok, launch
from tests.unit.core.agent.test_interrupted import BATCH, ROUNDS_MAX, SCENARIOS, check_end, revive

PREPARE = Prepare(launch(), start=True)
END = End(7, 1, 10.0, "cancel")


class FullDisk(World):
    """A world behind the agent's pipeline, whose spool can be full. With `fills_at` that write fails."""

    def __init__(self, nodes: int = 1, *, fills_at: int = -1, rounds: int = 1) -> None:
        self._pipeline: AgentPipeline | None = None
        self.is_full = False
        self.fills_at = fills_at
        self.rounds = rounds
        self.writes = 0
        self.filled_at: int | None = None
        super().__init__(nodes)

    # The spool, as orders know it.

    def append(self, records: Iterable[Record], _durable: bool) -> None:
        if self.writes == self.fills_at and self.filled_at is None:
            self.is_full, self.filled_at = True, self.actions
        self.probe()
        self.writes += 1
        self.spool += map(msgspec.msgpack.encode, records)

    def probe(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def compact(self, _state: Folded) -> None:
        raise AssertionError("this spool is never long")

    @property
    def pipeline(self) -> AgentPipeline:
        if self._pipeline is None or self._pipeline.agent is not self.agent:
            self._pipeline = AgentPipeline(self.agent, lambda: False)
        return self._pipeline

    def perform(self, actions: Sequence[act.Action]) -> None:
        self.carry_out(self.pipeline.perform(actions, self.now_us))

    def carry_out(self, outputs: Sequence[Output]) -> None:
        todo = deque(outputs)
        while todo:
            output = todo.popleft()
            if self.actions == self.crash_at:
                self.crash_at = None
                raise Crashed
            self.actions += 1
            if isinstance(output, WriteSpool | ProbeSpool | CompactSpool):
                todo.extend(self.pipeline.written(self.now_us, carry_out(output, self)))
            elif not isinstance(output, StorageChanged | NotStarted):
                self.log.append(output)
                self._perform(output)
        breaches = check(self.agent)
        assert not breaches, breaches

    def make_room(self) -> None:
        self.is_full = False
        assert self.pipeline.error
        self.now_us = max(self.now_us, self.pipeline.next_timer_us() or 0)
        self.carry_out(self.pipeline.on_timer(self.now_us))
        assert not self.pipeline.error
        self.settle()

    def pass_time(self, seconds: float) -> None:
        super().pass_time(seconds)
        if self.filled_at is not None and self.is_full:
            self.rounds -= 1
            if self.rounds <= 0:
                self.make_room()


def carried_out(name: str, fills_at: int, rounds: int, crash_after: int | None) -> FullDisk:
    world = FullDisk(3, fills_at=fills_at, rounds=rounds)
    label = f"{name}, full at write {fills_at} for {rounds} rounds, crash after {crash_after}"
    controller = SCENARIOS[name](world)
    for _ in range(ROUNDS_MAX):
        if world.is_full and crash_after is not None:
            world.crash_at = world.actions + crash_after
            crash_after = None
        try:
            controller.turn()
        except Crashed:
            revive(world, False)
        if controller.done and not world.is_full and not world.reports and not world.runner.ended:
            break
    check_end(world, controller, label)
    return world


@pytest.mark.parametrize("name", SCENARIOS)
def test_whenever_the_disk_fills_and_the_agent_dies(name: str) -> None:
    writes = carried_out(name, -1, 0, None).writes
    first = FullDisk(3).writes
    assert writes - first >= 2
    for fills_at in range(first, writes):
        for rounds in (1, 3):
            for crash_after in (None, 0, 1, 2, 3, 5, 8, 13):
                carried_out(name, fills_at, rounds, crash_after)


def test_work_is_refused_while_the_disk_is_full_and_taken_again_afterwards() -> None:
    world = FullDisk()
    world.is_full = True
    first = world.order(PREPARE)[0]
    assert first.status is Status.FAILED, "found out by writing it"
    second = world.order(Prepare(launch(job_id=8), start=True))[0]
    assert second.text == "the node's spool cannot be written: No space left on device"
    assert not world.runner.started and not world.stages()
    assert world.order(Heartbeat(3)) == {0: OK}, "it lives, and says so"
    world.make_room()
    assert is_ok(world.order(Prepare(launch(job_id=9), start=True))[0])
    before = len(world.spool)
    world.restart()
    assert world.stages() == {(9, 1): "RUNNING"}, f"of {before} records none starts what was refused"
    assert sum(world.runner.started.values()) == 1


def test_a_running_job_ends_and_is_reported_though_the_disk_is_full() -> None:
    world = FullDisk()
    world.order(PREPARE)
    world.is_full = True
    world.finish(exit_code=3)
    assert [end.end.exit_code for end in world.ends] == [3]
    world.ack_all()
    assert BATCH in world.runner.ended, (
        "the spool has no tombstone yet: only the runner knows that it is over"
    )
    world.restart()
    assert world.sent(Registration)[-1].body.starts == 1, "the session could not be counted"
    assert world.runner.started[BATCH] == 1
    world.make_room()
    assert world.sent(Registration)[-1].body.starts == 2
    world.register()
    world.ack_all()
    assert not world.runner.ended and not world.stages()
    world.restart()
    assert world.runner.started[BATCH] == 1


def test_a_job_is_ended_at_once_but_gone_only_when_that_is_written() -> None:
    world = FullDisk()
    world.order(PREPARE)
    world.is_full = True
    ref = world.give(world.command(END))
    assert [told.step for told in world.runner.terminated] == [BATCH]
    world.finish(signal=15)
    assert world.answered(ref) == {}
    world.make_room()
    assert is_ok(world.answered(ref)[0])


def test_a_signal_waits_until_it_is_written_that_it_was_sent() -> None:
    world = FullDisk()
    world.order(PREPARE)
    world.is_full = True
    ref = world.give(world.command(Signal(7, 1, 10)))
    assert not world.runner.signalled and world.answered(ref) == {}
    world.make_room()
    assert [sent.signal for sent in world.runner.signalled] == [10] and is_ok(world.answered(ref)[0])


def test_what_waits_does_not_grow_with_time() -> None:
    world = FullDisk()
    world.order(PREPARE)
    world.is_full = True
    for floor in range(2, 500):
        world.order(Heartbeat(floor))
        world.give(world.command(End(99, 1, 0.0, "x"), revision=1_000))
    assert len(world.pipeline._records) <= 3
    assert len(world.pipeline._answers) <= 500
    world.make_room()
    assert not world.pipeline._records
