"""Cooperation by the controller's own core: applications report to it, and it lends their cores (R-01..R-06).

Every job lends and borrows. Nodes confirm an exclusion at once, as they answer all else in a replay. The levels are the
core's: off, report, full. Invariant: no application asks a core back that it has left.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from eslurm.core.control.effects import Effect
from eslurm.core.control.lending import ASK_EVERY_US
from eslurm.core.model.job import JobSpec
from eslurm.core.model.lending import FULL, OFF
from eslurm.core.model.messages import Reports
from eslurm.core.model.protocol import AskCores, CoresReported, Exclude, Report
from eslurm.core.model.units import SECOND_US
from eslurm.core.resources.timeline import INFINITY_US
from eslurm.lab.applications.batch import Asked, Idle
from eslurm.lab.workloads.core_driver import CoreDriver
from eslurm.lab.workloads.machine import Machine
from eslurm.lab.workloads.rules import Rules, plain_config
from eslurm.lab.workloads.workload import Job

BORROW: Final = "requeue"
"""Terms of borrowers: no owner asks a core back here, so no job is ever requeued by them."""


class CoreLending(CoreDriver):
    """The controller's core on one cluster, and jobs that cooperate at this level."""

    def __init__(self, machine: Machine, policy: str, level: str, now_us: int) -> None:
        self._level = level
        self._asked: list[Asked] = []
        self._idle: dict[tuple[int, int], Idle] = {}
        super().__init__(Rules(plain_config(machine)), policy, now_us)

    @property
    def cooperates(self) -> bool:
        """Check whether it hears reports."""
        return self._level != OFF

    def spec_of(self, job: Job) -> JobSpec:
        """The job that is submitted: it lends and borrows."""
        spec = super().spec_of(job)
        return replace(spec, cooperate=self._level, borrow=BORROW) if self.cooperates else spec

    def idle(self, reports: list[Idle]) -> None:
        """Report as the nodes of the job do."""
        self._tell([self._report_of(report, rejects=False) for report in reports])
        for report in reports:
            self._idle[report.job_id, report.position] = report

    def refuse(self, asked: Asked) -> None:
        """Report that the application leaves no more cores."""
        old = self._idle.get((asked.job_id, asked.position), Idle(asked.job_id, asked.position, 0, 0))
        self._tell([self._report_of(old, rejects=True)])

    def take_asked(self) -> list[Asked]:
        """Requests to applications since the last call; those that have ended meanwhile hear of none."""
        asked, self._asked = self._asked, []
        return [one for one in asked if one.job_id in self._ids]

    def wake_us(self, now_us: int) -> int:
        """The next instant at which to plan, or to look for applications to ask."""
        wake_us = super().wake_us(now_us)
        # Only applications that have reported are asked.
        if self._level == FULL and self._state.pending_count and len(self._state.reports):
            wake_us = min(wake_us, max(self._state.reports.asked_us + ASK_EVERY_US, now_us + SECOND_US))
        return wake_us if wake_us > now_us else INFINITY_US

    def _report_of(self, idle: Idle, *, rejects: bool) -> CoresReported:
        job_id = self._ids[idle.job_id]
        attempt = self._state.get_job(job_id).attempt
        assert attempt is not None
        node = self._node(idle.position)
        excluded = sum(one.cores for one in attempt.exclusions if one.node == node)
        incarnation = self._state.nodes[node].incarnation
        remaining_s = idle.remaining_us // SECOND_US
        return CoresReported(
            node, incarnation, job_id, attempt.number, idle.cores, excluded, remaining_s, rejects
        )

    def _tell(self, told: list[CoresReported]) -> None:
        reports = []
        for one in told:
            self._seq += 1
            reports.append(Report("nodes", self._seq, one))
        self._send(Reports(tuple(reports)))

    def _node(self, position: int) -> int:
        return self._state.ledger.topology.numbers[position]

    def _payload(self, effect: Effect) -> bytes | None:
        match effect.body:
            case Exclude():
                return b""
            case AskCores(job_id=job_id, cores=cores):
                position = self._state.ledger.topology.positions[effect.nodes[0]]
                self._asked.append(Asked(self._numbers[job_id], position, cores))
                return None
            case _:
                return super()._payload(effect)
