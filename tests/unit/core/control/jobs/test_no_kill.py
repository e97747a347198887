"""`--no-kill`: a job goes on without nodes that it has lost, unless the first one is among them."""

from __future__ import annotations

import pytest

from eslurm.api.infos import job_info
from eslurm.core.model.config import PriorityWeights
from eslurm.core.model.job import StepEnd
from eslurm.core.model.messages import CancelJobs, Changed, CreateStep, JobRef, SuspendJobs
from eslurm.core.model.protocol import End, HeldAttempt, LaunchStep, StepEnded
from eslurm.core.model.request import Request
from eslurm.core.model.step import StepState
from tests.kits.core import ALICE, ROOT, World, problem
from tests.kits.parts import parted, place, span, submit
from tests.kits.running import end, free, run
from tests.kits.running import place as on


def running(
    nodes: tuple[int, ...] = (0, 1, 2), *, no_kill: bool = True, **others: object
) -> tuple[World, int]:
    world = World(4, **{key: others.pop(key) for key in ("priority",) if key in others})  # type: ignore[arg-type]
    return world, run(world, nodes, no_kill=no_kill, **others)


def test_without_it_a_lost_node_ends_the_job() -> None:
    world, job = running(no_kill=False)
    world.lose(1)
    assert world.attempt(job).stop is not None


def test_the_job_goes_on_without_a_lost_node() -> None:
    """Goal: the other nodes keep running, the lost one is given back, and the job ends as ever."""
    world, job = running()
    world.lose(1)
    attempt = world.attempt(job)
    assert (world.state_of(job), attempt.stop, attempt.gone) == ("RUNNING", None, {1})
    assert free(world, 1) == (4, 1000) and free(world, 2)[0] == 0
    assert not world.sends(), "nothing is told to the others"
    assert world.kinds()[-2:] == ["NodesReleased", "NodesLost"]
    world.end(job)
    assert world.state_of(job) == "COMPLETED" and not world.state.jobs_on


def test_its_first_node_is_not_spared() -> None:
    world, job = running()
    world.lose(0)
    assert world.job(job).attempt is None or world.attempt(job).gone == frozenset()
    assert world.state_of(job) in ("PENDING", "COMPLETING")


def test_nodes_go_one_after_the_other() -> None:
    world, job = running()
    world.lose(2)
    world.lose(1)
    assert (world.state_of(job), world.attempt(job).gone, world.attempt(job).held) == ("RUNNING", {1, 2}, {0})
    world.lose(0)
    assert world.job(job).outcome is not None or world.state_of(job) == "PENDING"


def test_a_launch_that_is_not_complete_begins_anew_elsewhere() -> None:
    """Goal: before the script has run all nodes are wanted."""
    world = World(4)
    job = world.submit(request=Request(tasks=3, nodes_min=3, nodes_max=3), no_kill=True)
    on(world, job, (0, 1, 2))
    world.lose(1)
    assert world.job(job).attempt is None and world.job(job).avoid == {1}


def test_a_job_that_is_being_ended_just_gives_the_node_back() -> None:
    world, job = running()
    world.send(CancelJobs(ALICE, (JobRef(job),)))
    world.lose(1)
    assert world.attempt(job).gone == frozenset() and world.attempt(job).held == {0, 2}


def test_a_restarted_controller_knows_what_is_gone() -> None:
    world, job = running()
    world.lose(1)
    world.restart()
    assert world.attempt(job).gone == {1} and world.state_of(job) == "RUNNING"
    world.end(job)
    assert world.state_of(job) == "COMPLETED"


@pytest.mark.parametrize("requeue", [True, False])
def test_a_node_that_comes_back_ends_what_it_still_has(requeue: bool) -> None:
    """Goal: an agent that was silent and returns with the attempt gets an `End`, and the job stays without it."""
    world, job = running(requeue=requeue)
    world.lose(1)
    world.register(1, HeldAttempt(job, 1, "prepared"), session="s2")
    (effect,) = world.sends()
    assert effect.nodes == (1,) and isinstance(effect.body, End) and effect.body.job_id == job
    assert (world.state_of(job), world.attempt(job).gone) == ("RUNNING", {1})
    # A late report changes nothing either.
    world.gone(1, job, 1)
    assert world.state_of(job) == "RUNNING" and free(world, 1) == (4, 1000)


def test_a_node_that_was_rebooted_is_gone_too() -> None:
    world, job = running()
    world.register(2, boot="b2", session="s2")
    assert (world.state_of(job), world.attempt(job).gone) == ("RUNNING", {2})


