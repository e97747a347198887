"""A restarted agent with its spool and its runner."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from eslurm.core.agent import actions as act
from eslurm.core.agent.outcomes import gone_outcome
from eslurm.core.agent.records import Folded, unfold
from eslurm.core.model.job import StepEnd
from eslurm.core.model.protocol import (
    End,
    Heartbeat,
    NodeGone,
    Prepare,
    Registration,
    RegistrationReply,
    ReportAck,
    Start,
    StepEnded,
)
from eslurm.core.model.step_key import StepKey
from eslurm.core.relay.results import OK, Status
from tests.kits.agent import OWNER, World, is_ok, launch, step_launch

PREPARE = Prepare(launch(), start=True)
END = End(7, 1, 10.0, "cancel")
BATCH = StepKey(7, 1, -1, 0)


def held(world: World) -> list[tuple[int, str]]:
    """The inventory of the latest registration of the first node."""
    report = [r for r in world.history if isinstance(r.body, Registration) and r.body.name == "cn0"][-1]
    return [(line.job_id, line.stage) for line in report.body.held]


def test_a_running_step_is_adopted() -> None:
    world = World()
    world.order(PREPARE)
    world.restart()
    assert held(world) == [(7, "running")]
    world.register()
    assert is_ok(world.order(PREPARE)[0])
    world.finish(exit_code=4)
    assert [(end.end.exit_code, end.incarnation) for end in world.ends] == [(4, 2)]
    world.ack_all()
    assert world.runner.started[BATCH] == 1 and not world.runner.ended


def test_a_step_that_ended_meanwhile_is_reported_after_the_registration() -> None:
    world = World()
    world.order(PREPARE)
    world.runner.finish(BATCH, StepEnd(5))
    world.restart()
    assert held(world) == [(7, "ended")] and not world.ends
    world.register()
    assert [end.end.exit_code for end in world.ends] == [5]
    world.ack_all()
    world.restart()
    assert held(world) == [(7, "tombstone")]


def test_a_prepared_attempt_is_still_prepared() -> None:
    world = World(nodes=2)
    world.order(Prepare(launch((0, 1))), (0, 1))
    world.restart()
    assert held(world) == [(7, "prepared")]
    world.register()
    assert is_ok(world.order(Start(7, 1))[0])


def test_a_start_that_was_written_but_not_done_is_done_now() -> None:
    world = World()
    world.order(PREPARE)
    world.runner.live.clear()
    world.runner.started.clear()
    world.restart()
    assert held(world) == [(7, "running")]
    world.settle()
    assert world.runner.started[BATCH] == 1


def test_such_a_start_that_fails_now_is_reported_because_it_was_in_the_inventory() -> None:
    world = World()
    world.order(PREPARE)
    world.runner.live.clear()
    world.runner.refuses = "the script is gone"
    world.restart()
    world.register()
    assert [(end.end.cause, end.end.text) for end in world.ends] == [("lost", "the script is gone")]
    world.ack_all()
    assert world.stages() == {}


def test_an_attempt_vacates_its_node_when_its_last_step_has_ended_and_again_after_a_restart() -> None:
    world = World()
    world.order(PREPARE)
    world.order(END)
    assert not world.vacated
    world.restart()
    world.register()
    assert not world.vacated
    world.finish()
    world.ack_all()
    assert world.vacated == [(0, 7, 1)]
    world.restart()
    assert world.vacated == [(0, 7, 1)] * 2


def test_what_was_being_ended_is_ended_again() -> None:
    world = World()
    world.order(PREPARE)
    world.give(world.command(END))
    world.runner.terminated.clear()
    world.restart()
    assert held(world) == [(7, "running")] and [t.step for t in world.runner.terminated] == [BATCH]
    world.register()
    ref = world.give(world.command(END))
    world.finish(signal=15)
    assert world.answered(ref) == {0: gone_outcome(True)}
    assert len(world.ends) == 1 and len(world.gone) == 1
    world.ack_all()
    assert world.stages() == {}


def test_steps_of_esrun_are_adopted_and_ended_with_their_attempt() -> None:
    world = World(nodes=2)
    world.order(Prepare(launch((0, 1))), (0, 1))
    world.order(step_launch((1,)), (1,))
    world.restart()
    world.register()
    ref = world.give(world.command(END, (1,)))
    world.finish(node=1, step=0, signal=15)
    assert world.answered(ref) == {1: gone_outcome(False)}


def test_a_script_that_ended_while_its_steps_ran_on_is_reported_after_them() -> None:
    world = World()
    world.order(PREPARE)
    world.order(step_launch())
    world.runner.finish(BATCH, StepEnd(3))
    world.restart()
    assert world.stages() == {(7, 1): "CLOSING"}
    world.register()
    assert not world.ends
    world.finish(step=0)
    assert [end.end.exit_code for end in world.ends] == [3]


def test_ends_of_steps_that_nobody_waits_for_are_acknowledged() -> None:
    world = World()
    world.order(PREPARE)
    world.order(step_launch())
    world.runner.finish(StepKey(7, 1, 0, 0), StepEnd(0))
    world.restart()
    # Whether they are counted is not known any more: the controller hears of them.
    assert world.runner.ended
    world.register()
    world.ack_all()
    assert not world.runner.ended


def test_an_outcome_outlives_even_the_spool() -> None:
    world = World()
    world.order(PREPARE)
    world.runner.finish(BATCH, StepEnd(5))
    world.spool = [record for record in world.spool if record[0] and b"cn0" in record and len(record) < 60]
    world.restart()
    world.register()
    assert [end.end.exit_code for end in world.ends] == [5]
    world.ack_all()
    assert not world.runner.ended


def test_a_step_that_only_the_runner_knows_is_in_the_inventory_and_can_be_ended() -> None:
    world = World()
    world.runner.launch(BATCH, 5)
    world.restart()
    assert held(world) == [(7, "running")]
    world.register()
    ref = world.give(world.command(END))
    world.finish(signal=15)
    assert world.answered(ref) == {0: gone_outcome(True)}


def test_after_a_reboot_nothing_runs_and_what_had_started_never_starts_again() -> None:
    world = World(nodes=2)
    world.order(PREPARE)
    world.order(Prepare(launch((1, 0), job_id=8)), (1, 0))
    world.restart(boot=True)
    assert held(world) == [(7, "tombstone")]
    world.register()
    assert world.order(PREPARE)[0].status is Status.FAILED
    assert world.order(Prepare(launch((1, 0), job_id=8)), (1, 0)) == {0: OK, 1: OK}
    assert world.runner.started[BATCH] == 1


def test_after_a_reboot_the_runner_may_still_know_how_it_ended() -> None:
    world = World()
    world.order(PREPARE)
    world.runner.live.clear()
    world.runner.ended[BATCH] = StepEnd(0, cause="lost")
    world.restart(boot=True)
    assert held(world) == [(7, "ended")]
    world.register()
    assert [end.end.cause for end in world.ends] == ["lost"]
    world.ack_all()
    assert world.stages() == {}


def test_a_start_of_what_ran_and_was_lost_from_the_spool_is_answered_as_done() -> None:
    """Goal: the start, sent again by another controller before it hears of the end, does not let the job run twice."""
    world = World()
    world.order(Prepare(launch()))
    world.order(Start(7, 1))
    world.runner.finish(BATCH, StepEnd(0, started_us=world.now_us))
    lose_the_spool(world, told=True)
    assert held(world) == [(7, "ended")]
    answer = world.order(Start(7, 1))[0]
    assert is_ok(answer), answer
    assert [end.end.exit_code for end in world.ends] == [0]
    assert world.runner.started[BATCH] == 1


def test_a_departure_needs_no_report_after_a_restart_the_inventory_says_it() -> None:
    world = World()
    world.order(PREPARE)
    world.give(world.command(END), deadline_us=1)
    world.pass_time(1)
    world.finish(signal=9)
    seqs = {type(r.body): r.seq for r in world.reports.values()}
    for kind, seq in seqs.items():
        if kind is not NodeGone:
            world.ack(seq)
    world.restart()
    assert held(world) == [(7, "tombstone")]


def test_an_end_that_was_not_acknowledged_survives_the_hosts_power() -> None:
    """The end needs one thing on the disk: the node's number, by which the runner knows the step."""
    world = World(register=False)
    world.perform(world.agent.on_link_up(world.now_us, OWNER, world.epoch))
    world.register()
    world.order(PREPARE)
    world.runner.finish(BATCH, StepEnd(0))
    last_durable = max(at for at, action in enumerate(spooled(world)) if action.durable)
    world.spool = world.spool[: last_durable + 1]
    world.restart(boot=True)
    assert held(world) == [(7, "ended")]
    world.register()
    assert [end.end.exit_code for end in world.ends] == [0]


