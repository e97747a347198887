"""Refusals of an agent: old epochs, other incarnations, expired commands, commands below the floor or behind a tombstone."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.core.agent import actions as act
from eslurm.core.agent.fence import Addressed, Fence
from eslurm.core.agent.records import EpochSeen, Record, fold
from eslurm.core.model.protocol import (
    AGENT_PROTOCOL,
    Body,
    Command,
    End,
    Heartbeat,
    Prepare,
    Registration,
    Signal,
    Start,
)
from eslurm.core.relay.results import OK, Status, failed
from tests.kits.agent import OWNER, SECOND, World, is_ok, launch

PREPARE = Prepare(launch(), start=True)


def test_an_older_epoch_is_refused_and_a_newer_one_makes_every_node_register_anew() -> None:
    world = World(nodes=2)
    world.epoch = 2
    assert world.order(Heartbeat(0), (0, 1)) == {0: OK, 1: OK}
    assert [report.body.epoch for report in world.reports.values()] == [2, 2]
    ref = world.give(world.command(PREPARE))
    world.settle()
    assert world.answered(ref) == {}, "parked until the node knows its incarnation"
    world.register()
    world.settle()
    assert world.answered(ref)[0].status is Status.FAILED, "it named the incarnation before"
    old = world.order(Prepare(launch(job_id=8), start=True), epoch=1)[0]
    assert "epoch 1" in old.text and not world.runner.started
    assert is_ok(world.order(Prepare(launch(job_id=9), start=True))[0])


def test_a_command_that_overtakes_the_registrations_reply_is_carried_out_after_it() -> None:
    world = World(register=False)
    for report in list(world.reports.values()):
        world.reply(report)
    world.incarnations[0] = 1
    ref = world.give(world.command(PREPARE))
    assert world.answered(ref) == {}
    world.incarnations.clear()
    world.register()
    assert is_ok(world.answered(ref)[0])


def test_a_parked_command_of_an_epoch_that_is_over_by_then_is_not_carried_out() -> None:
    """Even when the incarnation fits: the next controller numbers from what it found committed."""
    world = World(register=False)
    for report in list(world.reports.values()):
        world.reply(report)
    world.incarnations[0] = 1
    launched, ended = world.give(world.command(PREPARE)), world.give(world.command(End(8, 1, 1.0, "cancel")))
    world.incarnations.clear()
    world.epoch = 2
    world.perform(world.agent.on_link_up(world.now_us, OWNER, 2))
    world.register()
    assert world.incarnations == {0: 1}
    assert not world.runner.started and world.stages() == {}
    assert not world.agent.buffer.fence(OWNER).tombstones, "the end was ordered by nobody who leads"
    assert world.answered(launched) == world.answered(ended) == {}
    assert is_ok(world.order(PREPARE)[0])


def test_the_epoch_is_on_the_disk_before_anything_is_done_under_it() -> None:
    """After a power cut an older controller would be obeyed again."""
    world = World()
    world.epoch = 2
    before = len(world.log)
    world.order(Heartbeat(0))
    written = [one for one in world.log[before:] if isinstance(one, act.Spool)]
    assert [(one.record, one.durable) for one in written if isinstance(one.record, EpochSeen)] == [
        (EpochSeen(OWNER, 2), True)
    ]


def test_another_incarnations_launch_is_refused_for_good() -> None:
    world = World()
    answer = world.order(PREPARE, incarnations=(9,))[0]
    assert "incarnation 9" in answer.text
    world.register()
    # The refusal was a promise: the very same attempt does not start under the right incarnation either.
    assert world.order(PREPARE)[0].status is Status.FAILED
    assert not world.runner.started


def test_a_registration_says_what_is_understood_here() -> None:
    world = World()
    (node,) = world.agent.registry.by_name.values()
    node.offer = msgspec.structs.replace(node.offer, phases=("prolog",))
    assert latest(world).protocol == AGENT_PROTOCOL
    world.agent.registry.site.protocol = 0
    world.epoch = 2
    world.order(Heartbeat(0))
    assert (latest(world).protocol, latest(world).phases) == (0, ())
    world.agent.registry.site.protocol = AGENT_PROTOCOL
    world.epoch = 3
    world.order(Heartbeat(0))
    assert latest(world).phases == ("prolog",)


def latest(world: World) -> Registration:
    """The last registration that cn0 offered."""
    body = world.sent(Registration)[-1].body
    assert isinstance(body, Registration)
    return body


@pytest.mark.parametrize("body", [Heartbeat(0), PREPARE, End(7, 1, 0.0, "x")])
def test_a_node_whose_registration_was_overtaken_registers_under_a_new_session(body: Body) -> None:
    """A late registration of its predecessor was believed: its own session is the past to the controller now."""
    world = World(nodes=2)
    before = latest(world)
    world.incarnations[0] = 8
    world.order(body)
    after = latest(world)
    assert (before.name, after.name) == ("cn1", "cn0")
    assert after.session != before.session and after.starts == before.starts + 1 == 2
    assert [action.name for action in world.log if isinstance(action, act.Overtaken)] == ["cn0"]
    world.register()
    assert world.agent.registry.by_number[0].incarnation == 9
    assert is_ok(world.order(Prepare(launch(job_id=9), start=True))[0])
    assert world.agent.registry.by_number[1].session == before.session, "the other node was not overtaken"


def test_a_registration_that_was_overtaken_before_its_reply_came_is_noticed_too() -> None:
    world = World(register=False)
    world.register()
    world.epoch = 2
    world.order(Heartbeat(0))
    world.incarnations[0] = 5
    ref = world.give(world.command(PREPARE))
    world.incarnations[0] = 3
    world.register()
    assert "incarnation 5" in world.answered(ref)[0].text
    node = world.agent.registry.by_number[0]
    assert node.registered and node.starts == 2 and node.incarnation == 5, "4 was for the session before"


def test_sessions_are_counted_through_restarts_and_reboots() -> None:
    world = World()
    for boot in (False, True):
        world.restart(boot=boot)
        world.register()
    world.order(Heartbeat(0), incarnations=(99,))
    world.register()
    world.restart()
    assert [r.body.starts for r in world.sent(Registration) if r.body.epoch == 1] == [1, 2, 3, 4, 5]


def test_a_late_copy_of_a_launch_that_happened_is_answered_with_the_truth() -> None:
    world = World()
    world.order(PREPARE)
    assert is_ok(world.order(PREPARE, incarnations=(9,))[0])
    assert is_ok(world.order(Start(7, 1), expires_us=world.now_us - 120 * SECOND)[0])
    assert sum(world.runner.started.values()) == 1


def test_an_expired_command_is_refused_with_tolerance_for_skewed_clocks() -> None:
    world = World()
    assert is_ok(world.order(PREPARE, expires_us=world.now_us - 50 * SECOND)[0])
    other = Prepare(launch(job_id=8), start=True)
    assert world.order(other, expires_us=world.now_us - 70 * SECOND)[0].text == "the command has expired"


def test_a_relay_cannot_widen_a_command() -> None:
    world = World(nodes=2)
    command = world.command(PREPARE, (0,))
    answers = world.answered(world.give(command, nodes=(1,)))
    assert answers == {1: failed("the command is not for this node")}
    stranger = world.order(PREPARE, cluster="other")[0]
    assert "cluster 'other'" in stranger.text
    assert not world.runner.started


def test_an_end_is_always_accepted_within_the_epoch() -> None:
    world = World()
    world.order(PREPARE)
    world.give(world.command(End(7, 1, 1.0, "cancel"), incarnations=(9,)))
    assert world.stages() == {(7, 1): "ENDING"}


def test_an_end_has_no_date() -> None:
    """The clock of this node may be ahead of most others, which decide how commands are dated."""
    world = World()
    world.order(PREPARE)
    world.give(world.command(End(7, 1, 1.0, "over"), expires_us=world.now_us - 70 * SECOND))
    assert world.stages() == {(7, 1): "ENDING"}


def test_below_the_floor_nothing_is_launched_and_nothing_is_kept() -> None:
    world = World()
    old = world.command(PREPARE)
    world.order(End(8, 1, 1.0, "cancel"))
    world.order(End(9, 1, 1.0, "cancel"), revision=50)
    fence = world.agent.buffer.fence("main")
    assert set(fence.tombstones) == {(0, 8, 1), (0, 9, 1)}
    world.order(Heartbeat(40))
    assert set(fence.tombstones) == {(0, 9, 1)} and not fence.outcomes
    assert "below the floor 40" in world.answered(world.give(old))[0].text
    world.order(Heartbeat(30))
    assert fence.floor == 40


def test_the_floor_keeps_what_belongs_to_its_own_revision() -> None:
    """It is the lowest revision that is alive: its launch is accepted, and what is kept for it stays kept."""
    world = World()
    world.order(End(8, 1, 1.0, "cancel"), revision=39)
    world.order(End(9, 1, 1.0, "cancel"), revision=40)
    world.order(Prepare(launch(job_id=10), start=True), revision=40, index=1)
    world.order(Signal(10, 1, 10), revision=40, index=2)
    world.order(Heartbeat(40))
    fence = world.agent.buffer.fence(OWNER)
    assert set(fence.tombstones) == {(0, 9, 1)}
    assert {effect[0] for effect in fence.outcomes} == {40} and len(fence.signals) == 1
    folded = fold(msgspec.msgpack.decode(record, type=Record) for record in world.spool)
    assert set(folded.buried) == {(0, 9, 1)} and len(folded.signalled) == 1
    assert is_ok(world.order(Prepare(launch(job_id=11), start=True), revision=40, index=3)[0])
    world.order(End(12, 1, 1.0, "cancel"), revision=40, index=4)
    assert (0, 12, 1) in fence.tombstones, "and new ones are put up for it"
    signal, sent = world.command(Signal(11, 1, 10), revision=40, index=5), len(world.runner.signalled)
    for _ in range(2):
        assert is_ok(world.answered(world.give(signal))[0])
    assert len(world.runner.signalled) == sent + 1 and (40, 5, 0) in fence.signals
    assert (40, 3, 0) in fence.outcomes, "so are the answers to its effects"
    assert "below the floor" in world.order(Prepare(launch(job_id=13), start=True), revision=39)[0].text


def test_the_fence_survives_a_restart() -> None:
    world = World()
    world.order(End(7, 1, 1.0, "cancel"), revision=50)
    world.order(Heartbeat(40))
    world.epoch = 2
    world.order(Heartbeat(40))
    world.restart()
    (report,) = (r for r in world.reports.values() if isinstance(r.body, Registration))
    assert report.body.epoch == 2
    assert [(line.job_id, line.stage) for line in report.body.held] == [(7, "tombstone")]
    world.register()
    assert world.order(PREPARE)[0].text == "the attempt has already ended on this node"


def test_what_is_kept_is_bounded_and_forgetting_refuses_more_never_less() -> None:
    fence = Fence(kept_max=10)
    for revision in range(1, 101):
        fence.bury((0, revision, 1), revision, started=False)
    assert len(fence.tombstones) == 10 and fence.floor == 91
    fence.keep((5, 0, 0), OK)
    assert not fence.outcomes


def test_a_tombstone_keeps_its_highest_revision() -> None:
    fence = Fence()
    fence.bury((0, 7, 1), 5, started=True)
    fence.bury((0, 7, 1), 9, started=False)
    fence.raise_floor(8)
    assert fence.tombstones[0, 7, 1].revision == 9 and fence.tombstones[0, 7, 1].started
    fence.raise_floor(10)
    assert not fence.tombstones


@pytest.mark.parametrize("wanted", [1, 3, 4_000])
def test_addressees_are_found_in_long_and_short_lists(wanted: int) -> None:
    runs = tuple((start, 10) for start in range(4_990, -10, -10))
    command = Command("c", "o", 1, 1, 0, runs, tuple(range(len(runs))), 0, Heartbeat(0))
    nodes = tuple(range(wanted))
    expected = [499 - node // 10 for node in nodes]
    assert Addressed(command).incarnations(nodes) == expected
    assert Addressed(command).incarnations((6_000,)) == [None]


def test_a_floor_is_written_down_once() -> None:
    world = World()
    world.order(Heartbeat(5))
    written = len(world.spool)
    world.order(Heartbeat(5))
    assert len(world.spool) == written
    assert msgspec.msgpack.decode(world.spool[-1])[0] == 9
