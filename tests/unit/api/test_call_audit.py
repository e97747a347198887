"""Which calls leave an audit line, what is in it, and how many one caller may leave."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from eslurm.api import audit as audit_module
from eslurm.api import methods
from eslurm.api.audit import REASON_MAX, STRANGERS, WHAT_MAX, CallAudit, summary
from eslurm.api.authoriser import Authoriser
from eslurm.api.methods import METHODS, Method
from eslurm.api.shapes import Submission
from eslurm.ports.api import Answered, ApiError, Caller, Status
from eslurm.ports.audit import AuditLine
from eslurm.v1 import controller_pb2 as pb
from tests.kits.api import ALICE, REQUEST_ID, Service, root_operates
from tests.support.loops import run

SECRET = b"correct horse battery staple"


class Sink:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.lines: list[AuditLine] = []

    def write(self, line: AuditLine) -> None:
        self.lines.append(line)


class Fixed:
    """Answers with one reply, or raises."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply

    async def call(self, _method: object, _request: object, _caller: Caller) -> Any:
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


def caller(**changes: Any) -> Caller:
    return Caller(ALICE, REQUEST_ID, False, 1_000_000, "socket")._replace(**changes)


def left_by(method: Method[Any, Any], request: Any, reply: Any, who: Caller | None = None) -> list[AuditLine]:
    sink = Sink()

    async def scenario() -> None:
        gate = Authoriser(Fixed(reply), root_operates, audit=CallAudit(sink, now_us=lambda: 0))
        payload = request if isinstance(request, bytes) else request.SerializeToString()
        await gate.answer(method, payload, who or caller())

    run(scenario())
    return sink.lines


def test_a_change_leaves_one_line_with_all_that_is_known() -> None:
    [line] = left_by(
        methods.CANCEL,
        pb.CancelRequest(jobs=[pb.JobRef(job_id=7), pb.JobRef(job_id=8, task=3)], signal=15),
        pb.ChangeReply(count=2),
        caller(via="token", token="t1", peer="ipv4:10.0.0.9:4711", retry=True),
    )
    assert line == AuditLine(
        time="1970-01-01T00:00:00.000000Z",
        user="alice",
        uid=4001,
        identified="token",
        token="t1",
        origin="ipv4:10.0.0.9:4711",
        method="Cancel",
        what="jobs=7,8_3 signal=15",
        result="ok",
        count=2,
        request_id=REQUEST_ID.hex(),
        retry=True,
    )


FLOOD = ApiError(Status.RESOURCE_EXHAUSTED, "too much")
AWAY = ApiError(Status.UNAVAILABLE, "not now")
DENIED = pb.Problem(code="denied", text="not yours")
REFUSALS: list[tuple[Method[Any, Any], Any, Any, dict[str, Any], str, str]] = [
    (methods.UPDATE_NODES, pb.UpdateNodesRequest(), None, {}, "PERMISSION_DENIED", "alice is none"),
    (methods.EXPORT_LOG, pb.ExportLogRequest(), None, {}, "PERMISSION_DENIED", "for administrators"),
    (methods.SUBMIT, b"\xff", None, {}, "INVALID_ARGUMENT", "cannot be decoded"),
    (methods.HOLD, pb.HoldRequest(), None, {"request_id": b""}, "INVALID_ARGUMENT", "request id"),
    (methods.HOLD, pb.HoldRequest(), AWAY, {}, "UNAVAILABLE", "not now"),
    (methods.JOBS, pb.JobsRequest(), FLOOD, {}, "RESOURCE_EXHAUSTED", "too much"),
    (methods.CANCEL, pb.CancelRequest(), pb.ChangeReply(problems=[DENIED]), {}, "", "denied: not yours"),
]


@pytest.mark.parametrize(
    ("method", "request_made", "reply", "who", "status", "reason"),
    REFUSALS,
    ids=[f"{one[0].name}-{one[4] or 'problems'}" for one in REFUSALS],
)
def test_a_refusal_leaves_one_line(
    method: Any, request_made: Any, reply: Any, who: dict[str, Any], status: str, reason: str
) -> None:
    [line] = left_by(method, request_made, reply, caller(**who))
    assert (line.result, line.status, line.method) == (
        "refused",
        status,
        method.name,
    ) and reason in line.reason


