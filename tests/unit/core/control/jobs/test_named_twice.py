"""One job named twice in a request is changed once, and no task keeps the others of its array from being changed."""

from __future__ import annotations

from eslurm.core.model.facts import JobSignalled
from eslurm.core.model.messages import CancelJobs, Changed, HoldJobs, JobRef, RequeueJobs, SuspendJobs
from eslurm.core.model.request import Request
from tests.kits.core import ALICE, ROOT, SECOND, World, problem
from tests.kits.running import place, start

WIDE = Request(tasks=2, nodes_min=2, nodes_max=2)


def placed(world: World, request: Request, nodes: tuple[int, ...]) -> tuple[int, tuple[JobRef, ...]]:
    """A task of an array that is being launched, and two ways to name it."""
    array = world.submit(tasks=((0, 3),), request=request, time_limit_s=100)
    place(world, array, nodes)
    task = max(world.state.jobs)
    return task, (JobRef(task), JobRef(array, 0), JobRef(array))


def test_it_is_requeued_once() -> None:
    world = World()
    task, names = placed(world, WIDE, (0, 1))
    assert world.send(RequeueJobs(ROOT, names)) == Changed(3)
    assert world.state_of(task) == "PENDING"


def test_it_is_requeued_on_hold() -> None:
    world = World()
    task, names = placed(world, WIDE, (0, 1))
    assert world.send(RequeueJobs(ROOT, names, hold=True)) == Changed(3)
    assert (world.state_of(task), world.job(task).hold) == ("PENDING", "admin")
    assert world.send(HoldJobs(ROOT, names[:1], release=True)) == Changed(1)
    assert not world.job(task).hold


def test_a_running_job_waits_on_its_users_hold_when_it_has_ended() -> None:
    world = World()
    job = world.submit()
    place(world, job, (0,))
    start(world, job)
    assert world.send(RequeueJobs(ALICE, (JobRef(job),), hold=True)) == Changed(1)
    assert (world.state_of(job), world.job(job).hold) == ("RUNNING", "user")
    world.end(job)
    assert (world.state_of(job), world.job(job).hold) == ("PENDING", "user")


def test_it_stands_still_and_goes_on_once() -> None:
    world = World()
    task, names = placed(world, Request(), (0,))
    start(world, task)
    assert world.send(SuspendJobs(ROOT, names)) == Changed(3)
    world.pass_time(10)
    assert world.send(SuspendJobs(ROOT, names, resume=True)) == Changed(3)
    assert world.attempt(task).paused_us == 10 * SECOND
    assert world.attempt(task).until_us == 1_110 * SECOND


def test_it_gets_one_signal_and_is_cancelled_once() -> None:
    world = World()
    task, names = placed(world, Request(), (0,))
    start(world, task)
    assert world.send(CancelJobs(ROOT, names, signal=10)) == Changed(3)
    assert sum(isinstance(fact, JobSignalled) for fact in world.log) == 1
    assert world.send(CancelJobs(ROOT, names)) == Changed(3)
    assert world.state_of(task) == "RUNNING", "it is told to end"


def test_a_task_that_is_being_ended_keeps_no_other_from_standing_still() -> None:
    world = World()
    array = world.submit(tasks=((0, 1),), time_limit_s=100)
    for node in (0, 1):
        place(world, array, (node,))
        start(world, max(world.state.jobs))
    ended, other = sorted(world.state.jobs)[1:]
    world.cancel(ended)
    assert world.send(SuspendJobs(ROOT, (JobRef(array),))) == Changed(1)
    assert (world.state_of(ended), world.state_of(other)) == ("RUNNING", "SUSPENDED")
    assert "too late" in problem(world.send(SuspendJobs(ROOT, (JobRef(ended),))))
