"""The calls about the federation: the cells as this controller knows them, the servers of the store, and orders."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from eslurm.core.model.job_ids import JOB_ID_MAX
from eslurm.core.model.messages import ChangeFederation, Message, RefusalCode, Refused
from eslurm.ports.api import Caller
from eslurm.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from esctld.lead.federation import Federation
    from eslurm.core.federation.blocks import IdBlocks
    from eslurm.core.federation.view import CellView
    from eslurm.core.model.federation import NodeClass


ORDERED_S = 5.0
"""Time that the shared store has for an order before the call is answered without it."""


class FederationAnswers:
    """Answers the calls; `federation` is None in a cluster that is no member of one."""

    def __init__(
        self,
        federation: Federation | None,
        change: Callable[[Message, Caller], Awaitable[pb.ChangeReply]],
    ) -> None:
        self._federation = federation
        self._change = change

    async def call(self, _request: pb.FederationRequest, _caller: Caller) -> pb.FederationReply:
        """All cells, by name."""
        if self._federation is None:
            return pb.FederationReply()
        members = await self._federation.members()
        view = self._federation.view()
        leased = self._federation.ids.table.counts()
        return pb.FederationReply(
            name=view.federation,
            cell=view.cell,
            state=view.standing.value,
            problem=self._federation.problem or view.problem,
            age_ms=_ms(view.age_us),
            cells=[_cell(cell, leased.get(cell.name, 0)) for cell in view.cells],
            members=[
                pb.StoreMemberInfo(
                    endpoint=member.endpoint,
                    version=member.version,
                    is_leader=member.is_leader,
                    size_bytes=member.size_bytes,
                    alarms=member.alarms,
                    error=member.error,
                )
                for member in members
            ],
            values_skipped=len(view.unreadable) + view.skipped,
            ids=_ids(self._federation.ids),
        )

    async def change(self, request: pb.ChangeFederationRequest, caller: Caller) -> pb.ChangeFederationReply:
        """Write the order into the log, and wait a little for the store to follow."""
        part = self._federation
        if part is None:
            raise Refused(
                RefusalCode.CONFLICT,
                "this cluster is no member of a federation: give its configuration a section [federation]",
            )
        view = part.view()
        if request.cell not in ("", view.cell):
            raise Refused(
                RefusalCode.INVALID,
                f"cell {request.cell[:64]!r} cannot be changed from {view.cell}: give the order to its own controller",
            )
        if view.standing.value == "left" and request.action in ("drain", "resume"):
            raise Refused(
                RefusalCode.CONFLICT,
                f"{request.action}: cell {view.cell} has left federation {view.federation}: esctl federation rejoin",
            )
        changed = await self._change(
            ChangeFederation(caller.principal, view.federation, request.action), caller
        )
        if request.action == "rejoin":
            part.write_ids_again()
            if view.standing.value != "member":
                part.begin_again()
        is_done = await part.is_ordered(ORDERED_S)
        view = part.view()
        return pb.ChangeFederationReply(
            name=view.federation,
            cell=view.cell,
            state=view.standing.value,
            problem=part.problem or view.problem,
            draining=part.is_draining,
            done=is_done,
            revision=changed.revision,
        )


def _ids(ids: IdBlocks) -> pb.JobIdsInfo:
    return pb.JobIdsInfo(
        left=ids.left,
        reserve=ids.reserve,
        unleased=max(0, JOB_ID_MAX - ids.table.end),
        problem=ids.problem,
        in_hand=[pb.JobIdRange(first=one.first, last=one.end - 1) for one in ids.in_hand],
    )


def _cell(cell: CellView, ids: int) -> pb.CellInfo:
    info = pb.CellInfo(
        ids=ids,
        name=cell.name,
        state=cell.state.value,
        age_ms=_ms(cell.age_us),
        silent_ms=_ms(cell.silent_us),
        nodes=cell.nodes,
        nodes_free=cell.nodes_free,
        cores=cell.cores,
        cores_free=cell.cores_free,
        problem=cell.problem,
    )
    if cell.record is not None:
        info.number = cell.record.number
        info.draining = cell.record.draining
    if cell.alive is not None:
        info.endpoint = cell.alive.endpoint
        info.epoch = cell.alive.epoch
        info.build = cell.alive.build
        info.since_us = cell.alive.since_us
    if cell.summary is not None:
        info.jobs_waiting = cell.summary.waiting_jobs
        info.jobs_running = cell.summary.running_jobs
        info.classes.extend(map(_class, cell.summary.classes))
    return info


def _class(one: NodeClass) -> pb.NodeClassInfo:
    return pb.NodeClassInfo(
        cores=one.cores,
        memory_mib=one.memory_mib,
        resources=[f"{name}={count}" for name, count in one.extra],
        features=one.features,
        partitions=one.partitions,
        nodes=one.total,
        nodes_free=one.free,
    )


def _ms(age_us: int | None) -> int:
    """Milliseconds; -1: never."""
    return -1 if age_us is None else age_us // 1000
