"""The authoriser between all API endpoints and the one service: rights, request ids, deadlines, limits, decoding,
statuses.

Invariant: every call of every endpoint passes here and no method is open by omission; `answer` never raises except when
its own task is cancelled; calls under way are counted, so a stop can wait for them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from google.protobuf.message import DecodeError

from eslurm.api.audit import CallAudit
from eslurm.api.cpu_meter import Metered
from eslurm.api.limits import LimitSettings, RequestLimits, Ticket, charging
from eslurm.api.methods import BY_NAME, CALL_CELL, SUBMIT, Method, too_large_text
from eslurm.api.scopes import BY_LEADERS, grants, permits
from eslurm.api.shapes import Submission, check_lists, check_shape
from eslurm.api.status import refusal_of
from eslurm.core.control.rights import Level
from eslurm.core.model.job import ATTESTED, Principal
from eslurm.ports.api import Answered, ApiError, ApiService, Caller, Status
from eslurm.transport.framing import REQUEST_ID_BYTES
from eslurm.v1 import controller_pb2 as pb

PLACES = {"agent": "nodes", "login": "login hosts", "cell": "other cells"}
"""Ways in that give no rights over others, as people call them."""


def root_text(via: str) -> str:
    """The refusal of root on this way in."""
    return f"root's commands do not pass through {PLACES[via]}: use a host of the controller"


NEEDED = {
    "coordinator": (Level.COORDINATOR, "operators and coordinators of accounts"),
    "operator": (Level.OPERATOR, "operators"),
    "administrator": (Level.ADMINISTRATOR, "administrators (cluster.administrators)"),
}
"""The levels that methods ask for, and what they are called in a refusal."""


def check_caller(method: Method[Any, Any], caller: Caller, level: Level) -> None:
    """Raise `ApiError` unless a caller of this level may make this call now."""
    if caller.deadline_us is None:
        raise ApiError(Status.INVALID_ARGUMENT, f"{method.name} needs a deadline; send one with the call")
    if caller.deadline_us <= 0:
        raise ApiError(Status.DEADLINE_EXCEEDED, f"the deadline of {method.name} passed before it began")
    if method.mutating and (len(caller.request_id) != REQUEST_ID_BYTES or not any(caller.request_id)):
        raise ApiError(
            Status.INVALID_ARGUMENT,
            f"{method.name} changes things and needs a request id of {REQUEST_ID_BYTES} bytes, "
            f"not {len(caller.request_id)}",
        )
    if caller.via in ATTESTED and caller.principal.uid == 0:
        raise ApiError(Status.PERMISSION_DENIED, root_text(caller.via))
    if not permits(caller.principal.scope, method):
        text = f"{method.name} is beyond a token of scope {caller.principal.scope}: have another one made"
        raise ApiError(Status.PERMISSION_DENIED, f"{text} (esctl token create --scope)")
    if not method.is_privileged or grants(caller.principal, method):
        return
    needed, people = NEEDED[method.right]
    if caller.via in ATTESTED:
        raise ApiError(
            Status.PERMISSION_DENIED,
            f"{method.name} is for {people}, and their commands do not pass through {PLACES[caller.via]}: "
            "use a host of the controller",
        )
    if level < needed:
        raise ApiError(
            Status.PERMISSION_DENIED, f"{method.name} is for {people}; {caller.principal.name} is none here"
        )


class CellCalls(Protocol):
    """Calls to other cells of the federation."""

    @property
    def own(self) -> str:
        """Name of this cell."""
        ...

    async def pass_on(self, cell: str, method: Method[Any, Any], payload: bytes, caller: Caller) -> Answered:
        """The answer of another cell's leader to a call of this caller, or the reason why there is none."""
        ...


class _Seen:
    """Data of one call's audit line, as far as the call came. `method` is the one that another cell is asked for."""

    __slots__ = ("cell", "level", "method", "payload", "reply", "request")

    def __init__(self, method: Method[Any, Any], payload: bytes) -> None:
        self.method = method
        self.payload = payload
        self.cell = ""
        self.level = Level.USER
        self.request: Any = None
        self.reply: Any = None