def test_a_silent_node_is_given_up_in_time() -> None:
    """Goal: without a declaration, too: nothing of a job with --no-requeue is started again meanwhile."""
    world, job = running(requeue=False)
    world.send(SuspendJobs(ROOT, (JobRef(job),)))
    world.deliver()
    world.send(SuspendJobs(ROOT, (JobRef(job),), resume=True))
    world.deliver()
    world.restart(register=False)
    for number in (0, 2, 3):
        world.register(number, *world.inventory(number), session="s2")
    world.pass_time(100_000)
    assert (world.state_of(job), world.attempt(job).gone) == ("RUNNING", {1})
    assert "goes on without cn1, where it may still run" in problem(world.requeue(job))


def test_later_steps_are_told_of_the_nodes_that_are_left() -> None:
    """Goal: neither the step's environment nor its credential names the lost node."""
    world, job = running()
    world.lose(1)
    world.send(CreateStep(ALICE, job, 0, 0, ("app",), b"e", "/tmp", "host:9", b"c"))
    (send,) = world.sends()
    assert isinstance(send.body, LaunchStep) and send.body.launch is not None
    assert send.body.launch.node_names == "cn[0,2]"
    assert [group.runs for group in send.body.launch.groups] == [((0, 1), (2, 1))]


def test_a_requeueable_job_is_requeued_without_its_lost_node() -> None:
    world, job = running()
    world.lose(1)
    assert world.requeue(job) == Changed(1)
    world.deliver()
    end(world, job, exit_code=143)
    assert world.state_of(job) == "PENDING"


def test_a_step_that_waits_for_the_lost_node_fails() -> None:
    world, job = running()
    world.send(CreateStep(ALICE, job, 3, 3, ("x",), b"", "/", "h:1", b""))
    (send,) = world.sends()
    assert isinstance(send.body, LaunchStep)
    world.done(send, nodes=(0, 2))
    world.lose(1)
    step = world.state.steps[job, 0]
    assert (step.state, [node for node, _ in step.failed]) == (StepState.FAILED, [1])
    answer = world.send(CreateStep(ALICE, job, 0, 0, ("x",), b"", "/", "h:1", b""))
    assert [name for name, _ in answer.layout] == ["cn0", "cn2"]  # type: ignore[union-attr]


def test_a_suspended_job_resumes_without_the_lost_node() -> None:
    world, job = running()
    world.send(SuspendJobs(ROOT, (JobRef(job),)))
    world.lose(1)
    assert world.attempt(job).informing == {0, 2}
    world.deliver()
    world.send(SuspendJobs(ROOT, (JobRef(job),), resume=True))
    (send,) = world.deliver()
    assert send.nodes == (0, 2) and world.state_of(job) == "RUNNING"


def test_parts_on_the_lost_node_go_together() -> None:
    """Goal: a node with two parts takes both along; a part may lose all of its nodes."""
    world = World(3)
    job = submit(world, parted(Request(), Request(), no_kill=True))
    place(world, job, span(0, 1), span(1, 2), span(1, 1, 1))
    world.deliver()
    world.deliver()
    world.lose(1)
    assert (world.attempt(job).gone, free(world, 1)[0], world.state_of(job)) == ({1}, 4, "RUNNING")
    world.end(job)
    assert world.state_of(job) == "COMPLETED"


def test_a_step_over_parts_fails_in_each_part_on_the_lost_node() -> None:
    world = World(3)
    job = submit(world, parted(Request(), Request(), no_kill=True))
    place(world, job, span(0, 1), span(1, 1), span(1, 1, 1), span(2, 1, 1))
    world.deliver()
    world.deliver()
    world.send(CreateStep(ALICE, job, 0, 0, ("x",), b"", "/", "h:1", b"", components=(0, 1)))
    for send in world.sends():
        world.done(send, nodes=tuple(node for node in send.nodes if node != 1))
    world.lose(1)
    assert [step.state for step in world.state.steps.values()] == [StepState.FAILED] * 2
    answer = world.send(CreateStep(ALICE, job, 0, 0, ("x",), b"", "/", "h:1", b"", components=(0, 1)))
    assert [name for name, _ in answer.layout] == ["cn0", "cn2"]  # type: ignore[union-attr]


def test_lost_nodes_are_charged_until_their_loss() -> None:
    """Goal: usage is that of each node for as long as the job had it."""
    world, job = running((0, 1), priority=PriorityWeights(fairshare=1, half_life_s=10**9))
    world.pass_time(10)
    world.lose(1)
    world.pass_time(20)
    world.report(StepEnded(0, 1, job, 1, StepEnd(0, ended_us=world.now_us), True))
    (usage,) = world.state.usage.values()
    assert usage.raw == pytest.approx(4 * 10 + 4 * 30, rel=1e-6)


def test_users_see_what_is_left() -> None:
    world, job = running()
    world.lose(1)
    info = job_info(world.view, world.job(job), None)
    assert (info.nodes, info.cpus, info.node_names) == (2, 8, "cn[0,2]")
    assert info.reason_text == "without cn1, lost since its start"
