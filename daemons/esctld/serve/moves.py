"""Calls by which a workflow moves itself: earlier starts of a pack, more time for a running job.

The wish is committed, then the answer waits until the planner has decided. Invariant: a client that goes away changes
nothing: the wish is granted or refused without it, and a retry waits for the same wish.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from esctld.lead.dispatcher import Dispatcher
from esctld.serve.why import Inquiries
from eslurm.api import requests
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.explain.moves import would_extend, would_move
from eslurm.core.model.job import Job
from eslurm.core.model.messages import ExtensionTaken, Message, MoveTaken
from eslurm.core.model.pack import MoveWish
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.allocation_amounts import limit_s
from eslurm.core.state.job_indexes import has_wish, waits_for_start
from eslurm.core.state.view import View
from eslurm.ports.api import Caller
from eslurm.v1 import controller_pb2 as pb

WAIT_MAX_S = 60
LEFT_S = 0.5
"""Time that is left of a call's deadline for its answer."""
BEGUN = "its jobs have begun or ended meanwhile"


class Waiting(Protocol):
    """The wait of a call: see `ControllerService`."""

    async def decide(self, message: Message, caller: Caller) -> BatchAnswer: ...

    async def moved_by(self, deadline: float) -> bool: ...


class Moves:
    """Answers MovePack and ExtendJob."""

    def __init__(self, dispatcher: Dispatcher, inquiries: Inquiries, calls: Waiting) -> None:
        self._dispatcher = dispatcher
        self._inquiries = inquiries
        self._calls = calls

    @property
    def _view(self) -> View:
        return self._dispatcher.view

    async def move_pack(self, request: pb.MovePackRequest, caller: Caller) -> pb.MovePackReply:
        """Earlier starts of a pack's jobs that have not begun, before and after."""
        message = requests.move_pack(request, caller.principal)
        if request.dry_run:
            wanted, grant = await self._inquiries.of_plan(
                lambda state, schedule, now_us: would_move(state, schedule, message, now_us)
            )
            after = dict(grant.starts)
            starts = [(one, self._index(one), before_us, after.get(one)) for one, before_us in wanted.starts]
            return self._moved(wanted.pack_id, starts, grant.text)
        taken = await self._calls.decide(message, caller)
        assert isinstance(taken, MoveTaken)
        is_open = not await self._settled(caller, lambda: not self._is_moving(taken))
        text = "" if is_open else self._said(taken)
        now = [(one, at, before_us, self._start_us(one)) for one, at, before_us in taken.starts]
        reply = self._moved(taken.pack_id, now, text)
        reply.open = is_open
        return reply

    async def extend_job(self, request: pb.ExtendJobRequest, caller: Caller) -> pb.ExtendJobReply:
        """A longer time limit of a running job, before and after."""
        message = requests.extend_job(request, caller.principal)
        if request.dry_run:
            wanted, grant = await self._inquiries.of_plan(
                lambda state, schedule, now_us: would_extend(state, schedule, message, now_us)
            )
            after_s = grant.time_limit_s or wanted.has_s
            return pb.ExtendJobReply(
                job_id=wanted.job_id,
                before_s=wanted.has_s,
                after_s=after_s,
                until_before_us=wanted.since_us + wanted.has_s * SECOND_US,
                until_after_us=wanted.since_us + after_s * SECOND_US,
                text=grant.text,
                revision=self._view.revision,
            )
        taken = await self._calls.decide(message, caller)
        assert isinstance(taken, ExtensionTaken)
        is_open = not await self._settled(caller, lambda: not self._is_extending(taken))
        reply = pb.ExtendJobReply(
            open=is_open,
            job_id=taken.job_id,
            before_s=taken.before_s,
            after_s=taken.before_s,
            until_before_us=taken.until_us,
            until_after_us=taken.until_us,
            text="" if is_open else "it has ended meanwhile",
            revision=self._view.revision,
        )
        job = self._view.find_job(taken.job_id)
        attempt = job.attempt if job is not None else None
        if job is None or attempt is None or attempt.number != taken.attempt:
            return reply
        reply.after_s, reply.until_after_us = limit_s(job, attempt), attempt.until_us
        wish = attempt.more.wish if attempt.more is not None else None
        if wish is not None and wish.serial == taken.serial:
            reply.text = wish.said
        return reply

    async def _settled(self, caller: Caller, is_settled: Callable[[], bool]) -> bool:
        """Wait until the planner has answered; false when it has not in time."""
        loop = asyncio.get_running_loop()
        wait_s = float(WAIT_MAX_S)
        if caller.deadline_us is not None:
            wait_s = min(wait_s, max(0.0, caller.deadline_us / SECOND_US - LEFT_S))
        deadline = loop.time() + wait_s
        while not is_settled():
            if not await self._calls.moved_by(deadline):
                return is_settled()
        return True

    # ---- packs ----

    def _wish(self, job_id: int, serial: int) -> tuple[Job, MoveWish] | None:
        job = self._view.find_job(job_id)
        wish = job.pack.wish if job is not None and job.pack is not None else None
        return (job, wish) if job is not None and wish is not None and wish.serial == serial else None

    def _is_moving(self, taken: MoveTaken) -> bool:
        found = [self._wish(job_id, taken.serial) for job_id, _, _ in taken.starts]
        return any(one is not None and not one[1].said and waits_for_start(one[0]) for one in found)

    def _is_extending(self, taken: ExtensionTaken) -> bool:
        job = self._view.find_job(taken.job_id)
        if job is None or job.attempt is None or job.attempt.number != taken.attempt or not has_wish(job):
            return False
        more = job.attempt.more
        return more is not None and more.wish is not None and more.wish.serial == taken.serial

    def _said(self, taken: MoveTaken) -> str:
        found = [self._wish(job_id, taken.serial) for job_id, _, _ in taken.starts]
        return next((one[1].said for one in found if one is not None and one[1].said), BEGUN)

    def _start_us(self, job_id: int) -> int | None:
        job = self._view.find_job(job_id)
        return job.pack.start_us if job is not None and job.pack is not None else None

    def _index(self, job_id: int) -> int:
        job = self._view.find_job(job_id)
        return job.pack.index if job is not None and job.pack is not None else 0

    def _moved(
        self, pack_id: int, starts: list[tuple[int, int, int, int | None]], text: str
    ) -> pb.MovePackReply:
        reply = pb.MovePackReply(pack_id=pack_id, text=text, revision=self._view.revision)
        for job_id, index, before_us, found_us in starts:
            after_us = found_us or before_us
            reply.starts.add(job_id=job_id, pack_index=index, before_us=before_us, after_us=after_us)
            reply.earlier_us = max(reply.earlier_us, before_us - after_us)
        return reply
