"""The end of one job of a pack, and the others: with `--pack-fail=cancel` those that do not run are cancelled.

After each fact the world restores the state from the rows and checks every invariant.
"""

from __future__ import annotations

import pytest

from eslurm.core.control.decide import decide
from eslurm.core.control.jobs.dependency import dependents_of_all
from eslurm.core.model.facts import JobFinished, JobPlaced
from eslurm.core.model.job import Span, StepEnd
from eslurm.core.model.messages import PlanMade
from eslurm.core.model.placement import Placement
from eslurm.core.model.protocol import StepEnded
from eslurm.core.model.request_limits import PACK_MEMBERS_MAX
from eslurm.core.state.apply import apply
from tests.kits.core import SECOND, World
from tests.kits.packs import begin, pack, place, placement, run


def begun(world: World, *delays: int, **more: object) -> tuple[int, ...]:
    """A pack whose first job runs on node 0."""
    ids = pack(world, *delays, cancels=True, **more)
    begin(world, ids[0])
    world.deliver()
    world.deliver()
    assert world.state_of(ids[0]) == "RUNNING"
    return ids


def finished(world: World, since: int) -> list[int]:
    return [fact.job_id for fact in world.log[since:] if isinstance(fact, JobFinished)]


@pytest.mark.parametrize(("code", "cause", "ends"), [(1, "exited", "FAILED"), (0, "time_limit", "TIMEOUT")])
def test_a_failure_cancels_what_has_not_begun_in_the_same_commit(code: int, cause: str, ends: str) -> None:
    world = World()
    first, second, third = begun(world, 0, 30, 60)
    attempt = world.attempt(first)
    end = StepEnd(code, cause=cause, started_us=attempt.started_us, ended_us=world.now_us)
    at = len(world.log)
    # One message, so one batch: it is committed as a whole.
    world.report(StepEnded(0, 1, first, 1, end, gone=True))
    assert sorted(finished(world, at)) == [second, third]
    assert world.state_of(first) == ends
    for job_id in (second, third):
        assert world.state_of(job_id) == "CANCELLED"
        assert world.job(job_id).exit_text == f"cancelled by its pack: job {first} ended {ends}"
    assert world.state.packs == {}


def test_a_good_end_cancels_nothing() -> None:
    world = World()
    first, second = begun(world, 0, 30)
    world.end(first)
    assert world.state_of(second) == "PENDING"


def test_a_pack_that_goes_on_by_default_cancels_nothing() -> None:
    world = World()
    first, second = pack(world, 0, 30)
    begin(world, first)
    world.deliver()
    world.deliver()
    world.end(first, 1)
    assert world.state_of(second) == "PENDING"


def test_a_job_that_was_requeued_has_not_failed() -> None:
    world = World()
    _first, second, third = begun(world, 0, 10, 30)
    world.pass_time(10)
    run(world, second, 1)
    world.lose(1)
    assert world.state_of(second) == "PENDING"
    assert world.state_of(third) == "PENDING"


def test_the_loss_of_a_node_is_a_failure_of_a_job_that_runs_only_once() -> None:
    world = World()
    first, second = begun(world, 0, 30, requeue=False)
    world.lose(0)
    assert world.state_of(first) == "NODE_FAIL"
    assert world.state_of(second) == "CANCELLED"


def test_what_runs_goes_on_and_is_not_started_again() -> None:
    world = World()
    first, second, third = begun(world, 0, 10, 300)
    world.pass_time(10)
    run(world, second, 1)
    world.end(first, 1)
    assert (world.state_of(second), world.state_of(third)) == ("RUNNING", "CANCELLED")
    assert world.attempt(second).stop is None
    world.lose(1)
    assert world.state_of(second) == "CANCELLED", "it would have been requeued"


def test_a_job_that_was_requeued_before_does_not_start_again() -> None:
    world = World()
    first, second = begun(world, 0, 10)
    world.pass_time(10)
    run(world, second, 1)
    world.lose(1)
    assert world.state_of(second) == "PENDING"
    world.end(first, 1)
    assert world.state_of(second) == "CANCELLED"


def test_what_is_being_launched_is_cancelled() -> None:
    world = World()
    first, second = begun(world, 0, 10)
    world.pass_time(10)
    place(world, placement(world, second, 1))
    assert world.state_of(second) == "LAUNCHING"
    world.end(first, 1)
    stop = world.job(second).attempt and world.attempt(second).stop
    assert world.state_of(second) == "COMPLETING" or (stop is not None and stop.cause.value == "cancel")


