"""Delivery of effects until they are settled: retries, absent nodes, restarts, and nothing left behind."""

from __future__ import annotations

import msgspec

from eslurm.core.control.effects import owed
from eslurm.core.dispatch.effect_delivery import END_AGAIN_US, RETRY_FIRST_US, RETRY_MAX_US, EffectDelivery
from eslurm.core.model.job import StepEnd
from eslurm.core.model.messages import EffectDone, HeartbeatDone, NodeOutcome
from eslurm.core.model.protocol import End, Gone, HeldAttempt, Prepare, Start, StepEnded
from eslurm.core.model.request import Request
from tests.kits.core import SECOND, World

WIDE = Request(tasks=12, nodes_min=3, nodes_max=3)


def test_what_was_not_reached_is_sent_again_with_growing_delays() -> None:
    world = World(nodes=1)
    world.submit()
    world.plan()
    delays = []
    for _ in range(9):
        (send,) = world.sends()
        assert world.sends() == []
        world.done(send, nodes=())
        due_us = world.delivery.next_due_us()
        assert due_us is not None
        delays.append(due_us - world.now_us)
        world.now_us = due_us
    assert delays[:3] == [RETRY_FIRST_US * 2, RETRY_FIRST_US * 4, RETRY_FIRST_US * 8]
    assert delays[-1] == RETRY_MAX_US


def test_only_the_nodes_that_have_not_answered_are_asked_again() -> None:
    world = World()
    job = world.submit(request=WIDE)
    world.start()
    world.report(StepEnded(0, 1, job, 1, StepEnd(0), True))
    (send,) = world.sends()
    world.done(send, nodes=(1,), payload=msgspec.msgpack.encode(Gone(True)))
    world.pass_time(1)
    (again,) = world.sends()
    assert (again.revision, again.nodes) == (send.revision, (2,))


def test_an_unreachable_node_is_tried_a_lost_one_is_not() -> None:
    world = World(nodes=1)
    job = world.submit()
    world.start()
    world.send(HeartbeatDone(missing=(0,)))
    world.cancel(job)
    (send,) = world.sends()
    world.lose(0)
    world.done(send, nodes=())
    assert world.sends() == [] and not len(world.delivery)


def test_a_launch_waits_for_a_node_that_does_not_answer() -> None:
    """It could start the job when the node has been given up, and the job runs elsewhere."""
    world = World(nodes=2)
    job = world.submit(request=Request(tasks=8, nodes_min=2, nodes_max=2))
    world.plan()
    world.send(HeartbeatDone(missing=(1,)))
    (send,) = world.sends()
    assert isinstance(send.body, Prepare) and send.nodes == (0,)
    world.done(send)
    world.pass_time(30)
    assert world.sends() == []
    world.send(HeartbeatDone(back=(1,)))
    world.delivery.on_answering(1, world.now_us)
    (late,) = world.sends()
    assert (late.revision, late.nodes) == (send.revision, (1,))
    world.delivery.on_answering(1, world.now_us)
    assert world.sends() == [], "it is under way"
    world.done(late)
    (begin,) = world.sends()
    assert isinstance(begin.body, Start) and begin.body.job_id == job


def test_the_end_of_an_orphan_is_sent_until_its_node_answers() -> None:
    world = World(nodes=1)
    world.register(0, HeldAttempt(7, 1, "running"), session="s2")
    for _ in range(12):
        (send,) = world.sends()
        assert send.nodes == (0,) and send.body == End(7, 1, 0.0, "orphan")
        world.done(send, nodes=())
        due_us = world.delivery.next_due_us()
        assert due_us is not None and due_us - world.now_us <= RETRY_MAX_US
        world.now_us = due_us
    (send,) = world.sends()
    world.done(send, payload=msgspec.msgpack.encode(Gone(True)))
    assert not len(world.delivery)


