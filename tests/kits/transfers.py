"""Cells with real cores whose leaders transfer jobs over one image of the shared store and a bad network.

A leader that ends leaves its log; calls between cells are lost, late and doubled, as changes of the store are.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec.structs import replace

from eslurm.core.control.reactor import Batch
from eslurm.core.federation.actions import (
    Action,
    AskBid,
    CancelThere,
    CellAnswer,
    CellCall,
    DeliverJob,
)
from eslurm.core.federation.blocks import OwnIds
from eslurm.core.federation.participant import Inputs
from eslurm.core.model.job import Job, JobSpec
from eslurm.core.model.job_states import FINAL, JobState
from eslurm.core.model.messages import (
    Arrival,
    CancelJobs,
    EpochStarted,
    JobRef,
    Message,
    RefusalCode,
    Refused,
    SubmitJobs,
    Submitted,
)
from eslurm.core.model.transfer import FOREIGN, TransferStage
from eslurm.core.state.view import View
from eslurm.lab.kv.image import KvImage
from eslurm.ports.kv import KvUnavailable
from tests.kits.core import ALICE, World
from tests.kits.federation import Call, Controller, Network

LATE_SHARE = 0.95
WAITS_S = (0, 0, 3, 60, 600, None)


class _Core(World):
    """A core whose batches the leader of the moment sees."""

    def __init__(self) -> None:
        self.seen: View | None = None
        super().__init__(nodes=1, cores=2, restarts=False)

    def batch(self, *messages: Message) -> Batch:
        batch = super().batch(*messages)
        if self.seen is not None:
            self.seen.advance(batch.touched, self.state.revision, batch.now_us)
        return batch


class Cluster:
    """The core of a cell. Only its latest leader sees and writes its log."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.world = _Core()
        self.leader: Leader | None = None
        self.epoch = 1

    def send(self, message: Message) -> object:
        """Commit a message."""
        return self.world.send(message)

    def lead(self) -> Leader:
        """Another leader takes over, with the log alone."""
        self.epoch += 1
        self.leader = Leader(self, self.epoch)
        self.world.seen = self.leader.seen
        self.send(EpochStarted(self.epoch))
        for number in sorted(self.world.state.nodes):
            self.world.register(number, *self.world.inventory(number), session=f"s{self.epoch}")
        return self.leader

    @property
    def jobs(self) -> dict[int, Job]:
        """As they stand in the log."""
        return self.world.state.jobs

    def run(self, draws: random.Random, share: float = 1.0) -> None:
        """Start what waits, and end some of what runs."""
        self.world.start()
        for job_id, job in list(self.jobs.items()):
            if job.state is JobState.RUNNING and draws.random() < share:
                self.world.end(job_id, draws.choice((0, 0, 3)))


class Leader(Controller):
    """A leader of a cell with a core."""

    def __init__(self, cluster: Cluster, epoch: int) -> None:
        self.cluster = cluster
        self.seen = View(cluster.world.state)
        inputs = Inputs(lambda: self.seen, lambda: None, lambda: cluster.world.now_us, self._wish)
        super().__init__(cluster.name, epoch, inputs=inputs)

    def _wish(self, message: Message) -> None:
        self.wished.append(message)  # type: ignore[arg-type]

    def commit(self) -> None:
        """Commit all that it has wished, unless another one leads."""
        while self.wished:
            message = self.wished.pop(0)
            if self.cluster.leader is self:
                self.cluster.send(message)

    def _own_ids(self) -> OwnIds:
        return OwnIds(self.seen.next_id, self.seen.id_blocks)


def arriving(spec: JobSpec) -> JobSpec:
    """The request as another cell gets it."""
    return replace(spec, cells=(), dependencies=(), held=False)


class CallNetwork(Network):
    """Carries calls between cells, too. `away_until_us`: the store does not answer before."""

    def __init__(self, image: KvImage, draws: random.Random, clusters: dict[str, Cluster]) -> None:
        super().__init__(image, draws)
        self.clusters = clusters
        self.away_until_us = 0
        self.delivered = 0

    def _carry(self, call: Call) -> None:
        # What its caller has given up may come much later: after an offer is withdrawn, or by a leader that has ended.
        if self.faults and call.is_told and self.draws.random() < LATE_SHARE:
            return
        super()._carry(call)

    def _make(self, controller: Controller, action: Action) -> Callable[[int], None]:
        if not isinstance(action, CellCall):
            if self.now_us < self.away_until_us:
                raise KvUnavailable("away")
            return super()._make(controller, action)
        assert isinstance(controller, Leader)
        answer = self._call(controller, action)
        if self.faults and isinstance(action, DeliverJob) and self.draws.random() < 0.2:
            self._call(controller, action)
        return lambda now_us: controller.called(action, answer, now_us)

    def _call(self, controller: Leader, action: CellCall) -> CellAnswer:
        there = self.clusters[action.cell]
        leader = there.leader
        if leader is None or leader not in self.controllers:
            return CellAnswer(is_done=False, text="no leader")
        job = controller.seen.jobs.get(action.job_id)
        if job is None:
            return CellAnswer(is_done=False, is_refused=True, text="gone")
        if isinstance(action, AskBid):
            wait_s = self.draws.choice(WAITS_S)
            if self.draws.random() < 0.1:
                return CellAnswer(is_done=False, is_refused=True, text="unknown account")
            return CellAnswer(is_done=True, wait_us=None if wait_s is None else wait_s * 1_000_000)
        if isinstance(action, CancelThere):
            there.send(CancelJobs(ALICE, (JobRef(action.job_id),)))
            return CellAnswer(is_done=True)
        if self.faults and self.draws.random() < 0.1:
            return CellAnswer(is_done=False, is_refused=True, text="too many jobs")
        self.delivered += 1
        arrival = Arrival(controller.name, action.job_id, action.serial)
        answer = there.send(SubmitJobs((arriving(job.spec),), arrival=arrival))
        if isinstance(answer, Submitted):
            return CellAnswer(is_done=True)
        assert isinstance(answer, Refused), answer
        return CellAnswer(
            is_done=False, is_refused=answer.code is not RefusalCode.EXHAUSTED, text=answer.text
        )


def may_start(job: Job) -> bool:
    """Check whether the cell of this record may start the job, by the protocol's words alone."""
    if job.state in FINAL:
        return False
    return job.transfer is None or job.transfer.stage in (TransferStage.OWNED, TransferStage.TOLD)


def is_foreign(job: Job) -> bool:
    """Check whether it is another cell's job."""
    return job.transfer is not None and job.transfer.stage in FOREIGN