def test_a_cancellation_counts_as_a_failure() -> None:
    world = World()
    first, second, third = begun(world, 0, 30, 60)
    world.cancel(second)
    assert world.state_of(third) == "CANCELLED"
    assert world.job(third).exit_text == f"cancelled by its pack: job {second} ended CANCELLED"
    assert world.state_of(first) == "RUNNING"


@pytest.mark.parametrize("runs", [False, True])
def test_a_cancellation_of_the_whole_pack_ends_each_job_once(runs: bool) -> None:
    world = World()
    first, second, third = begun(world, 0, 10, 60)
    world.pass_time(10)
    place(world, placement(world, second, 1))
    if runs:
        world.deliver()
        world.deliver()
    world.cancel(first)
    world.deliver()
    for job_id in (first, second):
        if world.state_of(job_id) not in ("CANCELLED",):
            world.end(job_id, 15)
    assert {world.state_of(one) for one in (first, second, third)} == {"CANCELLED"}


def test_a_lost_node_of_two_jobs_ends_each_once() -> None:
    """The second one's launch is cancelled with the first one's end, before the message comes to it."""
    world = World()
    first, second, third = begun(world, 0, 10, 30, requeue=False)
    world.pass_time(10)
    wide = Placement(second, (Span(0, (1, 0)), Span(1, (1, 0))), world.now_us + 100 * SECOND)
    assert place(world, wide) == [second]
    at = len(world.log)
    world.lose(0)
    assert world.kinds(at).count("AttemptEnded") == 2
    assert world.attempt(second).held == {1}, "the lost node is given back all the same"
    world.gone(1, second, 1)
    assert [world.state_of(one) for one in (first, second, third)] == ["NODE_FAIL", "CANCELLED", "CANCELLED"]


def test_a_plan_made_before_the_failure_starts_nothing_any_more() -> None:
    """Also when the next batch has not yet looked at all jobs that are to be cancelled."""
    world = World()
    first, second = begun(world, 0, 10)
    world.pass_time(10)
    plan = placement(world, second, 1)
    attempt = world.attempt(first)
    end = StepEnd(1, cause="exited", started_us=attempt.started_us, ended_us=world.now_us)
    report = StepEnded(0, 1, first, 1, end, gone=True)
    world.report(report)
    batch = world.batch(PlanMade((plan,), world.state.generation))
    assert not [fact for fact in batch.facts if isinstance(fact, JobPlaced)]


def test_a_new_leader_cancels_what_the_former_one_had_not_come_to() -> None:
    world = World(4, 64, restarts=False, pending_jobs_max=1000)
    ids = begun(world, *([0] + [30] * (PACK_MEMBERS_MAX - 1)))
    attempt = world.attempt(ids[0])
    end = StepEnd(1, cause="exited", started_us=attempt.started_us, ended_us=world.now_us)
    # The failure is applied, and nothing that follows from it.
    found, _ = decide(world.state, StepEnded(0, 1, ids[0], 1, end, gone=True), world.now_us)
    for fact in found:
        apply(world.state, fact, world.state.revision + 1, world.now_us)
    assert set(dependents_of_all(world.state)) == set(ids[1:])


def test_many_jobs_are_cancelled_in_one_batch() -> None:
    world = World(4, 64, restarts=False, pending_jobs_max=1000)
    ids = begun(world, *([0] + [30] * (PACK_MEMBERS_MAX - 1)))
    at = len(world.log)
    world.end(ids[0], 1)
    assert sorted(finished(world, at)) == list(ids[1:])


def test_the_first_jobs_record_stays_until_the_pack_has_ended() -> None:
    world = World(finished_retention_s=5)
    first, second, third = pack(world, 0, 10, 1000)
    begin(world, first)
    world.deliver()
    world.deliver()
    world.pass_time(10)
    run(world, second, 1)
    world.end(second, 1)
    world.end(first)
    world.restart()
    world.pass_time(100)
    assert world.state.find_job(second) is None
    place_of = world.job(first).pack
    assert place_of is not None and place_of.failed == second
    world.pass_time(900)
    run(world, third, 2)
    world.end(third)
    world.pass_time(1)
    assert world.state.find_job(first) is None, "its retention was over long ago"
