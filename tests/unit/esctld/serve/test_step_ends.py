"""The wait for steps that run without their commands: which they are, and what is said of their ends."""

from __future__ import annotations

import pytest

from esctld.serve.step_ends import StepEnds
from eslurm.core.model.job import StepEnd
from eslurm.core.model.messages import FinishStep
from eslurm.core.model.step_claim import StepFiles
from eslurm.ports.api import ApiError
from tests.kits.core import ALICE, World
from tests.kits.steps import WHOLE, create, number, over, waiting

FILES = StepFiles("out")


def test_all_steps_without_a_command_are_waited_for_and_the_worst_of_them_counts() -> None:
    world = World(nodes=1)
    job = world.submit()
    world.start()
    attended = number(create(world, job, claim=None))
    first = number(create(world, job, claim=WHOLE, files=FILES))
    second, withdrawn = (waiting(create(world, job, claim=WHOLE, files=FILES)) for _ in range(2))
    world.deliver()
    ends = StepEnds(world.view, world.job(job), ())
    reply = ends.look()
    assert (reply.left, reply.waited, reply.exit_code) == (3, 3, 0)
    over(world, job, first, end=StepEnd(7))
    world.send(FinishStep(ALICE, job, withdrawn, 1))
    world.deliver()
    assert [ends.look().left, ends.look().exit_code] == [1, 7]
    over(world, job, second, end=StepEnd(0, signal=9))
    reply = ends.look()
    assert (reply.left, reply.exit_code, reply.state) == (0, 137, "ENDED")
    assert [(one.what, one.text) for one in reply.failed] == [
        (f"{job}.{first}", "exit code 7"),
        (f"{job}.{withdrawn}", "it was withdrawn while it waited for its turn"),
        (f"{job}.{second}", "ended by signal 9"),
    ]
    assert StepEnds(world.view, world.job(job), (attended,)).look().left == 1
    with pytest.raises(ApiError, match="does not exist"):
        StepEnds(world.view, world.job(job), (99,))
