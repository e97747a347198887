"""Attaching to a step: its own user alone gets the place where its command listens, as long as it runs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eslurm.core.control.step_attachments import Attachable, find_attachable
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import CreateStep, FinishStep, RefusalCode, Refused
from eslurm.core.model.request import Request
from tests.kits.core import ALICE, BOB, World


def started(world: World) -> int:
    job = world.submit(request=Request(tasks=4, nodes_min=2, nodes_max=2))
    world.start()
    world.send(CreateStep(ALICE, job, 3, 2, ("app",), b"e", "/tmp", "127.0.0.1:9", b"cookie"))
    return job


def refusal(world: World, by: Principal, job: int, step: int = 0) -> Refused:
    with pytest.raises(Refused) as caught:
        find_attachable(world.state, by, job, step)
    return caught.value


def test_its_user_gets_the_place_and_the_layout() -> None:
    world = World()
    job = started(world)
    expected = Attachable("127.0.0.1:9", b"cookie", (("cn0", 2), ("cn1", 1)))
    assert find_attachable(world.state, ALICE, job, 0) == expected


@pytest.mark.parametrize("who", [BOB, Principal("root", 0, 0)])
def test_no_other_user_does_root_neither(who: Principal) -> None:
    world = World()
    job = started(world)
    config = replace(world.state.config, operators=(BOB.uid,))
    world.state.config = config
    found = refusal(world, who, job)
    assert found.code is RefusalCode.DENIED and "only its user attaches" in found.text


def test_what_does_not_run_has_no_place() -> None:
    world = World()
    job = started(world)
    assert refusal(world, ALICE, job, 1).code is RefusalCode.NOT_FOUND
    assert refusal(world, ALICE, job + 1).code is RefusalCode.NOT_FOUND
    world.send(FinishStep(ALICE, job, 0, 0, 0))
    assert refusal(world, ALICE, job).code is RefusalCode.CONFLICT
