"""From calls to audit lines: the calls that leave one, its content, and the rate of one caller.

Each change leaves a line, and each refusal for rights, identity or limits. Invariant: nothing of a script, an environment,
an argument, a token or a cookie is in a line; a line is bounded; only operators can push others' lines out of the log by
calling often.
"""

from __future__ import annotations

import asyncio
import logging
import operator
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError, Message

from eslurm.api.methods import Method
from eslurm.api.shapes import Submission
from eslurm.core.control.rights import Level
from eslurm.core.model.job import ATTESTED
from eslurm.ports.api import Answered, ApiError, Caller, Status
from eslurm.ports.audit import AuditLine, AuditSink, NoAudit
from eslurm.telemetry.audit import timestamp
from eslurm.telemetry.clocks import wall_us
from eslurm.transport.peers import address_of
from eslurm.v1 import controller_pb2 as pb

log = logging.getLogger(__name__)

WHAT_MAX = 512
REASON_MAX = 400
WORD_MAX = 64
"""Characters of a line's fields and of one value in them; each may become six in JSON."""
ENTRIES_MAX = 4
"""Of a list."""
DEPTH_MAX = 3
DECODED_BYTES_MAX = 16 * 1024
"""A refused request is decoded for its line only when it is small."""
FIRST_JOB_BYTES_MAX = 256 * 1024
"""The first job of a larger submission is not named."""
LINES_SAVED_S = 10.0
"""A caller saves up this many seconds' worth of lines at most."""
CALLERS_MAX = 4096
STRANGERS = "strangers"
"""Unidentified callers share one allowance; each address has one besides, a quarter of it."""
ADDRESS_PART = 4

_SECRET = frozenset(
    {
        "script",
        "environment",
        "arguments",
        "argv",
        "cookie",
        "token",
        "warn_script",
        "comment",
        "traceparent",
        "secret",
        "password",
        "key",
    }
)
_FIRST_JOB_FIELDS = ("name", "account", "partition", "qos", "reservation")
_first_job_values = operator.attrgetter(*_FIRST_JOB_FIELDS)
_NAMED = {pb.Setting: ("key", "value")}
_REFUSALS = frozenset({Status.PERMISSION_DENIED, Status.UNAUTHENTICATED, Status.RESOURCE_EXHAUSTED})
"""Of a call that changes nothing, only these leave a line."""


class _Allowance:
    """The lines that one caller may still write."""

    __slots__ = ("at_s", "left", "skipped", "timer", "who")

    def __init__(self, who: str, left: float, at_s: float) -> None:
        self.who = who
        self.left = left
        self.at_s = at_s
        self.skipped = 0
        self.timer: asyncio.TimerHandle | None = None


class CallAudit:
    """Makes the lines. `lines_per_s` bounds each caller but operators; 0: no bound."""

    def __init__(
        self,
        sink: AuditSink | None = None,
        lines_per_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        now_us: Callable[[], int] = wall_us,
    ) -> None:
        self._sink = sink or NoAudit()
        self._is_on = sink is not None
        self._lines_per_s = lines_per_s
        self._clock = clock
        self._now_us = now_us
        self._allowances: OrderedDict[str, _Allowance] = OrderedDict()

    def on_answered(
        self,
        method: Method[Any, Any],
        caller: Caller,
        level: Level,
        request: Any,
        payload: bytes,
        reply: Any,
        answered: Answered | None,
        cell: str = "",
    ) -> None:
        """A call is over; `answered` is None when its caller went away before. `request` is None if it was not decoded.
        It was for another `cell`, if one is named.
        """
        status = Status.OK if answered is None else answered.status
        if not self._is_on or not (method.mutating or status in _REFUSALS):
            return
        is_bounded = level < Level.OPERATOR or caller.via in ATTESTED
        if is_bounded and not self._may_write(f"uid {caller.principal.uid}"):
            return
        try:
            what = summary(method, request, payload)
            if cell:
                what = f"cell={_value_text(cell, 0)} {what}"[:WHAT_MAX]
            result, reason, count = _result(answered, reply)
        except Exception:
            # On any error the call is answered all the same, and leaves its line.
            log.exception("a call of %s cannot be summarised", method.name)
            what, result, reason, count = "", "unknown", "cannot be summarised", 0
        self._sink.write(
            AuditLine(
                time=timestamp(self._now_us()),
                user=caller.principal.name[:WORD_MAX],
                uid=caller.principal.uid,
                identified=caller.via,
                token=caller.token,
                origin=caller.peer,
                method=method.name,
                what=what,
                result=result,
                status="" if status is Status.OK else status.name,
                reason=reason[:REASON_MAX],
                count=count,
                request_id=caller.request_id.hex()[:WORD_MAX],
                retry=caller.retry,
            )
        )

    def on_refused(
        self, method: str, origin: str, status: Status, reason: str, uid: int = -1, via: str = ""
    ) -> None:
        """A call, a link or a host's request to join was refused before the interceptor: by its caller or its origin."""
        if not self._is_on or not self._may_stranger(origin):
            return
        self._sink.write(
            AuditLine(
                time=timestamp(self._now_us()),
                uid=uid,
                identified=via,
                origin=origin,
                method=method[:WORD_MAX],
                result="refused",
                status=status.name,
                reason=reason[:REASON_MAX],
            )
        )

    def on_joined(self, origin: str, what: str, by: str) -> None:
        """A host has become a member with a token made by `by`."""
        if self._is_on:
            self._sink.write(
                AuditLine(
                    time=timestamp(self._now_us()),
                    user=by[:WORD_MAX],
                    identified="join token",
                    origin=origin,
                    method="Join",
                    what=what[:WHAT_MAX],
                    result="ok",
                )
            )

    def close(self) -> None:
        """Write the number of lines left out."""
        for allowance in self._allowances.values():
            self._tell(allowance)
        self._is_on = False

    # ---- rates ----

    def _may_stranger(self, origin: str) -> bool:
        """Check the rate of one address, so that it does not hide those at others."""
        part = self._lines_per_s / ADDRESS_PART
        return self._may_write(f"address {address_of(origin)[0]}", part) and self._may_write(STRANGERS)

    def _may_write(self, who: str, lines_per_s: float | None = None) -> bool:
        if not self._lines_per_s:
            return True
        rate = self._lines_per_s if lines_per_s is None else lines_per_s
        now_s, most = self._clock(), max(1.0, rate * LINES_SAVED_S)
        allowance = self._allowances.get(who)
        if allowance is None:
            if len(self._allowances) >= CALLERS_MAX:
                _who, oldest = self._allowances.popitem(last=False)
                self._tell(oldest)
            allowance = self._allowances[who] = _Allowance(who, most, now_s)
        self._allowances.move_to_end(who)
        allowance.left = min(most, allowance.left + (now_s - allowance.at_s) * rate)
        allowance.at_s = now_s
        if allowance.left < 1:
            if not allowance.skipped:
                allowance.timer = asyncio.get_running_loop().call_later(LINES_SAVED_S, self._tell, allowance)
            allowance.skipped += 1
            return False
        self._tell(allowance)
        allowance.left -= 1
        return True

    def _tell(self, allowance: _Allowance) -> None:
        if allowance.timer is not None:
            allowance.timer.cancel()
            allowance.timer = None
        if allowance.skipped:
            what = f"calls of {allowance.who} left out of this log (audit.lines_user_per_s)"
            line = AuditLine(timestamp(self._now_us()), what=what, result="repeated", count=allowance.skipped)
            self._sink.write(line)
            allowance.skipped = 0


