"""Prolog and epilog of nodes, as the controller hears of them: launches, releases, and faults of nodes."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.api.infos import job_info
from eslurm.core.control.effects import owed_nodes
from eslurm.core.dispatch.effect_delivery import Send
from eslurm.core.doctor.places import check_nodes
from eslurm.core.model import facts
from eslurm.core.model.job import TOOK_MAX_US, StepEnd
from eslurm.core.model.job_states import AttemptPhase, JobState
from eslurm.core.model.messages import UpdateNodes
from eslurm.core.model.node import is_usable
from eslurm.core.model.protocol import (
    CheckPassed,
    End,
    Gone,
    HeldAttempt,
    NodeGone,
    PhaseReported,
    Prepare,
    Preparing,
    Start,
    StepEnded,
)
from eslurm.core.model.request import Request
from eslurm.replay.state_check import check
from tests.kits.core import ROOT, World

BOTH = ("prolog", "epilog")
PREPARING = msgspec.msgpack.encode(Preparing(300))
GOOD = StepEnd(0, started_us=1, ended_us=2)
BAD = StepEnd(3, text="no space left on /scratch")
TWO = Request(tasks=2, nodes_min=2, nodes_max=2, exclusive=True)


def world_with(*phases: str, nodes: int = 3) -> World:
    world = World(nodes=nodes)
    for number in range(nodes):
        world.register(number, session="phased", phases=phases or BOTH)
    return world


def launch(world: World, **fields: object) -> tuple[int, Send]:
    """A job whose nodes all run their prolog."""
    job_id = world.submit(**fields)  # type: ignore[arg-type]
    assert job_id in world.plan()
    (send,) = world.sends()
    world.done(send, payload=PREPARING)
    return job_id, send


def tell(world: World, job_id: int, node: int, end: StepEnd = GOOD, attempt: int = 1) -> None:
    """The prolog of an attempt ended on a node."""
    incarnation = world.state.nodes[node].incarnation
    world.report(PhaseReported(node, incarnation, job_id, attempt, "prolog", end))
    check(world.state)


def gone(
    world: World,
    job_id: int,
    node: int,
    epilog: StepEnd | None = GOOD,
    attempt: int = 1,
    *,
    is_unstarted: bool = False,
) -> None:
    incarnation = world.state.nodes[node].incarnation
    world.report(NodeGone(node, incarnation, job_id, attempt, epilog, is_unstarted))
    check(world.state)


def script_ended(world: World, job_id: int) -> None:
    attempt = world.attempt(job_id)
    end = StepEnd(0, started_us=attempt.started_us, ended_us=world.now_us)
    world.report(
        StepEnded(attempt.first, world.state.nodes[attempt.first].incarnation, job_id, 1, end, gone=False)
    )
    check(world.state)


def run(world: World, **fields: object) -> tuple[int, Send]:
    """A job that runs."""
    job_id, send = launch(world, **fields)
    for node in send.nodes:
        tell(world, job_id, node)
    world.deliver()
    assert world.job(job_id).state is JobState.RUNNING
    return job_id, send


def test_a_job_without_phases_has_nothing_of_them() -> None:
    world = World(nodes=1)
    job_id = world.submit()
    world.start()
    assert world.attempt(job_id).more is None


def test_a_job_on_one_node_is_prepared_first_and_started_when_its_prolog_has_ended() -> None:
    world = world_with()
    job_id, send = launch(world)
    assert isinstance(send.body, Prepare)
    assert not send.body.start and send.body.launch.phases == BOTH
    attempt = world.attempt(job_id)
    assert attempt.phase is AttemptPhase.PREPARING and attempt.preparing == set(send.nodes)
    check(world.state)
    assert not world.sends(), "nodes that prepare are not asked again"
    tell(world, job_id, send.nodes[0])
    (started,) = world.sends()
    assert isinstance(started.body, Start)
    world.done(started, payload=world.answer_of(started))
    assert world.job(job_id).state is JobState.RUNNING


def test_a_job_starts_with_the_last_of_its_prologs() -> None:
    world = world_with()
    job_id, send = launch(world, request=TWO)
    first, second = send.nodes
    tell(world, job_id, second)
    assert world.attempt(job_id).preparing == {first} and not world.sends()
    tell(world, job_id, first)
    (started,) = world.sends()
    assert isinstance(started.body, Start)


def test_a_report_that_comes_before_the_answer_counts() -> None:
    world = world_with()
    job_id = world.submit()
    world.plan()
    (send,) = world.sends()
    tell(world, job_id, send.nodes[0])
    world.done(send, payload=PREPARING)
    assert world.attempt(job_id).phase is AttemptPhase.STARTING


def test_the_job_goes_elsewhere_when_a_prolog_fails_and_the_node_has_a_fault() -> None:
    world = world_with(nodes=2)
    job_id, send = launch(world)
    (node,) = send.nodes
    tell(world, job_id, node, BAD)
    job, record = world.job(job_id), world.state.nodes[node]
    assert job.state is JobState.PENDING and job.launch_failures == 1
    assert not record.drain and not is_usable(record)
    assert [fault.text for fault in record.faults] == [
        f"prolog of job {job_id} failed: exit code 3: no space left on /scratch"
    ]
    assert record.failed_launches == ()
    world.pass_time(2)
    assert world.plan() == [job_id]
    assert world.attempt(job_id).first != node


def test_other_nodes_of_a_failed_launch_are_held_until_their_epilogs_have_ended() -> None:
    world = world_with()
    job_id, send = launch(world, request=TWO)
    bad, good = send.nodes
    tell(world, job_id, good)
    tell(world, job_id, bad, BAD)
    (residue,) = world.job(job_id).residues
    assert residue.held == {good}
    (end,) = world.sends()
    assert isinstance(end.body, End) and end.nodes == (good,)
    world.done(end)
    gone(world, job_id, good)
    assert not world.job(job_id).residues


def test_a_job_whose_prolog_fails_everywhere_is_held() -> None:
    world = world_with(nodes=8)
    job_id = world.submit()
    for attempt in range(1, world.state.config.launch_failures_max + 1):
        world.pass_time(700)
        assert job_id in world.plan()
        (send,) = world.sends()
        world.done(send, payload=PREPARING)
        tell(world, job_id, send.nodes[0], BAD, attempt)
    assert world.job(job_id).hold == "system"
    assert "prolog failed" in world.job(job_id).reason_text


def test_nodes_stay_held_while_epilogs_run_and_the_outcome_is_known_before() -> None:
    world = world_with()
    job_id, send = run(world, request=TWO)
    first, second = send.nodes
    script_ended(world, job_id)
    job = world.job(job_id)
    assert job.state is JobState.COMPLETING and job.outcome is JobState.COMPLETED
    for send in world.sends():
        world.done(send)
    assert world.attempt(job_id).held == {first, second}
    gone(world, job_id, second)
    assert world.attempt(job_id).held == {first}
    gone(world, job_id, first, BAD)
    assert world.job(job_id).state is JobState.COMPLETED
    assert [fault.kind for fault in world.state.nodes[first].faults] == ["epilog"]
    assert not is_usable(world.state.nodes[first]) and is_usable(world.state.nodes[second])


def test_an_epilog_that_is_reported_before_the_end_of_the_script_releases_with_it() -> None:
    world = world_with()
    job_id, send = run(world)
    (node,) = send.nodes
    gone(world, job_id, node, BAD)
    assert world.job(job_id).state is JobState.RUNNING and world.state.nodes[node].faults
    script_ended(world, job_id)
    (end,) = world.sends()
    world.done(end, payload=msgspec.msgpack.encode(Gone(True)))
    assert world.job(job_id).state is JobState.COMPLETED


def test_a_cancelled_job_ends_while_its_prolog_runs_and_its_node_comes_back_later() -> None:
    world = world_with()
    job_id, send = launch(world)
    (node,) = send.nodes
    world.cancel(job_id)
    assert world.job(job_id).outcome is JobState.CANCELLED
    assert not world.attempt(job_id).preparing
    world.done(world.sends()[0])
    tell(world, job_id, node, BAD)
    assert world.job(job_id).state is JobState.CANCELLED
    assert world.state.nodes[node].faults


@pytest.mark.parametrize("is_unstarted", [True, False])
def test_a_job_whose_end_overtakes_its_start_is_over_when_its_node_says_that_it_never_ran(
    is_unstarted: bool,
) -> None:
    world = world_with()
    job_id, _ = launch(world)
    node = world.attempt(job_id).first
    tell(world, job_id, node)
    world.sends()
    world.cancel(job_id)
    gone(world, job_id, node, is_unstarted=is_unstarted)
    if is_unstarted:
        assert world.job(job_id).state is JobState.CANCELLED
    else:
        # The end of its script is still to come.
        assert world.attempt(job_id).held


def test_an_agent_that_begins_anew_is_asked_again() -> None:
    world = world_with()
    job_id, send = launch(world)
    (node,) = send.nodes
    world.register(node, HeldAttempt(job_id, 1, "preparing"), session="again", phases=BOTH)
    assert not world.attempt(job_id).preparing
    (repeated,) = world.sends()
    assert repeated.body == send.body
    world.done(repeated, payload=PREPARING)
    assert owed_nodes(world.state, repeated.revision) == frozenset()


def test_an_agent_that_lost_its_records_owes_the_epilog_and_gets_a_fault() -> None:
    world = world_with()
    job_id, send = run(world)
    (node,) = send.nodes
    reply = world.register(node, session="empty", phases=BOTH)
    assert reply.faults == (("epilog", job_id),)
    assert world.job(job_id).attempt is None


def test_a_boot_leaves_no_epilog_to_run_and_no_fault() -> None:
    world = world_with()
    job_id, send = run(world)
    (node,) = send.nodes
    gone(world, 99, node, BAD)
    assert world.state.nodes[node].faults
    reply = world.register(node, session="fresh", boot="b2", phases=BOTH)
    assert reply.faults == () and not world.state.nodes[node].faults
    assert world.job(job_id).attempt is None


def test_a_prolog_that_never_reports_is_tried_elsewhere() -> None:
    world = world_with(nodes=2)
    job_id, send = launch(world)
    world.pass_time(2 * 300 + 61)
    job = world.job(job_id)
    assert job.state is JobState.PENDING and job.avoid == set(send.nodes)
    assert "1 of its 1 nodes have not reported" in job.exit_text
    check(world.state)


@pytest.mark.parametrize("phases", [BOTH, (*BOTH, "check")])
def test_a_fault_ends_by_its_check_or_without_one_after_a_pause(phases: tuple[str, ...]) -> None:
    world = world_with(*phases)
    job_id, send = launch(world)
    (node,) = send.nodes
    tell(world, job_id, node, BAD)
    assert bool(world.state.nodes[node].faults[0].until_us) is ("check" not in phases)
    world.pass_time(61)
    assert is_usable(world.state.nodes[node]) is ("check" not in phases)
    incarnation = world.state.nodes[node].incarnation
    world.report(CheckPassed(node, incarnation, (("prolog", job_id + 1),)))
    assert is_usable(world.state.nodes[node]) is ("check" not in phases), "that was another fault"
    world.report(CheckPassed(node, incarnation, (("prolog", job_id),)))
    assert is_usable(world.state.nodes[node])


def test_pauses_double_and_an_operator_ends_them() -> None:
    world = world_with(nodes=1)
    pauses = []
    for attempt in (1, 2):
        job_id, send = launch(world)
        tell(world, job_id, send.nodes[0], BAD)
        pauses.append(world.state.nodes[0].faults[0].until_us - world.now_us)
        world.cancel(job_id)
        if attempt == 1:
            world.pass_time(61)
    assert pauses[1] == 2 * pauses[0]
    world.send(UpdateNodes(ROOT, ("cn0",), "resume"))
    assert is_usable(world.state.nodes[0]) and not world.state.nodes[0].aside_times
    check(world.state)


def test_a_failure_from_before_a_boot_is_no_fault() -> None:
    """Goal: no check would end it, for the agent that began with the boot knows of no failure."""
    world = world_with()
    job_id, send = launch(world)
    (node,) = send.nodes
    before = world.state.nodes[node].incarnation
    world.register(node, session="fresh", boot="b2", phases=BOTH)
    world.report(PhaseReported(node, before, job_id, 1, "prolog", BAD))
    world.report(NodeGone(node, before, job_id, 1, BAD))
    assert is_usable(world.state.nodes[node])
    check(world.state)


def test_a_failure_from_before_a_new_epoch_is_a_fault() -> None:
    world = world_with()
    job_id, send = launch(world)
    (node,) = send.nodes
    before = world.state.nodes[node].incarnation
    world.restart(register=False)
    held = HeldAttempt(job_id, 1, "preparing")
    world.register(node, held, session="phased", phases=BOTH)
    assert world.state.nodes[node].incarnation > before
    world.report(PhaseReported(node, before, job_id, 1, "prolog", BAD))
    assert not is_usable(world.state.nodes[node])
    check(world.state)


def test_one_failure_is_a_fault_once() -> None:
    world = world_with()
    job_id, send = launch(world)
    (node,) = send.nodes
    tell(world, job_id, node, BAD)
    world.send(UpdateNodes(ROOT, (f"cn{node}",), "resume"))
    tell(world, job_id, node, BAD)
    assert not world.state.nodes[node].faults
    assert sum(isinstance(fact, facts.NodeFaulted) for fact in world.log) == 1


def test_a_report_of_a_phase_that_does_not_exist_changes_nothing() -> None:
    world = world_with()
    job_id, send = launch(world)
    before = world.state.revision
    world.report(PhaseReported(send.nodes[0], 1, job_id, 1, "check", GOOD))
    assert world.state.revision == before


def test_the_text_of_a_fault_is_bounded() -> None:
    world = world_with()
    job_id, send = launch(world)
    tell(world, job_id, send.nodes[0], StepEnd(1, text="x" * 100_000))
    assert len(world.state.nodes[send.nodes[0]].faults[0].text) < 600


def test_a_start_that_fails_holds_the_node_until_its_epilog_has_ended() -> None:
    world = world_with()
    job_id, send = launch(world)
    (node,) = send.nodes
    tell(world, job_id, node)
    (start,) = world.sends()
    world.done(start, "failed")
    (residue,) = world.job(job_id).residues
    assert residue.held == {node}
    gone(world, job_id, node)
    assert not world.job(job_id).residues


def test_the_end_of_a_script_alone_does_not_release_its_node() -> None:
    world = world_with()
    job_id, send = run(world)
    script_ended(world, job_id)
    assert world.attempt(job_id).held == set(send.nodes)


def test_a_node_that_refuses_the_launch_is_held_until_it_says_that_nothing_is_left() -> None:
    world = world_with()
    job_id = world.submit()
    world.plan()
    (send,) = world.sends()
    world.done(send, "failed")
    (residue,) = world.job(job_id).residues
    assert residue.held == set(send.nodes)
    world.deliver()
    assert not world.job(job_id).residues


def test_people_see_what_a_job_waits_for_and_why_a_node_gets_none() -> None:
    world = world_with()
    job_id, send = launch(world, request=TWO)
    first, second = send.nodes
    assert job_info(world.state, world.job(job_id), None).reason_text == "prolog on 2 of 2 nodes"
    tell(world, job_id, first)
    assert job_info(world.state, world.job(job_id), None).reason_text == "prolog on 1 of 2 nodes"
    tell(world, job_id, second)
    world.deliver()
    assert job_info(world.state, world.job(job_id), None).reason_text == ""
    script_ended(world, job_id)
    gone(world, job_id, second)
    assert job_info(world.state, world.job(job_id), None).reason_text == f"epilog on cn{first}"
    gone(world, job_id, first, BAD)
    finding = next(one for one in check_nodes(world.state, world.now_us) if one is not None)
    assert (finding.what, finding.text) == (f"node cn{first}", "no new work: epilog failed there")


@pytest.mark.parametrize("payload", [b"\xc1", b"nonsense", msgspec.msgpack.encode(Preparing(-(10**9)))])
def test_an_answer_that_cannot_be_read_is_waited_for_no_longer_than_a_report(payload: bytes) -> None:
    world = world_with()
    job_id = world.submit()
    world.plan()
    (send,) = world.sends()
    world.done(send, payload=payload)
    assert world.attempt(job_id).preparing == set(send.nodes)
    world.pass_time(61)
    assert world.job(job_id).state is JobState.PENDING


def test_a_limit_beyond_a_day_counts_as_a_day() -> None:
    world = world_with()
    job_id = world.submit()
    world.plan()
    (send,) = world.sends()
    world.done(send, payload=msgspec.msgpack.encode(Preparing(10**12)))
    more = world.attempt(job_id).more
    assert more is not None and more.preparing_until_us - world.now_us == (2 * 86_400 + 60) * 1_000_000


def test_the_plan_learns_by_how_much_the_prolog_moved_the_end() -> None:
    world = world_with()
    job_id, send = launch(world, time_limit_s=100)
    placed_us = world.attempt(job_id).until_us
    world.pass_time(40)
    tell(world, job_id, send.nodes[0])
    world.deliver()
    attempt = world.attempt(job_id)
    assert attempt.until_us == attempt.started_us + 100 * 1_000_000 == placed_us + 40 * 1_000_000
    check(world.state)


def test_the_log_says_how_long_each_phase_of_a_node_ran() -> None:
    world = world_with()
    twelve = StepEnd(0, started_us=1_000_000, ended_us=13_000_000)
    job_id, send = launch(world)
    tell(world, job_id, send.nodes[0], twelve)
    world.deliver()
    script_ended(world, job_id)
    gone(world, job_id, send.nodes[0], twelve)
    prepared = [fact.prolog_us for fact in world.log if isinstance(fact, facts.NodesPrepared)]
    released = [fact.epilog_us for fact in world.log if isinstance(fact, facts.NodesReleased)]
    assert prepared == released == [12_000_000]


@pytest.mark.parametrize(
    ("started_us", "ended_us", "took_us"),
    [(0, 5, 0), (9, 4, 0), (1, 10**18, TOOK_MAX_US), (2, 7, 5)],
)
def test_a_failed_phase_has_a_length_as_far_as_a_node_s_word_counts(
    started_us: int, ended_us: int, took_us: int
) -> None:
    world = world_with()
    job_id, send = launch(world)
    tell(world, job_id, send.nodes[0], StepEnd(1, started_us=started_us, ended_us=ended_us))
    (fault,) = [fact for fact in world.log if isinstance(fact, facts.NodeFaulted)]
    assert fault.took_us == took_us
