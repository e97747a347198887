"""The gate: who may call what, what exceptions become, and stopping in good order. And the method table."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from time import thread_time

import pytest

from eslurm.api import methods
from eslurm.api.authoriser import Authoriser
from eslurm.api.limits import LimitSettings, RequestLimits
from eslurm.api.methods import BY_NAME, BY_NUMBER, BY_PATH, METHODS, Method
from eslurm.api.status import STATUS_OF_REFUSAL
from eslurm.core.model.job import Principal
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.ports.api import ApiError, Caller, Status
from eslurm.v1 import controller_pb2 as pb
from tests.kits.api import ALICE, REQUEST_ID, Service, anyone_operates, nobody_operates, root_operates
from tests.support.loops import run

ROOT = Principal("root", 0, 0, (0,))


def caller(**changes: object) -> Caller:
    return Caller(ALICE, REQUEST_ID, False, 1_000_000, "socket")._replace(**changes)


def ask(method: Method, who: Caller, service: Service | None = None, payload: bytes = b""):
    async def scenario():
        gate = Authoriser(service or Service(), root_operates)
        return await gate.answer(method, payload, who)

    return run(scenario())


def test_the_table_covers_the_service_exactly() -> None:
    described = pb.DESCRIPTOR.services_by_name["Controller"].methods
    assert {(m.name, m.input_type.name, m.output_type.name) for m in described} == {
        (m.name, m.request.DESCRIPTOR.name, m.reply.DESCRIPTOR.name) for m in METHODS
    }
    assert len(BY_NUMBER) == len(BY_NAME) == len(BY_PATH) == len(METHODS)
    assert [m.number for m in METHODS] == sorted(BY_NUMBER)


def test_an_answer_is_encoded_and_bytes_pass_as_they_are() -> None:
    answered = ask(methods.PING, caller(request_id=b""))
    assert answered.status is Status.OK
    assert pb.PingReply.FromString(answered.reply).cluster == "alice"

    class Encoded:
        async def call(self, _method: object, _request: object, _caller: Caller) -> bytes:
            return b"encoded already"

    assert ask(methods.JOBS, caller(), Encoded()).reply == b"encoded already"


def test_a_refusal_lets_its_request_go_at_once() -> None:
    """Without the collector, which a controller runs rarely: refusals come in floods."""
    kept: list[weakref.ref[ApiError]] = []

    class Refusing:
        async def call(self, _method: object, _request: object, _caller: Caller) -> bytes:
            refusal = ApiError(Status.UNAVAILABLE, "not now")
            kept.append(weakref.ref(refusal))
            try:
                raise refusal
            finally:
                del refusal

    async def scenario() -> None:
        gate = Authoriser(Refusing(), nobody_operates)
        gc.disable()
        try:
            answered = await gate.answer(methods.PING, b"", caller(request_id=b""))
            assert answered.text == "not now"
            assert kept[0]() is None
        finally:
            gc.enable()

    run(scenario())


@pytest.mark.parametrize(
    ("method", "who", "status", "text"),
    [
        (methods.PING, caller(deadline_us=None), Status.INVALID_ARGUMENT, "needs a deadline"),
        (methods.PING, caller(deadline_us=0), Status.DEADLINE_EXCEEDED, "passed before"),
        (methods.SUBMIT, caller(request_id=b""), Status.INVALID_ARGUMENT, "request id of 16 bytes"),
        (methods.SUBMIT, caller(request_id=bytes(16)), Status.INVALID_ARGUMENT, "request id"),
        (methods.SUBMIT, caller(request_id=b"short"), Status.INVALID_ARGUMENT, "not 5"),
        (methods.UPDATE_NODES, caller(), Status.PERMISSION_DENIED, "alice is none"),
        (
            methods.UPDATE_NODES,
            caller(principal=ROOT, via="agent"),
            Status.PERMISSION_DENIED,
            "root's commands",
        ),
        (
            methods.PING,
            caller(principal=ROOT, via="agent"),
            Status.PERMISSION_DENIED,
            "do not pass through nodes",
        ),
        (
            methods.PING,
            caller(principal=ROOT, via="login"),
            Status.PERMISSION_DENIED,
            "not pass through login hosts",
        ),
    ],
)
def test_calls_that_may_not_be_made_never_reach_the_service(
    method: Method, who: Caller, status: Status, text: str
) -> None:
    service = Service()
    answered = ask(method, who, service)
    assert answered.status is status and text in answered.text
    assert not service.calls


def test_no_operator_right_comes_through_a_node() -> None:
    async def scenario() -> None:
        gate = Authoriser(Service(), anyone_operates)
        answered = await gate.answer(methods.UPDATE_NODES, b"", caller(via="agent"))
        assert answered.status is Status.PERMISSION_DENIED
        answered = await gate.answer(methods.UPDATE_NODES, b"", caller())
        assert answered.status is Status.OK

    run(scenario())


def test_a_request_that_cannot_be_decoded_is_the_caller_s_fault() -> None:
    assert ask(methods.SUBMIT, caller(), payload=b"\xff\xff").status is Status.INVALID_ARGUMENT


def raising(error: BaseException) -> Service:
    def fail() -> None:
        raise error

    return Service(misbehave=[fail])


def test_every_refusal_code_has_a_status() -> None:
    assert set(STATUS_OF_REFUSAL) == set(RefusalCode)
    for code, status in STATUS_OF_REFUSAL.items():
        answered = ask(methods.SUBMIT, caller(), raising(Refused(code, "because")))
        assert (answered.status, answered.text) == (status, "because")


def test_what_is_raised_becomes_a_status_and_secrets_stay_inside(caplog: pytest.LogCaptureFixture) -> None:
    refused = ask(methods.PING, caller(), raising(ApiError(Status.ABORTED, "stale epoch")))
    assert (refused.status, refused.text) == (Status.ABORTED, "stale epoch")
    assert ask(methods.PING, caller(), raising(TimeoutError())).status is Status.DEADLINE_EXCEEDED
    leaked = ask(methods.PING, caller(), raising(asyncio.CancelledError()))
    assert leaked.status is Status.UNAVAILABLE
    with caplog.at_level(logging.ERROR):
        broken = ask(methods.PING, caller(), raising(ValueError("password is 1234")))
    assert broken.status is Status.INTERNAL and "1234" not in broken.text
    assert "1234" in caplog.text


def test_stopping_refuses_new_calls_and_waits_for_those_under_way() -> None:
    async def scenario() -> None:
        service = Service(hold=True)
        gate = Authoriser(service, nobody_operates)
        assert await gate.drain(0.0)
        running = asyncio.create_task(gate.answer(methods.PING, b"", caller()))
        await service.entered.wait()
        gate.stop_admitting("going down")
        refused = await gate.answer(methods.PING, b"", caller())
        assert (refused.status, refused.text) == (Status.UNAVAILABLE, "going down")
        assert not await gate.drain(0.01)
        service.gate_open.set()
        assert await gate.drain(10.0)
        assert (await running).status is Status.OK

    run(scenario())


def test_a_cancelled_call_is_counted_out() -> None:
    async def scenario() -> None:
        service = Service(hold=True)
        gate = Authoriser(service, nobody_operates)
        running = asyncio.create_task(gate.answer(methods.PING, b"", caller()))
        await service.entered.wait()
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled() and service.cancelled == 1 and gate.in_flight == 0

    run(scenario())


def test_a_refused_call_never_reaches_the_service_and_says_when_to_come_again() -> None:
    async def scenario() -> None:
        service = Service()
        refused: list[str] = []
        limits = RequestLimits(LimitSettings(changes_user_per_s=1.0), refused.append, lambda: 0.0)
        gate = Authoriser(service, root_operates, limits)
        answered = [await gate.answer(methods.SUBMIT, b"", caller()) for _ in range(7)]
        assert [one.status for one in answered] == [Status.OK] * 5 + [Status.RESOURCE_EXHAUSTED] * 2
        assert 0 < answered[5].retry_after_s < answered[6].retry_after_s
        assert len(service.calls) == 5 and refused == ["changes_user"] * 2
        operator = await gate.answer(methods.SUBMIT, b"", caller(principal=ROOT))
        assert operator.status is Status.OK

    run(scenario())


def test_what_answering_costs_is_charged_also_when_it_fails() -> None:
    async def scenario() -> None:
        limits = RequestLimits(LimitSettings(read_share_user_percent=0.001), clock=lambda: 0.0)
        gate = Authoriser(Service(misbehave=[_burn_and_fail]), nobody_operates, limits)
        assert (await gate.answer(methods.JOBS, b"", caller())).status is Status.NOT_FOUND
        assert (await gate.answer(methods.JOBS, b"", caller())).status is Status.RESOURCE_EXHAUSTED

    run(scenario())


def _burn_and_fail() -> None:
    until_s = thread_time() + 0.001
    while thread_time() < until_s:
        pass
    raise ApiError(Status.NOT_FOUND, "no such job")