def lose_the_spool(world: World, *, told: bool) -> None:
    """Start with an empty spool; `told`: the way up says at once who leads, so the first offer may be accepted."""
    world.spool.clear()
    world.restart()
    if told:
        world.perform(world.agent.on_link_up(world.now_us, OWNER, world.epoch))
    world.register()


@pytest.mark.parametrize("told", [False, True])
def test_without_its_spool_an_agent_finds_the_steps_of_its_nodes_all_the_same(told: bool) -> None:
    """They are in its inventory, so a controller that has given them up has them ended."""
    world = World(nodes=2)
    world.order(PREPARE)
    world.order(Prepare(launch((1,), job_id=8), start=True), (1,))
    world.runner.finish(StepKey(8, 1, -1, 1), StepEnd(6))
    lose_the_spool(world, told=told)
    last = {r.body.name: r.body for r in world.sent(Registration)}
    assert [(line.job_id, line.stage) for line in last["cn0"].held] == [(7, "running")]
    assert [(line.job_id, line.stage) for line in last["cn1"].held] == [(8, "ended")]
    assert [end.end.exit_code for end in world.ends] == [6]
    world.ack_all()
    world.give(world.command(END))
    assert world.runner.terminated[-1].step == BATCH
    world.finish(signal=9)
    world.ack_all()
    assert not world.runner.ended and not world.stages(0) and not world.stages(1)


