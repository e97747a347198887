"""Allocations without a script: accepted, held for steps, released, and ended when their command is gone."""

from __future__ import annotations

import pytest

from eslurm.core.model.job import ArraySpec, JobSpec, Principal, StepEnd
from eslurm.core.model.job_states import StopCause
from eslurm.core.model.messages import (
    CancelJobs,
    Changed,
    CreateStep,
    EndUnattended,
    JobRef,
    ReleaseJob,
    StepCreated,
    SubmitJobs,
    Submitted,
)
from eslurm.core.model.pack import PackDraft
from eslurm.core.model.protocol import End, Prepare, Signal, StepEnded
from eslurm.core.model.request import Request
from tests.kits.core import ALICE, BOB, ROOT, World, problem, refused

PAIR = Request(tasks=2, nodes_min=2, nodes_max=2)


def spec_of(user: Principal = ALICE, **fields: object) -> JobSpec:
    given: dict[str, object] = {"no_script": True, "attended": True, **fields}
    request = given.pop("request", Request())
    hash_ = given.pop("script_hash", b"")
    assert isinstance(request, Request) and isinstance(hash_, bytes)
    return JobSpec("alloc", user, "", (request,), hash_, b"", "/tmp", **given)  # type: ignore[arg-type]


def allocate(world: World, **fields: object) -> int:
    """An allocation that holds its nodes."""
    answer = world.send(SubmitJobs((spec_of(**fields),)))
    assert isinstance(answer, Submitted), answer
    world.start()
    assert world.state_of(answer.job_ids[0]) == "RUNNING"
    return answer.job_ids[0]


def step_in(world: World, job_id: int, by: Principal = ALICE) -> object:
    return world.send(CreateStep(by, job_id, 0, 0, ("true",), b"", "/", "10.0.0.1:1", bytes(32)))


def ends_as_told(world: World, job_id: int) -> None:
    """The first node ends what holds the allocation there, and says so."""
    job = world.job(job_id)
    assert job.attempt is not None
    (told,) = [send for send in world.sends() if isinstance(send.body, End)]
    assert isinstance(told.body, End) and told.nodes == tuple(job.attempt.nodes)
    first = job.attempt.first
    end = StepEnd(0, signal=15, cause="signalled", started_us=job.attempt.started_us, ended_us=world.now_us)
    world.report(StepEnded(first, world.state.nodes[first].incarnation, job_id, 1, end, gone=True))
    for number in job.attempt.nodes[1:]:
        world.gone(number, job_id, 1)


def test_an_allocation_is_launched_like_any_job_and_is_never_started_again() -> None:
    world = World()
    answer = world.send(SubmitJobs((spec_of(request=PAIR),)))
    assert isinstance(answer, Submitted)
    (job_id,) = answer.job_ids
    assert not world.job(job_id).spec.requeue and world.state.attended == {job_id}
    world.plan()
    (sent,) = world.sends()
    assert isinstance(sent.body, Prepare) and sent.body.launch.spec.no_script
    world.done(sent)
    world.deliver()
    assert world.state_of(job_id) == "RUNNING"
    assert isinstance(step_in(world, job_id), StepCreated)
    assert "cannot" not in world.job(job_id).exit_text
    assert "nothing of it can be started again" in problem(world.requeue(job_id))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"no_script": False}, "needs no command that keeps it"),
        ({"script_hash": b"s" * 32}, "has no script"),
        ({"arguments": ("a",)}, "has no script"),
        ({"array": ArraySpec(((0, 1),))}, "--array"),
        ({"cells": ("any",)}, "--cell"),
        ({"warn_script": "/bin/true"}, "--warn-script"),
    ],
)
def test_what_needs_a_script_is_refused(fields: dict[str, object], says: str) -> None:
    assert says in refused(World().send(SubmitJobs((spec_of(**fields),))))