def test_an_orphan_that_is_offered_again_has_one_end_under_way() -> None:
    world = World(nodes=1)
    for session in ("s2", "s3", "s4"):
        world.register(0, HeldAttempt(7, 1, "running"), session=session)
    (send,) = world.sends()
    world.done(send, nodes=())
    assert len(world.delivery) == 1
    world.lose(0)
    world.pass_time(RETRY_MAX_US / SECOND)
    assert world.sends() == [] and not len(world.delivery)


def test_an_accepted_end_is_waited_for_and_asked_about_again() -> None:
    """The node said that it is at it; if its report is lost with its spool, asking again settles it."""
    world = World(nodes=1)
    job = world.submit()
    world.start()
    world.cancel(job)
    (send,) = world.sends()
    world.done(send, payload=b"")
    world.pass_time(END_AGAIN_US / SECOND - 1)
    assert world.sends() == []
    world.pass_time(1)
    (again,) = world.sends()
    assert again == send
    world.done(again, payload=msgspec.msgpack.encode(Gone(False)))
    assert world.state_of(job) == "CANCELLED"
    assert not len(world.delivery)


def test_nothing_is_remembered_of_what_a_report_has_settled() -> None:
    world = World(nodes=1)
    for _ in range(5):
        job = world.submit()
        world.start()
        world.cancel(job)
        (send,) = world.sends()
        world.done(send, payload=b"")
        world.report(StepEnded(0, 1, job, 1, StepEnd(0, signal=15), True))
        assert world.state_of(job) == "CANCELLED"
    world.pass_time(END_AGAIN_US / SECOND)
    assert world.sends() == [] and not len(world.delivery)


def test_an_answer_nobody_waits_for_is_ignored() -> None:
    world = World()
    delivery = EffectDelivery(world.state)
    delivery.on_done(EffectDone(99, 0, (NodeOutcome((0,), "ok"),)), world.now_us)
    assert not len(delivery) and delivery.next_due_us() is None


def test_after_a_restart_the_same_is_owed() -> None:
    world = World(nodes=6, cores=4)
    wide = world.submit(request=WIDE)
    world.start()
    small, waiting = world.submit(), world.submit()
    world.plan()
    world.cancel(small)
    world.report(StepEnded(0, 1, wide, 1, StepEnd(0), True))
    before = owed(world.state)
    assert [type(effect.body) for effect in before] == [Prepare, Prepare, End, End]
    world.restart(epoch=False)
    assert owed(world.state) == before
    sends = world.sends()
    cancelled = before[0].revision
    assert [send.revision for send in sends] == [
        effect.revision for effect in before if effect.revision != cancelled
    ]
    assert world.state_of(waiting) == "LAUNCHING"


def test_each_node_gets_what_it_is_owed_when_it_registers() -> None:
    world = World()
    job = world.submit(request=WIDE)
    world.plan()
    world.restart(register=False)
    assert world.sends() == [] and not len(world.delivery)
    world.register(1, session="s2")
    (first,) = world.sends()
    assert first.nodes == (1,)
    world.register(0, session="s2")
    world.register(2, session="s2")
    (second,) = world.sends()
    assert second.nodes == (0, 2)
    world.done(second)
    world.done(first)
    assert world.attempt(job).phase.value == "STARTING"


def test_a_node_that_registers_again_is_sent_again_what_it_may_have_forgotten() -> None:
    world = World(nodes=1)
    job = world.submit()
    world.start()
    world.cancel(job)
    (send,) = world.sends()
    world.done(send, payload=b"")
    world.register(0, HeldAttempt(job, 1, "running"), session="s2")
    (again,) = world.sends()
    assert isinstance(again.body, End) and again.revision == send.revision


def test_sends_go_out_in_the_order_of_the_allocation() -> None:
    world = World(nodes=6)
    world.submit(request=Request(tasks=24, nodes_min=6, nodes_max=6))
    world.plan()
    (send,) = world.sends()
    assert send.nodes == (0, 1, 2, 3, 4, 5)