def test_an_agent_that_kept_identity_and_number_names_its_steps_in_its_first_offer() -> None:
    """The controller may take that offer: a job that it did not name would be given up there."""
    world = World()
    world.order(PREPARE)
    before = world.agent.folded()
    kept = Folded(before.cluster, before.boot_id, before.starts, before.identities, before.numbers)
    world.spool = [msgspec.msgpack.encode(record) for record in unfold(kept)]
    world.restart()
    world.perform(world.agent.on_link_up(world.now_us, OWNER, world.epoch))
    offers = [
        r.body for r in world.history if isinstance(r.body, Registration) and r.body.starts > before.starts
    ]
    assert offers
    assert all([(line.job_id, line.stage) for line in offer.held] == [(7, "running")] for offer in offers)
    assert {offer.starts for offer in offers} == {before.starts + 1}


def test_an_end_that_comes_before_the_number_is_kept_for_its_node() -> None:
    world = World()
    world.order(PREPARE)
    world.spool.clear()
    world.restart()
    world.finish(exit_code=4)
    assert BATCH in world.runner.ended, "nobody has been told yet"
    world.register()
    assert [end.end.exit_code for end in world.ends] == [4]


def test_steps_of_a_node_that_is_served_here_no_longer_are_ended() -> None:
    world = World(nodes=2)
    world.order(Prepare(launch((1,), job_id=8), start=True), (1,))
    world.order(Prepare(launch((1,), job_id=9), start=True), (1,))
    world.runner.finish(StepKey(9, 1, -1, 1), StepEnd(0))
    world.names.pop()
    world.restart()
    assert [told.step.job_id for told in world.runner.terminated] == [8]
    assert not world.runner.ended
    world.finish(8, 1, signal=9)
    assert not world.runner.ended and not world.ends


