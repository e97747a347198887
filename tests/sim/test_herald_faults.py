"""An effect that cannot be sent fails, alone: the others of its batch go out, and its job hears of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eslurm.core.model.job import JobSpec, Principal
from eslurm.core.model.messages import EffectDone, SubmitJobs
from eslurm.core.model.protocol import Command, Prepare
from eslurm.core.model.request import Request
from tests.sim.lead import lead_with_nodes, seal

ONE = JobSpec("job", Principal("alice", 1000, 1000), "", (Request(),), b"", b"", "/tmp")


def seal_but_job_1(commands: Sequence[Command]) -> list[bytes]:
    for command in commands:
        if isinstance(command.body, Prepare) and command.body.launch.job_id == 1:
            raise ValueError("an item of 4000000 bytes")
    return seal(commands)


def test_an_effect_that_cannot_be_sealed_fails_alone() -> None:
    lead, bugs, failed = lead_with_nodes(), list[Exception](), list[EffectDone]()
    lead.broadcaster._seal, lead.broadcaster._on_bug = seal_but_job_1, bugs.append
    lead.on_post = lambda messages: failed.extend(one for one in messages if isinstance(one, EffectDone))
    lead.post(SubmitJobs((ONE,)))
    assert lead.launch() == 2
    bodies = [command.body for _, command in lead.take()]
    assert {body.launch.job_id for body in bodies if isinstance(body, Prepare)} == {2}
    assert [str(bug) for bug in bugs] == ["an item of 4000000 bytes"]
    (outcome,) = failed[0].outcomes
    assert outcome.status == "failed" and "could not send this" in outcome.text


def test_without_anybody_to_tell_it_is_raised() -> None:
    lead = lead_with_nodes()
    lead.broadcaster._seal = seal_but_job_1
    with pytest.raises(ValueError, match="4000000"):
        lead.launch()


def test_effects_that_go_out_together_are_sealed_together() -> None:
    lead, sealed = lead_with_nodes(), list[int]()

    def counted(commands: Sequence[Command]) -> list[bytes]:
        sealed.append(len(commands))
        return seal(commands)

    lead.broadcaster._seal = counted
    lead.post(SubmitJobs((ONE, ONE)))
    lead.launch()
    bodies = [command.body for _, command in lead.take()]
    assert {body.launch.job_id for body in bodies if isinstance(body, Prepare)} == {1, 2, 3}
    assert sealed == [3]
