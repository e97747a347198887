"""Calls of the commands of allocations: they wait for their nodes, and say that they are there (ADR 44).

Invariant: a call keeps a job only when its own user makes it.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from esctld.lead.dispatcher import Dispatcher
from eslurm.compat.environment import allocation_environment
from eslurm.core.control.effects import job_launch
from eslurm.core.control.jobs.access import get_seen
from eslurm.core.control.jobs.allocations import check_kept
from eslurm.core.dispatch.attendance import Attendance
from eslurm.core.model.job import Job
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.ports.api import Caller
from eslurm.v1 import controller_pb2 as pb

WAIT_MAX_S: Final = 60


class Waits(Protocol):
    """The part of the service that wakes those who wait."""

    async def moved_by(self, deadline: float) -> bool:
        """Wait until something was committed."""
        ...


class Allocations:
    """`attendance` is that of this leader."""

    def __init__(self, dispatcher: Dispatcher, attendance: Attendance, waits: Waits) -> None:
        self._dispatcher = dispatcher
        self._attendance = attendance
        self._waits = waits

    async def attend_job(self, request: pb.AttendJobRequest, caller: Caller) -> pb.AttendJobReply:
        """Answer when the job is in another state than the caller knows, or after `timeout_s`."""
        deadline = asyncio.get_running_loop().time() + min(request.timeout_s, WAIT_MAX_S)
        while True:
            # By its end a job is forgotten only after a while.
            job = get_seen(self._dispatcher.view, caller.principal, request.job_id)
            check_kept(caller.principal, job)
            if job.spec.attended and job.state not in FINAL:
                self._attendance.hear(job.job_id)
            if job.state.value != request.state or not await self._waits.moved_by(deadline):
                return self._reply(job)

    def _reply(self, job: Job) -> pb.AttendJobReply:
        reply = pb.AttendJobReply(state=job.state.value, text=job.exit_text)
        attempt = job.attempt
        if job.state is JobState.RUNNING and attempt is not None:
            view = self._dispatcher.view
            launch = job_launch(view, job, attempt)
            numbers = dict.fromkeys([span.node for span in attempt.spans])
            variables = allocation_environment(launch, view.node_names(numbers), view.config.cluster)
            reply.node_list = launch.node_names
            reply.environment.extend([f"{name}={value}" for name, value in variables.items()])
        return reply
