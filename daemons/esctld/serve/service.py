"""The API's service: each call becomes a message for the dispatcher or a query of the committed view.

Nothing here changes state. A handler may be cancelled at any `await` (a client's deadline): its message in the inbox is
decided and committed all the same, and a retry with the same request id gets that answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from esctld.lead.dispatcher import Dispatcher
from esctld.lead.leadership import Leadership
from esctld.lead.planner import Planner
from esctld.lead.trees import TreeQueries
from esctld.serve.accounting import account
from esctld.serve.allocations import Allocations
from esctld.serve.arrivals import Cells, arrival_of, check_cell, check_cells, guest_of_call
from esctld.serve.crontabs import Crontabs
from esctld.serve.moves import Moves
from esctld.serve.request_ids import bound_id, is_own, kind_of
from esctld.serve.resizes import Resizes
from esctld.serve.scripts import Scripts
from esctld.serve.step_endpoints import StepEndpoints
from esctld.serve.step_ends import StepEnds
from esctld.serve.steps import live_steps
from esctld.serve.views import Queries
from esctld.serve.why import Inquiries
from eslurm import __version__
from eslurm.api import requests
from eslurm.api.infos import given_back
from eslurm.api.limits import charging
from eslurm.api.shapes import Submission
from eslurm.api.step_infos import created, step_nodes, step_reply
from eslurm.core.control.commit_pipeline import InboxFull, NotNow, Unsettled
from eslurm.core.control.jobs.access import check_managed
from eslurm.core.control.jobs.dependency import forgotten_targets, settled_by
from eslurm.core.control.privacy import CONFIGURATION, JOBS, Visibility
from eslurm.core.control.reactor import BatchAnswer
from eslurm.core.control.step_attachments import find_attachable
from eslurm.core.control.steps import STEPS_MAX, joint_state, step_parts
from eslurm.core.dispatch.attendance import Attendance
from eslurm.core.model.config import ClusterConfig
from eslurm.core.model.job import Dependency, JobSpec, Principal
from eslurm.core.model.job_states import FINAL
from eslurm.core.model.messages import (
    Changed,
    Message,
    PartGivenBack,
    RefusalCode,
    Refused,
    StepCreated,
    StoredAnswer,
    SubmitJobs,
    Submitted,
    TopJob,
)
from eslurm.core.model.node_states import NodeState
from eslurm.core.model.request_limits import REFERENCES_MAX
from eslurm.core.model.step import StepState
from eslurm.core.state.rows import decode_job
from eslurm.links.blobs import BlobCache
from eslurm.ports.api import ApiError, Caller, Status
from eslurm.ports.store import BlobRow, Store, StoreFailed, StoreUnavailable
from eslurm.security.step_stream import attach_secret
from eslurm.telemetry.clocks import wall_us
from eslurm.transport.framing import REQUEST_ID_BYTES
from eslurm.v1 import controller_pb2 as pb

WAIT_MAX_S = 60
READ_SLICE_S = 0.004
"""Jobs of one call are read for so long before others have their turn."""
FULL_RETRY_S = 0.25
WAITING_FEW = 16
LOOK_S = 0.0005
LOOK_AT_END_S = 0.00002
"""Interval of looks by many waiters: every commit wakes all of them, and together they look at most 2,000 times a second."""
STORE_AWAY = "the job store does not answer at present: try again in a moment"
STORE_AWAY_RETRY_S = 0.5
NOT_COMMITTED = "what the answer rests on cannot be committed at present: try again in a moment"

_answers = msgspec.msgpack.Decoder(StoredAnswer)


class ControllerService:
    """Implements `ports.api.ApiService`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        planner: Planner,
        queries: Queries,
        trees: TreeQueries,
        store: Store,
        blobs: BlobCache,
        leadership: Leadership,
        owner: str,
        step_networks: Sequence[str] = (),
        attendance: Attendance | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._inquiries = Inquiries(dispatcher, planner)
        self._queries = queries
        self._trees = trees
        self._store = store
        self._blobs = blobs
        self._leadership = leadership
        self._owner = owner
        self._endpoints = StepEndpoints(dispatcher.view, step_networks)
        self._started_us = wall_us()
        self._trace_key = secrets.token_bytes(REQUEST_ID_BYTES)
        self._traces = itertools.count()
        self._waiting = 0
        self._cells: Cells | None = None
        moves = Moves(dispatcher, self._inquiries, self)
        crontabs = Crontabs(dispatcher, self)
        attendance = attendance if attendance is not None else Attendance()
        self._handlers: dict[str, Callable[[Any, Caller], Awaitable[Any]]] = {
            "Ping": self._ping,
            "Submit": self._submit,
            "Cancel": self._changing(requests.cancel),
            "Hold": self._changing(requests.hold),
            "Requeue": self._changing(requests.requeue),
            "UpdateJob": self._update_job,
            "UpdateNodes": self._changing(requests.update_nodes),
            "UpdatePartitions": self._changing(requests.update_partitions),
            "UpdateSatellites": self._changing(self._read_update_satellites),
            "FinishStep": self._changing(requests.finish_step),
            "AttendJob": Allocations(dispatcher, attendance, self).attend_job,
            "ReleaseJob": self._changing(requests.release_job),
            "Suspend": self._changing(requests.suspend),
            "SetForecasts": self._changing(requests.set_forecasts),
            "Jobs": self._jobs,
            "WaitJobs": self._wait_jobs,
            "Nodes": self._nodes,
            "Satellites": self._satellites,
            "Broadcasts": self._broadcasts,
            "TreeReport": self._tree_report,
            "Accounting": self._accounting,
            "Why": self._inquiries.why,
            "Plan": self._inquiries.plan,
            "Config": self._config,
            "CreateStep": self._create_step,
            "FinishPart": self._finish_part,
            "ResizeJob": Resizes(dispatcher, planner, self).resize_job,
            "WaitStep": self._wait_step,
            "AttachStep": self._attach_step,
            "Controllers": self._controllers,
            "Takeover": self._takeover,
            "MovePack": moves.move_pack,
            "ExtendJob": moves.extend_job,
            "TellGuest": self._tell_guest,
            "Crontab": crontabs.show,
            "SetCrontab": crontabs.set,
            "Steps": self._steps,
            "TopJob": self._top_job,
            "JobScript": Scripts(dispatcher, store, owner, self._sight).call,
        }

    def attach(self, cells: Cells | None) -> None:
        """Set the federation that the cluster is a member of."""
        self._cells = cells
        if cells is not None:
            self._endpoints.attach(cells.host_of)
            self._inquiries.attach(cells.bids_of)

    def offer(self, name: str, handler: Callable[[Any, Caller], Awaitable[Any]]) -> None:
        """Register a call that a part answers itself."""
        self._handlers[name] = handler

    def offer_change(self, name: str, read: Callable[[Any, Principal], Awaitable[Message]]) -> None:
        """Register a call that changes something; `read` makes its message."""

        async def handle(request: Any, caller: Caller) -> pb.ChangeReply:
            return await self.change(await read(request, caller.principal), caller)

        self._handlers[name] = handle

    async def call(self, method: Any, request: Any, caller: Caller) -> Any:
        """Answer one call of the method table. Raises `Refused` or `ApiError`."""
        handler = self._handlers.get(method.name)
        if handler is None:
            raise ApiError(Status.UNIMPLEMENTED, f"{method.name} is not known to this controller")
        try:
            return await handler(request, caller)
        except StoreUnavailable:
            raise ApiError(Status.UNAVAILABLE, STORE_AWAY) from None
        except NotNow:
            raise ApiError(Status.UNAVAILABLE, NOT_COMMITTED) from None

    # ---- changing ----

    async def _decide(self, message: Message, caller: Caller, blobs: tuple[BlobRow, ...] = ()) -> BatchAnswer:
        """The durable answer to a message; a retry gets the answer of its first try, and the other way round."""
        request_id = bound_id(caller, kind_of(message))
        if self._dispatcher.must_look_up(request_id, retry=caller.retry):
            try:
                first = await self._find_stored(request_id, message, caller)
            except StoreFailed:
                if caller.retry:
                    raise
                # Damaged: the commit ends the controller, and says so.
                first = None
            if first is not None:
                return first
        try:
            answer = await asyncio.shield(
                self._dispatcher.request(message, request_id, blobs, charging.get())
            )
        except InboxFull:
            raise ApiError(
                Status.RESOURCE_EXHAUSTED,
                "too many requests are waiting: try again in a moment",
                FULL_RETRY_S,
            ) from None
        except NotNow:
            raise ApiError(Status.UNAVAILABLE, STORE_AWAY, STORE_AWAY_RETRY_S) from None
        except Unsettled:
            raise ApiError(Status.UNAVAILABLE, STORE_AWAY) from None
        if isinstance(answer, Refused):
            raise answer
        return answer

    def heard_guest(self, job_id: int) -> None:
        """The home cell of a guest has named it."""
        if self._cells is not None:
            self._cells.heard_guest(job_id)

    async def decide(self, message: Message, caller: Caller, blobs: tuple[BlobRow, ...] = ()) -> BatchAnswer:
        """The durable answer to a message, for parts that answer calls of their own (`offer`)."""
        return await self._decide(message, caller, blobs)

    async def _find_stored(self, request_id: bytes, message: Message, caller: Caller) -> BatchAnswer | None:
        stored = await self._store.lookup_request(request_id)
        if stored is not None:
            first: StoredAnswer = _answers.decode(stored)
            return first
        unbound = await self._store.lookup_request(caller.request_id) if caller.retry else None
        if unbound is None:
            return None
        with contextlib.suppress(msgspec.DecodeError):
            first = _answers.decode(unbound)
            if is_own(first, message, caller, self._dispatcher.state.find_job):
                return first
        return None

    async def _submit(self, request: Submission, caller: Caller) -> pb.SubmitReply:
        if not len(request.jobs):
            raise Refused(RefusalCode.INVALID, f"no jobs in this call: give 1 to {REFERENCES_MAX}")
        packs = requests.pack_drafts(request.packs, len(request.jobs)) if request.packs else ()
        arrival = arrival_of(request.arrival, caller, self._cells) if request.arrival is not None else None
        guest_of = guest_of_call(request.guest_of, caller) if request.guest_of is not None else None
        if arrival is not None and guest_of is not None:
            raise Refused(RefusalCode.INVALID, "guest_of: a job that arrives holds nodes for no other")
        trace = self.new_trace()
        cell = self._cells.cell if self._cells is not None else ""
        reader = requests.SpecReader(caller.principal, self._dispatcher.state.config, trace, cell)
        specs: list[JobSpec] = []
        began_s = time.perf_counter()
        for job in request.jobs:
            spec = reader.read(job)
            if spec.cells and self._cells is not None:
                check_cells(spec.cells, self._cells.view())
            if spec.dependencies:
                settled = await self._settled(spec.dependencies, spec.user)
                spec = msgspec.structs.replace(spec, dependencies=settled)
            specs.append(spec)
            if time.perf_counter() - began_s > READ_SLICE_S:
                await asyncio.sleep(0)
                began_s = time.perf_counter()
        if request.test_only:
            return await self._inquiries.test(specs, packs)
        submission = SubmitJobs(tuple(specs), packs, arrival, guest_of)
        answer = await self._decide(submission, caller, reader.blobs.rows)
        assert isinstance(answer, Submitted)
        # They will be launched soon: their nodes' satellites need not wait for the store.
        for blob in reader.blobs.rows:
            self._blobs.put(blob.hash, blob.data)
        return pb.SubmitReply(
            job_ids=answer.job_ids,
            revision=self._dispatcher.view.revision,
            warnings=_warnings(specs, self._dispatcher.state.config),
        )

    def new_trace(self) -> bytes:
        """A trace id, not the request id: it is public. Random bytes of the kernel cost 20 times as much."""
        return blake2b(
            next(self._traces).to_bytes(8), key=self._trace_key, digest_size=REQUEST_ID_BYTES
        ).digest()

    async def _settled(self, given: tuple[Dependency, ...], user: Principal) -> tuple[Dependency, ...]:
        """Settle dependencies on jobs that have left memory, from the store."""
        old = forgotten_targets(given, self._dispatcher.view.jobs)
        if not old:
            return given
        sight = Visibility(self._dispatcher.view, user)
        found = [decode_job(row.blob) for row in await self._store.find_jobs(self._owner, old)]
        return settled_by(given, {job.job_id: job for job in found if sight.job(job)})

    async def _update_job(self, request: pb.UpdateJobRequest, caller: Caller) -> pb.ChangeReply:
        message = requests.update_job(request, caller.principal, self._dispatcher.state.config)
        if message.dependencies:
            settled = await self._settled(message.dependencies, caller.principal)
            message = msgspec.structs.replace(message, dependencies=settled)
        return await self.change(message, caller)

    def _changing(self, read: Callable[[Any, Any], Message]) -> Callable[[Any, Caller], Awaitable[Any]]:
        async def handle(request: Any, caller: Caller) -> pb.ChangeReply:
            return await self.change(read(request, caller.principal), caller)

        return handle

    async def change(self, message: Message, caller: Caller) -> pb.ChangeReply:
        """The reply of a message, once it is durable."""
        answer = await self._decide(message, caller)
        assert isinstance(answer, Changed)
        return pb.ChangeReply(
            count=answer.count,
            problems=[
                pb.Problem(what=problem.what, code=problem.code.value, text=problem.text)
                for problem in answer.problems
            ],
            revision=self._dispatcher.view.revision,
            notes=answer.notes,
        )

    async def check_endpoint(self, request: pb.CreateStepRequest, job_id: int, caller: Caller) -> None:
        """Check that a step on nodes of another cell sends its output to a host of this job here. Raises `Refused`."""
        message = requests.create_step(request, caller.principal, requests.BlobCollector())
        await self._endpoints.check(msgspec.structs.replace(message, job_id=job_id, tasks=0, nodes=0), caller)

    async def _create_step(self, request: pb.CreateStepRequest, caller: Caller) -> pb.CreateStepReply:
        blobs = requests.BlobCollector()
        home = caller.cell or (self._cells.cell if self._cells is not None else "")
        message = requests.create_step(request, caller.principal, blobs, home)
        await self._endpoints.check(message, caller)
        answer = await self._decide(message, caller, blobs.rows)
        assert isinstance(answer, StepCreated)
        return step_reply(answer)

    async def _finish_part(self, request: pb.FinishPartRequest, caller: Caller) -> pb.FinishPartReply:
        answer = await self._decide(requests.finish_part(request, caller.principal), caller)
        assert isinstance(answer, PartGivenBack)
        return given_back(answer)

    async def _tell_guest(self, request: pb.TellGuestRequest, caller: Caller) -> pb.TellGuestReply:
        check_cell(caller, "TellGuest")
        # A plain cluster loads none of it.
        from esctld.serve.guests import GuestDoor

        return await GuestDoor(self, self._dispatcher.view).tell(request, caller)

    async def _takeover(self, request: pb.TakeoverRequest, caller: Caller) -> pb.TakeoverReply | bytes:
        """A retry gets its first answer, from the new leader, too; and a first try that arrives behind its own retry."""
        request_id = bound_id(caller, "Takeover")
        if self._dispatcher.must_look_up(request_id, retry=caller.retry):
            stored = await self._store.lookup_request(request_id)
            if stored is not None:
                return stored
        return self._leadership.hand_over(request.to, request_id)

    # ---- reading ----

    async def _ping(self, request: pb.PingRequest, caller: Caller) -> pb.PingReply:
        view = self._dispatcher.view
        nodes = [node for node in view.nodes.values() if node.number not in view.login]
        return pb.PingReply(
            cluster=view.config.cluster,
            owner=self._owner,
            epoch=view.epoch,
            revision=view.revision,
            build=__version__,
            now_us=wall_us(),
            nodes=len(nodes),
            nodes_up=sum(node.state is NodeState.UP for node in nodes),
            jobs_pending=view.pending_count,
            jobs_running=view.active_count,
            started_us=self._started_us,
        )

    async def _jobs(self, request: pb.JobsRequest, caller: Caller) -> bytes:
        return await self._queries.jobs(request, self._sight(caller))

    async def _top_job(self, request: pb.TopJobRequest, caller: Caller) -> pb.ChangeReply:
        ref = requests.job_ref(request.job)
        view = self._dispatcher.view
        job = view.find_named(ref.job_id)
        uid = job.spec.user.uid if job is not None else caller.principal.uid
        ranks = [
            (one.job_id, rank)
            for one in list(view.jobs.values())
            if one.spec.user.uid == uid and (rank := self._queries.rank(one)) is not None
        ]
        return await self.change(TopJob(caller.principal, ref, tuple(ranks)), caller)

    async def _steps(self, request: pb.StepsRequest, caller: Caller) -> pb.StepsReply:
        return await live_steps(self._dispatcher.view, request, self._sight(caller))

    def _sight(self, caller: Caller) -> Visibility:
        return Visibility(self._dispatcher.view, caller.principal)

    async def _wait_jobs(self, request: pb.WaitJobsRequest, caller: Caller) -> bytes:
        """Answer when every named job has ended, or after `timeout_s`, with their states."""
        deadline = asyncio.get_running_loop().time() + min(request.timeout_s or WAIT_MAX_S, WAIT_MAX_S)
        sight = self._sight(caller)
        while not self._all_ended(request, sight) and asyncio.get_running_loop().time() < deadline:
            if not await self.moved_by(deadline):
                break
        return await self._queries.jobs(pb.JobsRequest(jobs=request.jobs, finished_too=True), sight)

    async def moved_by(self, deadline: float) -> bool:
        """Wait until something was committed; false when nothing was before the deadline (of the loop's clock)."""
        self._waiting += 1
        try:
            async with asyncio.timeout_at(deadline):
                await self._dispatcher.moved()
                if self._waiting > WAITING_FEW:
                    await asyncio.sleep(self._waiting * LOOK_S)
        except TimeoutError:
            return False
        except NotNow:
            raise ApiError(Status.UNAVAILABLE, "the controller stops: try again in a moment") from None
        finally:
            self._waiting -= 1
        return True

    def _all_ended(self, request: pb.WaitJobsRequest, sight: Visibility) -> bool:
        view = self._dispatcher.view
        for ref in request.jobs:
            job = view.find_named(ref.job_id)
            if job is not None and sight.job(job) and (job.state not in FINAL or job.tasks_running):
                return False
        return True

    async def _nodes(self, request: pb.NodesRequest, caller: Caller) -> pb.NodesReply:
        return self._queries.nodes(request, self._sight(caller))

    async def _satellites(self, request: pb.SatellitesRequest, caller: Caller) -> pb.SatellitesReply:
        return self._queries.satellites()

    async def _broadcasts(self, request: pb.BroadcastsRequest, caller: Caller) -> pb.BroadcastsReply:
        self._check_open(caller, JOBS, "broadcasts show where jobs run")
        return self._trees.broadcasts(request)

    async def _tree_report(self, request: pb.TreeReportRequest, caller: Caller) -> pb.TreeReportReply:
        return self._trees.report()

    def _check_open(self, caller: Caller, kind: str, why: str) -> None:
        """Raise `Refused` when the kind is private and the caller is no operator."""
        if not self._sight(caller).is_open(kind):
            raise Refused(
                RefusalCode.DENIED, f"{kind}: private here (privacy.private), and {why}: ask an operator"
            )

    def _read_update_satellites(self, request: pb.UpdateSatellitesRequest, by: Principal) -> Message:
        known = tuple(one.name for one in self._queries.satellites().satellites)
        return requests.update_satellites(request, by, known)

    async def _config(self, request: pb.ConfigRequest, caller: Caller) -> pb.ConfigReply:
        self._check_open(caller, CONFIGURATION, "it shows how the cluster is set up")
        view = self._dispatcher.view
        shown = json.dumps(msgspec.to_builtins(_named(view.config)))
        return pb.ConfigReply(revision=view.config_revision, json=shown)

    async def _controllers(self, request: pb.ControllersRequest, caller: Caller) -> pb.ControllersReply:
        return pb.ControllersReply(controllers=self._leadership.controllers(), now_us=wall_us())

    async def _accounting(self, request: pb.AccountingRequest, caller: Caller) -> pb.AccountingReply:
        alias = self._dispatcher.view.alias
        return await account(self._store, self._owner, request, self._sight(caller), alias)

    async def _wait_step_ends(
        self, request: pb.WaitStepRequest, caller: Caller, deadline: float
    ) -> pb.StepReply:
        """Answer when all of these steps are over, or at the deadline with those that are."""
        view = self._dispatcher.view
        job = view.find_named(request.job_id)
        if job is None or not self._sight(caller).job(job):
            raise ApiError(Status.NOT_FOUND, f"job {request.job_id} does not exist (any more)")
        check_managed(view, caller.principal, job, str(job.job_id))
        if len(request.steps) > STEPS_MAX:
            text = f"{len(request.steps)} steps are more than a job may have: name none to wait for all"
            raise Refused(RefusalCode.INVALID, text)
        ends = StepEnds(view, job, request.steps)
        while True:
            reply = ends.look()
            if not reply.left or not await self.moved_by(deadline):
                return reply
            await asyncio.sleep(reply.left * LOOK_AT_END_S)

    async def _wait_step(self, request: pb.WaitStepRequest, caller: Caller) -> pb.StepReply:
        deadline = asyncio.get_running_loop().time() + min(request.timeout_s or WAIT_MAX_S, WAIT_MAX_S)
        if request.over:
            return await self._wait_step_ends(request, caller, deadline)
        while True:
            view = self._dispatcher.view
            step, job = view.steps.get((request.job_id, request.step)), view.jobs.get(request.job_id)
            is_seen = job is not None and self._sight(caller).job(job)
            if job is not None and is_seen:
                check_managed(view, caller.principal, job, str(job.job_id))
            if step is None or not is_seen:
                raise ApiError(
                    Status.NOT_FOUND, f"step {request.job_id}.{request.step} does not exist (any more)"
                )
            parts = step_parts(view.steps, step)
            state = joint_state(parts)
            if request.turn and state not in (StepState.WAITING, StepState.FAILED, StepState.CANCELLED):
                return pb.StepReply(state=state.value, step=step_reply(created(view, parts)))
            if state not in (StepState.LAUNCHING, StepState.WAITING):
                failed = [
                    pb.Problem(what=view.nodes[node].name, code="failed", text=text)
                    for part in parts
                    for node, text in part.failed
                ]
                return pb.StepReply(state=state.value, failed=failed)
            if not await self.moved_by(deadline):
                return pb.StepReply(state=state.value)

    async def _attach_step(self, request: pb.AttachStepRequest, caller: Caller) -> pb.AttachStepReply:
        found = find_attachable(self._dispatcher.view, caller.principal, request.job_id, request.step)
        return pb.AttachStepReply(
            endpoint=found.endpoint, secret=attach_secret(found.cookie), layout=step_nodes(found.layout)
        )


def _named(struct: Any) -> Any:
    """A struct of the core as plain names and values (they are stored as arrays)."""
    if isinstance(struct, msgspec.Struct):
        return {name: _named(getattr(struct, name)) for name in struct.__struct_fields__}
    if isinstance(struct, tuple):
        return [_named(one) for one in struct]
    return struct


def _warnings(specs: Sequence[JobSpec], config: ClusterConfig) -> list[str]:
    """Lines about what these jobs ask for and this cluster does not do, though they may run without it."""
    if config.sends_mail or not any(spec.mail_type for spec in specs):
        return []
    return ["this cluster sends no mail, --mail-type has no effect"]
