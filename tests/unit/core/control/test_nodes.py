"""Nodes that come, go, reboot and lie: what becomes of their jobs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.dispatch.heartbeat_rule import HeartbeatRule
from eslurm.core.model.facts import NodeRegistered, OrphanFound
from eslurm.core.model.job import StepEnd
from eslurm.core.model.messages import Changed, EpochStarted, HeartbeatDone, Reports, UpdateNodes
from eslurm.core.model.node import Node, is_older, is_usable
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.protocol import (
    AGENT_PROTOCOL,
    End,
    HeldAttempt,
    Prepare,
    Registration,
    Report,
    StepEnded,
)
from eslurm.core.model.request import Request
from eslurm.core.state.faults import has_wrong_clock, standing
from eslurm.ports.store import AttemptRow
from eslurm.replay.state_check import check
from eslurm.store.rows import to_store
from tests.kits.core import ALICE, ROOT, SECOND, World, refused

WIDE = Request(tasks=12, nodes_min=3, nodes_max=3)


def wide_running(world: World, *, requeue: bool = True) -> int:
    job = world.submit(request=WIDE, requeue=requeue)
    world.start()
    assert world.state_of(job) == "RUNNING"
    return job


def node(world: World) -> Node:
    return world.state.nodes[0]


# ---- registration ----


def test_a_node_is_used_once_it_has_registered() -> None:
    world = World(nodes=1, register=False)
    job = world.submit()
    assert world.plan() == []
    reply = world.register(0)
    assert (reply.number, reply.incarnation, reply.epoch, reply.owner, reply.refused) == (0, 1, 1, "main", "")
    assert world.start() == [job]


def test_an_unknown_name_is_refused() -> None:
    assert "is not in the configuration of test" in World(nodes=1).register(7).refused


def test_the_same_registration_twice_is_one() -> None:
    world = World(nodes=1)
    since = len(world.log)
    assert world.register(0).incarnation == 1
    assert len(world.log) == since
    assert world.register(0, session="s2").incarnation == 2


def test_a_registration_under_another_epoch_is_told_the_epoch() -> None:
    world = World(nodes=1)
    world.state.epoch = 1
    registration = Registration("cn0", "uid-cn0", "b1", "s9", 0, "host:1", (64, 64_000))
    acks = world.report(registration)
    assert isinstance(acks, tuple)
    reply = acks[0].registrations[0]
    assert (reply.refused, reply.epoch) == ("stale epoch", 1)


def test_a_live_twin_is_refused_until_the_first_is_gone() -> None:
    world = World(nodes=1)
    job = world.submit()
    world.start()
    assert "another live agent serves node cn0" in world.register(0, uid="other", session="t").refused
    world.send(HeartbeatDone(missing=(0,)))
    assert "another live agent" in world.register(0, uid="other", session="t").refused, "it still holds a job"
    world.lose(0)
    assert world.register(0, uid="other", session="t").refused == ""
    assert world.state_of(job) == "PENDING"


def test_a_later_start_of_the_same_individual_is_taken_at_once_while_the_node_is_up() -> None:
    """As after the loss of its spool: it knows its identity and the count of its starts, and finds what runs."""
    world = World(nodes=1)
    job = world.submit()
    world.start()
    before = node(world)
    offer = Registration(
        *("cn0", "uid-cn0", "b1", "s2", world.state.epoch, "host:2", (64, 64_000)),
        held=(HeldAttempt(job, 1, "running"),),
        starts=before.starts + 1,
    )
    acks = world.report(offer)
    assert isinstance(acks, tuple)
    assert acks[0].registrations[0].refused == ""
    after = node(world)
    assert (after.incarnation, after.endpoint) == (before.incarnation + 1, "host:2")
    assert world.state_of(job) == "RUNNING"


def test_a_replaced_node_without_jobs_may_take_over_once_the_old_one_is_silent() -> None:
    world = World(nodes=1)
    world.send(HeartbeatDone(missing=(0,)))
    assert world.register(0, uid="other", session="t").refused == ""


def test_a_node_with_an_agent_of_an_earlier_release_is_known_as_such_until_it_is_updated() -> None:
    world = World(nodes=3)
    assert world.state.ledger.older == 0
    world.register(1, session="s2", protocol=0)
    assert world.state.ledger.older == 1 << world.state.ledger.topology.positions[1]
    assert world.state.ledger.fork().older == world.state.ledger.emptied().older == world.state.ledger.older
    check(world.state)
    world.register(1, session="s3")
    assert world.state.ledger.older == 0
    assert world.state.plan_wanted
    check(world.state)


def test_nodes_that_no_agent_has_offered_yet_are_not_taken_for_older_ones() -> None:
    node = Node(number=0, name="cn0", total=(1, 1))
    assert not is_older(node)
    assert is_older(replace(node, incarnation=1))
    assert not is_older(replace(node, incarnation=1, protocol=AGENT_PROTOCOL))


def test_a_node_that_offers_too_little_is_drained() -> None:
    world = World(nodes=1)
    world.report(Registration("cn0", "uid-cn0", "b1", "s2", 1, "host:1", (2, 64_000)))
    assert node(world).drain
    assert "offers (2, 64000), configured are (4, 1000)" in node(world).reason


# ---- the inventory, in every phase ----

INVENTORIES = [None, "prepared", "running", "ended", "tombstone"]


@pytest.mark.parametrize("stage", INVENTORIES)
def test_registering_while_a_one_node_launch_is_unanswered(stage: str | None) -> None:
    """Without a trace the launch may still be on its way; a tombstone says it never will be."""
    world = World(nodes=1)
    job = world.submit()
    world.plan()
    world.sends()
    held = [HeldAttempt(job, 1, stage)] if stage else []
    world.register(0, *held, session="s2")
    assert world.state_of(job) == ("PENDING" if stage == "tombstone" else "LAUNCHING")


@pytest.mark.parametrize("requeue", [True, False])
def test_a_reboot_during_a_one_node_launch_gives_the_attempt_up(requeue: bool) -> None:
    """It may have run before the reboot: sending it again could run a script twice that must not."""
    world = World(nodes=1)
    job = world.submit(requeue=requeue)
    world.plan()
    world.sends()
    world.register(0, session="s2", boot="b2")
    assert world.state_of(job) == ("PENDING" if requeue else "NODE_FAIL")


@pytest.mark.parametrize("stage", INVENTORIES)
@pytest.mark.parametrize("number", [0, 2])
def test_registering_while_many_nodes_are_prepared(stage: str | None, number: int) -> None:
    world = World()
    job = world.submit(request=WIDE)
    world.plan()
    world.sends()
    held = [HeldAttempt(job, 1, stage)] if stage else []
    world.register(number, *held, session="s2", boot="b2")
    if stage == "tombstone":
        assert world.state_of(job) == "PENDING"
        assert number not in world.state.jobs_on
    else:
        assert world.state_of(job) == "LAUNCHING", "its script has not run: prepare it again"


@pytest.mark.parametrize("stage", INVENTORIES)
@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("running", [False, True])
def test_registering_while_the_job_starts_or_runs(stage: str | None, number: int, running: bool) -> None:
    world = World()
    job = world.submit(request=WIDE)
    world.plan()
    world.deliver()
    if running:
        world.deliver()
    held = [HeldAttempt(job, 1, stage)] if stage else []
    world.register(number, *held, session="s2")
    attempt = world.attempt(job)
    if stage in ("prepared", "running", "ended"):
        assert attempt.held == {0, 1, 2} and attempt.stop is None
    elif number == 0:
        assert world.state_of(job) == "COMPLETING"
        assert attempt.held == {1, 2}
        world.deliver()
        assert world.state_of(job) == "PENDING"
    else:
        assert attempt.held == {0, 1}
        assert attempt.stop is not None and attempt.stop.cause.value == "node_lost"


@pytest.mark.parametrize("stage", INVENTORIES)
def test_registering_while_resources_are_given_back(stage: str | None) -> None:
    world = World()
    job = wide_running(world)
    world.report(StepEnded(0, 1, job, 1, StepEnd(0), True))
    held = [HeldAttempt(job, 1, stage)] if stage else []
    world.register(2, *held, session="s2")
    assert (2 in world.state.jobs_on) == (stage in ("prepared", "running", "ended"))


def test_an_attempt_nobody_knows_is_ended() -> None:
    world = World(nodes=2)
    world.register(1, HeldAttempt(77, 3, "running"), HeldAttempt(78, 1, "tombstone"), session="s2")
    orphans = [fact for fact in world.log if isinstance(fact, OrphanFound)]
    assert orphans == [OrphanFound(1, 77, 3)]
    (send,) = world.sends()
    assert isinstance(send.body, End) and (send.nodes, send.body.job_id) == ((1,), 77)
    world.done(send)
    assert not len(world.delivery)


def test_a_leftover_of_a_job_that_holds_the_node_in_another_attempt_is_ended_too() -> None:
    world = World(nodes=4)
    job = world.submit(request=Request(tasks=8, nodes_min=2, nodes_max=2))
    world.plan()
    (prepare,) = world.sends()
    world.done(prepare, nodes=(1,))  # cn0 unreached: the first attempt is left as a residue
    world.gone(1, job, 1)
    world.send(UpdateNodes(ROOT, ("cn0",), "drain", "broken"))
    world.pass_time(2)
    world.plan()
    assert world.attempt(job).held == {1, 2} and world.job(job).residues[0].held == {0}
    world.register(1, HeldAttempt(job, 1, "prepared"), session="s2")
    assert [fact for fact in world.log if isinstance(fact, OrphanFound)] == [OrphanFound(1, job, 1)]


# ---- silence and loss ----


def test_unreachable_is_not_lost() -> None:
    world = World(nodes=2)
    job = world.submit()
    world.start()
    world.send(HeartbeatDone(missing=(0,)))
    assert node(world).state is NodeState.UNREACHABLE
    assert world.state_of(job) == "RUNNING"
    other = world.submit(request=Request(nodes_min=2, nodes_max=2))
    assert world.plan() == []
    world.send(HeartbeatDone(back=(0,)))
    assert world.start() == [other]


def test_a_node_is_lost_after_its_time_and_its_jobs_with_it() -> None:
    world = World(nodes=2, node_lost_after_s=600.0)
    job = world.submit()
    world.start()
    world.send(HeartbeatDone(missing=(0,)))
    world.pass_time(599)
    assert world.state_of(job) == "RUNNING"
    world.pass_time(1)
    assert node(world).state is NodeState.LOST
    assert world.state.nodes[0].reason == "silent for 600 s"
    assert world.state_of(job) == "PENDING"
    world.pass_time(2)
    world.start()
    assert world.attempt(job).first == 1


def test_a_node_that_came_back_in_time_is_not_lost_by_the_old_timer() -> None:
    world = World(nodes=1, node_lost_after_s=600.0)
    job = world.submit()
    world.start()
    world.send(HeartbeatDone(missing=(0,)))
    world.pass_time(500)
    world.send(HeartbeatDone(back=(0,)))
    world.pass_time(50)
    world.send(HeartbeatDone(missing=(0,)))
    world.pass_time(100)
    assert world.state_of(job) == "RUNNING"
    world.pass_time(500)
    assert world.state_of(job) == "PENDING"


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("requeue", [True, False])
def test_a_node_is_lost_while_the_job_is_prepared(number: int, requeue: bool) -> None:
    """The script has not run: the job waits again, whether or not it may be requeued."""
    world = World()
    job = world.submit(request=WIDE, requeue=requeue)
    world.plan()
    world.sends()
    world.lose(number)
    assert world.state_of(job) == "PENDING"
    assert number not in world.state.jobs_on


@pytest.mark.parametrize("requeue", [True, False])
def test_the_first_node_is_lost_while_the_job_runs(requeue: bool) -> None:
    world = World()
    job = wide_running(world, requeue=requeue)
    world.lose(0)
    assert world.state_of(job) == "COMPLETING"
    world.deliver()
    assert world.state_of(job) == ("PENDING" if requeue else "NODE_FAIL")
    assert "cn0 declared lost by root" in world.job(job).exit_text


@pytest.mark.parametrize("requeue", [True, False])
def test_another_node_is_lost_while_the_job_runs(requeue: bool) -> None:
    world = World()
    job = wide_running(world, requeue=requeue)
    world.lose(2)
    (end,) = world.sends()
    assert isinstance(end.body, End) and end.nodes == (0, 1)
    assert world.state_of(job) == "RUNNING"
    world.end(job)
    assert world.state_of(job) == ("PENDING" if requeue else "NODE_FAIL")


def test_a_node_is_lost_while_it_is_given_back() -> None:
    world = World()
    job = wide_running(world)
    world.report(StepEnded(0, 1, job, 1, StepEnd(0), True))
    world.send(UpdateNodes(ROOT, ("cn1", "cn2"), "lost"))
    assert world.state_of(job) == "COMPLETED"


def test_all_nodes_of_a_job_are_lost_in_one_message() -> None:
    world = World()
    job = wide_running(world)
    assert world.send(UpdateNodes(ROOT, ("cn1", "cn0", "cn2"), "lost")) == Changed(3)
    assert world.state_of(job) == "PENDING"
    assert not world.state.jobs_on


def test_a_lost_node_comes_back_by_registering() -> None:
    world = World(nodes=1)
    job = world.submit()
    world.start()
    world.lose(0)
    world.send(HeartbeatDone(back=(0,)))
    assert node(world).state is NodeState.LOST
    world.register(0, HeldAttempt(job, 1, "running"))
    assert node(world).state is NodeState.UP
    assert OrphanFound(0, job, 1) in world.log
    assert world.state.nodes[0].incarnation == 2


# ---- epochs ----


def test_a_new_epoch_gives_nobody_work_before_they_have_registered() -> None:
    world = World(nodes=2)
    job = world.submit()
    world.start()
    world.send(EpochStarted(2))
    waiting = world.submit()
    assert world.plan() == []
    world.register(1, session="s2")
    assert world.start() == [waiting]
    assert world.state_of(job) == "RUNNING"
    assert "epoch 2 is not above 2" in refused(world.send(EpochStarted(2)))


def test_a_node_that_never_registers_again_is_lost_with_its_jobs() -> None:
    """Also when epochs follow each other while it is silent."""
    world = World(nodes=2, node_lost_after_s=600.0)
    job = world.submit()
    world.start()
    world.send(EpochStarted(2))
    world.pass_time(300)
    world.send(EpochStarted(3))
    world.register(1, session="s3")
    world.pass_time(400)
    assert world.state_of(job) == "RUNNING"
    world.pass_time(200)
    assert node(world).state is NodeState.LOST
    assert world.state_of(job) == "PENDING"


def test_what_was_owed_before_the_epoch_is_sent_when_its_node_registers() -> None:
    world = World(nodes=1)
    job = world.submit()
    world.plan()
    world.sends()
    world.restart(register=False)
    assert world.sends() == []
    world.register(0, session="s2")
    (send,) = world.sends()
    assert isinstance(send.body, Prepare)
    world.done(send)
    assert world.state_of(job) == "RUNNING"


# ---- administration ----


def test_a_drained_node_gets_no_more_work_but_keeps_its_jobs() -> None:
    world = World(nodes=1)
    job = world.submit()
    world.start()
    assert "needs a reason" in refused(world.send(UpdateNodes(ROOT, ("cn0",), "drain")))
    world.send(UpdateNodes(ROOT, ("cn0",), "drain", "disk"))
    second = world.submit()
    assert world.plan() == []
    assert world.state_of(job) == "RUNNING"
    world.register(0, *world.inventory(0), session="s2")
    assert (world.state.nodes[0].drain, world.state.nodes[0].reason) == (True, "disk")
    world.send(UpdateNodes(ROOT, ("cn0",), "resume"))
    assert world.start() == [second]


def test_nodes_are_the_operators() -> None:
    world = World(nodes=1)
    assert "alice is no operator" in refused(world.send(UpdateNodes(ALICE, ("cn0",), "resume")))
    assert "'burn' is unknown: use drain, resume or lost" in refused(
        world.send(UpdateNodes(ROOT, ("cn0",), "burn"))
    )
    answer = world.send(UpdateNodes(ROOT, ("cn9", "cn0"), "resume"))
    assert isinstance(answer, Changed)
    assert (answer.count, answer.problems[0].text) == (1, "node cn9 does not exist")


# ---- the heartbeat rule ----


def test_two_missed_heartbeats_make_a_node_missing_and_one_answer_brings_it_back() -> None:
    rule = HeartbeatRule(2)
    assert rule.on_answers((0, 1), (2,)) is None
    assert rule.on_answers((0, 1), (2,)) == HeartbeatDone(missing=(2,))
    assert rule.on_answers((0, 1), (2,)) is None
    assert rule.on_answers((0, 1, 2), ()) == HeartbeatDone(back=(2,))
    assert rule.on_answers((0, 1, 2), ()) is None


def test_heartbeats_must_be_missed_in_a_row() -> None:
    rule = HeartbeatRule(2)
    for _ in range(3):
        assert rule.on_answers((), (5,)) is None
        rule.on_registered(5)
        assert rule.on_answers((), (5,)) is None
        assert rule.on_answers((5,), ()) is None


def test_differences_that_are_none_are_no_facts() -> None:
    world = World(nodes=2)
    since = len(world.log)
    world.send(HeartbeatDone(back=(0, 1, 99), missing=(99,)))
    assert len(world.log) == since


def test_a_node_whose_clock_is_too_far_ahead_gets_no_work_until_it_is_right() -> None:
    world = World(nodes=2)
    first = world.submit(request=Request(tasks=2, nodes_min=2, nodes_max=2))
    world.start()
    world.send(HeartbeatDone(ahead=((0, 71 * SECOND), (99, 1))))
    node = world.state.nodes[0]
    assert standing(node) == (
        "its clock is at least 71 s ahead of the controller's: it refuses commands as expired"
    )
    assert not is_usable(node) and world.state_of(first) == "RUNNING"
    since = len(world.log)
    world.send(HeartbeatDone(ahead=((0, 90 * SECOND),), in_date=(1, 99)))
    assert len(world.log) == since, "it is known"
    # It is no matter of the node's check.
    reply = world.register(0)
    assert not reply.faults and has_wrong_clock(world.state.nodes[0])
    world.end(first)
    second = world.submit()
    world.start()
    assert world.attempt(second).spans[0].node == 1
    world.send(HeartbeatDone(in_date=(0,)))
    assert is_usable(world.state.nodes[0])


def test_reports_are_acknowledged_one_by_one_per_process() -> None:
    world = World(nodes=1)
    job = world.submit()
    world.start()
    end = StepEnded(0, 1, job, 1, StepEnd(0), True)
    acks = world.send(Reports((Report("p1", 4, end), Report("p2", 9, end), Report("p1", 7, end))))
    assert isinstance(acks, tuple)
    assert [(ack.process, ack.seqs) for ack in acks] == [("p1", (4, 7)), ("p2", (9,))]
    assert sum(isinstance(fact, NodeRegistered) for fact in world.log) == 1


@pytest.mark.parametrize("requeue", [True, False])
def test_an_attempt_that_returns_late_is_accounted_as_its_node_says(requeue: bool) -> None:
    """The controller gave it up ten minutes later than it had ended; when the node is back it says how long it ran."""
    world = World(nodes=2, node_lost_after_s=600.0)
    job = world.submit(requeue=requeue)
    world.start()
    began_us = world.attempt(job).started_us
    world.pass_time(600)
    world.lose(0)
    assert world.state_of(job) == ("PENDING" if requeue else "NODE_FAIL")
    world.register(0)
    end = StepEnd(0, 15, "orphaned", "no contact", began_us, began_us + 40_000_000)
    body = StepEnded(0, world.state.nodes[0].incarnation, job, 1, end, gone=True)
    batch = world.batch(Reports((Report("p", 1, body),)))
    assert [type(fact).__name__ for fact in batch.facts] == ["AttemptReturned"]
    (row,) = [row for row in to_store(world.state, batch).rows if isinstance(row, AttemptRow)]
    assert (row.attempt, row.state) == (1, "REQUEUED" if requeue else "NODE_FAIL")
    assert (row.started_us, row.ended_us, row.signal) == (began_us, began_us + 40_000_000, 15)
    assert world.batch(Reports((Report("p", 1, body),))).facts == [], "once"
    assert world.state_of(job) == ("PENDING" if requeue else "NODE_FAIL")


@pytest.mark.parametrize("vouched", [False, True])
def test_a_job_that_its_node_does_not_end_is_not_started_again_because_the_node_is_silent(
    vouched: bool,
) -> None:
    """Without --requeue nothing ends it there; that somebody has asked for another attempt does not change that."""
    world = World(nodes=2, node_lost_after_s=600.0)
    job = world.submit(requeue=False)
    world.start()
    world.send(HeartbeatDone(missing=(0,)))
    world.requeue(job)
    if vouched:
        world.lose(0)
        assert world.state_of(job) == "PENDING"
    else:
        world.pass_time(600)
        assert world.state_of(job) == "NODE_FAIL"
        world.pass_time(10)
        assert world.plan() == []


@pytest.mark.parametrize("ends_first", [False, True])
def test_nor_is_one_of_many_nodes_whose_steps_may_run_on_a_silent_one(ends_first: bool) -> None:
    world = World(node_lost_after_s=600.0)
    job = wide_running(world, requeue=False)
    first = world.attempt(job).first
    other = next(span.node for span in world.attempt(job).spans if span.node != first)
    world.send(HeartbeatDone(missing=(other,)))
    world.requeue(job)
    attempt = world.attempt(job)
    end = StepEnd(0, 15, "signalled", "", attempt.started_us, attempt.started_us)
    body = StepEnded(first, world.state.nodes[first].incarnation, job, 1, end, gone=True)
    if ends_first:
        world.report(body)
    world.pass_time(600)
    assert world.state.nodes[other].state is NodeState.LOST
    if not ends_first:
        world.report(body)
    for number in (number for number in sorted(world.state.nodes) if number not in (first, other)):
        world.gone(number, job, 1)
    assert world.state_of(job) == "NODE_FAIL"
    assert job not in world.plan()


def test_a_node_says_what_its_control_groups_do_and_only_words_that_are_known() -> None:
    world = World(2)
    assert world.state.nodes[1].contained == ()
    world.register(1, session="again", contained=("pids", "magic", "kill"))
    assert world.state.nodes[1].contained == ("kill", "pids")