def test_the_jobs_of_a_pack_are_no_allocations() -> None:
    pack = SubmitJobs((spec_of(), spec_of()), (PackDraft(0, (0, 60)),))
    assert "the jobs of a pack" in refused(World().send(pack))


@pytest.mark.parametrize(("code", "state"), [(0, "COMPLETED"), (7, "FAILED"), (255, "FAILED")])
def test_it_ends_as_its_command_did(code: int, state: str) -> None:
    world = World()
    job_id = allocate(world, request=PAIR)
    assert world.send(ReleaseJob(ALICE, job_id, code)) == Changed(1)
    assert world.send(ReleaseJob(ALICE, job_id, code)) == Changed(0)
    world.restart()
    ends_as_told(world, job_id)
    job = world.job(job_id)
    assert (job.state.value, job.exit_code, job.exit_signal, job.exit_text) == (state, code, 0, "")
    assert world.state.attended == set() and not world.state.jobs_on


def test_one_that_waits_is_cancelled_by_its_release() -> None:
    world = World(nodes=1)
    allocate(world, request=Request(exclusive=True))
    answer = world.send(SubmitJobs((spec_of(),)))
    assert isinstance(answer, Submitted)
    assert world.send(ReleaseJob(ALICE, answer.job_ids[0], 0)) == Changed(1)
    assert world.state_of(answer.job_ids[0]) == "CANCELLED"
    assert len(world.state.attended) == 1


def test_a_release_is_the_owner_s_alone_and_of_allocations_only() -> None:
    world = World()
    job_id = allocate(world)
    for other in (BOB, ROOT):
        assert "belongs to alice" in refused(world.send(ReleaseJob(other, job_id, 0)))
        assert "belongs to alice" in refused(step_in(world, job_id, other))  # type: ignore[arg-type]
    assert "exit_code" in refused(world.send(ReleaseJob(ALICE, job_id, 256)))
    batch = world.submit()
    assert "has a script" in refused(world.send(ReleaseJob(ALICE, batch, 0)))
    assert "does not exist" in refused(world.send(ReleaseJob(ALICE, 999, 0)))


def test_it_ends_when_its_command_is_not_heard_of() -> None:
    world = World(nodes=1)
    running = allocate(world, request=Request(exclusive=True))
    waits = world.send(SubmitJobs((spec_of(), spec_of(attended=False))))
    assert isinstance(waits, Submitted)
    gone = EndUnattended((running, *waits.job_ids, 999), 120.0)
    world.send(gone)
    assert [world.state_of(one) for one in waits.job_ids] == ["CANCELLED", "PENDING"]
    stop = world.attempt(running).stop
    assert stop is not None and stop.cause is StopCause.CANCEL
    assert world.send(gone) is None
    ends_as_told(world, running)
    job = world.job(running)
    assert job.state.value == "CANCELLED" and "has not been heard of for 120 s" in job.exit_text


def test_a_time_limit_ends_it_as_any_job() -> None:
    world = World()
    job_id = allocate(world)
    world.end(job_id, cause="time_limit")
    assert world.state_of(job_id) == "TIMEOUT"


def test_a_lost_node_ends_it_for_good() -> None:
    world = World()
    job_id = allocate(world)
    world.lose(world.attempt(job_id).first)
    assert world.state_of(job_id) == "NODE_FAIL"


def test_a_signal_goes_to_its_steps() -> None:
    world = World()
    job_id = allocate(world)
    created = step_in(world, job_id)
    assert isinstance(created, StepCreated)
    world.deliver()
    world.send(CancelJobs(ALICE, (JobRef(job_id),), signal=10))
    bodies = [send.body for send in world.sends()]
    assert [(one.step, one.signal) for one in bodies if isinstance(one, Signal)] == [(created.step, 10)]


def test_of_two_stops_the_release_is_no_requeue() -> None:
    world = World()
    job_id = allocate(world)
    world.send(ReleaseJob(ALICE, job_id, 3))
    world.lose(world.attempt(job_id).first)
    assert world.state_of(job_id) == "FAILED"
