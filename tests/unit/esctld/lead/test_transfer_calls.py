"""Calls to other cells about jobs that may change their cell: what goes out, and what each answer means."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Any

import pytest

from esctld.lead import transfer_calls
from esctld.lead.transfer_calls import TransferCalls, delivery_id
from eslurm.api.methods import CANCEL, SUBMIT
from eslurm.core.federation.actions import AskBid, CancelThere, CellAnswer, CellCall, DeliverJob, TellGuest
from eslurm.core.model.messages import EpochStarted
from eslurm.core.model.request_limits import NODE_LIST_CHARS_MAX
from eslurm.links.blobs import BlobCache, BlobUnavailable
from eslurm.ports.api import Answered, Caller, Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.core import ALICE, World
from tests.support.loops import run

SCRIPT = b"#!/bin/sh\nhostname\n"
HASH = sha256(SCRIPT).digest()


class Links:
    """The other cell's answers, and what it was asked."""

    def __init__(self, *answers: Answered | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, Any, Any, Caller]] = []

    async def pass_on(self, cell: str, method: Any, payload: bytes, caller: Caller) -> Answered:
        self.asked.append((cell, method, method.request.FromString(payload), caller))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def ok(reply: Any) -> Answered:
    return Answered(Status.OK, "", reply.SerializeToString())


def ask(links: Links, action: CellCall, load: Any = None, world: World | None = None) -> CellAnswer:
    world = world or job_world()[0]

    async def stored(digests: Collection[bytes], bytes_max: int) -> Mapping[bytes, bytes]:
        return dict.fromkeys(digests, SCRIPT)

    calls = TransferCalls("alpha", lambda: world.view, BlobCache(1_000), load or stored, links.pass_on)
    return run(calls.answer(action))


def job_world() -> tuple[World, int]:
    world = World(nodes=1)
    return world, world.submit(cells=("any",), arguments=("secret",), comment="a comment")


def test_a_bid_names_neither_script_nor_arguments_and_compares_times_of_one_clock() -> None:
    world, job_id = job_world()
    links = Links(ok(pb.SubmitReply(test_start_us=9_000_000, now_us=2_000_000)))
    assert ask(links, AskBid(job_id, "beta"), world=world) == CellAnswer(is_done=True, wait_us=7_000_000)
    ((cell, method, request, caller),) = links.asked
    assert (cell, method, caller.principal) == ("beta", SUBMIT, ALICE)
    assert request.test_only and len(caller.request_id) == 16 and caller.deadline_us
    (job,) = request.jobs
    assert not job.environment and not job.arguments and not job.comment and job.work_dir == "/"


def test_a_cell_that_cannot_say_makes_no_bid() -> None:
    world, job_id = job_world()
    answer = ask(Links(ok(pb.SubmitReply(test_answer="never"))), AskBid(job_id, "beta"), world=world)
    assert answer == CellAnswer(is_done=True, text="never")


def test_each_delivery_of_an_offer_has_the_same_request_id() -> None:
    world, job_id = job_world()
    links = Links(ok(pb.SubmitReply(job_ids=[job_id])), ok(pb.SubmitReply(job_ids=[job_id])))
    for is_repeated in (False, True):
        assert ask(links, DeliverJob(job_id, "beta", 7, is_repeated), world=world).is_done
    (_, _, request, first), (_, _, _, second) = links.asked
    assert first.request_id == second.request_id == delivery_id("alpha", world.view.epoch, job_id, 7)
    assert (first.retry, second.retry) == (False, True)
    assert delivery_id("alpha", world.view.epoch, job_id, 8) != first.request_id
    assert (request.arrival.job_id, request.arrival.serial) == (job_id, 7)
    assert request.jobs[0].script == SCRIPT and list(request.jobs[0].arguments) == ["secret"]


def test_the_delivery_of_a_later_leader_is_another_call() -> None:
    """The first one may have been answered for an arrival that the other cell has dropped since."""
    world, job_id = job_world()
    links = Links(ok(pb.SubmitReply(job_ids=[job_id])), ok(pb.SubmitReply(job_ids=[job_id])))
    assert ask(links, DeliverJob(job_id, "beta", 7), world=world).is_done
    world.send(EpochStarted(world.view.epoch + 1))
    assert ask(links, DeliverJob(job_id, "beta", 7, is_repeated=True), world=world).is_done
    (_, _, first, before), (_, _, second, after) = links.asked
    assert before.request_id != after.request_id
    assert first.arrival == second.arrival, "by its serial it is the same offer"


