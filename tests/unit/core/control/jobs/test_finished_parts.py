"""A running job gives a part back: what is free when, what is owed to whom, and what is refused."""

from __future__ import annotations

import pytest

from eslurm.api.infos import job_info
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.model.config import NodeConfig, PriorityWeights, Resource
from eslurm.core.model.job import Principal, Span
from eslurm.core.model.messages import (
    Amounts,
    CreateStep,
    FinishPart,
    FinishStep,
    JobRef,
    PartGivenBack,
    SuspendJobs,
)
from eslurm.core.model.protocol import End, HeldAttempt, LaunchStep, Signal
from eslurm.core.model.request import Request
from eslurm.core.model.step import StepState
from eslurm.core.state.usage import usage_now
from tests.kits.core import ALICE, BOB, ROOT, World, problem, refused
from tests.kits.parts import parted, place, span, submit

APART = (span(0, 2), span(1, 3, 1), span(2, 3, 1), span(3, 1, 2))
SHARED = (span(0, 2), span(0, 1, 1), span(1, 3, 1), span(1, 1, 2), span(2, 1, 2))
"""Parts 0 and 1 share node 0, parts 1 and 2 share node 1."""


def running(*spans: Span, **others: object) -> tuple[World, int]:
    config = {key: others.pop(key) for key in ("priority", "nodes_with", "resources") if key in others}
    world = World(4, **config)  # type: ignore[arg-type]
    job = submit(world, parted(*[Request()] * (spans[-1].component + 1), **others))
    assert place(world, job, *spans) is not None
    for _ in range(2):
        world.deliver()
    assert world.state_of(job) == "RUNNING"
    return world, job


def finish(
    world: World, job: int, part: int, by: Principal = ALICE, *, kill: bool = False, dry_run: bool = False
) -> BatchAnswer:
    return world.send(FinishPart(by, JobRef(job, part=part), kill, dry_run))


def create(world: World, job: int, *parts: int) -> BatchAnswer:
    message = CreateStep(ALICE, job, 0, 0, ("app",), b"e", "/tmp", "host:9", b"c", components=parts)
    return world.send(message)


def free(world: World) -> list[int]:
    return [world.state.ledger.free(node)[0] for node in range(4)]


def test_its_own_nodes_are_ended_and_free_when_they_say_so() -> None:
    """Goal: never free before the node has confirmed; the others hear nothing."""
    world, job = running(*APART)
    answer = finish(world, job, 1)
    assert isinstance(answer, PartGivenBack)
    assert (answer.before, answer.after) == (Amounts(4, "cn[0-3]", 9, 0), Amounts(2, "cn[0,3]", 3, 0))
    assert (answer.leaving, answer.busy, answer.steps) == ("cn[1-2]", "", ())
    assert free(world) == [2, 1, 1, 3]
    (send,) = world.sends()
    assert send.nodes == (1, 2) and send.body == End(job, 1, 2.0, "released")
    world.done(send)
    assert free(world) == [2, 1, 1, 3], "an end that takes longer frees nothing"
    world.gone(1, job, 1)
    assert free(world) == [2, 4, 1, 3] and world.attempt(job).leaving == {2}
    world.gone(2, job, 1)
    assert free(world) == [2, 4, 4, 3]
    assert (world.state_of(job), world.attempt(job).held) == ("RUNNING", {0, 3})
    world.pass_time(60)
    assert not world.sends()
    world.end(job)
    assert world.state_of(job) == "COMPLETED" and free(world) == [4] * 4


def test_what_it_shares_with_other_parts_is_free_at_once() -> None:
    world, job = running(*SHARED)
    assert free(world) == [1, 0, 3, 4]
    answer = finish(world, job, 1)
    assert isinstance(answer, PartGivenBack) and (answer.leaving, answer.busy) == ("", "")
    assert free(world) == [2, 3, 3, 4]
    assert not world.sends(), "no node is ended: other parts are on all of them"
    (one,) = world.state.live.values()
    assert one.spans == ((0, (2, 0)), (1, (1, 0)), (2, (1, 0)))
    finish(world, job, 2)
    (send,) = world.sends()
    assert send.nodes == (1, 2), "the node that both had now has no part left"
    world.done(send, payload=world.answer_of(send))
    assert free(world) == [2, 4, 4, 4] and world.attempt(job).held == {0}
    world.end(job)
    assert world.state_of(job) == "COMPLETED"


