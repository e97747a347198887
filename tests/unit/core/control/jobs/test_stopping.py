"""Cancelling and requeueing, in every phase of an attempt and more than once."""

from __future__ import annotations

import msgspec
import pytest

from eslurm.core.model.facts import StopRequested
from eslurm.core.model.job import StepEnd
from eslurm.core.model.job_states import JobState
from eslurm.core.model.messages import CancelJobs, Changed, JobRef
from eslurm.core.model.protocol import End, Gone, Prepare, Started, StepEnded
from eslurm.core.model.request import Request
from tests.kits.core import ALICE, BOB, ROOT, World, depends, problem, refused

WIDE = Request(tasks=12, nodes_min=3, nodes_max=3)
NEVER_STARTED = msgspec.msgpack.encode(Gone(False))
HAD_STARTED = msgspec.msgpack.encode(Gone(True))


def stops(world: World) -> list[str]:
    return [fact.stop.cause.value for fact in world.log if isinstance(fact, StopRequested)]


def test_a_waiting_job_is_cancelled_at_once() -> None:
    world = World()
    job = world.submit()
    assert world.cancel(job) == Changed(1)
    assert world.state_of(job) == "CANCELLED"
    assert world.job(job).exit_text == "cancelled by alice"
    assert "has already ended (CANCELLED)" in problem(world.cancel(job))


def test_only_the_owner_and_operators_may_cancel() -> None:
    world = World()
    job = world.submit()
    assert problem(world.cancel(job, by=BOB)).startswith("job 1 belongs to alice: only its user")
    assert world.cancel(job, by=ROOT) == Changed(1)


def test_a_launching_one_node_job_that_never_started() -> None:
    world = World()
    job = world.submit()
    world.plan()
    (prepare,) = world.sends()
    world.cancel(job)
    (end,) = world.sends()
    assert isinstance(end.body, End)
    world.done(prepare, nodes=())
    world.done(end, payload=NEVER_STARTED)
    assert world.state_of(job) == "CANCELLED"
    assert not world.state.jobs_on


def test_a_launching_one_node_job_that_had_started_ends_with_its_report() -> None:
    world = World()
    job = world.submit()
    world.plan()
    (prepare,) = world.sends()
    world.cancel(job)
    (end,) = world.sends()
    world.done(prepare, payload=msgspec.msgpack.encode(Started(7)))
    assert world.state_of(job) == "RUNNING"
    world.done(end, payload=HAD_STARTED)
    assert world.state_of(job) == "RUNNING", "the outcome is still in the node's spool"
    world.report(StepEnded(0, 1, job, 1, StepEnd(0, signal=15), True))
    assert world.state_of(job) == "CANCELLED"


def test_a_cancelled_launch_is_not_sent_again() -> None:
    """The script must not start after its job was cancelled, however late the node comes back."""
    world = World()
    job = world.submit()
    world.plan()
    (prepare,) = world.sends()
    world.cancel(job)
    (end,) = world.sends()
    world.done(prepare, nodes=())
    world.done(end, nodes=())
    world.pass_time(20)
    again = world.sends()
    assert [type(send.body) for send in again] == [End]
    world.done(again[0], payload=NEVER_STARTED)
    assert world.state_of(job) == "CANCELLED"
    assert not len(world.delivery)


def test_many_nodes_that_are_being_prepared_are_released() -> None:
    world = World()
    job = world.submit(request=WIDE)
    world.plan()
    (prepare,) = world.sends()
    world.cancel(job)
    assert world.state_of(job) == "COMPLETING"
    world.done(prepare)
    world.deliver()
    assert world.state_of(job) == "CANCELLED"
    assert stops(world) == []


@pytest.mark.parametrize("started", [False, True])
def test_many_nodes_whose_first_is_starting(started: bool) -> None:
    world = World()
    job = world.submit(request=WIDE)
    world.plan()
    world.deliver()
    (start,) = world.sends()
    world.cancel(job)
    (end,) = world.sends()
    assert end.nodes == (0, 1, 2)
    world.done(end, payload=HAD_STARTED if started else NEVER_STARTED)
    if started:
        assert world.attempt(job).held == {0}
        world.report(StepEnded(0, 1, job, 1, StepEnd(0, signal=15), True))
    world.done(start, "failed")
    assert world.state_of(job) == "CANCELLED"


def test_a_running_job_is_told_to_end_and_reports() -> None:
    world = World()
    job = world.submit(request=WIDE)
    world.start()
    world.cancel(job)
    (end,) = world.sends()
    assert isinstance(end.body, End)
    assert (end.body.grace_s, end.body.cause, end.nodes) == (30.0, "cancel", (0, 1, 2))
    world.done(end, payload=b"")
    assert world.state_of(job) == "RUNNING"
    world.gone(1, job, 1)
    world.gone(0, job, 1)
    assert world.attempt(job).held == {0, 2}, (
        "the first node's report of the end decides, not that it is gone"
    )
    world.report(StepEnded(0, 1, job, 1, StepEnd(0, signal=15), True))
    world.deliver()
    assert world.state_of(job) == "CANCELLED"


def test_cancelling_twice_asks_once() -> None:
    world = World()
    job = world.submit()
    world.start()
    world.cancel(job)
    world.cancel(job)
    assert stops(world) == ["cancel"]


def test_a_job_that_ended_well_stays_so_while_its_nodes_are_released() -> None:
    world = World()
    job = world.submit(request=WIDE)
    world.start()
    world.report(StepEnded(0, 1, job, 1, StepEnd(0), True))
    assert world.state_of(job) == "COMPLETING"
    world.cancel(job)
    world.deliver()
    assert world.state_of(job) == "COMPLETED"