def _result(answered: Answered | None, reply: Any) -> tuple[str, str, int]:
    if answered is None:
        return "unknown", "the caller went away before the answer", 0
    if answered.status is not Status.OK:
        return "refused", answered.text, 0
    if isinstance(reply, pb.SubmitReply):
        return (
            "ok",
            f"jobs {_listed(list(reply.job_ids[:ENTRIES_MAX]), len(reply.job_ids))}",
            len(reply.job_ids),
        )
    if not isinstance(reply, pb.ChangeReply) or not reply.problems:
        return "ok", "", reply.count if isinstance(reply, pb.ChangeReply) else 0
    first = reply.problems[0]
    reason = f"{first.code}: {first.text}" + (
        f" (and {len(reply.problems) - 1} more)" * (len(reply.problems) > 1)
    )
    return "partly" if reply.count else "refused", reason, reply.count


def summary(method: Method[Any, Any], request: Any, payload: bytes) -> str:
    """The things that a request names, in one bounded line without secrets."""
    if isinstance(request, Submission):
        return _submission_text(request, payload)
    if request is None:
        if len(payload) > DECODED_BYTES_MAX:
            return f"{len(payload)} bytes"
        try:
            request = method.request.FromString(payload)
        except DecodeError:
            return f"{len(payload)} bytes that are no request"
    return _fields_text(request, 0)[:WHAT_MAX]


def _submission_text(request: Submission, payload: bytes) -> str:
    count = len(request.jobs)
    text = ("test " if request.test_only else "") + f"jobs={count}"
    if request.packs:
        text += f" packs={len(request.packs)}"
    if not count or len(payload) > FIRST_JOB_BYTES_MAX:
        return text
    try:
        first = request.jobs.first or next(iter(request.jobs))
    except ApiError:
        # That is why it was refused.
        return f"{text} first=(cannot be decoded)"
    named = zip(_FIRST_JOB_FIELDS, _first_job_values(first), strict=True)
    given = " ".join([f"{name}={_value_text(value, 0)}" for name, value in named if value])
    return f"{text} first=({given})"


def _fields_text(message: Message, depth: int) -> str:
    parts: list[str] = []
    for field, value in message.ListFields():
        if field.name in _SECRET and type(message) not in _NAMED:
            continue
        if field.is_repeated:
            shown = [_value_text(one, depth) for one in value[:ENTRIES_MAX]]
            parts.append(f"{field.name}={_listed(shown, len(value))}")
        else:
            parts.append(f"{field.name}={_value_text(value, depth)}")
    return " ".join(parts)


def _value_text(value: Any, depth: int) -> str:
    if isinstance(value, pb.JobRef):
        task = f"_{value.task}" if value.HasField("task") else ""
        part = f"+{value.part}" if value.HasField("part") else ""
        return f"{value.job_id}{task}{part}" + (f"@{_value_text(value.cell, depth)}" if value.cell else "")
    if isinstance(value, Message):
        return f"({_fields_text(value, depth + 1)})" if depth < DEPTH_MAX else "(...)"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = str(value)
    return text if len(text) <= WORD_MAX else f"{text[:WORD_MAX]}..."


def _listed(shown: list[Any], count: int) -> str:
    text = ",".join(map(str, shown))
    return text if count <= len(shown) else f"{text} and {count - len(shown)} more"