def test_of_a_change_of_some_things_only_the_first_refusal_is_told() -> None:
    [line] = left_by(methods.CANCEL, pb.CancelRequest(), pb.ChangeReply(count=1, problems=[DENIED] * 3))
    assert (line.result, line.count, line.reason) == ("partly", 1, "denied: not yours (and 2 more)")


@pytest.mark.parametrize("reply", [pb.JobsReply(), ApiError(Status.NOT_FOUND, "no such job")])
def test_a_question_leaves_none(reply: Any) -> None:
    assert not left_by(methods.JOBS, pb.JobsRequest(user="ada"), reply)


def test_a_caller_who_goes_away_leaves_a_line_of_a_change_all_the_same() -> None:
    sink = Sink()

    async def scenario() -> None:
        service = Service(hold=True)
        gate = Authoriser(service, root_operates, audit=CallAudit(sink))
        calls = [
            asyncio.create_task(gate.answer(method, b"", caller())) for method in (methods.HOLD, methods.JOBS)
        ]
        await service.entered.wait()
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)

    run(scenario())
    [line] = sink.lines
    assert (line.method, line.result) == ("Hold", "unknown") and "went away" in line.reason


def filled(message: Any, depth: int = 0) -> Any:
    """A message with something secret in all its fields."""
    for field in message.DESCRIPTOR.fields:
        value: Any
        if field.message_type is not None:
            if depth > 3:
                continue
            inner = filled(getattr(pb, field.message_type.name)(), depth + 1)
            if field.is_repeated:
                getattr(message, field.name).append(inner)
            else:
                getattr(message, field.name).CopyFrom(inner)
            continue
        if field.type == field.TYPE_BYTES:
            value = SECRET
        elif field.type == field.TYPE_STRING:
            value = SECRET.decode() if field.name in SECRET_NAMES else "\x1b[2Jname" + "x" * 1000
        else:
            value = 1
        if field.is_repeated:
            getattr(message, field.name).extend([value] * 50)
        else:
            setattr(message, field.name, value)
    return message


SECRET_NAMES = {"argv", "arguments", "warn_script", "comment", "traceparent", "token", "password", "secret"}


@pytest.mark.parametrize("method", METHODS, ids=lambda one: one.name)
def test_no_line_has_what_is_secret_and_each_is_bounded(method: Method[Any, Any]) -> None:
    request = filled(method.request())
    for payload, given in (
        (request.SerializeToString(), request),
        (request.SerializeToString()[:9000], None),
    ):
        text = summary(method, given, payload)
        assert len(text) <= WHAT_MAX and SECRET.decode() not in text
    for line in left_by(method, request, ApiError(Status.PERMISSION_DENIED, "y" * 10_000)):
        assert len(line.reason) <= REASON_MAX and SECRET not in msgspec.json.encode(line)


def test_a_submission_names_its_first_job() -> None:
    request = pb.SubmitRequest(
        jobs=[pb.JobRequest(name=f"j{one}", account="physics", script=SECRET) for one in range(9)]
    )
    [line] = left_by(methods.SUBMIT, request, pb.SubmitReply(job_ids=range(10, 19)))
    assert line.what == "jobs=9 first=(name=j0 account=physics)"
    assert (line.result, line.count, line.reason) == ("ok", 9, "jobs 10,11,12,13 and 5 more")