def test_a_requeue_under_way_can_be_cancelled() -> None:
    """Its nodes are still held, so it is not final before they are free."""
    world = World()
    job = world.submit(request=WIDE)
    dependent = world.submit(dependencies=depends("afternotok", job))
    world.start()
    world.requeue(job)
    world.report(StepEnded(0, 1, job, 1, StepEnd(0, signal=15), True))
    assert world.job(job).outcome is JobState.PENDING
    world.cancel(job)
    assert world.state_of(job) == "COMPLETING"
    assert sorted(world.state.jobs_on) == [1, 2]
    assert not world.job(dependent).open, "its end is known"
    world.deliver()
    assert world.state_of(job) == "CANCELLED"
    assert not world.state.jobs_on


def test_a_running_job_is_requeued_with_a_new_attempt() -> None:
    world = World()
    job = world.submit()
    world.start()
    world.requeue(job)
    world.deliver()
    world.report(StepEnded(0, 1, job, 1, StepEnd(0, signal=15), True))
    assert world.state_of(job) == "PENDING"
    assert world.job(job).exit_text == "requeue by alice"
    world.pass_time(2)
    assert world.start() == [job]
    assert world.attempt(job).number == 2


def test_a_requeue_of_nodes_being_prepared_waits_for_none_of_them() -> None:
    world = World()
    job = world.submit(request=WIDE)
    world.plan()
    world.sends()
    world.requeue(job)
    assert world.state_of(job) == "PENDING"
    assert len(world.job(job).residues) == 1


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("requeue", "cancel", ["requeue", "cancel"]),
        ("cancel", "requeue", ["cancel"]),
        ("lost", "cancel", ["node_lost", "cancel"]),
        ("lost", "requeue", ["node_lost", "requeue"]),
        ("requeue", "lost", ["requeue"]),
        ("cancel", "lost", ["cancel"]),
    ],
)
def test_of_two_reasons_to_end_the_stronger_decides(first: str, second: str, expected: list[str]) -> None:
    """People over machines, an end over a requeue."""
    world = World()
    job = world.submit(request=WIDE, requeue=False)
    world.start()
    for action in (first, second):
        match action:
            case "cancel":
                world.cancel(job)
            case "requeue":
                world.requeue(job)
            case _:
                world.lose(2)
    assert stops(world) == expected
    world.end(job)
    outcome = {"cancel": "CANCELLED", "requeue": "PENDING", "node_lost": "NODE_FAIL"}[expected[-1]]
    assert world.state_of(job) == outcome


def test_only_what_runs_can_be_requeued() -> None:
    world = World()
    job = world.submit(request=WIDE)
    assert "is not running" in problem(world.requeue(job))
    world.start()
    world.report(StepEnded(0, 1, job, 1, StepEnd(0), True))
    assert "is not running" in problem(world.requeue(job))


def test_cancelling_by_name_user_partition_and_state() -> None:
    world = World()
    mine, other, bobs = world.submit(name="x"), world.submit(name="y"), world.submit(name="x", user=BOB)
    assert "nothing is named" in refused(world.send(CancelJobs(ALICE)))
    assert world.send(CancelJobs(ALICE, name="x")) == Changed(1)
    assert [world.state_of(job) for job in (mine, other, bobs)] == ["CANCELLED", "PENDING", "PENDING"]
    assert world.send(CancelJobs(ALICE, user="bob")) == Changed(0)
    assert world.send(CancelJobs(ROOT, partition="main", state="pending")) == Changed(2)


def test_an_unknown_job_is_told_apart_from_the_others() -> None:
    world = World()
    job = world.submit()
    answer = world.send(CancelJobs(ALICE, (JobRef(77), JobRef(job), JobRef(job))))
    assert isinstance(answer, Changed)
    assert answer.count == 1
    assert "job 77 does not exist" in answer.problems[0].text


def test_a_job_and_what_depends_on_it_are_cancelled_together() -> None:
    """The dependent can never run once the first is cancelled: it must not be finished twice."""
    world = World()
    first = world.submit()
    second = world.submit(dependencies=depends("afterok", first))
    assert world.send(CancelJobs(ALICE, (JobRef(first), JobRef(second)))) == Changed(2)
    assert [world.state_of(job) for job in (first, second)] == ["CANCELLED", "CANCELLED"]
    assert world.kinds().count("JobFinished") == 2


def test_a_signal_goes_to_the_first_node_of_what_runs() -> None:
    world = World()
    job = world.submit(request=WIDE)
    assert "is not running" in problem(world.send(CancelJobs(ALICE, (JobRef(job),), signal=10)))
    world.start()
    world.send(CancelJobs(ALICE, (JobRef(job),), signal=10))
    (send,) = world.sends()
    assert send.nodes == (0,)
    assert world.state_of(job) == "RUNNING"
    for _ in range(9):
        world.done(send, nodes=())
        world.pass_time(11)
        send = next(iter(world.sends()), send)
    assert not len(world.delivery), "a signal is tried a few times, not for ever"


def test_prepare_is_the_only_thing_owed_before_a_cancel() -> None:
    world = World()
    world.submit()
    world.plan()
    assert [type(send.body) for send in world.sends()] == [Prepare]
    assert len(world.state.owed) == 1


@pytest.mark.parametrize("by", ["cancel", "requeue"])
def test_a_job_that_meets_its_time_limit_while_it_is_told_to_end_has_met_it(by: str) -> None:
    """The node ended it before it heard the order: that it was too long is what its user has to know."""
    world = World()
    job = world.submit()
    world.start()
    world.cancel(job) if by == "cancel" else world.requeue(job)
    world.end(job, cause="time_limit")
    assert world.state_of(job) == "TIMEOUT"
