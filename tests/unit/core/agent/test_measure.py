"""Questions about what steps use: which of them reach the runner, and that nothing of them is kept."""

from __future__ import annotations

from eslurm.core.agent import actions as act
from eslurm.core.agent.pipeline import AgentPipeline, WriteSpool
from eslurm.core.agent.records import Identity
from eslurm.core.model.protocol import Measure, Prepare
from eslurm.core.relay.results import Status
from tests.kits.agent import SECOND, World, launch

QUESTION = Measure(7, 1, (-1, 0), True)


def asked(world: World, **fields: object) -> str:
    """The text of the failure; empty when the question has reached the runner."""
    before = len(world.runner.measured)
    answers = world.order(QUESTION, revision=0, **fields)
    if len(world.runner.measured) > before:
        assert not answers, "the answer is the runner's"
        return ""
    assert answers[0].status is Status.FAILED
    return answers[0].text


def test_a_question_is_asked_as_often_as_it_comes() -> None:
    world = World()
    world.order(Prepare(launch(), start=True))
    spooled = len(world.spool)
    assert [asked(world) for _ in range(3)] == ["", "", ""]
    assert {(one.attempt, one.steps, one.with_pids) for one in world.runner.measured} == {
        ((0, 7, 1), (-1, 0), True)
    }
    assert len(world.spool) == spooled
    assert not any(revision == 0 for revision, _, _ in world.agent.buffer.fence("main").outcomes)


def test_questions_for_others_do_not_reach_the_runner() -> None:
    world = World()
    assert "not for this node" in asked(world, incarnations=(9,))
    assert "expired" in asked(world, expires_us=world.now_us - 120 * SECOND)
    assert "cluster" in asked(world, cluster="other")
    assert "epoch" in asked(world, epoch=world.epoch - 1)
    # A refusal is not remembered either.
    assert asked(world) == ""


def test_a_question_waits_for_no_record() -> None:
    pipeline = AgentPipeline(World().agent, lambda: False)
    question = act.MeasureSteps(1, (0, 7, 1), (-1,))
    record = act.Spool(Identity("cn0", "uid"), durable=True)
    assert [type(one) for one in pipeline.perform([record], 0)] == [WriteSpool]
    assert pipeline.perform([question], 0) == [question]