def test_devices_are_free_again() -> None:
    nodes = tuple(NodeConfig(f"cn{number}", (4, 1000, 2)) for number in range(4))
    spans = (
        Span(0, (1, 0, 1), 1, 0, devices=((2, (0,)),)),
        Span(0, (1, 0, 1), 1, 1, devices=((2, (1,)),)),
    )
    world, job = running(*spans, nodes_with=nodes, resources=(Resource("gpu", devices=True),))
    finish(world, job, 1)
    assert world.state.devices.used(0, 2) == 0b01
    world.restart()
    assert world.state.devices.used(0, 2) == 0b01, "a new leader holds none of them again"


@pytest.mark.parametrize("spans", [APART, SHARED])
def test_crashes_between_all_of_it_lose_nothing(spans: tuple[Span, ...]) -> None:
    """Goal: a new leader owes the same end, and counts the same room."""
    world, job = running(*spans)
    finish(world, job, 1)
    before = free(world)
    world.restart()
    assert free(world) == before and world.attempt(job).finished == (1,)
    world.deliver()
    world.restart()
    finish(world, job, 2)
    world.restart()
    world.deliver()
    assert world.attempt(job).held == {0} and free(world) == [2, 4, 4, 4]
    world.end(job)
    assert world.state_of(job) == "COMPLETED"


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (0, "the script of job 1 runs in part 0: it is given back when the script ends"),
        (-1, "say which part of job 1: 1+1"),
        (3, "there is no part 3"),
    ],
)
def test_parts_that_are_none_to_give_back(part: int, text: str) -> None:
    world, job = running(*APART)
    assert text in refused(finish(world, job, part))


def test_refusals_by_state() -> None:
    world, job = running(*APART)
    assert finish(world, job, 1, BOB) is not None and "belongs to alice" in refused(
        finish(world, job, 1, BOB)
    )
    finish(world, job, 1)
    assert "was given back already" in refused(finish(world, job, 1))
    world.send(SuspendJobs(ROOT, (JobRef(job),)))
    assert "has been resumed" in refused(finish(world, job, 2))
    plain = world.submit()
    assert f"has one part: escancel {plain} ends the job" in refused(finish(world, plain, 0))
    other = submit(world, parted(Request(), Request()))
    assert "a part is given back while its job runs" in refused(finish(world, other, 1))
    world.cancel(job)
    assert "is being ended" in refused(finish(world, job, 2)) or world.state_of(job) != "RUNNING"


def test_a_part_is_named_by_its_own_id_too() -> None:
    world, job = running(*APART)
    answer = world.send(FinishPart(ALICE, JobRef(job + 2)))
    assert isinstance(answer, PartGivenBack) and (answer.job_id, answer.part) == (job, 2)


def test_a_dry_run_changes_nothing() -> None:
    world, job = running(*SHARED)
    before = len(world.log)
    answer = finish(world, job, 1, dry_run=True)
    assert isinstance(answer, PartGivenBack) and answer.after == Amounts(3, "cn[0-2]", 4, 0)
    assert len(world.log) == before
    assert finish(world, job, 1) == answer


def test_a_live_step_refuses_it_by_its_number() -> None:
    world, job = running(*APART)
    create(world, job, 0)
    create(world, job, 1)
    world.deliver()
    assert "step 1 runs in part 1 of job 1: end it first, or give --kill" in refused(finish(world, job, 1))
    assert isinstance(finish(world, job, 2), PartGivenBack), "steps of other parts are no matter"
    world.send(FinishStep(ALICE, job, 1, 0))
    assert isinstance(finish(world, job, 1), PartGivenBack)


def test_kill_ends_the_steps_and_waits_for_them_on_shared_nodes() -> None:
    """Goal: where another part goes on, the amounts are free when the step has ended, not before."""
    world, job = running(*SHARED)
    create(world, job, 1)
    assert "is being started" in refused(finish(world, job, 1, kill=True))
    world.deliver()
    answer = finish(world, job, 1, kill=True)
    assert isinstance(answer, PartGivenBack) and (answer.busy, answer.steps) == ("cn[0-1]", (0,))
    assert free(world) == [1, 0, 3, 4]
    (send,) = world.sends()
    assert send.nodes == (0, 1) and send.body == Signal(job, 1, 9, 0)
    world.done(send)
    world.restart()
    assert free(world) == [1, 0, 3, 4]
    world.send(FinishStep(ALICE, job, 0, 137, 9))
    assert free(world) == [2, 3, 3, 4]


def test_a_step_that_failed_on_some_nodes_keeps_the_others() -> None:
    """Goal: its tasks may live where they were started, and only the job's end tells."""
    world, job = running(*SHARED)
    create(world, job, 1)
    (send,) = world.sends()
    world.done(send, "failed", (0,))
    assert world.state.steps[job, 0].state is not StepState.RUNNING
    world.pass_time(20)
    (send,) = world.sends()
    world.done(send)
    assert world.state.steps[job, 0].state is StepState.FAILED
    answer = finish(world, job, 1)
    assert isinstance(answer, PartGivenBack) and answer.busy == "cn1"
    assert free(world) == [2, 0, 3, 4]
    world.end(job)
    assert free(world) == [4] * 4