class Authoriser:
    """The `Answerer` of the controller. Without `limits` there are none."""

    def __init__(
        self,
        service: ApiService,
        level_of: Callable[[Principal], Level],
        limits: RequestLimits | None = None,
        audit: CallAudit | None = None,
        cells: CellCalls | None = None,
    ) -> None:
        """`cells` is None in a cluster that is no member of a federation."""
        self._cells = cells
        self._service = service
        self._level_of = level_of
        self._limits = limits or RequestLimits(LimitSettings())
        self._audit = audit or CallAudit()
        self._stopping = ""
        self._idle = asyncio.Event()
        self._idle.set()
        self.in_flight = 0

    async def answer(self, method: Method[Any, Any], payload: bytes, caller: Caller) -> Answered:
        """See `ports.api.Answerer`. `payload` is the encoded request."""
        self.in_flight += 1
        self._idle.clear()
        seen = _Seen(method, payload)
        answered: Answered | None = None
        try:
            answered = Answered(Status.OK, "", await self._reply(method, payload, caller, seen))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Leaked out of something the service waited for: without a status the caller would hang.
            answered = Answered(Status.UNAVAILABLE, "the call was interrupted inside; try again", b"")
        except Exception as error:
            refusal = refusal_of(error)
            answered = Answered(refusal.status, refusal.text, b"", refusal.retry_after_s)
        finally:
            self._audit.on_answered(
                *(seen.method, caller, seen.level, seen.request, seen.payload, seen.reply, answered),
                cell=seen.cell,
            )
            self.in_flight -= 1
            if not self.in_flight:
                self._idle.set()
        return answered

    async def _reply(self, method: Method[Any, Any], payload: bytes, caller: Caller, seen: _Seen) -> bytes:
        if self._stopping:
            raise ApiError(Status.UNAVAILABLE, self._stopping)
        level = seen.level = self._level_of(caller.principal)
        check_caller(method, caller, level)
        if method.number == CALL_CELL.number:
            return await self._call_cell(payload, caller, level, seen)
        return await self._admitted(method, payload, caller, level, seen)

    async def _admitted(
        self,
        method: Method[Any, Any],
        payload: bytes,
        caller: Caller,
        level: Level,
        seen: _Seen,
        cell: str = "",
    ) -> bytes:
        operator = caller.via not in ATTESTED and level >= Level.OPERATOR
        ticket = self._limits.admit(method, caller, operator=operator or grants(caller.principal, method))
        try:
            if cell:
                return await self._passed_on(cell, method, payload, caller)
            work = self._serve(method, payload, caller, seen, trusted=operator)
            return await (_metered(work, ticket) if ticket.metered else work)
        finally:
            ticket.leave()

    async def _call_cell(self, payload: bytes, caller: Caller, level: Level, seen: _Seen) -> bytes:
        """The reply of `CallCell`: the call within is checked as if it was for this cluster, and counted as such."""
        if self._cells is None:
            raise ApiError(
                Status.FAILED_PRECONDITION,
                "this cluster is no member of a federation: give its configuration a section [federation] "
                "(docs/guide/federation.md)",
            )
        request = _decoded(CALL_CELL, payload, trusted=True)
        method = BY_NAME.get(request.method)
        if method is None or method.number == CALL_CELL.number:
            raise ApiError(Status.UNIMPLEMENTED, f"this controller passes on no call {request.method[:64]!r}")
        seen.method, seen.payload = method, request.request
        if len(request.request) > method.request_bytes_max:
            raise ApiError(Status.INVALID_ARGUMENT, too_large_text(method, len(request.request)))
        cell = seen.cell = "" if request.cell == self._cells.own else request.cell
        if not cell:
            check_caller(method, caller, level)
        else:
            # Rights are the other cell's to give; a token's scope is ours.
            check_caller(method, caller, Level.ADMINISTRATOR)
            _check_of_user(method, request.request)
        reply = await self._admitted(method, request.request, caller, level, seen, cell)
        return pb.CallCellReply(reply=reply).SerializeToString()

    async def _passed_on(self, cell: str, method: Method[Any, Any], payload: bytes, caller: Caller) -> bytes:
        assert self._cells is not None
        answered = await self._cells.pass_on(cell, method, payload, caller)
        if answered.status is not Status.OK:
            raise ApiError(answered.status, answered.text, answered.retry_after_s)
        return answered.reply

    async def _serve(
        self, method: Method[Any, Any], payload: bytes, caller: Caller, seen: _Seen, *, trusted: bool
    ) -> bytes:
        request = seen.request = _decoded(method, payload, trusted=trusted)
        reply = seen.reply = await self._service.call(method, request, caller)
        return reply if isinstance(reply, bytes) else bytes(reply.SerializeToString())

    def stop_admitting(self, text: str) -> None:
        """Refuse new calls with UNAVAILABLE from now on; clients retry them elsewhere or later."""
        self._stopping = text

    async def drain(self, timeout_s: float) -> bool:
        """Wait until no call is under way. False when some still are after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


def _decoded(method: Method[Any, Any], payload: bytes, *, trusted: bool) -> Any:
    """The request. Raises `ApiError` when it is invalid, or, for others than operators, over the limits."""
    if len(payload) > method.request_bytes_max:
        raise ApiError(Status.INVALID_ARGUMENT, too_large_text(method, len(payload)))
    try:
        if method.number == SUBMIT.number:
            return Submission.FromString(payload)
        if not trusted:
            check_shape(method.name, payload, method.request.DESCRIPTOR)
        request = method.request.FromString(payload)
    except DecodeError:
        raise ApiError(Status.INVALID_ARGUMENT, f"the request of {method.name} cannot be decoded") from None
    check_lists(method.name, request)
    return request


def _check_of_user(method: Method[Any, Any], payload: bytes) -> None:
    """Raise `ApiError` when a user's call would speak for this cell in the other one: only its leader does."""
    if method.name in BY_LEADERS:
        raise ApiError(
            Status.PERMISSION_DENIED,
            f"{method.name} does not pass to other cells by itself: run esrun in a job that spans cells (--span), or use a "
            "host of the cell",
        )
    if method.number != SUBMIT.number:
        return
    submission = _decoded(method, payload, trusted=True)
    if submission.arrival is not None or submission.guest_of is not None:
        raise ApiError(
            Status.PERMISSION_DENIED,
            "arrival: only the controller of a cell offers its jobs to another: submit the job without it",
        )


async def _metered(work: Coroutine[Any, Any, bytes], ticket: Ticket) -> bytes:
    began_s = time.monotonic()
    reply = b""
    charging.set(ticket.charge)
    try:
        reply = await Metered(work, ticket.charge)
        return reply
    finally:
        ticket.settle(len(reply), time.monotonic() - began_s)
