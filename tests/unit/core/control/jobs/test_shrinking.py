"""A running job gives nodes back in place: which, what is owed to whom, when they are free, and what is refused."""

from __future__ import annotations

import pytest

from eslurm.api.infos import job_info
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.config import PriorityWeights
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import Amounts, CreateStep, JobRef, Resized, ResizeJob, SuspendJobs
from eslurm.core.model.protocol import End, HeldAttempt, LaunchStep
from eslurm.core.model.request import Request
from eslurm.core.model.step import StepState
from eslurm.core.state.usage import usage_now
from tests.kits.core import ALICE, BOB, ROOT, World, refused
from tests.kits.parts import parted, place, span, submit
from tests.kits.running import run


def running(nodes: tuple[int, ...] = (0, 1, 2, 3), **others: object) -> tuple[World, int]:
    config = {key: others.pop(key) for key in ("priority", "kill_grace_s") if key in others}
    world = World(4, **config)  # type: ignore[arg-type]
    return world, run(world, nodes, **others)


def resize(world: World, job: int, by: Principal = ALICE, task: int = -1, **how: object) -> BatchAnswer:
    return world.send(ResizeJob(by, JobRef(job, task), **how))  # type: ignore[arg-type]


def create(world: World, job: int, tasks: int = 0, nodes: int = 0) -> BatchAnswer:
    return world.send(CreateStep(ALICE, job, tasks, nodes, ("app",), b"e", "/tmp", "host:9", b"c"))


def free(world: World) -> list[int]:
    return [world.state.ledger.free(node)[0] for node in range(4)]


def test_nodes_are_ended_with_the_grace_and_free_when_they_say_so() -> None:
    """Goal: steps there get the signal and the site's grace, and never is a node free before it has confirmed."""
    world, job = running(kill_grace_s=7.0)
    answer = resize(world, job, by_nodes=-2)
    assert isinstance(answer, Resized)
    assert (answer.before, answer.after) == (Amounts(4, "cn[0-3]", 16, 400), Amounts(2, "cn[0-1]", 8, 200))
    assert (answer.leaving, answer.steps) == ("cn[2-3]", ())
    assert free(world) == [0, 0, 0, 0]
    (send,) = world.sends()
    assert send.nodes == (2, 3) and send.body == End(job, 1, 7.0, "released")
    world.done(send)
    assert free(world) == [0, 0, 0, 0], "an end that takes longer frees nothing"
    world.gone(3, job, 1)
    assert free(world) == [0, 0, 0, 4] and world.attempt(job).leaving == {2}
    world.gone(2, job, 1)
    assert free(world) == [0, 0, 4, 4]
    assert (world.state_of(job), world.attempt(job).held) == ("RUNNING", {0, 1})
    world.pass_time(60)
    assert not world.sends()
    world.end(job)
    assert world.state_of(job) == "COMPLETED" and free(world) == [4] * 4


def test_the_least_used_nodes_go_first_and_never_the_first() -> None:
    world, job = running()
    create(world, job, tasks=9, nodes=3)
    world.deliver()
    answer = resize(world, job, to_nodes=2)
    assert isinstance(answer, Resized)
    assert (answer.leaving, answer.steps) == ("cn[2-3]", (0,)), "cn3 is idle, cn2 is behind cn1"
    answer = resize(world, job, to_nodes=1)
    assert isinstance(answer, Resized) and answer.leaving == "cn1"
    assert world.attempt(job).leaving == {1, 2, 3}


@pytest.mark.parametrize(
    "how", [{"nodes": ("cn0", "cn2")}, {"without": ("cn1", "cn3")}], ids=["keep", "give"]
)
def test_the_nodes_may_be_named(how: dict[str, object]) -> None:
    world, job = running()
    answer = resize(world, job, **how)
    assert isinstance(answer, Resized) and (answer.leaving, answer.after.node_names) == ("cn[1,3]", "cn[0,2]")
    assert world.attempt(job).leaving == {1, 3}


def test_a_dry_run_changes_nothing() -> None:
    world, job = running()
    answer = resize(world, job, by_nodes=-1, dry_run=True)
    assert isinstance(answer, Resized) and answer.leaving == "cn3"
    assert not world.attempt(job).leaving and not world.sends()


def test_as_many_as_it_has_is_no_change() -> None:
    world, job = running()
    answer = resize(world, job, to_nodes=4)
    assert isinstance(answer, Resized) and (answer.leaving, answer.before) == ("", answer.after)
    assert world.kinds()[-1] != "JobShrunk"


def test_new_steps_get_only_what_is_left() -> None:
    """Goal: a step sees the nodes of the moment, in its layout and in its environment."""
    world, job = running()
    resize(world, job, by_nodes=-2)
    create(world, job)
    (launch,) = [send for send in world.sends() if isinstance(send.body, LaunchStep)]
    assert launch.nodes == (0, 1)
    body = launch.body
    assert isinstance(body, LaunchStep) and body.launch is not None
    assert body.launch.node_names == "cn[0-1]"
    assert "2 nodes" in refused(create(world, job, nodes=3))


def test_a_step_that_is_being_started_there_waits_for_the_nodes_word() -> None:
    """Goal: its tasks may run before the controller knows: the others go on, and those there get the grace."""
    world, job = running()
    create(world, job)
    (launch,) = world.sends()
    resize(world, job, by_nodes=-1)
    assert world.state.steps[job, 0].waiting == {0, 1, 2, 3}
    world.done(launch)
    assert world.state.steps[job, 0].state is StepState.RUNNING
    create(world, job)
    assert world.state.steps[job, 1].nodes == (0, 1, 2)


