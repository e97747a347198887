"""The call `Federation`: the cells as this controller knows them, and the servers of the store that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eslurm.ports.api import Caller
from eslurm.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from esctld.lead.federation import Federation
    from eslurm.core.federation.view import CellView
    from eslurm.core.model.federation import NodeClass


class FederationAnswers:
    """Answers the call; `federation` is None in a cluster that is no member of one."""

    def __init__(self, federation: Federation | None) -> None:
        self._federation = federation

    async def call(self, _request: pb.FederationRequest, _caller: Caller) -> pb.FederationReply:
        """All cells, by name."""
        if self._federation is None:
            return pb.FederationReply()
        members = await self._federation.members()
        view = self._federation.view()
        return pb.FederationReply(
            name=view.federation,
            cell=view.cell,
            state=view.standing.value,
            problem=self._federation.problem or view.problem,
            age_ms=_ms(view.age_us),
            cells=[_cell(cell) for cell in view.cells],
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
        )


def _cell(cell: CellView) -> pb.CellInfo:
    info = pb.CellInfo(
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
