"""Calls of other cells about the nodes that jobs here hold for theirs (ADR 32).

Invariant: a cell speaks for its own jobs alone, over its own link, and as the user of the job.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from esctld.serve.arrivals import check_cell
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.federation.actions import CellAnswer
from eslurm.core.federation.guests.requests import look
from eslurm.core.model.guests import GuestOf
from eslurm.core.model.messages import KeepGuest, Message, RefusalCode, Refused
from eslurm.core.state.view import View
from eslurm.ports.api import Caller
from eslurm.v1 import controller_pb2 as pb

WISHES: Final = ("keep", "end", "look")
WAIT_S: Final = 1.5
"""Longest wait of a call for a change of a guest that has no nodes yet."""


class Deciding(Protocol):
    """The service, which decides messages."""

    async def decide(self, message: Message, caller: Caller) -> BatchAnswer:
        """The durable answer to a message."""

    async def moved_by(self, deadline: float) -> bool:
        """Wait until something was committed; false when nothing was before the deadline (of the loop's clock)."""

    def heard_guest(self, job_id: int) -> None:
        """The home cell of a guest has named it."""


class GuestDoor:
    """Answers `TellGuest`. `view` is the committed state."""

    def __init__(self, service: Deciding, view: View) -> None:
        self._service = service
        self._view = view

    async def tell(self, request: pb.TellGuestRequest, caller: Caller) -> pb.TellGuestReply:
        """Keep or end the guest as its home says, and tell its state. Raises `Refused`."""
        check_cell(caller, "TellGuest")
        if request.wish not in WISHES:
            raise Refused(RefusalCode.INVALID, f"wish: {request.wish[:16]!r} is none of {', '.join(WISHES)}")
        given = GuestOf(caller.cell, request.home_job_id, request.serial)
        job = self._view.jobs.get(request.job_id)
        if job is not None and job.spec.user.uid != caller.principal.uid:
            raise Refused(RefusalCode.DENIED, f"job {request.job_id} is not one of {caller.principal.name}")
        answer = look(self._view, request.job_id, given)
        if not answer.is_ended:
            self._service.heard_guest(request.job_id)
            if request.wish != "look":
                keep = KeepGuest(
                    request.job_id, given.home, given.job_id, given.serial, keep=request.wish == "keep"
                )
                await self._service.decide(keep, caller)
                answer = look(self._view, request.job_id, given)
            elif not answer.is_held:
                answer = await self._awaited(request.job_id, given)
        return pb.TellGuestReply(
            is_held=answer.is_held,
            is_ended=answer.is_ended,
            node_list=answer.node_list,
            text=answer.text,
            is_waiting=answer.is_waiting,
        )

    async def _awaited(self, job_id: int, given: GuestOf) -> CellAnswer:
        """The state of a guest that waits, as soon as it changes, but within `WAIT_S`: its home need not ask often."""
        deadline_s = asyncio.get_running_loop().time() + WAIT_S
        answer = look(self._view, job_id, given)
        while not (answer.is_held or answer.is_ended) and await self._service.moved_by(deadline_s):
            answer = look(self._view, job_id, given)
        return answer