def test_a_delivery_that_is_answered_for_another_job_is_not_done() -> None:
    world, job_id = job_world()
    answer = ask(Links(ok(pb.SubmitReply(job_ids=[9]))), DeliverJob(job_id, "beta", 7), world=world)
    assert not answer.is_done and not answer.is_refused


@pytest.mark.parametrize(
    ("status", "retry_s", "is_refused"),
    [
        (Status.PERMISSION_DENIED, 0.0, True),
        (Status.FAILED_PRECONDITION, 0.0, True),
        (Status.FAILED_PRECONDITION, 1.0, False),
        (Status.UNAVAILABLE, 0.0, False),
        (Status.DEADLINE_EXCEEDED, 0.0, False),
        (Status.RESOURCE_EXHAUSTED, 0.0, False),
    ],
)
def test_a_call_is_refused_for_good_or_may_be_repeated(
    status: Status, retry_s: float, *, is_refused: bool
) -> None:
    world, job_id = job_world()
    for action in (AskBid(job_id, "beta"), DeliverJob(job_id, "beta", 7), CancelThere(job_id, "beta")):
        answer = ask(Links(Answered(status, "no", b"", retry_s)), action, world=world)
        assert answer == CellAnswer(is_done=False, is_refused=is_refused, text="no")


def test_a_demand_to_cancel_is_the_user_s() -> None:
    world, job_id = job_world()
    problem = pb.ChangeReply(problems=[pb.Problem(what=str(job_id), text="not yet")])
    links = Links(ok(pb.ChangeReply()), ok(problem))
    assert ask(links, CancelThere(job_id, "beta"), world=world).is_done
    assert ask(links, CancelThere(job_id, "beta"), world=world) == CellAnswer(is_done=False, text="not yet")
    assert {(method, caller.principal) for _, method, _, caller in links.asked} == {(CANCEL, ALICE)}


def test_an_error_is_a_call_without_an_answer(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, job_id = job_world()
    answer = ask(Links(RuntimeError("bug")), AskBid(job_id, "beta"), world=world)
    assert not answer.is_done and not answer.is_refused and "bug" in caplog.text
    garbage = Answered(Status.OK, "", b"\xff\xff")
    assert not ask(Links(garbage), AskBid(job_id, "beta"), world=world).is_done
    assert ask(Links(), AskBid(4_711, "beta"), world=world).is_refused

    async def away(digests: Collection[bytes], bytes_max: int) -> Mapping[bytes, bytes]:
        raise BlobUnavailable("the store is away")

    async def lacks(digests: Collection[bytes], bytes_max: int) -> Mapping[bytes, bytes]:
        return {}

    delivery = DeliverJob(job_id, "beta", 7)
    assert ask(Links(), delivery, away, world) == CellAnswer(is_done=False, text="the store is away")
    assert ask(Links(), delivery, lacks, world).is_refused

    async def never(*_: object) -> Answered:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(transfer_calls, "BID_S", 0.0)
    monkeypatch.setattr(transfer_calls, "MARGIN_S", 0.01)
    links = Links()
    monkeypatch.setattr(links, "pass_on", never)
    assert "in time" in ask(links, AskBid(job_id, "beta"), world=world).text


@pytest.mark.parametrize(
    ("names", "is_held"),
    [
        ("b[1-2]", True),
        ("b" * NODE_LIST_CHARS_MAX, True),
        ("b" * (NODE_LIST_CHARS_MAX + 1), False),
        ("b1\0", False),
        ("b1\x1b[2J", False),
        ("b1\nb2", False),
        ("", False),
    ],
)
def test_nodes_that_no_variable_may_name_are_no_guests_nodes(names: str, is_held: bool) -> None:
    world, job_id = job_world()
    links = Links(ok(pb.TellGuestReply(is_held=True, node_list=names)))
    answer = ask(links, TellGuest(job_id, "beta", 1, 71, "look"), world=world)
    assert answer.is_done and (answer.is_held, answer.node_list) == (is_held, names if is_held else "")
