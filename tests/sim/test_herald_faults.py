"""An effect that cannot be sent fails, alone: the others of its batch go out, and its job hears of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eslurm.core.job.model import JobSpec, Principal
from eslurm.core.job.request import Request
from eslurm.core.messages import EffectDone, SubmitJobs
from eslurm.core.wire import Prepare
from tests.sim.lead import lead_with_nodes

_encode = msgspec.msgpack.Encoder().encode
ONE = JobSpec("job", Principal("alice", 1000, 1000), "", (Request(),), b"", b"", "/tmp")


def seal(command: Any) -> bytes:
    if isinstance(command.body, Prepare) and command.body.launch.job_id == 1:
        raise ValueError("an item of 4000000 bytes")
    return _encode(command)


def test_an_effect_that_cannot_be_sealed_fails_alone() -> None:
    lead, bugs, failed = lead_with_nodes(), list[Exception](), list[EffectDone]()
    lead.herald._seal, lead.herald._on_bug = seal, bugs.append
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
    lead.herald._seal = seal
    with pytest.raises(ValueError, match="4000000"):
        lead.launch()