def test_a_step_that_is_being_started_on_a_leaving_node_that_is_lost_fails_there() -> None:
    world, job = running()
    create(world, job)
    resize(world, job, by_nodes=-1)
    world.lose(3)
    step = world.state.steps[job, 0]
    assert step.waiting == {0, 1, 2} and [node for node, _ in step.failed] == [3]


def test_crashes_between_all_of_it_lose_nothing() -> None:
    """Goal: a new leader owes the same end, and counts the same room."""
    world, job = running()
    resize(world, job, by_nodes=-2)
    world.restart()
    assert free(world) == [0] * 4 and world.attempt(job).leaving == {2, 3}
    (send,) = world.sends()
    assert send.nodes == (2, 3) and isinstance(send.body, End)
    world.done(send, nodes=(2,), payload=world.answer_of(send))
    assert free(world) == [0, 0, 4, 0]
    world.restart()
    (send,) = world.sends()
    assert send.nodes == (3,)
    world.done(send, payload=world.answer_of(send))
    assert free(world) == [0, 0, 4, 4]
    world.restart()
    assert not world.sends() and world.attempt(job).held == {0, 1}
    world.end(job)
    assert free(world) == [4] * 4


def test_a_late_word_of_its_end_frees_nothing_twice() -> None:
    world, job = running()
    resize(world, job, by_nodes=-1)
    world.gone(3, job, 1)
    world.gone(3, job, 1)
    other = run(world, (3,))
    world.gone(3, job, 1)
    assert world.attempt(other).held == {3} and free(world)[3] == 0


def test_a_leaving_node_that_is_lost_does_not_end_the_job() -> None:
    world, job = running()
    resize(world, job, by_nodes=-1)
    world.lose(3)
    assert (world.state_of(job), world.attempt(job).stop) == ("RUNNING", None)
    assert world.attempt(job).held == {0, 1, 2} and free(world)[3] == 4


def test_a_leaving_node_that_restarted_without_it_is_free() -> None:
    world, job = running()
    resize(world, job, by_nodes=-1)
    world.register(3, HeldAttempt(job, 1, "tombstone"), session="s2")
    assert world.state_of(job) == "RUNNING" and world.attempt(job).held == {0, 1, 2}


def test_a_job_that_is_cancelled_meanwhile_ends_everywhere() -> None:
    world, job = running()
    resize(world, job, by_nodes=-1)
    world.cancel(job)
    ends = [send.nodes for send in world.sends() if isinstance(send.body, End)]
    assert {node for nodes in ends for node in nodes} == {0, 1, 2, 3}
    world.end(job)
    assert world.job(job).attempt is None and free(world) == [4] * 4


def test_nodes_that_leave_count_until_they_are_free() -> None:
    """Goal: core-seconds are the sum over the nodes of the time for which each was held, wherever it is cut."""
    world, job = running(
        time_limit_s=3600, priority=PriorityWeights(half_life_s=0, billing=(("cores", 1.0),))
    )
    world.pass_time(10)
    resize(world, job, by_nodes=-2)
    world.pass_time(5)
    world.gone(3, job, 1)
    world.gone(2, job, 1)
    world.pass_time(20)
    ends_us = world.now_us
    usage = usage_now(world.state, [world.job(job)], ends_us)
    with pytest.raises(StopIteration) as found:
        while True:
            next(usage)
    expected = 2 * 4 * 15.0 + 2 * 4 * 35.0
    assert found.value.value["", "alice"] == pytest.approx(expected)
    world.end(job)
    charged = world.state.usage["", "alice"]
    assert charged.raw == pytest.approx(expected)


def test_a_running_job_shows_what_it_has_left() -> None:
    world, job = running()
    resize(world, job, by_nodes=-2)
    info = job_info(world.view, world.job(job), None)
    assert (info.nodes, info.node_names, info.cpus) == (2, "cn[0-1]", 8)
    assert info.reason_text == "gives back cn[2-3]"


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({}, "say how"),
        ({"by_nodes": -1, "to_nodes": 2}, "say how"),
        ({"by_nodes": -4}, "at most 3 can be given back"),
        ({"nodes": ("cn1",)}, "runs on cn0"),
        ({"without": ("cn0",)}, "runs on cn0"),
        ({"without": ("cn9",)}, "node cn9 does not exist"),
    ],
)
def test_what_cannot_be_given_back_is_refused_by_name(how: dict[str, object], text: str) -> None:
    world, job = running()
    assert text in refused(resize(world, job, **how))
    assert not world.attempt(job).leaving


def test_a_node_that_it_does_not_have_is_refused() -> None:
    world, job = running((0, 1))
    assert "does not have cn3: it has cn[0-1]" in refused(resize(world, job, without=("cn3",)))


def test_jobs_whose_nodes_stay_are_refused_by_name() -> None:
    world, job = running()
    assert "belongs to alice" in refused(resize(world, job, BOB, by_nodes=-1))
    waiting = world.submit(request=Request(tasks=2))
    assert "is PENDING" in refused(resize(world, waiting, by_nodes=-1))
    world.send(SuspendJobs(ROOT, (JobRef(job),)))
    assert "is suspended" in refused(resize(world, job, by_nodes=-1))
    world.send(SuspendJobs(ROOT, (JobRef(job),), resume=True))
    array = world.submit(tasks=((0, 3),))
    assert "is an array" in refused(resize(world, array, by_nodes=-1))
    assert "task 1" in refused(resize(world, array, task=1, by_nodes=-1))
    world.cancel(job)
    assert "is being ended" in refused(resize(world, job, by_nodes=-1))


def test_a_job_of_several_parts_gives_whole_parts_back() -> None:
    world = World(4)
    job = submit(world, parted(Request(), Request()))
    assert place(world, job, span(0, 1), span(1, 1, 1)) is not None
    for _ in range(2):
        world.deliver()
    assert "esctl finish-part" in refused(resize(world, job, by_nodes=-1))
