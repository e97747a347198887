"""Calls that change the nodes of a running job.

The change is committed, then the answer waits a moment for the planner: free nodes join at once, and a growth that waits has
a planned start. Invariant: a client that goes away changes nothing, and a retry gets the answer of the same change.
"""

from __future__ import annotations

import asyncio
from typing import Final

from esctld.lead.dispatcher import Dispatcher
from esctld.lead.planner import Planner
from esctld.serve.moves import LEFT_S, Waiting
from eslurm.api import requests
from eslurm.api.infos import job_info, resized
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.messages import Resized
from eslurm.core.model.units import SECOND_US
from eslurm.ports.api import Caller
from eslurm.v1 import controller_pb2 as pb

PATIENCE_S: Final = 5.0
"""Longest wait for the planner and for nodes that join."""
LOOK_S: Final = 0.1


class Resizes:
    """Answers ResizeJob."""

    def __init__(self, dispatcher: Dispatcher, planner: Planner, calls: Waiting) -> None:
        self._dispatcher = dispatcher
        self._planner = planner
        self._calls = calls

    async def resize_job(self, request: pb.ResizeJobRequest, caller: Caller) -> pb.ResizeJobReply:
        """The nodes of a job before and after, and its growth with the planned start."""
        answer = await self._calls.decide(requests.resize_job(request, caller.principal), caller)
        assert isinstance(answer, Resized)
        reply = resized(answer)
        if answer.growth_id and not request.dry_run:
            await self._settled(answer.growth_id, caller)
            self._add_growth(reply, answer.growth_id)
        reply.revision = self._dispatcher.view.revision
        return reply

    async def _settled(self, growth_id: int, caller: Caller) -> None:
        """Wait until the growth has ended, or has a planned start or a reason."""
        loop = asyncio.get_running_loop()
        wait_s = PATIENCE_S
        if caller.deadline_us is not None:
            wait_s = min(wait_s, max(0.0, caller.deadline_us / SECOND_US - LEFT_S))
        deadline = loop.time() + wait_s
        while not self._is_known(self._dispatcher.view.find_job(growth_id)) and loop.time() < deadline:
            await self._calls.moved_by(min(deadline, loop.time() + LOOK_S))

    def _is_known(self, growth: Job | None) -> bool:
        if growth is None or growth.state in FINAL or growth.grows is None:
            return True
        return not growth.grows.joins and self._planner.why(growth.job_id) is not None

    def _add_growth(self, reply: pb.ResizeJobReply, growth_id: int) -> None:
        view = self._dispatcher.view
        growth = view.find_job(growth_id)
        if growth is None:
            return
        why = None if growth.state in FINAL else self._planner.why(growth_id)
        info = job_info(view, growth, why)
        reply.state = info.state
        reply.planned_start_us = info.planned_start_us
        reply.reason = info.exit_text if growth.state in FINAL else info.reason_text or info.reason