def spooled(world: World) -> list[act.Spool]:
    return [action for action in world.log if isinstance(action, act.Spool)]


def test_the_compacted_spool_says_the_same() -> None:
    world = World(nodes=3)
    world.order(PREPARE)
    world.order(Prepare(launch((1, 2), job_id=8)), (1, 2))
    world.order(End(9, 1, 1.0, "x"))
    world.give(world.command(End(8, 1, 1.0, "x"), (2,)))
    before = world.agent.folded()
    assert set(before.buried) == {(0, 9, 1), (2, 8, 1)} and set(before.prepared) == {(0, 7, 1), (1, 8, 1)}
    world.spool = [msgspec.msgpack.encode(record) for record in unfold(before)]
    world.restart()
    assert world.agent.folded() == dataclasses.replace(before, starts=2)
    world.register()
    assert world.stages(0) == {(7, 1): "RUNNING"} and world.stages(1) == {(8, 1): "PREPARED"}
    late = world.order(Prepare(launch(job_id=9), start=True))[0]
    assert late.text == "the attempt has already ended on this node", (
        "its tombstone is in the compacted spool"
    )


def test_a_node_that_another_cluster_numbers_differently_is_refused() -> None:
    """What runs on it is known under the first number."""
    world = World()
    world.order(PREPARE)
    world.restart()
    (report,) = world.reports.values()
    world.ack(report.seq, RegistrationReply("cn0", 5, 1, 1, "main"))
    assert any(isinstance(a, act.Refusal) and "another cluster" in a.why for a in world.log)
    assert not world.agent.registry.by_name["cn0"].registered


def test_a_node_that_was_removed_and_added_again_takes_its_new_number_once_it_is_empty() -> None:
    world = World()
    world.order(PREPARE)
    world.finish()
    world.ack_all()
    world.order(END)
    world.ack_all()
    world.restart()
    (report,) = world.reports.values()
    world.ack(report.seq, RegistrationReply("cn0", 5, 1, 1, "main"))
    node = world.agent.registry.by_name["cn0"]
    assert node.registered and node.number == 5 and set(world.agent.registry.by_number) == {5}
    assert [a.number for a in world.log if isinstance(a, act.Numbered)][-1] == 5
    assert world.order(PREPARE)[0].status is Status.FAILED, "nothing is taken for the old node"
    assert not node.attempts
    world.restart()
    assert world.agent.registry.by_name["cn0"].number == 5


def test_the_tombstone_of_an_end_whose_launch_the_spool_lost_outlives_the_floor() -> None:
    """Nobody knows the revision of its launch any more; that of the commit of its end is above it."""
    world = World()
    late = world.command(PREPARE)
    world.give(late)
    world.settle()
    world.runner.finish(BATCH, StepEnd(5))
    lose_the_spool(world, told=True)
    (end,) = [report for report in world.reports.values() if isinstance(report.body, StepEnded)]
    del world.reports[end.seq]
    world.perform(world.agent.on_ack(ReportAck(end.process, (end.seq,), (), 50), world.now_us))
    world.order(Heartbeat(40), revision=60)
    fence = world.agent.buffer.fence(OWNER)
    assert fence.tombstones[0, 7, 1].revision == 50 and fence.tombstones[0, 7, 1].started
    again = world.order(PREPARE, revision=60)[0]
    assert again.text == "the attempt has already ended on this node"
    assert world.runner.started[BATCH] == 1


def test_what_a_power_cut_must_not_take_is_synced() -> None:
    """The node's identity, number, boot and epoch are synced; the supervisor keeps the deeds of attempts."""
    world = World()
    world.order(PREPARE)
    durable = {type(one.record).__name__ for one in spooled(world) if one.durable}
    assert durable == {"Booted", "Identity", "NumberGiven", "EpochSeen"}
    assert all(one.durable for one in spooled(world) if type(one.record).__name__ in durable)
