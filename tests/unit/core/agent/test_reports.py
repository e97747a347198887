"""Registrations and reports: offered, repeated, acknowledged, refused."""

from __future__ import annotations

from eslurm.core.agent import actions as act
from eslurm.core.agent.report_queue import RESEND_FIRST_US, RESEND_MAX_US, ReportQueue
from eslurm.core.model.protocol import (
    End,
    NodeGone,
    Prepare,
    Registration,
    RegistrationReply,
    ReportAck,
    StepEnded,
)
from tests.kits.agent import SECOND, World, launch

PREPARE = Prepare(launch(), start=True)


def test_a_new_agent_learns_the_epoch_then_registers_under_it() -> None:
    world = World(nodes=2, register=False)
    assert [report.body.epoch for report in world.reports.values()] == [0, 0]
    world.reply(next(iter(world.reports.values())))
    epochs = [r.body.epoch for r in world.reports.values() if r.body.epoch]
    assert epochs == [1, 1], "one answer is enough to know for all nodes"
    world.register()
    assert all(node.registered for node in world.agent.registry.by_name.values())
    assert [a.number for a in world.log if isinstance(a, act.Numbered)] == [0, 1]


def test_the_satellite_may_know_the_epoch_before() -> None:
    world = World(register=False)
    world.perform(world.agent.on_link_down(world.now_us))
    world.reports.clear()
    world.perform(world.agent.on_link_up(world.now_us, "main", 1))
    assert [report.body.epoch for report in world.reports.values()] == [1]


def test_a_refused_node_is_offered_again_later() -> None:
    world = World(register=False)
    (report,) = world.reports.values()
    world.ack(report.seq, RegistrationReply("cn0", refused="no such node"))
    assert act.Refusal("cn0", "no such node") in world.log
    assert not world.reports
    world.pass_time(14)
    assert not world.reports
    world.pass_time(2)
    world.register()
    assert world.agent.registry.by_name["cn0"].registered


def test_an_acknowledgement_without_a_reply_is_no_registration() -> None:
    world = World(register=False)
    (report,) = world.reports.values()
    world.ack(report.seq)
    assert not world.agent.registry.by_name["cn0"].registered
    world.pass_time(2)
    world.register()
    assert world.agent.registry.by_name["cn0"].registered


def test_a_reply_of_an_older_epoch_does_not_count() -> None:
    world = World()
    world.epoch = 3
    world.order(_heartbeat())
    (report,) = world.reports.values()
    world.ack(report.seq, RegistrationReply("cn0", 0, 7, 2, "main"))
    assert not world.agent.registry.by_name["cn0"].registered
    world.pass_time(2)
    world.register()
    assert world.agent.registry.by_name["cn0"].incarnation == world.incarnations[0]


def _heartbeat() -> object:
    from eslurm.core.model.protocol import Heartbeat

    return Heartbeat(0)


def test_reports_are_repeated_until_acknowledged() -> None:
    world = World()
    world.order(PREPARE)
    world.finish()
    (report,) = world.reports.values()
    assert len(world.sent(StepEnded)) == 1
    world.pass_time(RESEND_FIRST_US / SECOND + 1)
    assert len(world.sent(StepEnded)) == 2
    world.perform(world.agent.on_link_down(world.now_us))
    world.pass_time(100)
    assert len(world.sent(StepEnded)) == 2, "there is no way up"
    world.perform(world.agent.on_link_up(world.now_us))
    assert len(world.sent(StepEnded)) == 3
    assert {each.seq for each in world.sent(StepEnded)} == {report.seq}
    world.ack(report.seq)
    world.pass_time(1_000)
    assert len(world.sent(StepEnded)) == 3 and len(world.agent.report_queue) == 0


def test_an_acknowledgement_may_come_twice_or_for_another_process() -> None:
    world = World()
    world.order(PREPARE)
    world.finish()
    (report,) = world.reports.values()
    world.perform(world.agent.on_ack(ReportAck("another", (report.seq,)), world.now_us))
    assert world.runner.ended
    ack = ReportAck(report.process, (report.seq, 999))
    world.perform(world.agent.on_ack(ack, world.now_us))
    world.perform(world.agent.on_ack(ack, world.now_us))
    assert not world.runner.ended


def test_what_is_owed_goes_out_under_the_new_incarnation() -> None:
    world = World()
    world.order(PREPARE)
    world.finish()
    world.epoch = 2
    world.reports.clear()
    world.order(_heartbeat())
    assert [type(report.body) for report in world.reports.values()] == [Registration]
    world.register()
    assert [(end.job_id, end.incarnation) for end in world.ends] == [(7, 1), (7, 2)]
    world.ack_all()
    assert not world.runner.ended


def test_both_an_end_and_a_departure_are_owed_until_each_is_acknowledged() -> None:
    world = World()
    world.order(PREPARE)
    world.give(world.command(End(7, 1, 1.0, "cancel")), deadline_us=SECOND)
    world.pass_time(2)
    world.finish(signal=9)
    kinds = {type(report.body): seq for seq, report in world.reports.items()}
    world.ack(kinds[NodeGone])
    assert world.runner.ended
    world.ack(kinds[StepEnded])
    assert not world.runner.ended and not world.agent.registry.by_number[0].owed


def test_no_more_than_a_window_is_in_flight() -> None:
    report_queue = ReportQueue("p", window=3)
    report_queue.on_link(True)
    for job_id in range(10):
        report_queue.add(NodeGone(0, 1, job_id, 1))
    first = report_queue.pump(0)
    assert [report.seq for report in first] == [1, 2, 3] and report_queue.pump(1) == []
    assert report_queue.acknowledge(2) == NodeGone(0, 1, 1, 1)
    assert [report.seq for report in report_queue.pump(2)] == [4]
    assert report_queue.next_timer_us() == RESEND_FIRST_US
    report_queue.on_timer(RESEND_FIRST_US)
    assert [report.seq for report in report_queue.pump(RESEND_FIRST_US)] == [1, 3]
    report_queue.on_link(False)
    report_queue.on_link(True)
    assert sorted(report.seq for report in report_queue.pump(0)) == [1, 3, 4]
    assert len(report_queue) == 9


def test_nothing_runs_between_the_inventory_and_the_reply() -> None:
    world = World(blobs=False)
    ref = world.give(world.command(PREPARE))
    world.epoch = 2
    world.order(_heartbeat())
    assert world.answered(ref)[0].text == "the node registers anew"
    (report,) = world.reports.values()
    assert report.body.held == ()
    world.blobs |= {b"s" * 32, b"e" * 32}
    world.perform(world.agent.on_blobs((b"s" * 32,), world.now_us))
    assert not world.runner.started


def test_the_patience_for_an_acknowledgement_is_bounded() -> None:
    """After an outage of hours a report is repeated as soon as after one of a minute."""
    report_queue = ReportQueue("p")
    report_queue.on_link(True)
    report_queue.add(NodeGone(0, 1, 7, 1))
    now_us, waits = 0, []
    assert report_queue.pump(now_us)
    for _ in range(20):
        due_us = report_queue.next_timer_us()
        assert due_us is not None
        waits.append(due_us - now_us)
        now_us = due_us
        report_queue.on_timer(now_us)
        assert report_queue.pump(now_us)
    assert waits[:2] == [RESEND_FIRST_US, 2 * RESEND_FIRST_US] and waits == sorted(waits)
    assert waits[-1] == RESEND_MAX_US
