"""Calls to other cells about jobs that may change their cell, or span several: bids, deliveries, demands to cancel,
requests for guests, each as the job's user.

Invariant: each call is answered, within its time limit, whatever happens; an error of this program is a call without an
answer.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from hashlib import blake2b
from typing import Any, Final

from eslurm.api.methods import CANCEL, SUBMIT, SUBMIT_BYTES, TELL_GUEST, Method
from eslurm.api.submissions import bid_request, job_request
from eslurm.core.federation.actions import (
    AskBid,
    AskGuest,
    CancelThere,
    CellAnswer,
    CellCall,
    DeliverJob,
    TellGuest,
)
from eslurm.core.federation.guests.requests import GUEST_SCRIPT, as_guest
from eslurm.core.model.job import Job, Principal
from eslurm.core.model.request_limits import NODE_LIST_CHARS_MAX
from eslurm.core.state.view import View
from eslurm.links.blobs import BlobCache, BlobUnavailable
from eslurm.ports.api import Answered, Caller, Status
from eslurm.v1 import controller_pb2 as pb

log = logging.getLogger("esctld.transfers")

BID_S: Final = 5.0
DELIVERY_S: Final = 8.0
CANCEL_S: Final = 10.0
GUEST_S: Final = 5.0
MARGIN_S: Final = 1.0
"""A call that has not answered so long after its time limit has none."""
REQUEST_ID_BYTES: Final = 16
REFUSALS: Final = frozenset(
    {
        Status.INVALID_ARGUMENT,
        Status.NOT_FOUND,
        Status.ALREADY_EXISTS,
        Status.PERMISSION_DENIED,
        Status.FAILED_PRECONDITION,
        Status.OUT_OF_RANGE,
        Status.UNIMPLEMENTED,
        Status.UNAUTHENTICATED,
    }
)
"""A call that ends so has changed nothing, and the next one would end so, too."""

Load = Callable[[Collection[bytes], int], Awaitable[Mapping[bytes, bytes]]]
"""Loads the blobs that exist and have at most this many bytes. Raises `BlobUnavailable`."""
PassOn = Callable[[str, Method[Any, Any], bytes, Caller], Awaitable[Answered]]


class TransferCalls:
    """Makes the calls of the cell `home`. `blobs` and `load` have scripts and environments."""

    def __init__(
        self, home: str, view: Callable[[], View], blobs: BlobCache, load: Load, pass_on: PassOn
    ) -> None:
        self._home = home
        self._view = view
        self._blobs = blobs
        self._load = load
        self._pass_on = pass_on

    async def answer(self, action: CellCall) -> CellAnswer:
        """Make the call. Never raises but for its cancellation."""
        job = self._view().jobs.get(action.job_id)
        if job is None:
            return CellAnswer(is_done=False, is_refused=True, text="the job is gone")
        limit_s = _LIMITS_S[type(action)]
        try:
            async with asyncio.timeout(limit_s + MARGIN_S):
                match action:
                    case AskBid():
                        return await self._ask_bid(action, job)
                    case DeliverJob():
                        return await self._deliver(action, job)
                    case CancelThere():
                        return await self._cancel(action, job)
                    case AskGuest():
                        return await self._ask_guest(action, job)
                    case TellGuest():
                        return await self._tell_guest(action, job)
        except TimeoutError:
            return CellAnswer(is_done=False, text=f"cell {action.cell} did not answer in time")
        except BlobUnavailable as error:
            return CellAnswer(is_done=False, text=str(error))
        except Exception:
            log.exception("job %d: %s to cell %s", action.job_id, type(action).__name__, action.cell)
            return CellAnswer(is_done=False, text="an error of this program: the controller's log has it")

    async def _ask_bid(self, action: AskBid, job: Job) -> CellAnswer:
        request = pb.SubmitRequest(jobs=[bid_request(job.spec)], test_only=True)
        answered = await self._call(action.cell, SUBMIT, request, _caller(job.spec.user, BID_S))
        if answered.status is not Status.OK:
            return _failed(answered)
        reply = pb.SubmitReply.FromString(answered.reply)
        if not reply.test_start_us:
            return CellAnswer(is_done=True, text=reply.test_answer)
        # Both times are of the other cell's clock.
        wait_us = max(0, reply.test_start_us - reply.now_us) if reply.now_us else None
        return CellAnswer(is_done=True, wait_us=wait_us, text=reply.test_answer)

    async def _deliver(self, action: DeliverJob, job: Job) -> CellAnswer:
        spec = job.spec
        found = await self._read((spec.script_hash, spec.environment_hash))
        script, environment = (
            found.get(digest) if digest else b"" for digest in (spec.script_hash, spec.environment_hash)
        )
        if script is None or environment is None:
            return CellAnswer(is_done=False, is_refused=True, text="its script or environment is lost here")
        request = pb.SubmitRequest(
            jobs=[job_request(spec, script, environment)],
            arrival=pb.Arrival(job_id=action.job_id, serial=action.serial),
        )
        caller = _caller(
            spec.user,
            DELIVERY_S,
            delivery_id(self._home, self._view().epoch, action.job_id, action.serial),
            is_retry=action.is_repeated,
        )
        answered = await self._call(action.cell, SUBMIT, request, caller)
        if answered.status is not Status.OK:
            return _failed(answered)
        if list(pb.SubmitReply.FromString(answered.reply).job_ids) != [action.job_id]:
            return CellAnswer(is_done=False, text=f"cell {action.cell} answers for another job")
        return CellAnswer(is_done=True)

    async def _cancel(self, action: CancelThere, job: Job) -> CellAnswer:
        request = pb.CancelRequest(jobs=[pb.JobRef(job_id=action.job_id)])
        answered = await self._call(action.cell, CANCEL, request, _caller(job.spec.user, CANCEL_S))
        if answered.status is not Status.OK:
            return _failed(answered)
        problems = pb.ChangeReply.FromString(answered.reply).problems
        return CellAnswer(is_done=not problems, text=problems[0].text if problems else "")

    async def _ask_guest(self, action: AskGuest, job: Job) -> CellAnswer:
        spec = as_guest(job.spec, job.job_id, self._home, action.nodes)
        request = pb.SubmitRequest(
            jobs=[job_request(spec, GUEST_SCRIPT, b"")],
            guest_of=pb.GuestOf(job_id=action.job_id, serial=action.serial, since_us=job.submitted_us),
        )
        caller = _caller(
            spec.user,
            GUEST_S,
            guest_request_id(self._home, action),
            is_retry=action.is_repeated,
        )
        answered = await self._call(action.cell, SUBMIT, request, caller)
        if answered.status is not Status.OK:
            return _failed(answered)
        ids = list(pb.SubmitReply.FromString(answered.reply).job_ids)
        if len(ids) != 1:
            return CellAnswer(is_done=False, text=f"cell {action.cell} answers for other jobs")
        return CellAnswer(is_done=True, guest_id=ids[0])

    async def _tell_guest(self, action: TellGuest, job: Job) -> CellAnswer:
        request = pb.TellGuestRequest(
            job_id=action.guest_id, home_job_id=action.job_id, serial=action.serial, wish=action.wish
        )
        answered = await self._call(action.cell, TELL_GUEST, request, _caller(job.spec.user, GUEST_S))
        if answered.status is not Status.OK:
            return _failed(answered)
        reply = pb.TellGuestReply.FromString(answered.reply)
        # The other cell is trusted with its own nodes alone: the list becomes a variable of a process here.
        names = reply.node_list
        if len(names) > NODE_LIST_CHARS_MAX or not names.isprintable():
            names = ""
        return CellAnswer(
            is_done=True,
            text=reply.text,
            is_held=reply.is_held and bool(names),
            is_ended=reply.is_ended,
            node_list=names,
            is_waiting=reply.is_waiting,
        )

    async def _call(self, cell: str, method: Method[Any, Any], request: Any, caller: Caller) -> Answered:
        return await self._pass_on(cell, method, request.SerializeToString(), caller)

    async def _read(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        """Those that exist."""
        wanted = list(filter(None, digests))
        found = {digest: data for digest in wanted if (data := self._blobs.find(digest)) is not None}
        missing = [digest for digest in wanted if digest not in found]
        if missing:
            found.update(await self._load(missing, SUBMIT_BYTES))
        return found


def delivery_id(home: str, epoch: int, job_id: int, serial: int) -> bytes:
    """The request id of each delivery of one offer by the leader of that epoch.

    A later leader's delivery is another call: the answer to the first one may be that of an arrival that has been dropped.
    """
    return _request_id(home, epoch, job_id, serial)


def guest_request_id(home: str, action: AskGuest) -> bytes:
    """The request id of each request for one guest, whichever leader makes it."""
    return _request_id(home, action.job_id, action.serial, action.cell)


def _request_id(*parts: str | int) -> bytes:
    return blake2b("/".join(map(str, parts)).encode(), digest_size=REQUEST_ID_BYTES).digest()


_LIMITS_S: Final[Mapping[type[CellCall], float]] = {
    AskBid: BID_S,
    DeliverJob: DELIVERY_S,
    CancelThere: CANCEL_S,
    AskGuest: GUEST_S,
    TellGuest: GUEST_S,
}


def _caller(user: Principal, limit_s: float, request_id: bytes = b"", *, is_retry: bool = False) -> Caller:
    # Without effects a repeated call needs no answer of its first try.
    request_id = request_id or secrets.token_bytes(REQUEST_ID_BYTES)
    return Caller(user, request_id, is_retry, int(limit_s * 1e6), "socket")


def _failed(answered: Answered) -> CellAnswer:
    is_refused = answered.status in REFUSALS and not answered.retry_after_s
    return CellAnswer(is_done=False, is_refused=is_refused, text=answered.text)