def test_later_steps_refuse_the_part_and_see_only_what_is_left() -> None:
    world, job = running(*APART)
    finish(world, job, 1)
    text = f"--het-group: part 1 of job {job} was given back: use 0, 2"
    assert text in refused(create(world, job, 1)) and text in refused(create(world, job, 0, 1))
    world.deliver()
    create(world, job, 0)
    (send,) = world.sends()
    assert isinstance(send.body, LaunchStep) and send.body.launch is not None
    assert send.body.launch.node_names == "cn[0,3]"
    assert [group.runs for group in send.body.launch.groups] == [((0, 1),), ((3, 1),)]


def test_a_leaving_node_that_is_lost_is_just_free() -> None:
    """Goal: the job does not need it any more, with --no-kill or without."""
    world, job = running(*APART)
    finish(world, job, 1)
    world.lose(1)
    world.register(2, boot="b2", session="s2")
    attempt = world.attempt(job)
    assert (world.state_of(job), attempt.stop, attempt.held) == ("RUNNING", None, {0, 3})
    assert not attempt.leaving and not attempt.gone


def test_a_job_that_must_not_run_twice_is_not_requeued_while_its_part_may_run() -> None:
    """Goal: a silent node of a finished part is given up without its word: the job goes on, and begins never again."""
    world, job = running(*APART, requeue=False)
    finish(world, job, 1)
    world.restart(register=False)
    for number in (0, 2, 3):
        world.register(number, *world.inventory(number), session="s2")
    world.pass_time(100_000)
    assert (world.state_of(job), world.attempt(job).gone) == ("RUNNING", {1})
    assert "goes on without cn1, where it may still run" in problem(world.requeue(job, ROOT))
    assert job_info(world.view, world.job(job), None).reason_text == "without part 1, given back"


def test_a_node_of_another_part_that_is_lost_ends_the_job_as_ever() -> None:
    world, job = running(*APART)
    finish(world, job, 1)
    world.lose(3)
    assert world.attempt(job).stop is not None
    (*_, send) = world.sends()
    assert isinstance(send.body, End) and set(send.nodes) == {0, 1, 2}


def test_an_agent_that_returns_with_the_part_is_told_again() -> None:
    world, job = running(*APART)
    finish(world, job, 1)
    (send,) = world.sends()
    world.done(send)
    world.register(1, HeldAttempt(job, 1, "prepared"), session="s2")
    (again,) = world.sends()
    assert isinstance(again.body, End) and 1 in again.nodes


def test_the_end_of_the_job_releases_what_was_leaving() -> None:
    world, job = running(*APART)
    finish(world, job, 1)
    world.end(job)
    assert world.state_of(job) == "COMPLETED" and free(world) == [4] * 4


def test_suspended_jobs_lend_nothing_that_is_leaving() -> None:
    """Goal: processes there are being ended, not stopped: their cores are nobody's yet."""
    world, job = running(*APART)
    finish(world, job, 1)
    (send,) = world.sends()
    world.done(send)
    world.send(SuspendJobs(ROOT, (JobRef(job),)))
    world.deliver()
    world.gone(1, job, 1)
    world.gone(2, job, 1)
    world.send(SuspendJobs(ROOT, (JobRef(job),), resume=True))
    world.deliver()
    assert world.state_of(job) == "RUNNING" and free(world) == [2, 4, 4, 3]


def test_usage_counts_each_part_until_it_is_free() -> None:
    """Goal: charged once: running sums and the final charge are the same core seconds."""
    weights = PriorityWeights(billing=(("cores", 1.0),), half_life_s=0)
    world, job = running(*APART, priority=weights)
    world.pass_time(10)
    finish(world, job, 1)
    world.pass_time(5)
    assert _used(world) == 9 * 15
    world.deliver()
    world.pass_time(20)
    world.pass_time(20)
    assert _used(world) == 9 * 15 + 3 * 40
    world.end(job)
    assert _used(world) == 9 * 15 + 3 * 40


def _used(world: World) -> float:
    slices = usage_now(world.state, world.state.jobs.values(), world.now_us)
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return float(sum(done.value.values()))


def test_people_see_what_is_left() -> None:
    world, job = running(*APART)
    finish(world, job, 1)
    info = job_info(world.view, world.job(job), None)
    assert (info.node_names, info.cpus) == ("cn[0,3]", 3)
    assert info.reason_text == "without part 1, given back"
    assert [(part.nodes, bool(part.ended_us)) for part in info.parts] == [(1, False), (0, True), (1, False)]
