"""Suspending, resuming and extending jobs that run: who may, what is owed to whom, and for how long."""

from __future__ import annotations

import pytest

from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.facts import AttemptSuspended, JobNoted, TimeChanged
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import Changed, CreateStep, JobRef, Refused, SuspendJobs, UpdateJob
from eslurm.core.model.protocol import End, SetTime, Suspend
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.core.state.allocation_amounts import elapsed_us
from tests.kits.core import ALICE, ROOT, SECOND, World, problem
from tests.kits.running import GONE, end, free, only, run


def suspend(world: World, job: int, *, resume: bool = False, by: Principal = ROOT) -> BatchAnswer:
    return world.send(SuspendJobs(by, (JobRef(job),), resume))


def extend(world: World, job: int, limit_s: int, *, by: Principal = ALICE, **others: object) -> BatchAnswer:
    return world.send(UpdateJob(by, JobRef(job), time_limit_s=limit_s, **others))  # type: ignore[arg-type]


# ---- suspension ----


def test_a_suspended_job_keeps_what_it_has_and_its_end_is_open() -> None:
    world = World()
    job = run(world, (0, 1))
    world.pass_time(10)
    assert suspend(world, job) == Changed(1)
    assert world.state_of(job) == "SUSPENDED"
    assert world.job(job).reason_text == "suspended by root"
    send = only(world.sends())
    assert (send.body, send.nodes) == (Suspend(job, 1), (0, 1))
    assert free(world, 0) == (0, 900)
    assert world.attempt(job).until_us == INFINITY_US
    world.done(send)
    assert not world.state.owed and not world.sends()


def test_its_time_limit_stands_still() -> None:
    world = World()
    job = run(world)
    due_us = world.attempt(job).until_us
    world.pass_time(10)
    suspend(world, job)
    world.pass_time(1_000)
    assert elapsed_us(world.attempt(job), world.now_us) == 10 * SECOND
    assert suspend(world, job, resume=True) == Changed(1)
    assert world.state_of(job) == "RUNNING"
    assert world.attempt(job).until_us == due_us + 1_000 * SECOND
    world.pass_time(5)
    suspend(world, job)
    world.pass_time(7)
    suspend(world, job, resume=True)
    assert world.attempt(job).until_us == due_us + 1_007 * SECOND
    assert only(world.sends()).body == Suspend(job, 1, resume=True), "only the latest is still owed"


def test_it_is_owed_until_every_node_has_acknowledged_and_after_a_restart() -> None:
    world = World()
    job = run(world, (0, 1, 2))
    suspend(world, job)
    world.done(only(world.sends()), nodes=(1,))
    world.pass_time(1)
    assert only(world.sends()).nodes == (0, 2)
    world.restart()
    send = only(world.sends())
    assert (send.body, send.nodes) == (Suspend(job, 1), (0, 2))
    world.done(send)
    assert not world.state.owed


def test_an_answer_to_what_was_said_before_settles_nothing() -> None:
    world = World()
    job = run(world)
    suspend(world, job)
    first = only(world.sends())
    suspend(world, job, resume=True)
    world.done(first)
    assert world.attempt(job).informing == {0}
    world.done(only(world.sends()))
    assert not world.attempt(job).informing


def test_doing_it_twice_changes_nothing() -> None:
    world = World()
    job = run(world)
    suspend(world, job, resume=True)
    suspend(world, job)
    suspend(world, job)
    assert len([fact for fact in world.log if isinstance(fact, AttemptSuspended)]) == 1


def test_only_operators_and_only_what_runs() -> None:
    world = World()
    waiting, job = world.submit(), run(world)
    answer = suspend(world, job, by=ALICE)
    assert isinstance(answer, Refused) and "alice is no operator" in answer.text
    assert "only a running job can be suspended" in problem(suspend(world, waiting))
    world.cancel(job)
    assert "is being ended" in problem(suspend(world, job))


def test_a_suspended_job_is_cancelled_and_ends() -> None:
    world = World()
    job = run(world)
    suspend(world, job)
    world.done(only(world.sends()))
    world.cancel(job)
    send = only(world.sends())
    assert isinstance(send.body, End)
    grace_us = int(world.state.config.kill_grace_s * SECOND)
    assert world.attempt(job).until_us == world.now_us + grace_us, "now it has an end again"
    world.done(send, payload=GONE)
    end(world, job, signal=15)
    assert world.state_of(job) == "CANCELLED"
    assert free(world, 0) == (4, 1000)


def test_a_suspended_job_whose_script_ends_all_the_same() -> None:
    world = World()
    job = run(world)
    suspend(world, job)
    end(world, job)
    assert world.state_of(job) == "COMPLETED" and not world.state.owed


def test_no_step_starts_in_a_suspended_job() -> None:
    world = World()
    job = run(world)
    suspend(world, job)
    answer = world.send(CreateStep(ALICE, job, 1, 1, ("true",), b"", "/", "login:1", b"c"))
    assert isinstance(answer, Refused) and "is suspended" in answer.text


def test_all_running_tasks_of_an_array_at_once() -> None:
    world = World()
    array = world.submit(tasks=((0, 3),))
    assert "only a running job" in problem(suspend(world, array))