def test_one_caller_fills_no_log_and_what_is_left_out_is_counted() -> None:
    sink, now = Sink(), [0.0]

    async def scenario() -> None:
        audit = CallAudit(sink, lines_per_s=1.0, clock=lambda: now[0], now_us=lambda: 0)
        gate = Authoriser(Fixed(pb.ChangeReply(count=1)), root_operates, audit=audit)
        for _ in range(100):
            await gate.answer(methods.HOLD, b"", caller())
            audit.on_refused("Submit", "ipv4:1.2.3.4:5", Status.UNAUTHENTICATED, "no token")
        root = msgspec.structs.replace(ALICE, uid=0)
        for _ in range(100):
            await gate.answer(methods.HOLD, b"", caller(principal=root))
        now[0] = 1.5
        await gate.answer(methods.HOLD, b"", caller())
        audit.close()

    run(scenario())
    counts = {uid: sum(one.uid == uid and one.method != "" for one in sink.lines) for uid in (4001, 0)}
    assert counts == {4001: 11, 0: 100}
    left_out = [one for one in sink.lines if one.result == "repeated"]
    assert [(one.count, one.what.split(" left")[0]) for one in left_out] == [
        (90, "calls of uid 4001"),
        (98, "calls of address 1.2.3.4"),
    ]


def test_what_was_left_out_is_told_also_when_the_caller_is_quiet_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit_module, "LINES_SAVED_S", 0.01)
    sink = Sink()

    async def scenario() -> None:
        audit = CallAudit(sink, lines_per_s=100.0, clock=lambda: 0.0)
        for _ in range(5):
            audit.on_refused("Submit", "somewhere", Status.UNAUTHENTICATED, "no token")
        async with asyncio.timeout(30):
            while not any(one.result == "repeated" for one in sink.lines):  # noqa: ASYNC110 - a timer's work, seen from outside
                await asyncio.sleep(0.001)
        audit.close()

    run(scenario())
    assert sink.lines[-1].count == 4


def test_callers_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "CALLERS_MAX", 8)
    sink = Sink()

    async def scenario() -> None:
        audit = CallAudit(sink, lines_per_s=0.1, clock=lambda: 0.0)
        gate = Authoriser(Fixed(pb.ChangeReply()), root_operates, audit=audit)
        for uid in range(1, 100):
            for _ in range(2):
                await gate.answer(
                    methods.HOLD, b"", caller(principal=msgspec.structs.replace(ALICE, uid=uid))
                )
            assert len(audit._allowances) <= 8
        audit.close()

    run(scenario())
    assert sum(one.count for one in sink.lines if one.result == "repeated") == 99


def test_without_a_log_nothing_is_made() -> None:
    async def scenario() -> Answered:
        return await Authoriser(Fixed(pb.ChangeReply()), root_operates).answer(methods.HOLD, b"", caller())

    answered: Answered = run(scenario())
    assert answered.status is Status.OK


def test_an_address_that_tries_often_hides_no_other() -> None:
    sink = Sink()

    async def scenario() -> None:
        audit = CallAudit(sink, lines_per_s=1.0, clock=lambda: 0.0)
        for _ in range(1000):
            audit.on_refused("Join", "ipv4:192.0.2.1:99", Status.PERMISSION_DENIED, "no")
        for number in range(1000):
            audit.on_refused("Link", f"ipv4:192.0.2.2:{number}", Status.UNAUTHENTICATED, "no")
        for number in range(1000):
            audit.on_refused(
                "Link", f"ipv4:198.51.{number // 250}.{number % 250}:9", Status.UNAUTHENTICATED, "no"
            )
        audit.close()

    run(scenario())
    addresses = [one.origin.split(":")[1] for one in sink.lines if one.method]
    assert addresses.count("192.0.2.1") == addresses.count("192.0.2.2") == 2
    assert len(addresses) == 10, "all strangers together have one allowance, too"
    left_out = {one.what.split(" left")[0]: one.count for one in sink.lines if one.result == "repeated"}
    assert left_out["calls of address 192.0.2.1"] == 998 and left_out[f"calls of {STRANGERS}"] == 994


def test_a_job_that_cannot_be_decoded_leaves_a_line_and_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    payload = b"\x0a\x02\x0a\x7f"
    submission = Submission.FromString(payload)
    assert len(submission.jobs) == 1
    assert summary(methods.SUBMIT, submission, payload) == "jobs=1 first=(cannot be decoded)"
    assert not caplog.records
