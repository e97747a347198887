"""The reach of a signal: the script with what it has started, the job's steps, or both."""

from __future__ import annotations

import pytest

from eslurm.api.requests import cancel
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import CancelJobs, Changed, CreateStep, JobRef, Refused
from eslurm.core.model.protocol import Signal
from eslurm.core.model.step import StepState
from eslurm.core.model.step_key import BATCH_STEP
from eslurm.v1 import controller_pb2 as pb
from tests.kits.core import ALICE, BOB, World, problem

USR1 = 10


def with_a_step(world: World) -> int:
    job = world.submit()
    world.start()
    world.send(CreateStep(ALICE, job, 1, 1, ("app",), b"", "/tmp", "host:9", b"c"))
    world.deliver()
    assert world.state.steps[job, 0].state is StepState.RUNNING
    return job


def signalled(world: World, job: int, reach: str, by: Principal = ALICE) -> list[int]:
    """The steps that get the signal."""
    assert world.send(CancelJobs(by, (JobRef(job),), signal=USR1, reach=reach)) == Changed(1)
    bodies = [send.body for send in world.sends()]
    return [body.step for body in bodies if isinstance(body, Signal) and body.signal == USR1]


@pytest.mark.parametrize(("reach", "steps"), [("", [BATCH_STEP]), ("steps", [0]), ("all", [BATCH_STEP, 0])])
def test_a_signal_reaches_what_is_asked(reach: str, steps: list[int]) -> None:
    world = World()
    assert signalled(world, with_a_step(world), reach) == steps


def test_a_job_without_steps_has_none_to_signal() -> None:
    world = World()
    job = world.submit()
    world.start()
    assert world.send(CancelJobs(ALICE, (JobRef(job),), signal=USR1, reach="steps")).problems == ()  # type: ignore[union-attr]
    assert not [send for send in world.sends() if isinstance(send.body, Signal)]


def test_the_steps_of_others_are_out_of_reach() -> None:
    world = World()
    job = with_a_step(world)
    answer = world.send(CancelJobs(BOB, (JobRef(job),), signal=USR1, reach="all"))
    assert "belongs to" in problem(answer)
    assert not [send for send in world.sends() if isinstance(send.body, Signal)]


def test_an_unknown_reach_is_refused() -> None:
    assert cancel(pb.CancelRequest(signal=USR1, reach="steps"), ALICE).reach == "steps"
    with pytest.raises(Refused, match="reach: 'shell'"):
        cancel(pb.CancelRequest(signal=USR1, reach="shell"), ALICE)