# ---- extension ----


def test_an_owner_extends_by_ten_percent_in_all() -> None:
    world = World()
    job = run(world, (2, 3))
    world.pass_time(20)
    assert extend(world, job, 105) == Changed(1)
    assert world.attempt(job).until_us == world.attempt(job).started_us + 105 * SECOND
    send = only(world.sends())
    assert (send.body, send.nodes) == (SetTime(job, 1, 105), (2,))
    world.done(send)
    assert not world.state.owed
    assert "at most 110 s (5 s more)" in problem(extend(world, job, 111))
    assert extend(world, job, 110) == Changed(1)
    assert "at most 110 s (0 s more)" in problem(extend(world, job, 120))


def test_what_is_left_does_not_grow_with_what_was_given() -> None:
    world = World()
    job = run(world)
    extend(world, job, 50)
    assert world.attempt(job).time_limit_s == 50
    assert extend(world, job, 110) == Changed(1), "it is measured by the first limit"
    assert "at most 110 s" in problem(extend(world, job, 115))


def test_a_limit_that_has_passed_would_be_an_end() -> None:
    world = World()
    job = run(world)
    world.pass_time(30)
    said = problem(extend(world, job, 30))
    assert "has run for 30 s already: give at least 31 s, or end it: escancel" in said
    assert extend(world, job, 31) == Changed(1)


def test_operators_give_what_they_like() -> None:
    world = World()
    job = run(world)
    assert extend(world, job, 100_000, by=ROOT) == Changed(1)
    assert "at most 110 s" in problem(extend(world, job, 100_001)), "the owner cannot add to that"
    assert extend(world, job, 0, by=ROOT) == Changed(1)
    assert world.attempt(job).until_us == INFINITY_US
    assert only(world.sends()).body == SetTime(job, 1, 0)
    assert "no limit" in problem(extend(world, run(world, (1,)), 0))


def test_a_job_without_a_limit_may_be_given_one_and_lose_it() -> None:
    world = World()
    job = run(world, time_limit_s=0)
    assert extend(world, job, 500) == Changed(1)
    assert extend(world, job, 1_000) == Changed(1)
    assert extend(world, job, 0) == Changed(1)


def test_nothing_else_of_a_running_job_can_be_changed() -> None:
    world = World()
    job = run(world)
    assert "only its time limit and its comment can be changed, not name" in problem(
        extend(world, job, 50, name="x")
    )
    assert extend(world, job, 100) == Changed(1)
    assert not [fact for fact in world.log if isinstance(fact, TimeChanged)], "it has that limit"


def test_a_running_job_gets_another_comment_and_its_nodes_are_told_nothing() -> None:
    world = World()
    job = run(world)
    note = UpdateJob(ALICE, JobRef(job), comment="phase 2 of 3")
    assert world.send(note) == world.send(note) == Changed(1)
    assert world.job(job).spec.comment == "phase 2 of 3"
    assert [type(fact) for fact in world.log][-1] is JobNoted and not world.sends()
    both = UpdateJob(ALICE, JobRef(job), comment="", time_limit_s=110)
    assert world.send(both) == Changed(1)
    assert (world.job(job).spec.comment, world.attempt(job).time_limit_s) == ("", 110)
    world.restart()
    assert world.job(job).spec.comment == ""
    assert "1025 characters" in problem(world.send(UpdateJob(ALICE, JobRef(job), comment="x" * 1025)))
    stranger = Principal("mallory", 4711, 4711)
    assert "belongs to alice" in problem(world.send(UpdateJob(stranger, JobRef(job), comment="mine")))
    end(world, job)
    assert "only waiting jobs can be changed" in problem(
        world.send(UpdateJob(ALICE, JobRef(job), comment="late"))
    )


def test_a_suspended_job_is_extended_for_when_it_goes_on() -> None:
    world = World()
    job = run(world)
    world.pass_time(10)
    suspend(world, job)
    assert extend(world, job, 110) == Changed(1)
    assert world.attempt(job).until_us == INFINITY_US
    world.pass_time(50)
    suspend(world, job, resume=True)
    assert world.attempt(job).until_us == world.attempt(job).started_us + (110 + 50) * SECOND


def test_a_new_limit_is_owed_after_a_restart_until_the_first_node_has_it() -> None:
    world = World()
    job = run(world, (1, 2))
    extend(world, job, 110)
    world.done(only(world.sends()), nodes=())
    world.restart()
    send = only(world.sends())
    assert (send.body, send.nodes) == (SetTime(job, 1, 110), (1,))
    world.done(send)
    world.restart()
    assert not world.sends()


def test_a_requeued_job_begins_with_its_own_limit_again() -> None:
    world = World()
    job = run(world)
    extend(world, job, 110)
    end(world, job, cause="lost")
    assert world.state_of(job) == "PENDING"
    assert world.job(job).spec.time_limit_s == 100


@pytest.mark.parametrize("percent", [0.0, 50.0])
def test_the_share_is_the_sites(percent: float) -> None:
    world = World(extension_percent=percent)
    job = run(world)
    most = int(100 + percent)
    assert f"at most {most} s" in problem(extend(world, job, most + 1))
